"""A log is opened after a crash: damaged logs, damaged or missing files around them, interrupted renames."""

from pathlib import Path

import pytest

from barnabas.errors import StorageError
from barnabas.log.format import names
from barnabas.records.building import encode_batch
from barnabas.records.legacy import encode_message_set
from barnabas.records.record import Record
from barnabas.records.validate import Origin
from tests.support.logs import NOW_MS, Broker, append, batch, marker, read_all


@pytest.fixture
def broker(tmp_path):
    return Broker(tmp_path, segment_bytes=2_000, index_interval_bytes=200)


def fill(broker: Broker, count: int = 60) -> list[Record]:
    log = broker.log()
    for n in range(count):
        append(log, batch(b"%d" % n, b"x" * 50, timestamp=NOW_MS + n), epoch=n // 20)
    assert len(log.segments) > 3
    return read_all(log)


def path(broker: Broker, base: int, suffix: str) -> Path:
    return Path(broker.dirs[0]) / "t-0" / names.file_name(base, suffix)


def reopened(broker: Broker):
    broker.start()
    log = broker.log()
    log.advance_high_watermark(log.log_end_offset)
    return log


@pytest.mark.parametrize("cut", [1, 40, 61, 100])
def test_a_torn_batch_at_the_end_is_cut_off(broker, caplog, cut):
    before = fill(broker)
    active = broker.log().active
    broker.crash()
    data = path(broker, active.base_offset, ".log").read_bytes()
    path(broker, active.base_offset, ".log").write_bytes(data[:-cut])
    log = reopened(broker)
    assert read_all(log) == before[:-2]
    (warning,) = [record for record in caplog.records if "cutting off" in record.getMessage()]
    assert warning.levelname == "WARNING"
    assert active.path(".log") in warning.getMessage()
    assert append(log, batch(b"next"), epoch=5).base_offset == 118


def test_zeros_at_the_end_are_cut_off(broker):
    before = fill(broker)
    active = broker.log().active
    broker.crash()
    with path(broker, active.base_offset, ".log").open("ab") as file:
        file.write(b"\0" * 5_000)
    assert read_all(reopened(broker)) == before


def test_segments_behind_damage_are_set_aside_after_a_power_cut(broker, caplog):
    before = fill(broker)
    bases = [segment.base_offset for segment in broker.log().segments]
    broker.crash()
    broker.reboot()
    damaged = path(broker, bases[1], ".log")
    data = bytearray(damaged.read_bytes())
    data[-10] ^= 1
    damaged.write_bytes(data)
    log = reopened(broker)
    assert read_all(log) == before[: bases[2] - 2]
    assert [segment.base_offset for segment in log.segments] == bases[:2]
    assert "the checksum is wrong" in caplog.text
    set_aside = f"{bases[2]:020d}.log.damaged-{bases[2]}"
    assert sorted(file.name for file in damaged.parent.glob(f"{bases[2]:020d}*")) == [set_aside]


def test_damage_before_the_recovery_point_concerns_readers_only(broker):
    before = fill(broker)
    broker.log().flush(NOW_MS)
    broker.manager.write_checkpoints()
    broker.crash()
    damaged = path(broker, 0, ".log")
    data = bytearray(damaged.read_bytes())
    data[-10] ^= 1
    damaged.write_bytes(data)
    assert reopened(broker).log_end_offset == len(before)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", [None, b"", b"\0" * 5, b"\xff" * 240, b"\0" * 240])
@pytest.mark.parametrize("clean", [True, False])
def test_indexes_are_rebuilt(broker, suffix, damage, clean):
    before = fill(broker)
    bases = [segment.base_offset for segment in broker.log().segments]
    broker.manager.close() if clean else broker.crash()
    for base in bases:
        if damage is None:
            path(broker, base, suffix).unlink(missing_ok=True)
        elif damage or not clean:  # an empty index is a good one: it knows nothing
            path(broker, base, suffix).write_bytes(damage)
    log = reopened(broker)
    assert read_all(log) == before
    for n in (0, 13, 59):
        assert log.offset_for_timestamp(NOW_MS + n).offset == 2 * n
    for segment in log.segments[:-1]:
        assert len(segment.offset_index) > 1


@pytest.mark.parametrize("field", [0, 4])
def test_an_index_with_a_wrong_entry_in_the_middle_is_rebuilt(broker, caplog, field):
    before = fill(broker)
    middle = broker.log().segments[1]
    broker.manager.close()
    index = Path(middle.path(".index"))
    data = bytearray(index.read_bytes())
    at = len(data) // 16 * 8 + field
    data[at : at + 4] = (int.from_bytes(data[at : at + 4], "big") - 7).to_bytes(4, "big")
    index.write_bytes(data)
    log = reopened(broker)
    for offset in range(len(before)):
        assert read_all(log, offset, max_bytes=1)[0].offset == offset
    assert caplog.text.count("rebuilding the indexes") == 1


@pytest.mark.parametrize("damage", [None, b"", b"\0" * 10, b"x" * 60])
@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_rebuilt_without_a_good_snapshot(broker, damage, clean):
    log = broker.log()
    for n in range(60):
        raw = batch(b"v" * 100, producer_id=1, producer_epoch=0, base_sequence=n)
        append(log, raw)
    expected = log.producers.snapshot()
    assert len(log.store.snapshots.offsets) > 2
    broker.manager.close() if clean else broker.crash()
    for snapshot in path(broker, 0, ".log").parent.glob("*.snapshot"):
        if damage is None:
            snapshot.unlink()
        else:
            snapshot.write_bytes(damage)
    log = reopened(broker)
    assert log.producers.snapshot() == expected
    again = append(log, batch(b"v" * 100, producer_id=1, producer_epoch=0, base_sequence=59))
    assert (again.duplicate, again.base_offset) == (True, 59)


@pytest.mark.parametrize("clean", [True, False])
def test_transactions_are_where_they_were(broker, clean):
    log = broker.log()
    sequences = {1: 0, 2: 0, 3: 0}

    def write(pid):
        options = {"producer_id": pid, "producer_epoch": 0, "base_sequence": sequences[pid]}
        sequences[pid] += 1
        append(log, batch(b"v" * 100, transactional=True, **options))

    for n in range(40):
        write(1)
        write(2)
        if n % 3 == 0:
            append(log, marker(commit=n % 2 == 0, producer_id=1), origin=Origin.COORDINATOR)
        if n % 5 == 0:
            append(log, marker(commit=n % 2 == 1, producer_id=2), origin=Origin.COORDINATOR)
    write(3)
    expected = log.aborted_transactions(0, log.log_end_offset)
    stable = log.last_stable_offset
    assert len(expected) > 10
    assert stable < log.high_watermark == log.log_end_offset
    broker.manager.close() if clean else broker.crash()
    if not clean:
        for index in path(broker, 0, ".log").parent.glob("*.txnindex"):
            index.write_bytes(b"rubbish")
    log = reopened(broker)
    assert log.aborted_transactions(0, log.log_end_offset) == expected
    assert log.last_stable_offset == stable
    append(log, marker(commit=False, producer_id=3), origin=Origin.COORDINATOR)
    assert log.aborted_transactions(log.log_end_offset - 1, log.log_end_offset)[-1].producer_id == 3


@pytest.mark.parametrize("with_snapshots", [True, False])
def test_a_damaged_transaction_index_is_rebuilt(broker, caplog, with_snapshots):
    log = broker.log()
    for n in range(20):
        append(log, batch(b"v" * 500, transactional=True, producer_id=1, producer_epoch=0, base_sequence=n))
        if n % 4 == 3:
            append(log, marker(commit=n % 8 == 3, producer_id=1), origin=Origin.COORDINATOR)
    expected = log.aborted_transactions(0, log.log_end_offset)
    assert len(expected) == 2
    broker.manager.close()
    for index in path(broker, 0, "").parent.glob("*.txnindex"):
        index.write_bytes(b"rubbish")
    for snapshot in path(broker, 0, "").parent.glob("*.snapshot"):
        if not with_snapshots:
            snapshot.unlink()
    log = reopened(broker)
    assert log.aborted_transactions(0, log.log_end_offset) == expected
    assert caplog.text.count("rebuilding the transaction index") == 2
    broker.restart(clean=True)
    assert broker.log().aborted_transactions(0, log.log_end_offset) == expected


def test_epochs_are_rebuilt_after_the_recovery_point(broker):
    fill(broker)
    expected = broker.log().epochs.entries
    broker.crash()
    (Path(broker.dirs[0]) / "t-0" / names.LEADER_EPOCH_CHECKPOINT).unlink()
    assert reopened(broker).epochs.entries == expected


def test_an_interrupted_compaction_is_finished(broker):
    before = fill(broker)
    bases = [segment.base_offset for segment in broker.log().segments]
    broker.manager.close()
    for suffix in names.SEGMENT_SUFFIXES[:3]:
        source = path(broker, bases[1], suffix)
        source.with_name(source.name + names.SWAP).write_bytes(source.read_bytes())
    rubbish = path(broker, bases[2], ".log.cleaned")
    rubbish.write_bytes(b"half")
    deleted = path(broker, bases[0], ".log.deleted")
    deleted.write_bytes(b"old")
    log = reopened(broker)
    assert read_all(log) == before
    assert not rubbish.exists()
    assert not deleted.exists()
    assert list(rubbish.parent.glob("*.swap")) == []


def test_a_missing_log_leaves_no_index_behind(broker, caplog):
    fill(broker)
    bases = [segment.base_offset for segment in broker.log().segments]
    broker.manager.close()
    path(broker, bases[0], ".log").unlink()
    log = reopened(broker)
    assert log.log_start_offset == bases[1]
    assert not path(broker, bases[0], ".index").exists()
    assert "there is no segment to it" in caplog.text


def test_a_log_that_ends_before_its_start_begins_anew(broker, caplog):
    fill(broker)
    log = broker.log()
    log.delete_records_before(110)
    broker.manager.write_checkpoints()
    bases = [segment.base_offset for segment in log.segments]
    broker.crash()
    for base in bases[1:]:
        path(broker, base, ".log").unlink()
    log = reopened(broker)
    assert (log.log_start_offset, log.log_end_offset) == (110, 110)
    assert "before its log start offset 110" in caplog.text
    assert path(broker, 0, ".log.damaged-0").exists()
    assert append(log, batch(b"v"), epoch=9).base_offset == 110


def test_a_clean_log_whose_end_is_damaged_is_checked(broker, caplog):
    before = fill(broker)
    active = broker.log().active.base_offset
    broker.manager.close()
    data = path(broker, active, ".log").read_bytes()
    path(broker, active, ".log").write_bytes(data[:-5])
    assert read_all(reopened(broker)) == before[:-2]
    assert "its end is damaged" in caplog.text


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("clean", [True, False])
def test_logs_of_old_releases_are_read(broker, magic, codec, clean):
    log = broker.log()
    broker.manager.close()
    sets = []
    for n in range(10):
        records = [Record(3 * n + k, NOW_MS + n, b"k", b"v%d" % k) for k in range(3)]
        sets.append(encode_message_set(records, magic=magic, codec=codec))
    path(broker, 0, ".log").write_bytes(b"".join(sets))
    for suffix in (".index", ".timeindex"):
        path(broker, 0, suffix).unlink()
    if not clean:
        (Path(broker.dirs[0]) / names.CLEAN_SHUTDOWN).unlink()
    log = reopened(broker)
    assert log.log_end_offset == 30
    place = log.offset_for_timestamp(NOW_MS + 5)
    assert (place.offset if place else None) == (15 if magic else None)
    middle = log.read(16, max_bytes=10_000, upper_offset=30).to_bytes()
    from_15 = b"".join(sets[5:])
    assert middle == (from_15 if codec else from_15[len(sets[5]) // 3 :])
    assert append(log, batch(b"new")).base_offset == 30
    broker.restart(clean=clean)
    assert broker.log().log_end_offset == 31


def test_unreadable_partition_takes_its_log_dir_offline(tmp_path):
    broker = Broker(tmp_path / "a", tmp_path / "b")
    append(broker.log(), batch(b"v"))
    broken = broker.log()
    broker.manager.close()
    log_file = Path(broken.dir) / "00000000000000000000.log"
    log_file.unlink()
    log_file.symlink_to(tmp_path / "nowhere" / "x")
    broker.start()
    assert list(broker.manager.offline) == [broken.log_dir]
    broker.manager.close()
    with pytest.raises(StorageError):
        Broker(Path(broken.log_dir))


def test_batches_with_gaps_between_them_are_no_damage(broker):
    log = broker.log()
    for base in (0, 5, 6, 100):
        records = [Record(base + n, NOW_MS, b"k", b"v") for n in range(2 if base != 5 else 1)]
        log.append_as_follower(encode_batch(records, leader_epoch=0), now_ms=NOW_MS)
    broker.crash()
    log = reopened(broker)
    assert log.log_end_offset == 102
    assert [record.offset for record in read_all(log)] == [0, 1, 5, 6, 7, 100, 101]
    assert [record.offset for record in read_all(log, 3)] == [5, 6, 7, 100, 101]
    assert [record.offset for record in read_all(log, 50)] == [100, 101]


@pytest.mark.parametrize("compacted", [True, False])
def test_what_follows_a_lost_end_of_a_segment_is_not_seen(tmp_path, caplog, compacted):
    policy = frozenset({"compact" if compacted else "delete"})
    broker = Broker(tmp_path, segment_bytes=2_000, cleanup_policy=policy)
    before = fill(broker)
    first = broker.log().segments[0]
    *_, (position, header) = first.headers()
    broker.crash()
    broker.reboot()
    with path(broker, 0, ".log").open("r+b") as file:
        file.truncate(position)
    log = reopened(broker)
    if compacted:
        lost = range(header.base_offset, header.next_offset)
        assert read_all(log) == [record for record in before if record.offset not in lost]
    else:
        assert read_all(log) == before[: header.base_offset]
        assert f"offsets {header.base_offset} on are missing" in caplog.text


def test_a_log_that_was_once_compacted_may_have_gaps(tmp_path):
    broker = Broker(tmp_path, segment_bytes=2_000)
    before = fill(broker)
    log = broker.log()
    *_, (position, header) = log.segments[0].headers()
    log.clean_offset = log.segments[1].base_offset
    broker.manager.write_checkpoints()
    (tmp_path / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    broker.crash()
    with path(broker, 0, ".log").open("r+b") as file:
        file.truncate(position)
    lost = range(header.base_offset, header.next_offset)
    assert read_all(reopened(broker)) == [record for record in before if record.offset not in lost]
