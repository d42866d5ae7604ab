"""A follower's log that begins after what is in tiered storage, also when a crash comes in between (KIP-405)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from barnabas.log.format import names, snapshot
from barnabas.log.partition_log import PartitionLog
from barnabas.log.tiered_start import TieredStart, decode, encode
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, Broker, append, batch, read_all, rebase

SETTINGS = {"segment_bytes": 700, "remote_storage_enable": True}
PRODUCER = snapshot.SnapshotEntry(7, 1, 4, 999, 4, NOW_MS, 0, -1)
START = TieredStart(1000, 20, ((0, 10), (2, 300), (3, 900)), snapshot.encode([PRODUCER]))
OLD_VALUES = [b"old %d" % n for n in range(30)]


class KilledError(BaseException):
    """The end of a process."""


def broker_on(disk: MemoryDisk) -> Broker:
    return Broker("/d", disk=disk, **SETTINGS)  # type: ignore[arg-type]


def with_old_log() -> tuple[MemoryDisk, Broker]:
    """A broker with a log of several segments, all of it on the medium."""
    disk = MemoryDisk()
    disk.make_dirs("/d")
    disk.sync_dir("/")
    broker = broker_on(disk)
    log = broker.log()
    for value in OLD_VALUES:
        append(log, batch(value, producer_id=5, producer_epoch=0, base_sequence=log.log_end_offset))
    assert len(log.segments) > 3
    log.flush(NOW_MS)
    return disk, broker


def begin(log: PartitionLog) -> None:
    log.begin_after_tier(START, now_ms=NOW_MS)


def facts(log: PartitionLog) -> tuple[Any, ...]:
    producers = [(entry.producer_id, entry.last_sequence) for entry in log.producers.snapshot()]
    return (
        log.log_start_offset,
        log.local_log_start_offset,
        log.high_watermark,
        log.log_end_offset,
        log.epochs.entries,
        producers,
    )


NEW = 20, 1000, 1000, 1000, [(0, 20), (2, 300), (3, 900)], [(7, 4)]


def is_old(log: PartitionLog) -> bool:
    if log.log_end_offset != len(OLD_VALUES):
        return False
    log.advance_high_watermark(log.log_end_offset)
    assert [record.value for record in read_all(log)] == OLD_VALUES
    return log.epochs.entries == [(0, 0)]


def test_log_begins_with_the_epochs_and_producers_of_the_tier() -> None:
    _, broker = with_old_log()
    log = broker.log()
    begin(log)
    assert facts(log) == NEW
    assert log.highest_remote_offset == 999
    assert log.last_stable_offset == 1000
    data = batch(b"new", producer_id=7, producer_epoch=1, base_sequence=5)
    rebase(data, 0, 1000, 3)
    log.append_as_follower(data, now_ms=NOW_MS)
    log.advance_high_watermark(1001)
    assert [record.value for record in read_all(log, 1000)] == [b"new"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_log_is_the_same_after_a_restart(is_clean: bool) -> None:
    _, broker = with_old_log()
    begin(broker.log())
    broker.restart(clean=is_clean)
    assert facts(broker.log()) == NEW


def kill_at(disk: MemoryDisk, step: int) -> None:
    remaining = step

    def fault(operation: str, path: str) -> None:
        nonlocal remaining
        if operation not in ("read", "list"):
            remaining -= 1
            if remaining < 0:
                raise KilledError

    disk.fault = fault


def killed(step: int) -> tuple[MemoryDisk, bool]:
    """A disk after a process that was killed at a step of the beginning, and whether that was before its end."""
    disk, broker = with_old_log()
    kill_at(disk, step)
    is_killed = False
    try:
        begin(broker.log())
    except KilledError:
        is_killed = True
    disk.fault = None
    return disk, is_killed


def all_kills() -> Iterator[MemoryDisk]:
    step, is_killed = 0, True
    while is_killed:
        disk, is_killed = killed(step)
        yield disk
        step += 1
    assert step > 20


def judge(disk: MemoryDisk) -> str:
    log = broker_on(disk).log()
    if is_old(log):
        return "old"
    assert facts(log) == NEW
    return "new"


def test_kill_at_each_step_leaves_one_of_the_two_logs() -> None:
    verdicts = [judge(disk.fork()) for disk in all_kills()]
    assert verdicts == sorted(verdicts, reverse=True)
    assert set(verdicts) == {"old", "new"}


def test_power_cut_at_each_step_leaves_one_of_the_two_logs() -> None:
    random = Random(1)
    verdicts = {judge(disk.crash(random)) for disk in all_kills() for _ in range(5)}
    assert verdicts == {"old", "new"}


def test_kill_while_a_kill_is_made_good_leaves_the_new_log() -> None:
    disk = next(disk for number, disk in enumerate(all_kills()) if number == 12)
    assert judge(disk.fork()) == "new"
    for step in range(30):
        second = disk.fork()
        kill_at(second, step)
        with suppress(KilledError):
            broker_on(second)
        second.fault = None
        for third in (second.fork(), second.crash(Random(step))):
            third.locks.clear()
            assert judge(third) == "new"


def test_records_appended_since_survive_a_power_cut() -> None:
    disk, broker = with_old_log()
    log = broker.log()
    begin(log)
    data = batch(b"new")
    rebase(data, 0, 1000, 3)
    log.append_as_follower(data, now_ms=NOW_MS)
    log.flush(NOW_MS)
    for seed in range(10):
        recovered = broker_on(disk.crash(Random(seed))).log()
        recovered.advance_high_watermark(1001)
        assert [record.value for record in read_all(recovered, 1000)] == [b"new"]


def test_damaged_file_of_the_beginning_leaves_the_old_log(caplog: pytest.LogCaptureFixture) -> None:
    disk, broker = with_old_log()
    path = f"{broker.log().dir}/{names.TIERED_START}"
    disk.replace(path, encode(START).replace(b"1000", b"1001"), sync=True)
    assert judge(disk.fork()) == "old"
    assert "is damaged, and removed" in caplog.text


def test_content_of_the_file_is_read_as_it_was_written() -> None:
    assert decode(encode(START)) == START


def test_truncation_below_the_local_start_keeps_the_tier() -> None:
    _, broker = with_old_log()
    log = broker.log()
    begin(log)
    log.truncate_to(950, now_ms=NOW_MS)
    assert facts(log) == (20, 950, 950, 950, [(0, 20), (2, 300), (3, 900)], [])
    assert log.highest_remote_offset == 949
    log.truncate_to(500, now_ms=NOW_MS)
    assert facts(log) == (20, 500, 500, 500, [(0, 20), (2, 300)], [])
    broker.restart(clean=False)
    assert facts(broker.log())[:5] == (20, 500, 500, 500, [(0, 20), (2, 300)])
    broker.log().truncate_to(10, now_ms=NOW_MS)
    assert facts(broker.log()) == (10, 10, 10, 10, [], [])


def move(broker: Broker, *, meanwhile: bool) -> PartitionLog:
    """Move the log to the other log dir; it begins in the tier before that, or when a part is copied."""
    manager, log = broker.manager, broker.log()
    if not meanwhile:
        begin(log)
    under_way = manager.begin_move("t", 0, "/e", NOW_MS)
    assert under_way is not None
    under_way.run(under_way.plan())
    if meanwhile:
        begin(log)
    under_way.run(under_way.plan())
    return manager.finish_move(under_way, NOW_MS)


@pytest.mark.parametrize("meanwhile", [True, False])
@pytest.mark.parametrize("is_clean", [True, False])
def test_moved_log_keeps_what_is_in_the_tier(meanwhile: bool, is_clean: bool) -> None:
    disk = MemoryDisk()
    for path in ("/d", "/e"):
        disk.make_dirs(path)
    broker = Broker("/d", "/e", disk=disk, **SETTINGS)  # type: ignore[arg-type]
    broker.manager.prefer("t", 0, "/d")
    for value in OLD_VALUES:
        append(broker.log(), batch(value))
    log = move(broker, meanwhile=meanwhile)
    assert log.log_dir == "/e"
    assert facts(log) == NEW
    assert log.highest_remote_offset == 999
    broker.restart(clean=is_clean)
    assert facts(broker.log()) == NEW
