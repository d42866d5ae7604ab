"""Logs that are gone when a broker starts: they stay known until they are deleted or made anew."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from barnabas.errors import StorageError
from barnabas.log import damage as damage_module
from barnabas.log.checkpointing import MISSING
from barnabas.log.cleaner.cleaner import LogCleaner
from barnabas.log.config import LogConfig
from barnabas.log.damage import find_sound_batch, keep_damaged, put_back, split_off
from barnabas.log.format import names
from barnabas.log.format.checkpoints import decode_offsets
from barnabas.log.logdir import Checkpoints
from barnabas.log.openfiles import OpenFiles
from barnabas.log.opening import had_log
from barnabas.log.segment import Segment
from barnabas.records.building import encode_batch
from barnabas.records.compression import Codec
from barnabas.records.errors import CorruptRecordsError
from barnabas.records.record import Record
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, Broker, append, batch, read_all, rebase

KEY = ("t", 0)


def broker_of(*dirs: str, **settings: Any) -> Broker:
    return Broker(*(dirs or ("/d",)), disk=MemoryDisk(), **settings)  # type: ignore[arg-type]


def filled(broker: Broker, count: int = 3, topic: str = "t") -> Any:
    log = broker.log(topic)
    for n in range(count):
        append(log, batch(b"%d" % n, timestamp=NOW_MS + n))
    return log


def lose(broker: Broker, what: str, topic: str = "t") -> None:
    disk: Any = broker.disk
    path = f"/d/{topic}-0"
    if what == "directory":
        disk.remove_tree(path)
        return
    for entry in disk.list(path):
        if what == "all files" or entry.name.endswith(names.LOG):
            disk.remove(f"{path}/{entry.name}")


def points(broker: Broker) -> dict[Any, int]:
    disk: Any = broker.disk
    return decode_offsets(disk.read(f"/d/{names.RECOVERY_POINT_CHECKPOINT}"))


@pytest.mark.parametrize("what", ["directory", "segments"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_log_that_is_gone_is_missed_at_every_start(what: str, clean: bool, threads: int) -> None:
    broker = broker_of()
    broker.recovery_threads = threads
    filled(broker)
    filled(broker, topic="u").flush(NOW_MS)
    broker.log().flush(NOW_MS)
    broker.manager.write_checkpoints()
    if clean:
        broker.manager.close()
    else:
        broker.crash()
    lose(broker, what)
    for _ in range(2):
        manager = broker.start()
        assert manager.missing == {KEY: "/d/t-0"}
        assert manager.get(*KEY) is None
        assert [record.value for record in read_all(broker.log("u"))] == [b"0", b"1", b"2"] or not clean
        assert broker.log("u").log_end_offset == 3
        manager.write_checkpoints()
        assert points(broker) == {KEY: MISSING, ("u", 0): 3}
        if clean:
            manager.close()
        else:
            broker.crash()


def test_a_log_whose_directory_was_emptied_begins_anew() -> None:
    broker = broker_of()
    filled(broker)
    broker.manager.close()
    lose(broker, "all files")
    broker.start()
    assert broker.manager.missing == {}
    assert (broker.log().log_start_offset, broker.log().log_end_offset) == (0, 0)


@pytest.mark.parametrize("ends", ["deleted", "made anew", "found"])
def test_a_log_is_missed_until_somebody_decides(ends: str) -> None:
    broker = broker_of("/d", "/e")
    log = filled(broker)
    assert log.log_dir == "/d"
    broker.manager.close()
    disk: Any = broker.disk
    if ends == "found":
        disk.rename("/d/t-0", "/e/t-0")
        broker.start()
        assert broker.manager.missing == {}
        assert broker.log().log_dir == "/e"
        assert broker.log().log_end_offset == 3
        return
    lose(broker, "segments")
    broker.start()
    if ends == "deleted":
        broker.manager.delete(*KEY, NOW_MS)
    else:
        assert broker.log().log_end_offset == 0
    assert broker.manager.missing == {}
    listed = [entry.name for entry in disk.list("/d") if entry.name.startswith("t-0.")]
    assert [name.rpartition("-")[2] for name in listed] == ["delete" if ends == "deleted" else "stray"]
    assert broker.manager.remove_due(NOW_MS) == (ends == "deleted")


@pytest.mark.parametrize(
    ("recovery_point", "intact", "clean", "expected"),
    [
        (None, True, False, False),
        (0, False, False, False),
        (0, True, False, True),
        (0, True, True, False),
        (1, False, False, True),
        (1, False, True, True),
    ],
)
def test_log_that_was_never_flushed_may_vanish_in_a_power_cut(
    recovery_point: int | None, intact: bool, clean: bool, expected: bool
) -> None:
    points = {} if recovery_point is None else {KEY: recovery_point}
    assert had_log(Checkpoints(points, is_clean=clean, is_cache_intact=intact), KEY) is expected
    assert not had_log(Checkpoints(points, is_clean=clean, is_cache_intact=intact), ("t", 1))


# --- checkpoints --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("failing", "told"), [(("/d",), "/d"), (("/e",), "/e"), (("/d", "/e"), "/d")])
def test_failed_checkpoint_does_not_stop_those_of_other_dirs(failing: tuple[str, ...], told: str) -> None:
    broker = broker_of("/d", "/e", "/f")
    disk: Any = broker.disk

    def fault(operation: str, path: str) -> OSError | None:
        is_hit = operation == "write" and path.rpartition("/")[0] in failing
        return OSError(errno.EIO, "broken", path) if is_hit else None

    disk.fault = fault
    with pytest.raises(StorageError) as failure:
        broker.manager.write_checkpoints()
    disk.fault = None
    assert failure.value.log_dir == told
    written = [
        path for path in ("/d", "/e", "/f")
        if names.RECOVERY_POINT_CHECKPOINT in {entry.name for entry in disk.list(path)}
    ]  # fmt: skip
    assert written == [path for path in ("/d", "/e", "/f") if path not in failing]


@pytest.mark.parametrize("clean_offset", [None, 0, 2])
def test_only_a_log_that_was_cleaned_has_a_clean_offset(clean_offset: int | None) -> None:
    broker = broker_of()
    log = filled(broker)
    log.clean_offset = clean_offset
    broker.manager.write_checkpoints()
    disk: Any = broker.disk
    offsets = decode_offsets(disk.read(f"/d/{names.CLEANER_CHECKPOINT}"))
    assert offsets == ({} if clean_offset is None else {KEY: clean_offset})
    broker.restart(clean=True)
    assert broker.log().clean_offset == clean_offset


# --- cleaning -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), CorruptRecordsError("damaged")])
def test_a_log_that_cannot_be_measured_is_not_cleaned(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    broker = broker_of(
        cleanup_policy=frozenset(("compact",)), min_cleanable_dirty_ratio=0.0, segment_bytes=100
    )
    log = filled(broker, 4)
    log.flush(NOW_MS)
    cleaner = LogCleaner(lambda: broker.manager)
    range_: Any = cleaner.due_range(log, NOW_MS)
    assert range_ is not None
    log.config = LogConfig(cleanup_policy=frozenset(("compact",)), min_cleanable_dirty_ratio=1.0)
    assert cleaner.take([(log, range_)], NOW_MS) is None  # it has changed since
    log.config = broker.config

    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(cleaner, "measure", fail)
    if isinstance(error, OSError):
        with pytest.raises(StorageError) as failure:
            cleaner.due_range(log, NOW_MS)
        assert failure.value.log_dir == "/d"
    else:
        assert cleaner.due_range(log, NOW_MS) is None
        assert cleaner.uncleanable == {log}


@pytest.mark.parametrize(("index_bytes", "segments"), [(12, 5), (24, 3), (47, 3), (48, 2), (1 << 20, 2)])
def test_cleaned_segments_are_joined_as_far_as_their_indexes_fit(index_bytes: int, segments: int) -> None:
    broker = broker_of(
        cleanup_policy=frozenset(("compact",)), min_cleanable_dirty_ratio=0.0, index_interval_bytes=0,
        segment_index_bytes=1 << 20,
    )  # fmt: skip
    log = broker.log()
    for n in range(4):
        for part in range(2):
            append(log, batch(b"v", key=b"%d" % (2 * n + part), timestamp=NOW_MS + 2 * n + part))
        log.roll()
    log.flush(NOW_MS)
    log.config = LogConfig(
        cleanup_policy=frozenset(("compact",)), min_cleanable_dirty_ratio=0.0, index_interval_bytes=0,
        segment_index_bytes=index_bytes,
    )  # fmt: skip
    assert LogCleaner(lambda: broker.manager).clean(NOW_MS)
    assert len(log.segments) == segments
    assert len(read_all(log)) == 8


# --- segments and damage ------------------------------------------------------------------------------------------


def segment_at(disk: Any, base_offset: int, content: bytes = b"") -> Segment:
    disk.make_dirs("/d/t-0")
    path = f"/d/t-0/{names.file_name(base_offset, names.LOG)}"
    disk.open(path, create=True).write(content, 0)
    return Segment(disk, OpenFiles(10), "/d/t-0", base_offset, len(content))


def test_a_segment_that_is_made_where_a_file_is_begins_empty() -> None:
    disk: Any = MemoryDisk()
    segment_at(disk, 5, b"rubbish")
    segment = Segment.create(disk, OpenFiles(10), "/d/t-0", 5, LogConfig())
    assert segment.file.size() == segment.size == 0
    assert segment.load_first_timestamp() == -1
    segment = Segment.create(disk, OpenFiles(10), "/d/t-0", 6, LogConfig(preallocate=True, segment_bytes=100))
    assert (segment.file.size(), segment.size, segment.is_preallocated) == (100, 0, True)
    segment = Segment.create(disk, OpenFiles(10), "/d/t-0", 7, LogConfig(preallocate=True), names.CLEANED)
    assert (segment.file.size(), segment.is_preallocated) == (0, False)


def test_a_write_in_the_background_is_taken_back_once() -> None:
    segment = segment_at(MemoryDisk(), 0, bytes(10))
    write = segment.begin_write(batch(b"v"))
    write.run()
    assert segment.file.size() > 10
    other = segment.begin_write(batch(b"w"))
    assert segment.file.size() == 10
    other.run()
    segment.end_write(write)  # that is over
    assert segment.file.size() > 10
    segment.end_write(other)
    assert segment.file.size() == 10


def placed(offset: int, value: bytes = b"v") -> bytes:
    raw = batch(value)
    rebase(raw, 0, offset, 0)
    return bytes(raw)


def test_what_follows_damage_is_kept_and_put_back() -> None:
    disk: Any = MemoryDisk()
    first, rest = placed(0), placed(5) + placed(6)
    broken = bytearray(placed(1))
    broken[-2] ^= 1
    segment = segment_at(disk, 0, first + broken + rest)
    path = segment.path(names.LOG)
    damage = damage_module.Damage(path, len(first), len(first) + len(broken), 1, 5, "why")
    split_off(disk, "/d/t-0", damage, segment.size)
    target = f"/d/t-0/{names.file_name(5, names.LOG)}"
    assert disk.read(target) == rest
    disk.remove(target)
    kept = keep_damaged(disk, damage, segment.size)
    assert kept == f"{path}{names.DAMAGED}1"
    assert disk.read(kept) == bytes(broken) + rest
    assert put_back(disk, "/d/t-0", 7) == [kept]  # its offsets have been used again
    assert disk.read(kept) == bytes(broken) + rest
    assert put_back(disk, "/d/t-0", 1) == []
    assert disk.read(kept) == bytes(broken)
    assert disk.read(target) == rest
    whole = f"{path}{names.DAMAGED}9"
    disk.open(whole, create=True).write(placed(9), 0)
    assert put_back(disk, "/d/t-0", 9) == []
    assert disk.read(f"/d/t-0/{names.file_name(9, names.LOG)}") == placed(9)
    assert whole.rpartition("/")[2] not in {entry.name for entry in disk.list("/d/t-0")}


@pytest.mark.parametrize(("number", "text"), [(errno.ENOSPC, "make room"), (errno.EIO, "write failed")])
def test_a_copy_that_fails_leaves_nothing(number: int, text: str) -> None:
    disk: Any = MemoryDisk()
    segment = segment_at(disk, 0, placed(0) + placed(5))
    damage = damage_module.Damage(segment.path(names.LOG), 0, 10, 0, 5, "why")
    with disk.failing("write", ".tmp", number=number), pytest.raises(OSError, match=text) as failure:
        keep_damaged(disk, damage, segment.size)
    assert failure.value.errno == number
    assert {entry.name for entry in disk.list("/d/t-0")} == {names.file_name(0, names.LOG)}


def test_search_behind_damage_stops_at_its_checksum_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers that claim to be large, each of which costs a checksum."""
    monkeypatch.setattr(damage_module, "SUMMED_BYTES_MIN", 1_000)
    liar = bytearray(placed(1, b"x" * 30))
    liar[-1] ^= 1
    disk: Any = MemoryDisk()
    for count, is_found in ((5, True), (40, True)):
        content = bytes(liar) * count + placed(5)
        segment = segment_at(disk, 0, content)
        sound = find_sound_batch(segment.file, 0, len(content))
        assert (sound is not None) is is_found
    huge = bytearray(liar)
    size = 61 * 2_000
    content = b""
    for n in range(2_000):
        huge[8:12] = (size - 61 * n - 12).to_bytes(4, "big")
        content += bytes(huge[:61])
    segment = segment_at(disk, 0, content + placed(5))
    assert find_sound_batch(segment.file, 0, segment.size) is None


