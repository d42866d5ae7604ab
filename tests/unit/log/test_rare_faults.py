"""Disks that fail in the middle of something, files that were removed by hand, and unexpected files."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from barnabas.errors import StorageError
from barnabas.log import logdir
from barnabas.log.derived_files import DerivedFiles
from barnabas.log.format import names
from barnabas.log.format.checkpoints import encode_offsets
from barnabas.log.partition_log import PartitionLog
from barnabas.log.producers import ProducerState
from barnabas.log.snapshots import ProducerSnapshots
from barnabas.records.validate import Origin
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, Broker, append, batch, marker

LATER = NOW_MS + 10**9


def broker_of(*dirs: str, **settings: Any) -> Broker:
    disk = MemoryDisk()
    return Broker(*(dirs or ("/d",)), disk=disk, **settings)  # type: ignore[arg-type]


def filled(broker: Broker, count: int = 5, topic: str = "t", **options: Any) -> PartitionLog:
    log = broker.log(topic)
    for n in range(count):
        append(log, batch(b"%d" % n, timestamp=NOW_MS + n), **options)
    return log


def transactional(broker: Broker, *, commit: bool = False) -> PartitionLog:
    log = broker.log()
    append(log, batch(b"t", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    append(log, marker(commit=commit, producer_id=7), origin=Origin.COORDINATOR)
    return log


# --- starts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_there", [True, False])
def test_a_log_that_lost_all_but_its_start_begins_there(is_there: bool) -> None:
    """Nothing of it had been flushed, and then the power went."""
    broker = broker_of()
    broker.manager.close()
    disk: Any = broker.disk
    disk.remove("/d/.kafka_cleanshutdown")
    disk.make_dirs("/d/t-0")
    if is_there:
        disk.open("/d/t-0/00000000000000000007.index", create=True)
    disk.replace("/d/log-start-offset-checkpoint", encode_offsets({("t", 0): 7}), sync=True)
    broker.start()
    log = broker.log()
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    assert append(log, batch(b"v")).base_offset == 7


@pytest.mark.parametrize("is_clean", [True, False])
def test_log_that_ends_before_its_start_has_no_producers(is_clean: bool) -> None:
    broker = broker_of()
    log = broker.log()
    append(log, batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0))
    if is_clean:
        broker.manager.close()
    else:
        broker.crash()
    disk: Any = broker.disk
    disk.replace("/d/log-start-offset-checkpoint", encode_offsets({("t", 0): 9}), sync=True)
    broker.start()
    log = broker.log()
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    assert log.producers.get(7) is None
    assert log.producers.end_offset == 9
    assert log.epochs.entries == []


@pytest.mark.parametrize(
    "name", ["00000000000000000000.log.damaged-copy", "00000000000000000000.log.damaged-", "7", "x.damaged-3"]
)
def test_foreign_files_beside_a_log_do_not_end_its_recovery(name: str) -> None:
    broker = broker_of()
    filled(broker)
    disk: Any = broker.disk
    disk.open(f"/d/t-0/{name}", create=True)
    broker.restart(clean=False)
    assert broker.log().log_end_offset == 5


def test_recovered_log_ends_before_an_impossible_sequence() -> None:
    """A control batch of a producer, with a sound checksum, and no valid record."""
    broker = broker_of()
    log = filled(broker, 2)
    raw = batch(
        b"v", key=b"\0", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True, control=True
    )
    raw[:8] = (2).to_bytes(8, "big")
    log.active.file.write(raw, log.active.size)
    broker.crash()
    broker.start()
    assert broker.log().log_end_offset == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_the_note_of_the_boot_may_lack_room_and_nothing_else(number: int) -> None:
    broker = broker_of()
    broker.manager.close()
    disk: Any = broker.disk
    with disk.failing("write", f"{names.BOOT_ID}.tmp", number=number):
        if number == errno.ENOSPC:
            broker.start()
            assert broker.manager.online == ["/d"]
        else:
            with pytest.raises(StorageError):
                broker.start()


@pytest.mark.parametrize(
    ("version", "node_id", "expected", "key"),
    [
        (1, 7, 8, "node.id"),
        (0, 7, 8, "broker.id"),
        (1, 7, 7, None),
        (1, None, 8, None),
        (1, 7, None, None),
        (1, 0, 7, "node.id"),
    ],
)
def test_a_dir_of_another_broker_is_named_with_the_key_to_change(
    version: int, node_id: int | None, expected: int | None, key: str | None
) -> None:
    meta = logdir.MetaProperties(version, "c", node_id)
    if key is None:
        logdir.check_node_id("/d", meta, expected)
        return
    with pytest.raises(StorageError, match=rf"{key}={node_id} .*node.id={expected} .*change {key} in"):
        logdir.check_node_id("/d", meta, expected)


# --- room ---------------------------------------------------------------------------------------------------------


def test_what_can_be_rebuilt_may_lack_room_and_that_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    derived, done = DerivedFiles("/d/t-0"), []

    def fails(number: int) -> None:
        raise OSError(number, "no")

    derived.write(lambda: done.append(1))
    derived.write(lambda: fails(errno.ENOSPC))
    derived.write(lambda: fails(errno.EDQUOT))
    assert done == [1]
    assert caplog.text.count("no room for indexes and snapshots") == 1
    with pytest.raises(OSError, match="no"):
        derived.write(lambda: fails(errno.EIO))


@pytest.mark.parametrize(
    ("number", "is_in_doubt"), [(errno.ENOSPC, True), (errno.EIO, True), (errno.ENOENT, False)]
)
def test_an_abort_whose_index_cannot_be_written_is_in_doubt(number: int, is_in_doubt: bool) -> None:
    """The marker is in the log, and readers would not be told of it: no mere lack of room."""
    broker = broker_of()
    log = broker.log()
    append(log, batch(b"t", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    disk: Any = broker.disk
    with disk.failing("open", names.TXN_INDEX, number=number), pytest.raises(StorageError) as failure:
        append(log, marker(commit=False, producer_id=7), origin=Origin.COORDINATOR)
    assert not failure.value.is_full
    assert failure.value.is_missing is not is_in_doubt


@pytest.mark.parametrize(("number", "is_fatal"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_rebuilt_transaction_index_tolerates_only_a_full_disk(number: int, is_fatal: bool) -> None:
    broker = broker_of()
    log = transactional(broker)
    disk: Any = broker.disk
    log.active.release()
    disk.replace(log.active.path(names.TXN_INDEX), b"damaged", sync=True)
    with disk.failing("write", names.TXN_INDEX, number=number):
        if is_fatal:
            with pytest.raises(StorageError):
                log.aborted_transactions(0, 2)
        else:
            assert [transaction.producer_id for transaction in log.aborted_transactions(0, 2)] == [7]


# --- appends and reads --------------------------------------------------------------------------------------------


def test_no_records_are_appended_to_nothing() -> None:
    log = filled(broker_of(), 3)
    log.delete_records_before(2)
    for result in (
        log.append_as_follower(b"", now_ms=NOW_MS),
        log.append_as_follower(batch(b"v")[:-1], now_ms=NOW_MS),
        log.append_as_leader(b"", leader_epoch=9, now_ms=NOW_MS, api_version=2),
    ):
        assert (result.base_offset, result.last_offset, result.log_append_time_ms) == (-1, -1, -1)
        assert (result.log_start_offset, result.record_count, result.size, result.duplicate) == (
            2,
            0,
            0,
            False,
        )
    assert (log.log_end_offset, log.epochs.latest) == (3, 0)


def test_a_log_that_is_closed_writes_nothing_and_drops_nothing() -> None:
    broker = broker_of(retention_ms=0)
    log = filled(broker, 3)
    valid = log.validate_at_once(memoryview(batch(b"v")), now_ms=NOW_MS, api_version=9)
    assert valid is not None
    broker.manager.set_aside("t", 0)
    assert log.begin_background_write(valid, leader_epoch=0, now_ms=NOW_MS) is None
    assert log.apply_retention(LATER) == 0
    with pytest.raises(StorageError) as failure:
        log.read(0, max_bytes=100, upper_offset=3)
    assert failure.value.is_missing


def test_segment_that_begins_at_the_log_end_is_not_rolled() -> None:
    log = filled(broker_of(), 3)
    rolled = log.roll()
    assert log.roll() is rolled
    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_a_log_that_is_cut_before_all_of_it_begins_there() -> None:
    log = filled(broker_of(segment_bytes=100), 6)
    log.delete_records_before(4)
    log.apply_retention(NOW_MS)
    assert log.segments[0].base_offset == 4
    assert log.truncate_to(2, now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (2, 2, 2)
    assert [segment.base_offset for segment in log.segments] == [2]


def test_retention_raises_the_high_watermark_to_the_log_start() -> None:
    log = filled(broker_of(), 3)
    log.high_watermark = 1
    log._move_start(2)
    assert (log.log_start_offset, log.high_watermark, log.last_stable_offset) == (2, 2, 2)


# --- snapshots ----------------------------------------------------------------------------------------------------


def test_snapshots_that_are_damaged_or_gone_are_passed_over() -> None:
    disk: Any = MemoryDisk()
    disk.make_dirs("/d/t-0")
    snapshots = ProducerSnapshots(disk, "/d/t-0")
    producers = ProducerState()
    for offset in (5, 10, 15, 20):
        producers.end_offset = offset
        snapshots.save(producers)
    disk.replace(snapshots.path(15), b"damaged", sync=True)
    disk.remove(snapshots.path(10))

    def loaded(start: int, end: int, *, peeks: bool) -> int:
        state = ProducerState()
        if peeks:
            snapshots.peek(state, start, end)
        else:
            snapshots.load(state, start, end, NOW_MS)
        return state.end_offset

    for start, end, expected in (
        (0, 4, 0),
        (0, 5, 5),
        (5, 19, 5),
        (4, 19, 5),
        (0, 20, 20),
        (20, 25, 20),
        (19, 25, 20),
    ):
        assert loaded(start, end, peeks=True) == expected
        assert snapshots.offsets == {5, 10, 15, 20}
    assert snapshots.mark_deleted(10) is None  # it is gone
    assert snapshots.mark_deleted(11) is None
    assert snapshots.mark_deleted(20) == snapshots.path(20) + names.DELETED
    assert snapshots.offsets == {5, 15}
    assert loaded(0, 19, peeks=False) == 5
    assert snapshots.offsets == {5}
    assert loaded(5, 5, peeks=False) == 5
    assert loaded(7, 9, peeks=False) == 7
    assert snapshots.offsets == set()


# --- files and dirs that are gone ---------------------------------------------------------------------------------


@pytest.mark.parametrize("also_logs", [False, True])
@pytest.mark.parametrize("what", ["nothing", "segment", "meta.properties", "all", "lock"])
def test_what_somebody_has_removed_is_found(what: str, also_logs: bool) -> None:
    broker = broker_of("/d", "/e")
    broker.manager.write_meta("c", 1)
    log = filled(broker)
    assert log.log_dir == "/d"
    disk: Any = broker.disk
    if what == "segment":
        disk.remove(log.active.path(names.LOG))
    elif what == "meta.properties":
        disk.remove("/d/meta.properties")
    elif what == "all":
        disk.remove(log.active.path(names.LOG))
        disk.remove("/d/meta.properties")
    elif what == "lock":
        disk.remove("/d/.lock")
    errors = broker.manager.find_missing(also_logs=also_logs)
    is_noticed = what in ("all", "lock") or (what == "segment" and also_logs)
    assert [error.log_dir for error in errors] == ["/d"] * is_noticed
    lost = [log for error in errors for log in broker.manager.lose_missing(error)]
    assert lost == [log] * is_noticed
    assert broker.manager.offline.keys() == ({"/d"} if what in ("all", "lock") else set())
    assert broker.manager.missing == ({("t", 0): "/d/t-0"} if lost and what == "segment" else {})


def test_file_that_reappears_takes_nothing_offline(caplog: pytest.LogCaptureFixture) -> None:
    broker = broker_of()
    filled(broker)
    for name in ("/d/t-0/00000000000000000000.log", "/d/other-0/x", "/d/nothing", "/elsewhere/t-0/x"):
        error = StorageError("/d", FileNotFoundError(errno.ENOENT, "gone", name))
        assert broker.manager.lose_missing(error) == []
    assert broker.manager.lose_missing(StorageError("/d", ValueError("what?"))) == []
    assert caplog.text.count("all that is needed is there") == 5
    assert broker.manager.online == ["/d"]


def test_flush_without_a_file_is_an_error_unless_closed() -> None:
    broker = broker_of()
    for is_closed in (False, True):
        log = filled(broker)
        task = log.begin_flush()
        assert task is not None
        disk: Any = broker.disk
        if is_closed:
            broker.manager.set_aside("t", 0)
        else:
            disk.rename(log.dir, "/d/elsewhere")
        task.run()
        assert task.missing is not None
        if is_closed:
            task.finish(NOW_MS)
        else:
            with pytest.raises(StorageError) as failure:
                task.finish(NOW_MS)
            assert failure.value.is_missing
            disk.rename("/d/elsewhere", log.dir)
        assert log.recovery_point == 0


def test_missing_directory_is_logged_at_its_removal() -> None:
    broker = broker_of(file_delete_delay_ms=0, segment_bytes=100, retention_ms=0)
    log = filled(broker, 4)
    assert log.apply_retention(LATER) > 0
    disk: Any = broker.disk
    disk.rename(log.dir, "/d/elsewhere")
    with pytest.raises(StorageError) as failure:
        broker.manager.remove_due(LATER)
    assert failure.value.is_missing
    assert len(broker.manager.trash) == 0
