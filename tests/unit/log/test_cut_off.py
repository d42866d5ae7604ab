"""Copies of interrupted moves: none becomes a log that lacks records, and none goes that was not given up."""

import errno
import logging

import pytest

from barnabas.errors import StorageError
from barnabas.log.cut_off import MarkedDir
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, TOPIC_ID, Broker, append, batch, read_all

DIRS = ("/a", "/b")
LATER_MS = NOW_MS + 100_000_000
LONG = "t" * 240
"""So long that the name of its copy has only part of it."""


@pytest.fixture
def disk():
    disk = MemoryDisk()
    for path in DIRS:
        disk.make_dirs(path)
    disk.sync_dir("/")
    return disk


@pytest.fixture
def broker(disk):
    broker = Broker(*DIRS, disk=disk, segment_bytes=2_000)
    made(broker, "t")
    return broker


def made(broker, topic, topic_id=TOPIC_ID):
    broker.manager.prefer(topic, 0, "/a")
    fill(broker.manager.create(topic, 0, topic_id, now_ms=NOW_MS), 60)


def fill(log, count):
    for n in range(count):
        append(log, batch(b"%d" % n, b"x" * 50))
    log.flush(NOW_MS)


def begin(broker, topic="t"):
    """Copy half of a log that is in /a."""
    move = broker.manager.begin_move(topic, 0, "/b", NOW_MS)
    move.run(move.plan()[:1])
    assert 0 < move.size_bytes < move.partition_log.size_bytes
    return move


def lose(broker, path):
    broker.manager.take_offline(path, StorageError(path, OSError(errno.EIO, "broken")))


def dirs(disk, path):
    return sorted(entry.name for entry in disk.list(path) if entry.is_dir)


def kinds(disk, path):
    return [name.rpartition("-")[2] for name in dirs(disk, path)]


def restart(broker):
    broker.restart(clean=False)
    broker.manager.remove_due(LATER_MS)


# --- a log that was deleted while its copy was in a lost dir ----------------------------------------------------


@pytest.mark.parametrize("starts", [1, 2])
def test_copy_of_a_log_deleted_while_offline_stays_and_is_named(broker, disk, caplog, starts):
    begin(broker)
    lose(broker, "/b")
    broker.manager.delete("t", 0, NOW_MS)
    for _ in range(starts):
        caplog.clear()
        restart(broker)
    assert broker.manager.get("t", 0) is None
    (copy,) = dirs(disk, "/b")
    assert copy.endswith("-future")
    assert dirs(disk, "/a") == []
    assert f"/b/{copy} is left alone: the log of t-0 is gone from where it was" in caplog.text
    assert "rename it to /b/t-0; if the partition was deleted while /b was offline, remove it" in caplog.text


def test_half_a_copy_does_not_revive_a_half_removed_log(broker, disk):
    """Neither of them has a topic id then."""
    begin(broker)
    lose(broker, "/b")
    broker.manager.delete("t", 0, NOW_MS)
    (gone,) = dirs(disk, "/a")
    disk.remove(f"/a/{gone}/partition.metadata")
    restart(broker)
    assert broker.manager.get("t", 0) is None
    assert kinds(disk, "/b") == ["future"]


def test_half_a_copy_does_not_revive_a_log_without_topic_id(broker, disk):
    made(broker, "u", topic_id=None)
    begin(broker, "u")
    lose(broker, "/b")
    broker.manager.delete("u", 0, NOW_MS)
    restart(broker)
    assert broker.manager.get("u", 0) is None
    assert kinds(disk, "/b") == ["future"]


