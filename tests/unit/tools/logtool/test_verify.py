"""`barnabas log verify`: sound dirs are sound, and each damage is told, once, with file and place."""

import struct

import pytest

from barnabas.log.format import snapshot
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from tests.support.logs import NOW_MS, Broker, append, batch


def verify(tool, *arguments):
    """The errors, and all else."""
    rows = tool("verify", "--deep", "--all", *arguments)
    errors = [row for row in rows if row["kind"] == "error"]
    assert rows[-1]["errors"] == len(errors)
    assert tool.code == (1 if errors else 0)
    return errors, rows[:-1]


def partition_file(log_dir, suffix, n=0):
    return sorted((log_dir / "orders-0").glob(f"*{suffix}"))[n]


def test_a_dir_that_kafka_wrote_is_sound(tool, kafka_dir):
    assert verify(tool, kafka_dir) == ([], [])


def test_a_dir_of_ours_is_sound(tool, log_dir):
    assert verify(tool, log_dir) == ([], [])


@pytest.mark.parametrize("at", [8, 16, 17, 22, 26, 60, 100])
def test_a_damaged_batch_is_told_with_its_place(tool, log_dir, at):
    path = partition_file(log_dir, ".log")
    data = bytearray(path.read_bytes())
    data[at] ^= 0x15
    path.write_bytes(data)
    errors, _ = verify(tool, path.parent)
    assert (errors[0]["path"], errors[0]["position"]) == (str(path), 0)
    assert "after offset -1" in errors[0]["text"]


def test_a_torn_end_is_told(tool, log_dir):
    path = partition_file(log_dir, ".log", -1)
    path.write_bytes(path.read_bytes()[:-5])
    errors, _ = verify(tool, path.parent)
    assert errors[0]["path"] == str(path)
    assert "the batch is cut short" in errors[0]["text"]


def test_a_tail_of_zeros_was_preallocated(tool, log_dir):
    path = partition_file(log_dir, ".log", -1)
    path.write_bytes(path.read_bytes() + bytes(5_000))
    errors, rows = verify(tool, path.parent)
    assert errors == []
    assert "preallocated" in rows[0]["text"]


def test_a_log_that_was_not_closed_is_sound(tool, directory):
    broker = Broker(directory, segment_bytes=2_000, index_interval_bytes=200)
    for n in range(40):
        append(broker.log(), batch(b"%d" % n, b"x" * 50))
    broker.crash()
    errors, rows = verify(tool, directory / "t-0")
    assert errors == []
    assert {row["text"] for row in rows} == {"is not written yet: the log was not closed"}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d[:-3],
        lambda d: d[:-5] + bytes([d[-5] ^ 1]) + d[-4:],
        lambda d: d + d[-12:] + d[-12:],
        lambda d: b"\xff" * 24,
    ],
)
def test_an_index_that_does_not_fit_its_log_is_told(tool, log_dir, suffix, damage):
    path = partition_file(log_dir, suffix)
    path.write_bytes(damage(path.read_bytes()))
    errors, _ = verify(tool, path.parent)
    assert errors
    assert {error["path"] for error in errors} == {str(path)}


def test_an_index_with_another_batch_at_its_place_is_told(tool, log_dir):
    path = partition_file(log_dir, ".index")
    data = bytearray(path.read_bytes())
    (offset,) = struct.unpack_from(">i", data)
    struct.pack_into(">i", data, 0, offset - 1)
    path.write_bytes(data)
    (error,) = verify(tool, path.parent)[0]
    assert (error["path"], error["position"]) == (str(path), 0)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_is_missing_is_told(tool, log_dir, suffix):
    path = partition_file(log_dir, suffix)
    path.unlink()
    (error,) = verify(tool, path.parent)[0]
    assert (error["path"], error["text"]) == (str(path), "is missing")


def test_a_transaction_that_is_not_in_the_index_is_told(tool, log_dir):
    path = partition_file(log_dir, ".txnindex")
    path.unlink()
    (error,) = verify(tool, path.parent)[0]
    assert error["path"] == str(path)
    assert "aborted at offset" in error["text"]
    path.write_bytes(b"x" * 34)
    assert "version" in verify(tool, path.parent)[0][0]["text"]


@pytest.mark.parametrize(
    ("where", "is_noted"), [("a beginning", False), ("the end", False), ("between", True)]
)
def test_a_snapshot_belongs_to_a_segments_beginning_or_the_end(tool, log_dir, where, is_noted):
    beginning = int(partition_file(log_dir, ".log", -1).stem)
    expected = [int(path.stem) for path in (log_dir / "orders-0").glob("*.snapshot")]
    end = max(expected)
    assert end > beginning, "written when the log was closed"
    offset = {"a beginning": beginning, "the end": end, "between": beginning + 1}[where]
    assert offset == end or offset + 1 < end
    path = log_dir / "orders-0" / f"{offset:020}.snapshot"
    path.write_bytes(snapshot.encode([]))
    errors, rows = verify(tool, log_dir)
    assert errors == []
    noted = [row["path"] for row in rows if "at no segment's beginning, nor at the end" in row["text"]]
    assert noted == [str(path)] * is_noted