@pytest.mark.parametrize("is_marked", [True, False])
def test_unfinished_cut_is_repeated_if_the_rest_is_damaged(is_marked: bool) -> None:
    """Though all of it is before the recovery point, from which on a start looks otherwise."""
    broker = broker_of()
    log = filled(broker, 3)
    first = log.active
    log.roll()
    append(log, batch(b"3"))
    log.flush(NOW_MS)
    broker.manager.write_checkpoints()
    disk: Any = broker.disk
    if is_marked:
        disk.open(f"/d/t-0/{names.file_name(0, names.LOG)}{names.DAMAGED}1", create=True)
    first.file.write(b"\xff" * 20, first.size - 60)
    broker.restart(clean=False)
    log = broker.log()
    log.advance_high_watermark(4)
    assert log.log_end_offset == 4
    if is_marked:
        assert [record.offset for record in read_all(log)] == [0, 1, 3]
    else:
        assert log.segments[0].size == first.size


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("count", [1, 999, 1_000, 1_001, 3_000])
def test_a_timestamp_is_found_in_a_batch_of_any_size(codec: Codec, count: int) -> None:
    log = broker_of(message_timestamp_after_max_ms=10**12).log()
    assert log.offset_of_max_timestamp() is None
    records = [Record(n, NOW_MS + n, None, None) for n in range(count)]
    append(log, bytearray(encode_batch(records, codec=codec)))
    for after_ms in {0, count // 2, count - 1}:
        assert log.offset_for_timestamp(NOW_MS + after_ms) == (NOW_MS + after_ms, after_ms, 0)
    assert log.offset_for_timestamp(NOW_MS + count) is None
    assert log.offset_of_max_timestamp() == (NOW_MS + count - 1, count - 1, 0)


@pytest.mark.parametrize("clean", [True, False])
def test_epochs_missing_from_the_file_are_read_from_batches(clean: bool) -> None:
    """It is not synced with each: after a power cut it may be an older one."""
    broker = broker_of()
    log = broker.log()
    for epoch in (3, 3, 5):
        append(log, batch(b"a", b"b"), epoch=epoch)
    disk: Any = broker.disk
    path = f"/d/t-0/{names.LEADER_EPOCH_CHECKPOINT}"
    before = disk.read(path)
    for epoch in (6, 6, 9):
        append(log, batch(b"a", b"b", b"c"), epoch=epoch)
    if clean:
        broker.manager.close()
        disk.remove(path)
    else:
        broker.crash()
        disk.replace(path, before, sync=True)
    broker.start()
    assert broker.log().epochs.entries == [(3, 0), (5, 4), (6, 6), (9, 12)]


@pytest.mark.parametrize(("last", "timestamp_offset", "is_indexed"), [
    ((1 << 31) - 1, 5, True), (1 << 31, 5, False), ((1 << 31) - 1, (1 << 31) - 1, True),
])  # fmt: skip
def test_batch_out_of_reach_has_no_index_entry(last: int, timestamp_offset: int, is_indexed: bool) -> None:
    disk: Any = MemoryDisk()
    disk.make_dirs("/d/t-0")
    segment = Segment.create(disk, OpenFiles(10), "/d/t-0", 0, LogConfig(index_interval_bytes=0))
    segment.append(batch(b"v"), 0, NOW_MS, NOW_MS, 0)
    segment.append(batch(b"v"), last, NOW_MS + 5, NOW_MS + 5, timestamp_offset)
    assert len(segment.offset_index) == is_indexed
    assert segment.offset_index.last_offset == (last if is_indexed else -1)
    segment.seal()
    assert segment.time_index.last() == (NOW_MS + 5, timestamp_offset)


@pytest.mark.parametrize("is_open", [True, False])
def test_missing_log_file_is_noticed_open_or_closed(is_open: bool) -> None:
    broker = broker_of(segment_bytes=150)
    log = filled(broker, 5)
    first, active = log.segments[0], log.active
    assert log.missing_file(all_segments=True) is None
    for segment in log.segments:
        if not is_open:
            segment.release()  # as of many files some are closed
    disk: Any = broker.disk
    disk.remove(first.path(names.LOG))
    assert log.missing_file() is None
    assert log.missing_file(all_segments=True) == first.path(names.LOG)
    disk.remove(active.path(names.LOG))
    assert log.missing_file() == active.path(names.LOG)