@pytest.mark.parametrize("topic_id", [None, TOPIC_ID])
def test_a_whole_copy_becomes_the_log_that_was_renamed_for_it(broker, disk, topic_id):
    """Killed in the middle of the last step."""
    made(broker, "u", topic_id)
    before = read_all(broker.log("u"))
    move = begin(broker, "u")
    move.complete()
    disk.rename("/a/u-0", "/a/u-0.0123-delete")
    restart(broker)
    log = broker.log("u")
    log.advance_high_watermark(log.log_end_offset)
    assert (log.dir, log.topic_id, read_all(log)) == ("/b/u-0", topic_id, before)
    assert broker.manager.missing == {}


@pytest.mark.parametrize(
    ("renamed", "topic_id"),
    [("u-1.0123-delete", None), ("v-0.0123-delete", None), ("u-0.0123-delete", TOPIC_ID)],
)
def test_whole_copy_is_not_the_log_once_another_was_renamed(broker, disk, renamed, topic_id):
    made(broker, "uu", topic_id=None)
    move = begin(broker, "uu")
    move.complete()
    disk.remove_tree("/a/uu-0")
    disk.rename("/a/t-0", f"/a/{renamed}")
    if topic_id is None:
        disk.remove(f"/a/{renamed}/partition.metadata")
    restart(broker)
    assert broker.manager.get("uu", 0) is None
    assert kinds(disk, "/b") == ["future"]


# --- a log that is made anew ------------------------------------------------------------------------------------


def test_skipped_copy_is_kept_when_the_log_is_recreated(broker, disk, caplog):
    """The records of the copy are nowhere else, however long the new log becomes."""
    begin(broker)
    disk.remove_tree("/a/t-0")
    restart(broker)
    (copy,) = dirs(disk, "/b")
    data = disk.read(f"/b/{copy}/00000000000000000000.log")
    made(broker, "u")
    assert dirs(disk, "/b") == [copy]
    made(broker, "t")
    fill(broker.log(), 200)
    kept = [name for name in dirs(disk, "/b") if name.endswith("-stray")]
    assert (
        f"t-0 begins anew; a copy of the log that it had, which was on its way to /b, is kept as /b/{kept[0]}"
        in (caplog.text)
    )
    restart(broker)
    assert dirs(disk, "/b") == kept
    assert disk.read(f"/b/{kept[0]}/00000000000000000000.log") == data


def test_copy_of_a_log_in_a_failed_dir_survives_recreation(broker, disk):
    begin(broker)
    lose(broker, "/a")
    assert kinds(disk, "/b") == ["future"]
    broker.manager.create("t", 0, TOPIC_ID, now_ms=NOW_MS)
    assert sorted(kinds(disk, "/b")) == ["0", "stray"]


def test_a_copy_in_a_dir_that_has_failed_since_is_not_touched(broker, disk):
    move = begin(broker)
    lose(broker, "/a")
    assert broker.manager.cut_off.left_alone == {move.directory: ("/b", ("t", 0))}
    lose(broker, "/b")
    assert broker.manager.cut_off.left_alone == {}
    broker.manager.delete("t", 0, NOW_MS)
    assert kinds(disk, "/b") == ["future"]


def test_a_copy_in_the_dir_that_fails_is_left_to_the_next_start(broker, disk):
    begin(broker)
    lose(broker, "/b")
    assert broker.manager.cut_off.left_alone == {}
    restart(broker)
    assert (dirs(disk, "/a"), dirs(disk, "/b")) == (["t-0"], [])


# --- a log that is deleted --------------------------------------------------------------------------------------


def test_a_copy_that_was_left_alone_goes_with_its_partition(broker, disk):
    begin(broker)
    disk.remove_tree("/a/t-0")
    restart(broker)
    broker.manager.delete("t", 1, NOW_MS)
    assert kinds(disk, "/b") == ["future"]
    broker.manager.delete("t", 0, NOW_MS)
    assert kinds(disk, "/b") == ["delete"]
    broker.manager.remove_due(LATER_MS)
    assert dirs(disk, "/b") == []


