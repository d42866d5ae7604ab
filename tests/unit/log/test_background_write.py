"""Records that are written in a thread before they are appended, and what may come in between."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from barnabas.errors import RequestError, StorageError
from barnabas.log.background_write import BACKGROUND_BYTES
from barnabas.log.disk import OsDisk
from barnabas.records.batch import read_header
from barnabas.records.steps import run
from tests.support.faults import FaultyDisk
from tests.support.logs import NOW_MS, Broker, append, batch, read_all

VALUE = bytes(BACKGROUND_BYTES)
VERSION = 13


class WatchedFile:
    def __init__(self, disk, path, file):
        self._disk, self._path, self._file = disk, path, file

    def write(self, data, position):
        if self._path.endswith(".log"):
            self._disk.writes.append((len(data), threading.get_ident()))
            if self._disk.gate is not None and threading.current_thread() is not threading.main_thread():
                self._disk.is_writing.set()
                self._disk.gate.wait(10)
        self._file.write(data, position)

    def __getattr__(self, name):
        return getattr(self._file, name)


class WatchedDisk(OsDisk):
    """Knows which threads have written to segments; threads wait for `gate`, if there is one."""

    def __init__(self):
        super().__init__()
        self.writes = []
        self.gate = None
        self.is_writing = threading.Event()

    def open(self, path, *, create=False):
        return WatchedFile(self, path, super().open(path, create=create))


@pytest.fixture
def disk():
    return WatchedDisk()


@pytest.fixture
def broker(tmp_path, disk):
    return Broker(tmp_path, disk=disk)


def validated(log, value=VALUE, **options):
    return run(log.validation(batch(value, **options), now_ms=NOW_MS))


def begin(log, valid, epoch=0):
    return log.begin_background_write(valid, leader_epoch=epoch, now_ms=NOW_MS)


def append_valid(log, valid, epoch=0):
    result = log.append_valid(valid, leader_epoch=epoch, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    return result


def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def values(log):
    return [(record.offset, len(record.value)) for record in read_all(log)]


def file_size(segment):
    return Path(segment.path(".log")).stat().st_size


def restarted(broker):
    broker.restart(clean=True)
    log = broker.log()
    log.advance_high_watermark(1_000)
    return log


def test_background_write_is_appended_without_another_write(broker, disk):
    log = broker.log()
    append(log, batch(b"before"))
    valid = validated(log)
    write = begin(log, valid)
    in_thread(write.run).join()
    assert log.log_end_offset == 1, "nothing is appended yet"
    assert values(log) == [(0, 6)]
    before = len(disk.writes)
    assert append_valid(log, valid).base_offset == 1
    log.end_background_write(write)
    assert len(disk.writes) == before
    assert disk.writes[-1][1] != threading.get_ident()
    append(log, batch(b"after"))
    expected = [(0, 6), (1, len(VALUE)), (2, 5)]
    assert values(log) == expected
    assert values(restarted(broker)) == expected


@pytest.mark.parametrize("was_run", [False, True])
def test_another_append_comes_first(broker, was_run):
    log = broker.log()
    valid = validated(log)
    write = begin(log, valid)
    if was_run:
        write.run()
    append(log, batch(b"first"))
    assert file_size(log.active) == log.active.size
    write.run()  # too late, and so nothing
    assert file_size(log.active) == log.active.size
    assert append_valid(log, valid).base_offset == 1
    log.end_background_write(write)
    expected = [(0, 5), (1, len(VALUE))]
    assert values(log) == expected
    assert values(restarted(broker)) == expected


def test_another_append_waits_for_the_thread(broker, disk):
    log = broker.log()
    disk.gate = threading.Event()
    valid = validated(log)
    write = begin(log, valid)
    thread = in_thread(write.run)
    assert disk.is_writing.wait(10)
    threading.Timer(0.1, disk.gate.set).start()
    append(log, batch(b"first"))
    assert disk.gate.is_set(), "otherwise the thread writes over what was appended"
    thread.join()
    append_valid(log, valid)
    assert values(restarted(broker)) == [(0, 5), (1, len(VALUE))]


@pytest.mark.parametrize(
    "change", ["roll", "truncate", "begin again", "close", "copy", "retire", "crash", "delete"]
)
def test_what_is_not_appended_does_not_stay(broker, change):
    log = broker.log()
    append(log, batch(b"first"))
    append(log, batch(b"second"))
    write = begin(log, validated(log))
    write.run()
    assert file_size(log.active) > log.active.size
    first = log.active
    expected = [(0, 5), (1, 6)]
    if change == "roll":
        log.roll()
    elif change == "truncate":
        log.truncate_to(1, now_ms=NOW_MS)
        expected = expected[:1]
    elif change == "begin again":
        log.truncate_fully_and_start_at(5)
        expected = []
    elif change == "close":
        log = restarted(broker)
    elif change == "copy":
        log.settle()
    elif change == "retire":
        log.delete_records_before(2)
        log.roll()
        log.apply_retention(NOW_MS)
        expected = []
    elif change == "crash":
        # It may be there, as after any crash between a write and its answer.
        broker.restart(clean=False)
        log = broker.log()
        log.advance_high_watermark(1_000)
        expected.append((2, len(VALUE)))
    else:
        broker.manager.delete("t", 0, NOW_MS)
        log.end_background_write(write)
        return
    if change in ("roll", "truncate", "copy"):
        assert file_size(first) == first.size
    log.end_background_write(write)
    assert values(log) == expected
    append(log, batch(b"later"))
    assert [size for _, size in values(restarted(broker))] == [*(size for _, size in expected), 5]


def test_it_is_taken_back_where_it_was_refused(broker):
    log = broker.log()
    options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    valid = validated(log, **options)
    write = begin(log, valid)
    write.run()
    append(log, batch(b"another request of it", **options))
    repeated = append_valid(log, valid)
    assert repeated.duplicate
    log.end_background_write(write)
    assert file_size(log.active) == log.active.size

    valid = validated(log, **{**options, "base_sequence": 1})
    write = begin(log, valid)
    write.run()
    append(log, batch(b"x", **{**options, "producer_epoch": 1}))
    with pytest.raises(RequestError):
        append_valid(log, valid)
    log.end_background_write(write)
    assert file_size(log.active) == log.active.size


def test_a_new_leader_epoch_is_written(broker):
    log = broker.log()
    valid = validated(log)
    write = begin(log, valid, epoch=1)
    write.run()
    append_valid(log, valid, epoch=2)
    log.end_background_write(write)
    with Path(log.active.path(".log")).open("rb") as file:
        assert read_header(file.read(61)).leader_epoch == 2
    assert file_size(log.active) == log.active.size


def test_a_disk_without_room_leaves_the_log_as_it_was(tmp_path):
    disk = FaultyDisk()
    log = Broker(tmp_path, disk=disk).log()
    append(log, batch(b"first"))
    valid = validated(log)
    write = begin(log, valid)
    disk.room = 1_000
    write.run()
    disk.room = None
    with pytest.raises(StorageError, match="no room left"):
        append_valid(log, valid)
    log.end_background_write(write)
    assert file_size(log.active) == log.active.size
    assert append_valid(log, validated(log)).base_offset == 1
    assert values(log) == [(0, 5), (1, len(VALUE))]


def test_batch_for_a_new_segment_is_not_written_in_background(tmp_path, broker):
    log = broker.log()
    options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    append(log, batch(VALUE, **options))
    assert begin(log, validated(log, **options)) is None, "it is repeated"
    with pytest.raises(RequestError):
        begin(log, validated(log, **{**options, "base_sequence": 5}))
    rolling = Broker(tmp_path / "rolling", segment_bytes=BACKGROUND_BYTES + 1_000).log()
    append(rolling, batch(VALUE))
    assert begin(rolling, validated(rolling)) is None, "it begins a new segment"
    preallocated = Broker(tmp_path / "preallocated", preallocate=True, segment_bytes=1 << 20).log()
    preallocated.roll()
    append(preallocated, batch(b"x"))
    assert begin(preallocated, validated(preallocated)) is None
