"""`barnabas log repair`: afterwards the dir is sound, and nothing sound is lost without having been asked for."""

import shutil

import pytest

from tests.support.logs import Broker, append, batch, read_all

SETTINGS = {"segment_bytes": 1_500, "index_interval_bytes": 200}


def contents(log_dir):
    return {path.name: path.read_bytes() for path in (log_dir / "orders-0").iterdir()}


def records(log_dir, scratch):
    """The records that a broker finds in a copy of the dir."""
    copy = shutil.copytree(log_dir, scratch / "copy")
    broker = Broker(copy, **SETTINGS)
    log = broker.log("orders")
    log.advance_high_watermark(log.log_end_offset)
    result = read_all(log)
    broker.manager.close()
    shutil.rmtree(copy)
    return result


def test_a_sound_dir_stays_as_it_is(tool, log_dir, kafka_dir):
    for path, name in ((log_dir, "orders-0"), (kafka_dir, "golden-0")):
        before = {file.name: file.read_bytes() for file in (path / name).iterdir()}
        (row,) = tool("repair", path)
        assert (tool.code, row["kind"]) == (0, "sound")
        assert {file.name: file.read_bytes() for file in (path / name).iterdir()} == before


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("damage", ["missing", "nonsense"])
def test_an_index_is_built_anew(tool, kafka_dir, suffix, damage):
    path = sorted((kafka_dir / "golden-0").glob(f"*{suffix}"))[0]
    before = path.read_bytes()
    path.write_bytes(b"\1" * 34) if damage == "nonsense" else path.unlink()
    tool("verify", kafka_dir)
    assert tool.code == 1
    rows = tool("repair", kafka_dir)
    assert [row["kind"] for row in rows[1:]] == ["repaired"]
    assert rows[0]["path"] == str(path)
    tool("verify", "--deep", kafka_dir)
    assert tool.code == 0
    if suffix == ".txnindex":
        assert path.read_bytes() == before


@pytest.mark.parametrize("cut", [1, 30, 70, 100])
def test_a_torn_end_is_cut(tool, log_dir, directory, cut):
    before = records(log_dir, directory)
    path = sorted((log_dir / "orders-0").glob("*.log"))[-1]
    path.write_bytes(path.read_bytes()[:-cut])
    plan = tool("repair", "--dry-run", log_dir)
    assert tool.code == 0
    assert plan[-1]["kind"] == "to_repair"
    done = tool("repair", log_dir)
    assert [row | {"kind": ""} for row in done] == [row | {"kind": ""} for row in plan]
    assert done[-1]["lost_bytes"] > 0
    tool("verify", "--deep", log_dir)
    assert tool.code == 0
    after = records(log_dir, directory)
    assert after == before[: len(after)]
    assert 0 < len(after) <= len(before)
    assert tool("repair", log_dir)[-1]["kind"] == "sound"


@pytest.mark.parametrize("segment", [0, 1])
def test_sound_records_behind_a_hole_are_not_given_up_unasked(tool, log_dir, directory, segment):
    before = records(log_dir, directory)
    path = sorted((log_dir / "orders-0").glob("*.log"))[segment]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    damaged = contents(log_dir)
    (row,) = tool("repair", log_dir)
    assert (tool.code, row["kind"]) == (1, "refused")
    assert "--give-up-sound-records" in row["text"]
    assert contents(log_dir) == damaged
    rows = tool("repair", "--give-up-sound-records", log_dir)
    assert (tool.code, rows[-1]["kind"]) == (0, "repaired")
    tool("verify", "--deep", log_dir)
    assert tool.code == 0
    after = records(log_dir, directory)
    assert after == before[: rows[-1]["log_end_offset"]]


def test_a_hole_within_one_segment_is_no_torn_end(tool, log_dir):
    path = sorted((log_dir / "orders-0").glob("*.log"))[-1]
    data = bytearray(path.read_bytes())
    data[8:12] = b"\xff" * 4  # not even its length can be believed
    path.write_bytes(data)
    (row,) = tool("repair", log_dir)
    assert row["kind"] == "refused"


def test_it_refuses_while_a_broker_holds_the_dir(tool, log_dir):
    broker = Broker(log_dir, **SETTINGS)
    append(broker.log("orders"), batch(b"more"), epoch=3)
    for place in (log_dir, log_dir / "orders-0"):
        for options in ((), ("--dry-run",)):
            tool("repair", *options, place)
            assert tool.code == 2
            assert "in use by a broker" in tool.err
    broker.manager.close()
    tool("repair", log_dir)
    assert tool.code == 0


def test_a_broker_cannot_start_meanwhile(tool, log_dir, monkeypatch):
    from barnabas.errors import StorageError
    from barnabas.tools.logtool import repair

    def plan_repair(*args, **kwargs):
        with pytest.raises(StorageError, match="is using it"):
            Broker(log_dir, **SETTINGS)
        raise OSError("seen")

    monkeypatch.setattr(repair, "plan_repair", plan_repair)
    tool("repair", log_dir)
    assert "seen" in tool.err