def test_copy_is_deleted_with_its_partition_while_dir_failed(broker, disk):
    begin(broker)
    lose(broker, "/a")
    broker.manager.delete("t", 0, NOW_MS)
    broker.manager.remove_due(LATER_MS)
    assert dirs(disk, "/b") == []
    assert dirs(disk, "/a") == ["t-0"]


def test_copy_skipped_for_an_offline_dir_is_deleted_later(broker, disk):
    begin(broker)
    broker.crash()
    disk.fault = lambda _, path: OSError(errno.EIO, "broken") if path.startswith("/a") else None
    broker.start()
    assert kinds(disk, "/b") == ["future"]
    broker.manager.delete("t", 0, NOW_MS)
    broker.manager.remove_due(LATER_MS)
    assert dirs(disk, "/b") == []


# --- disks that fail --------------------------------------------------------------------------------------------


def test_a_dir_where_a_copy_cannot_be_kept_goes_offline_alone(broker, disk):
    begin(broker)
    broker.crash()
    disk.remove_tree("/a/t-0")
    disk.make_dirs("/a/t-0")
    with disk.failing("rename", "-future"):
        broker.start()
    assert list(broker.manager.offline) == ["/b"]
    assert broker.log().log_end_offset == 0
    assert kinds(disk, "/b") == ["future"]


# --- names that are cut short -----------------------------------------------------------------------------------


def test_a_copy_goes_whose_name_has_only_part_of_its_topic(broker, disk):
    made(broker, LONG)
    end_offset = begin(broker, LONG).partition_log.log_end_offset
    restart(broker)
    assert broker.manager.get(LONG, 0).log_end_offset == end_offset
    assert (dirs(disk, "/a"), dirs(disk, "/b")) == (["t-0", f"{LONG}-0"], [])


def test_a_whole_copy_becomes_the_log_of_its_whole_name(broker, disk):
    made(broker, LONG)
    broker.manager.write_checkpoints()
    move = begin(broker, LONG)
    move.complete()
    marked = move.directory.rpartition("/")[2].replace("future", "delete")
    disk.rename(f"/a/{LONG}-0", f"/a/{marked}")
    restart(broker)
    assert broker.log(LONG).dir == f"/b/{LONG}-0"
    assert dirs(disk, "/b") == [f"{LONG}-0"]


@pytest.mark.parametrize("others", [(), (LONG + "u", LONG + "v")])
def test_copy_of_an_ambiguous_or_unknown_topic_is_skipped(broker, disk, caplog, others):
    made(broker, LONG)
    move = begin(broker, LONG)
    move.complete()
    marked = move.directory.rpartition("/")[2].replace("future", "delete")
    disk.rename(f"/a/{LONG}-0", f"/a/{marked}")
    for topic in others:
        made(broker, topic)
    for path in DIRS:
        disk.remove(f"{path}/.barnabas-boot-id")
    caplog.set_level(logging.ERROR)
    restart(broker)
    assert kinds(disk, "/b") == ["future"]
    assert f"{move.directory} is left alone: the name of its topic was cut short" in caplog.text


@pytest.mark.parametrize(
    ("name", "key", "is_of"),
    [
        ("t-0.ab-future", ("t", 0), True),
        ("t-0.ab-future", ("t", 1), False),
        ("t-0.ab-future", ("tt", 0), False),
        ("t-0.ab-future".ljust(255, "x"), ("tt", 0), True),
        ("t-0.ab-future".ljust(255, "x"), ("ut", 0), False),
        ("t-0.ab-future".ljust(255, "x"), ("tt", 1), False),
    ],
)
def test_whose_a_name_may_be(name, key, is_of):
    assert MarkedDir("/a", name, "t", 0).may_be_of(key) is is_of


@pytest.mark.parametrize("lost", DIRS)
def test_copy_is_skipped_unless_its_own_dir_is_lost(broker, lost):
    move = begin(broker)
    lose(broker, lost)
    assert list(broker.manager.cut_off.left_alone) == ([move.directory] if lost == "/a" else [])
