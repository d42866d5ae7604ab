"""Moving logs between log dirs: nothing is lost on the way, whatever happens to the log or to the power meanwhile."""

import errno
from random import Random

import pytest

from barnabas.errors import StorageError
from barnabas.log.cleaner.cleaner import LogCleaner
from barnabas.records.validate import Origin
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, Broker, append, batch, marker, read_all

DIRS = ("/a", "/b")
SETTINGS = {"segment_bytes": 2_000, "index_interval_bytes": 200, "cleanup_policy": frozenset({"compact"})}


@pytest.fixture
def disk():
    disk = MemoryDisk()
    for path in DIRS:
        disk.make_dirs(path)
    disk.sync_dir("/")
    return disk


@pytest.fixture
def broker(disk):
    broker = Broker(*DIRS, disk=disk, min_cleanable_dirty_ratio=0.0, **SETTINGS)
    fill(broker, 60)
    broker.log().flush(NOW_MS)
    assert broker.log().log_dir == "/a"
    return broker


def fill(broker, count):
    log = broker.log()
    for n in range(count):
        append(log, batch(b"%d" % n, b"x" * 50, key=b"%d" % (n % 20), timestamp=NOW_MS + n), epoch=n // 30)


def begin(broker):
    return broker.manager.begin_move("t", 0, "/b", NOW_MS)


def names(disk, path):
    return sorted(entry.name for entry in disk.list(path) if entry.is_dir)


def move(broker):
    started = begin(broker)
    started.run(started.plan())
    return broker.manager.finish_move(started, NOW_MS)


def test_a_moved_log_is_the_same_log(broker, disk):
    old = broker.log()
    sequence = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    for n, commit in enumerate((False, True)):
        append(old, batch(b"t", base_sequence=n, **sequence))
        append(old, marker(commit=commit, producer_id=7), origin=Origin.COORDINATOR)
    append(old, batch(b"open", base_sequence=2, **sequence))
    before = read_all(old)
    state = (
        old.log_start_offset,
        old.last_stable_offset,
        old.high_watermark,
        old.log_end_offset,
        old.topic_id,
    )
    aborted = old.aborted_transactions(0, old.log_end_offset)
    bases = [segment.base_offset for segment in old.segments]
    new = move(broker)
    assert broker.log() is new
    assert (new.log_dir, old.is_closed) == ("/b", True)
    assert (
        new.log_start_offset,
        new.last_stable_offset,
        new.high_watermark,
        new.log_end_offset,
        new.topic_id,
    ) == state
    assert new.recovery_point == new.log_end_offset
    assert read_all(new) == before
    assert new.aborted_transactions(0, new.log_end_offset) == aborted
    assert [segment.base_offset for segment in new.segments] == bases
    assert new.epochs.entries == old.epochs.entries
    assert append(new, batch(b"open", base_sequence=2, **sequence)).duplicate
    assert append(new, batch(b"more", base_sequence=3, **sequence)).base_offset == state[3]
    assert names(disk, "/b") == ["t-0"]
    assert len(names(disk, "/a")) == 1
    broker.manager.remove_due(NOW_MS + 60_000)
    assert names(disk, "/a") == []
    assert len(broker.manager.moves) == 0


def test_what_happens_meanwhile_is_not_lost(broker):
    started = begin(broker)
    log = broker.log()
    started.run(started.plan())
    assert started.offset_lag == 0
    fill(broker, 50)
    assert started.offset_lag == 50 * 2
    started.run(started.plan())
    log.delete_records_before(30)
    log.apply_retention(NOW_MS)
    log.flush(NOW_MS)
    LogCleaner(lambda: broker.manager).clean(NOW_MS)
    started.run(started.plan())
    log.truncate_to(log.log_end_offset - 6, now_ms=NOW_MS)
    fill(broker, 3)
    before = read_all(log)
    new = broker.manager.finish_move(started, NOW_MS)
    assert read_all(new) == before
    assert new.log_start_offset == 30
    assert new.clean_offset == log.clean_offset
    broker.restart(clean=True)
    assert (broker.log().log_dir, read_all(broker.log())) == ("/b", before)


def test_files_that_go_while_they_are_copied_are_planned_again(broker):
    started = begin(broker)
    plan = started.plan()
    log = broker.log()
    LogCleaner(lambda: broker.manager).clean(NOW_MS)
    broker.manager.remove_due(NOW_MS + 60_000)
    started.run(plan)
    before = read_all(log)
    assert read_all(broker.manager.finish_move(started, NOW_MS)) == before


def test_a_move_to_where_the_log_is_ends_another_move(broker, disk):
    assert broker.manager.begin_move("t", 0, "/a", NOW_MS) is None
    started = begin(broker)
    assert begin(broker) is None
    assert broker.manager.begin_move("t", 0, "/a", NOW_MS) is None
    assert started.is_cancelled
    broker.manager.remove_due(NOW_MS)
    assert names(disk, "/b") == []


def test_deleting_the_partition_ends_its_move(broker, disk):
    started = begin(broker)
    started.run(started.plan())
    broker.manager.delete("t", 0, NOW_MS)
    assert started.is_cancelled
    broker.manager.remove_due(NOW_MS + 60_000)
    assert names(disk, "/a") == names(disk, "/b") == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_target_that_fails_leaves_the_log_where_it_is(broker, disk, number):
    before = read_all(broker.log())
    for writes in range(100):
        started = begin(broker)
        countdown = writes

        def fault(operation, path):
            nonlocal countdown
            countdown -= operation == "write" and path.startswith("/b")
            return OSError(number, "failed") if countdown < 0 else None

        disk.fault = fault
        failure = None
        try:
            broker.manager.finish_move(started, NOW_MS)
        except StorageError as error:
            failure = error
        disk.fault = None
        if failure is None:
            break
        assert (failure.log_dir, failure.is_full) == ("/b", number == errno.ENOSPC)
        assert broker.log().log_dir == "/a"
        assert read_all(broker.log()) == before
        broker.manager.moves.cancel(started, NOW_MS)
    assert writes > 10
    assert broker.log().log_dir == "/b"
    assert read_all(broker.log()) == before


@pytest.mark.parametrize("after", range(3))
def test_renames_that_fail_leave_the_log_in_one_place(broker, disk, after):
    before = read_all(broker.log())
    started = begin(broker)
    with disk.failing("rename", "t-0" if not after else "-future", after=max(0, after - 1)):
        try:
            broker.manager.finish_move(started, NOW_MS)
        except StorageError:
            assert broker.log().log_dir == "/a"
    assert read_all(broker.log()) == before
    broker.restart(clean=True)
    assert read_all(broker.log()) == before


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_power_cut_at_any_step_leaves_one_whole_log(broker, disk, seed):
    """The disk is looked at as a power cut would leave it, before every single operation of a move."""
    fill(broker, 5)
    broker.log().flush(NOW_MS)
    broker.manager.write_checkpoints()
    before = read_all(broker.log())
    images = []

    def note(*_):
        images.append(disk.crash(None if seed is None else Random(seed * 1_000 + len(images))))

    disk.fault = note
    move(broker)
    disk.fault = None
    note()
    places = set()
    for image in images:
        after = Broker(*DIRS, disk=image, **SETTINGS)
        log = after.manager.get("t", 0)
        assert log is not None
        log.advance_high_watermark(log.log_end_offset)
        assert read_all(log) == before
        places.add(log.log_dir)
        after.manager.remove_due(NOW_MS)
        after.manager.close()
        assert (
            len([name for path in DIRS for name in names(image, path) if not name.endswith("-delete")]) == 1
        )
    assert places == {"/a", "/b"}


def test_a_log_is_made_where_it_was_wished_for(broker):
    broker.manager.prefer("u", 0, "/a")
    append(broker.log("v"), batch(b"x"))  # goes to /b, the emptier one
    append(broker.log("w"), batch(b"x"))
    assert broker.log("u").log_dir == "/a"


def test_a_half_moved_log_waits_as_long_as_a_dir_is_offline(broker, disk):
    started = begin(broker)
    started.run(started.plan())
    before = read_all(broker.log())
    broker.crash()
    disk.fault = lambda _, path: OSError(errno.EIO, "broken") if path.startswith("/a") else None
    broker.start()
    assert broker.manager.get("t", 0) is None
    assert len(names(disk, "/b")) == 1
    disk.fault = None
    broker.restart(clean=True)
    broker.log().advance_high_watermark(1 << 40)
    assert read_all(broker.log()) == before
    broker.manager.remove_due(NOW_MS + 60_000)
    assert names(disk, "/b") == []


def test_whole_copy_is_not_the_log_while_a_dir_is_offline(broker, disk):
    """The log may have been moved there since. A crash came after the old one was renamed, and before the copy was."""
    images = []
    disk.fault = lambda *_: images.append(disk.fork()) or None
    move(broker)
    disk.fault = None
    cut_off = [image for image in images if not {"t-0"} & {*names(image, "/a"), *names(image, "/b")}]
    assert cut_off
    for image in cut_off:
        image.fault = None
        image.make_dirs("/c")
        image.fault = lambda _, path: OSError(errno.EIO, "broken") if path.startswith("/c") else None
        after = Broker(*DIRS, "/c", disk=image, **SETTINGS)
        assert after.manager.get("t", 0) is None
        assert [name.endswith("-future") for name in names(image, "/b")] == [True]
        image.fault = None
        after.restart(clean=False)
        assert after.log().log_dir == "/b"
        after.manager.close()


def test_cut_off_copy_does_not_replace_a_missing_log(broker, disk, caplog):
    """The log was removed by hand, or its log dir was exchanged: what the copy lacks would be lost without a word."""
    started = begin(broker)
    started.run(started.plan()[:1])
    disk.remove_tree("/a/t-0")
    broker.restart(clean=False)
    assert broker.manager.get("t", 0) is None
    (copy,) = names(disk, "/b")
    assert copy.endswith("-future")
    assert f"/b/{copy} is left alone" in caplog.text
    broker.manager.remove_due(NOW_MS + 100_000_000)
    assert names(disk, "/b") == [copy]


def test_a_copy_is_kept_if_the_log_was_made_anew(broker, disk, caplog):
    started = begin(broker)
    started.run(started.plan())
    disk.remove_tree("/a/t-0")
    disk.make_dirs("/a/t-0")  # by somebody who gives up what was in it
    broker.restart(clean=False)
    assert broker.log().log_end_offset == 0
    (stray,) = names(disk, "/b")
    assert stray.endswith("-stray")
    broker.manager.remove_due(NOW_MS + 100_000_000)
    assert names(disk, "/b") == [stray]
    assert disk.list(f"/b/{stray}")
    assert "has more: it is kept as" in caplog.text


@pytest.mark.parametrize(
    "name", ["00000000000000000000.log.damaged-7", "00000000000000000000.log.truncated-0a"]
)
def test_damaged_parts_cut_out_stay_when_the_log_moves(broker, disk, name):
    disk.replace(f"/a/t-0/{name}", b"records", sync=True)
    move(broker)
    broker.manager.remove_due(NOW_MS + 100_000_000)
    (stray,) = names(disk, "/a")
    assert disk.read(f"/a/{stray}/{name}") == b"records"
    broker.restart(clean=False)
    broker.manager.remove_due(NOW_MS + 100_000_000)
    assert disk.read(f"/a/{stray}/{name}") == b"records"