def test_an_interrupted_compaction_is_finished(tool, log_dir, directory):
    before = records(log_dir, directory)
    partition = log_dir / "orders-0"
    for path in partition.glob("00000000000000000000.*"):
        if path.suffix != ".snapshot":
            path.rename(path.with_name(path.name + ".swap"))
    rows = tool("repair", log_dir)
    assert {row["kind"] for row in rows if row["path"].endswith(".swap")} == {"rename"}
    assert "remove" not in {row["kind"] for row in rows}
    assert rows[-1]["lost_bytes"] == 0
    tool("verify", log_dir)
    assert tool.code == 0
    assert records(log_dir, directory) == before


def test_damaged_checkpoints_are_removed(tool, log_dir):
    path = log_dir / "recovery-point-offset-checkpoint"
    path.write_text("0\n7\n")
    rows = tool("repair", "--dry-run", log_dir)
    assert rows[0]["path"] == str(path)
    assert path.exists()
    tool("repair", log_dir)
    assert not path.exists()
    tool("verify", log_dir)
    assert tool.code == 0


def test_epochs_and_snapshots_are_made_anew(tool, log_dir):
    before = contents(log_dir)
    epochs = log_dir / "orders-0" / "leader-epoch-checkpoint"
    epochs.write_text("nonsense")
    snapshot = sorted((log_dir / "orders-0").glob("*.snapshot"))[-2]
    snapshot.write_bytes(b"nonsense and more")
    tool("repair", log_dir)
    assert contents(log_dir) == before


def test_a_copy_of_a_partition_needs_no_lock(tool, log_dir, directory):
    copy = shutil.copytree(log_dir / "orders-0", directory / "backup" / "orders-0")
    sorted(copy.glob("*.index"))[0].unlink()
    assert tool("repair", copy)[-1]["kind"] == "repaired"
    assert [path.name for path in copy.parent.iterdir()] == ["orders-0"]


@pytest.mark.parametrize("segment", [0, 1])
@pytest.mark.parametrize("at", [-1, 100, 11])
def test_damage_in_the_middle_is_cut_out(tool, log_dir, directory, segment, at):
    before = records(log_dir, directory)
    path = sorted((log_dir / "orders-0").glob("*.log"))[segment]
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    damaged = contents(log_dir)
    plan = tool("repair", "--salvage", "--dry-run", log_dir)
    assert (tool.code, plan[-1]["kind"]) == (0, "to_repair")
    assert contents(log_dir) == damaged
    done = tool("repair", "--salvage", log_dir)
    assert (tool.code, done[-1]["kind"]) == (0, "repaired")
    assert 0 < done[-1]["lost_bytes"] < 300
    assert done[-1]["log_end_offset"] == before[-1].offset + 1
    tool("verify", "--deep", log_dir)
    assert tool.code == 0
    after = records(log_dir, directory)
    assert [record for record in before if record not in after] != []
    assert len(after) >= len(before) - 2
    assert all(record in before for record in after)
    assert tool("repair", log_dir)[-1]["kind"] == "sound"


def cut_by_a_power_cut(log_dir):
    """A broker's recovery has cut the log off before a damaged batch; returns the broker."""
    path = sorted((log_dir / "orders-0").glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    (log_dir / ".kafka_cleanshutdown").unlink()
    (log_dir / "recovery-point-offset-checkpoint").unlink()
    (log_dir / ".barnabas-boot-id").unlink()
    return Broker(log_dir, **SETTINGS)


def test_what_a_recovery_has_cut_off_is_put_back(tool, log_dir, directory):
    before = records(log_dir, directory)
    broker = cut_by_a_power_cut(log_dir)
    assert broker.log("orders").log_end_offset < 30
    broker.manager.close()
    done = tool("repair", "--salvage", log_dir)
    assert (tool.code, done[-1]["kind"]) == (0, "repaired")
    tool("verify", "--deep", log_dir)
    assert tool.code == 0
    after = records(log_dir, directory)
    assert len(after) == len(before) - 2
    assert all(record in before for record in after)
    assert tool("repair", "--salvage", log_dir)[-1]["kind"] == "sound"
    for clean in (True, False):  # the gap is known from now on, whatever becomes of the machine
        broker = Broker(log_dir, **SETTINGS)
        broker.manager.close() if clean else broker.crash()
        broker.reboot()
        assert records(log_dir, directory) == after


def test_what_was_written_since_a_recovery_stays(tool, log_dir, directory):
    before = records(log_dir, directory)
    broker = cut_by_a_power_cut(log_dir)
    log = broker.log("orders")
    cut_at = log.log_end_offset
    for n in range(2):
        append(log, batch(b"new %d" % n), epoch=4)
    broker.manager.close()
    rows = tool("repair", "--salvage", log_dir)
    assert tool.code == 0
    after = records(log_dir, directory)
    assert [record.value for record in after if cut_at <= record.offset < cut_at + 2] == [b"new 0", b"new 1"]
    assert [record for record in after if record.offset >= cut_at + 2] == [
        record for record in before if record.offset >= cut_at + 2
    ]
    assert rows[-1]["kind"] == "repaired"
    tool("verify", "--deep", log_dir)