def test_snapshots_are_checked(tool, log_dir):
    path = partition_file(log_dir, ".snapshot", -1)
    entry = snapshot.SnapshotEntry(1, 0, 0, 1 << 40, 0, NOW_MS, -1, -1)
    path.write_bytes(snapshot.encode([entry]))
    assert "has written offset" in verify(tool, path.parent)[0][0]["text"]
    path.write_bytes(b"\0" * 40)
    assert "version 0 is unknown" in verify(tool, path.parent)[0][0]["text"]
    path.write_bytes(snapshot.encode([]))
    path.rename(path.with_name("00000000000000999999.snapshot"))
    assert "after the log's end" in verify(tool, path.parent)[0][0]["text"]


def test_leader_epochs_are_checked(tool, log_dir):
    path = log_dir / "orders-0" / "leader-epoch-checkpoint"
    path.write_text("0\n3\n0 0\n1 30\n3 60\n")
    texts = [error["text"] for error in verify(tool, path.parent)[0]]
    assert texts == [
        "leader epoch 1 begins at offset 20, not 30",
        "leader epoch 2, which begins at offset 40, is missing",
    ]


def test_overlapping_and_missing_segments_are_told(tool, log_dir):
    first, second, third, *_ = sorted((log_dir / "orders-0").glob("*.log"))
    second.unlink()
    errors, rows = verify(tool, log_dir / "orders-0")
    assert any(row["path"] == str(third) and "are missing before it" in row["text"] for row in rows)
    assert not errors
    second.write_bytes(first.read_bytes())
    errors, _ = verify(tool, log_dir / "orders-0")
    assert any(error["path"] == str(second) for error in errors)


def test_records_that_lie_about_themselves_are_told(tool, directory):
    broker = Broker(directory)
    raw = bytearray(encode_batch([Record(n, NOW_MS + n, b"k", b"v") for n in range(3)], max_timestamp=NOW_MS))
    broker.log().append_as_follower(raw, now_ms=NOW_MS)
    broker.manager.close()
    (error,) = verify(tool, directory / "t-0")[0]
    assert "has timestamp" in error["text"]


def test_checkpoints_are_checked_against_the_logs(tool, log_dir):
    (log_dir / "replication-offset-checkpoint").write_text("0\n2\norders 0 9999\ngone 0 5\n")
    errors, rows = verify(tool, log_dir)
    assert errors == []
    assert [row["kind"] for row in rows] == ["warning", "note"]
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\norders 0 9999\n")
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n7\n")
    errors, _ = verify(tool, "--quiet", log_dir)
    assert {error["path"].rpartition("/")[2] for error in errors} == {
        "log-start-offset-checkpoint",
        "recovery-point-offset-checkpoint",
    }


def test_a_dir_in_use_may_end_in_the_middle_of_a_batch(tool, directory):
    broker = Broker(directory)
    append(broker.log(), batch(b"whole"))
    log = broker.log().active
    with open(log.path(".log"), "ab") as file:
        file.write(bytes(batch(b"torn"))[:-4])
    errors, rows = verify(tool, directory)
    assert errors == []
    assert "in use by a broker" in rows[0]["text"]
    broker.crash()
    assert len(verify(tool, directory)[0]) == 1


def test_leftovers_are_no_damage(tool, log_dir):
    (log_dir / "orders-0" / "00000000000000000000.log.deleted").write_bytes(b"x")
    (log_dir / "orders-0" / "00000000000000099999.index").write_bytes(b"")
    errors, rows = verify(tool, log_dir)
    assert errors == []
    assert [row["kind"] for row in rows] == ["note", "warning"]


def test_copies_of_a_partition_are_told_from_it(tool, log_dir):
    for name in (
        "orders-0.0123456789abcdef0123456789abcdef-future",
        "orders-0.0123456789abcdef0123456789abcdef-delete",
    ):
        copy = log_dir / name
        copy.mkdir()
        (copy / "00000000000000000000.log").write_bytes(b"")
    (row,) = tool("verify", log_dir)
    assert (row["partitions"], row["errors"], row["warnings"]) == (2, 0, 0)
    assert tool("verify", "--only", name, log_dir)[-1]["partitions"] == 1


def test_many_findings_in_a_file_take_one_line(tool, log_dir):
    for suffix in (".index", ".timeindex"):
        path = partition_file(log_dir, suffix)
        path.write_bytes(b"\0\0\0\1" * 24)
    each = [row for row in tool("verify", "--all", log_dir) if row["kind"] == "error"]
    rows = tool("verify", log_dir)
    errors = [row for row in rows if row["kind"] == "error"]
    assert [error["path"].rpartition(".")[2] for error in errors] == ["index", "timeindex"]
    assert sum(error["count"] for error in errors) == len(each) == rows[-1]["errors"] > 10
    for error in errors:
        result = [row for row in each if row["path"] == error["path"]]
        assert (error["position"], error["text"]) == (result[0]["position"], result[0]["text"])
        assert error["next_positions"] == [row["position"] for row in result[1:4]]
    assert tool.code == 1
