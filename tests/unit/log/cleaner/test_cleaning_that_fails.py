"""A cleaning that fails does no harm: the log changes, is damaged, or the machine crashes."""

from itertools import islice
from pathlib import Path

import pytest

from barnabas.errors import StorageError
from barnabas.log.cleaner.cleaner import LogCleaner
from barnabas.log.cleaner.cleaning import CleaningAbortedError
from tests.support.cleaning import COMPACTED, clean, cleaner, contents, dirty_log, last_of_each_key, write
from tests.support.faults import FaultyDisk
from tests.support.logs import NOW_MS, Broker, flushes_due


@pytest.mark.parametrize("change", ["truncate", "delete records", "delete", "cancel"])
def test_a_log_that_changes_meanwhile_is_not_harmed(broker, change):
    log = dirty_log(broker)
    expected = contents(log)
    work = cleaner(broker)
    task = work.next_task(NOW_MS)
    assert work.next_task(NOW_MS) is None
    task.run()
    if change == "truncate":
        log.truncate_to(20, now_ms=NOW_MS)
        expected = expected[:20]
    elif change == "delete records":
        log.delete_records_before(40)
        log.apply_retention(NOW_MS)
        expected = expected[40:]
    elif change == "delete":
        broker.manager.delete("t", 0, NOW_MS)
    else:
        work.cancel(log)
    assert not work.done(task, NOW_MS)
    if change != "delete":
        assert contents(log) == expected
        assert list(Path(log.dir).glob("*.cleaned")) == []
        broker.restart(clean=False)
        broker.log().advance_high_watermark(1_000)
        assert contents(broker.log()) == expected


@pytest.mark.parametrize("change", ["truncate", "begin again", "delete", "cancel", "append"])
@pytest.mark.parametrize("done", range(1, 40, 4))
def test_a_log_that_changes_between_two_steps_is_not_harmed(broker, change, done):
    log = dirty_log(broker)
    before = contents(log)
    work = cleaner(broker)
    task = work.next_task(NOW_MS)
    old_bases = [source.facts.base_offset for source in task.sources]
    task.run()
    steps = work.done_steps(task, NOW_MS)
    for _ in islice(steps, done):
        pass
    assert work.next_task(NOW_MS) is None, "the log is in work to the end"
    start = 0
    if change == "truncate":
        log.truncate_to(old_bases[2], now_ms=NOW_MS)
    elif change == "begin again":
        log.truncate_fully_and_start_at(start := old_bases[2])
    elif change == "delete":
        broker.manager.delete("t", 0, NOW_MS)
    elif change == "cancel":
        work.cancel(log)
    else:
        write(log, (b"0", b"new"))
    for _ in steps:
        pass
    if change == "delete":
        return
    remaining = contents(log)
    assert log.missing_file(all_segments=True) is None
    assert {Path(segment.path(".log")).suffix for segment in log.segments} == {".log"}
    if change in ("truncate", "begin again"):
        assert set(remaining) <= {record for record in before if start <= record[0] < old_bases[2]}
    elif change == "cancel":
        assert last_of_each_key(remaining) == last_of_each_key(before)
    else:
        assert last_of_each_key(remaining) == last_of_each_key([*before, (60, b"0", b"new")])
    end_offset = log.log_end_offset
    broker.restart(clean=False)
    broker.log().advance_high_watermark(1_000)
    assert contents(broker.log()) == remaining
    if change != "truncate":  # what is compacted away leaves no trace of where the log ended
        assert broker.log().log_end_offset == end_offset
    assert [path.name for path in Path(log.dir).iterdir() if path.suffix in (".swap", ".cleaned")] == []


def test_a_log_deleted_before_the_cleaning_begins(broker):
    dirty_log(broker)
    work = cleaner(broker)
    task = work.next_task(NOW_MS)
    broker.manager.delete("t", 0, NOW_MS)
    with pytest.raises(CleaningAbortedError) as error:
        task.run()
    work.failed(task, error.value)
    assert work.next_task(NOW_MS) is None


def test_what_a_power_cut_could_take_is_left_alone(broker):
    log = dirty_log(broker)
    work = LogCleaner(lambda: broker.manager)
    assert work.next_task(NOW_MS) is None
    flushes = flushes_due(broker.manager, NOW_MS)
    write(log, (b"k", b"v"))
    for task in flushes:
        task.run()
        task.finish(NOW_MS)
    assert work.next_task(NOW_MS).range.end_offset == log.recovery_point


def test_a_cancelled_cleaning_stops(broker):
    dirty_log(broker)
    work = cleaner(broker)
    task = work.next_task(NOW_MS)
    work.cancel()
    with pytest.raises(CleaningAbortedError):
        task.run()


def test_a_damaged_log_is_passed_over(broker, caplog):
    log = dirty_log(broker)
    path = Path(log.segments[1].path(".log"))
    data = bytearray(path.read_bytes())
    data[61:70] = b"\xff" * 9
    path.write_bytes(data)
    before = list(log.segments)
    work = cleaner(broker)
    assert work.clean(NOW_MS)
    assert "is damaged and will not be cleaned" in caplog.text
    assert not work.clean(NOW_MS)
    assert list(log.segments) == before
    assert list(path.parent.glob("*.cleaned")) == []


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path):
    disk = FaultyDisk()
    broker = Broker(tmp_path, disk=disk, segment_bytes=1_000, **COMPACTED)
    log = dirty_log(broker)
    before = contents(log)
    disk.room, disk.suffix = 100, ".cleaned"
    with pytest.raises(StorageError, match="no room left"):
        cleaner(broker).clean(NOW_MS)
    disk.room = None
    assert contents(log) == before
    assert list(tmp_path.glob("t-0/*.cleaned")) == []


class CrashingDisk(FaultyDisk):
    """Dies at the n-th rename."""

    renames_left = 1 << 30

    def rename(self, source, target):
        self.renames_left -= 1
        if self.renames_left < 0:
            raise OSError("the machine is gone")
        super().rename(source, target)


@pytest.mark.parametrize("renames", range(0, 40, 3))
def test_a_crash_while_segments_are_swapped_loses_nothing(tmp_path, renames):
    disk = CrashingDisk()
    broker = Broker(tmp_path, disk=disk, segment_bytes=1_000, index_interval_bytes=100, **COMPACTED)
    log = dirty_log(broker)
    before = contents(log)
    work = cleaner(broker)
    task = work.next_task(NOW_MS)
    task.run()
    disk.renames_left = renames
    crashed = False
    try:
        work.done(task, NOW_MS)
    except StorageError:
        crashed = True
    disk.renames_left = 1 << 30
    broker.restart(clean=False)
    log = broker.log()
    log.advance_high_watermark(1_000)
    remaining = contents(log)
    assert remaining[-5:] == before[-5:]
    assert last_of_each_key(remaining) == last_of_each_key(before)
    assert set(remaining) <= set(before)
    assert log.log_end_offset == 60
    assert crashed or remaining == last_of_each_key(before)
    assert [
        path for path in Path(log.dir).iterdir() if path.suffix in (".swap", ".cleaned", ".deleted")
    ] == []
    write(log, (b"0", b"new"))
    log.roll()
    clean(broker)
    assert len(contents(broker.log())) == 5
