"""The copies of a move: which, in which order, and how far it says that it is; file by file, and in small pieces."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.errors import StorageError
from barnabas.log.format import names
from barnabas.log.moving import Move
from barnabas.log.partition_log import PartitionLog
from barnabas.records.validate import Origin
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, Broker, append, batch, marker

LOG, OFFSETS, TIMES, ABORTED = names.LOG, names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX


@pytest.fixture
def broker() -> Broker:
    """Three segments at 0, 3 and 6, the second with an aborted transaction; the log ends at 8."""
    broker = Broker("/a", "/b", disk=MemoryDisk(), index_interval_bytes=0)  # type: ignore[arg-type]
    log = broker.log()
    for n in range(3):
        append(log, batch(b"%d" % n * 40, timestamp=NOW_MS + n))
    log.roll()
    append(log, batch(b"t", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    append(log, marker(commit=False, producer_id=7), origin=Origin.COORDINATOR)
    append(log, batch(b"v", timestamp=NOW_MS + 5))
    log.roll()
    for n in range(2):
        append(log, batch(b"%d" % n * 60, timestamp=NOW_MS + 6 + n))
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    return broker


@pytest.fixture
def log(broker: Broker) -> PartitionLog:
    return broker.log()


@pytest.fixture
def move(broker: Broker) -> Move:
    found = broker.manager.begin_move("t", 0, "/b", NOW_MS)
    assert found is not None
    return found


def planned(move: Move, *, whole: bool = False) -> list[tuple[int, str, int, int]]:
    return [(one.base_offset, one.suffix, one.start, one.end) for one in move.plan(whole=whole)]


def copies(move: Move) -> dict[str, bytes]:
    return {
        entry.name: move.disk.read(f"{move.directory}/{entry.name}")
        for entry in move.disk.list(move.directory)
    }


@pytest.mark.parametrize("topic_id", [None, bytes(range(16))])
def test_at_the_end_the_copy_has_what_the_log_has_and_nothing_else(
    log: PartitionLog, move: Move, topic_id: bytes | None
) -> None:
    log.topic_id = topic_id
    move.run(move.plan())
    for name in (
        "rubbish",
        names.file_name(99, LOG),
        names.file_name(0, ABORTED),
        names.file_name(1, names.SNAPSHOT),
    ):
        log.disk.open(f"{move.directory}/{name}", create=True)
    move.complete()
    found = copies(move)
    segments = {names.file_name(base, suffix) for base in (0, 3, 6) for suffix in (LOG, OFFSETS, TIMES)}
    snapshots = {names.file_name(base, names.SNAPSHOT) for base in (3, 6, 8)}
    small = {names.LEADER_EPOCH_CHECKPOINT} | ({names.PARTITION_METADATA} if topic_id else set())
    assert found.keys() == segments | {names.file_name(3, ABORTED)} | snapshots | small
    for name in found.keys() - small:
        assert found[name] == log.disk.read(f"{log.dir}/{name}"), name
    assert move.copied_end_offset == 8


@pytest.mark.parametrize("fails", ["/a", "/b"])
def test_the_end_of_a_move_names_the_dir_that_failed(log: PartitionLog, move: Move, fails: str) -> None:
    disk: Any = log.disk
    move.run(move.plan())
    suffix = names.SNAPSHOT if fails == "/a" else f"{names.LEADER_EPOCH_CHECKPOINT}.tmp"
    with disk.failing("write", suffix), pytest.raises(StorageError) as failure:
        move.complete()
    assert failure.value.log_dir == fails
