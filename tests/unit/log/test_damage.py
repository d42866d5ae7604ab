"""Damage in the middle of a log: what it costs, what is said of it, and how the rest stays."""

from __future__ import annotations

import errno
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from barnabas.errors import StorageError
from barnabas.log.damage import find_sound_batch
from barnabas.log.disk import OsDisk
from barnabas.log.format import names
from barnabas.records.batch import MAGIC_OFFSET
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.faults import FaultyDisk
from tests.support.logs import NOW_MS, Broker, append, batch, read_all

BATCHES = 200


@pytest.fixture
def broker(tmp_path):
    broker = Broker(tmp_path, segment_bytes=5_000, index_interval_bytes=200)
    for n in range(BATCHES):
        append(broker.log(), batch(b"%d" % n, b"x" * 50, timestamp=NOW_MS + n))
    return broker


def place(broker: Broker, number: int) -> tuple[Path, int, int]:
    """The file of a batch, its position, and its size."""
    log = broker.log()
    for segment in log.segments:
        for position, header in segment.headers():
            if header.base_offset == 2 * number:
                return Path(segment.path(names.LOG)), position, header.size
    raise AssertionError(number)


def flip(path: Path, at: int, bits: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)


def offsets(broker: Broker) -> list[int]:
    log = broker.log()
    log.advance_high_watermark(log.log_end_offset)
    return [record.offset for record in read_all(log)]


def all_but(*numbers: int) -> list[int]:
    return [offset for offset in range(2 * BATCHES) if offset // 2 not in numbers]


@pytest.mark.parametrize("at", [8, 9, 10, 11, 16, 17, 22, 26, 60, 90])
@pytest.mark.parametrize("number", [0, 36, 199])
def test_one_damaged_byte_costs_one_batch(broker, caplog, at, number):
    path, position, size = place(broker, number)
    broker.crash()
    data = path.read_bytes()
    flip(path, position + at, 0x15)
    broker.start()
    assert offsets(broker) == all_but(number)
    if number != 199:
        (message,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert f"t-0: lost offsets {2 * number} to {2 * number + 1}" in message
        kept = Path(f"{path}.damaged-{2 * number}")
        assert str(kept) in message
        damaged = bytearray(data[position : position + size])
        damaged[at] ^= 0x15
        assert kept.read_bytes() == damaged
    assert append(broker.log(), batch(b"v")).base_offset == 2 * BATCHES - (2 if number == 199 else 0)
    for clean in (True, False):
        before = offsets(broker)
        broker.restart(clean=clean)
        assert offsets(broker) == before


@pytest.mark.parametrize(("at", "bits"), [(at, (0x01, 0x80)[at % 2]) for at in range(8)])
@pytest.mark.parametrize("number", [0, 36, 37, 38, 39, 40, 198])
def test_a_damaged_base_offset_is_written_again(broker, caplog, at, number, bits):
    path, position, _ = place(broker, number)
    broker.crash()
    data = path.read_bytes()
    flip(path, position + at, bits)
    broker.start()
    assert offsets(broker) == all_but()
    assert path.read_bytes() == data
    assert "base offset of the batch" in caplog.text


def test_several_damaged_batches_cost_no_more_than_they_are(broker, caplog):
    numbers = [3, 4, 30, 77, 120, 121, 122, 160]
    places = [place(broker, number) for number in numbers]
    broker.crash()
    for path, position, _ in places:
        flip(path, position + 70)
    broker.start()
    assert offsets(broker) == all_but(*numbers)
    lost = [record.getMessage() for record in caplog.records if "lost offsets" in record.getMessage()]
    assert len(lost) == 5  # neighbours are one damage


def test_renamed_copy_of_a_segment_costs_no_offset(broker, caplog):
    log = broker.log()
    log.advance_high_watermark(log.log_end_offset)
    first = Path(log.segments[0].path(names.LOG))
    broker.crash()
    (first.parent / names.file_name(4, names.LOG)).write_bytes(first.read_bytes())
    broker.start()
    assert offsets(broker) == all_but()
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert lines
    assert all("lost no offset: " in line for line in lines)
    assert not any("gap in the offsets" in line for line in lines)


def test_the_last_batch_of_a_segment_costs_no_later_segment(broker):
    first = broker.log().segments[0]
    *_, (position, header) = first.headers()
    broker.crash()
    flip(Path(first.path(names.LOG)), position + 70)
    broker.start()
    assert offsets(broker) == all_but(header.base_offset // 2)


def test_a_segment_of_rubbish_costs_no_later_segment(broker):
    first, second = broker.log().segments[:2]
    broker.crash()
    path = Path(first.path(names.LOG))
    path.write_bytes(b"\xa5" * path.stat().st_size)
    broker.start()
    assert offsets(broker) == list(range(second.base_offset, 2 * BATCHES))
    assert broker.log().log_start_offset == second.base_offset


def test_damage_before_the_recovery_point_is_cut_out_in_recovery(broker):
    log = broker.log()
    log.flush(NOW_MS)
    broker.manager.write_checkpoints()
    active = log.active
    path, position = Path(active.path(names.LOG)), 0
    number = active.base_offset // 2
    broker.crash()
    broker.reboot()
    flip(path, position + 70)
    broker.start()
    assert offsets(broker) == all_but(number)


def test_recovered_log_ends_before_a_hole_and_keeps_the_rest(broker, caplog):
    path, position, _ = place(broker, 36)
    content = path.read_bytes()
    broker.crash()
    broker.reboot()
    flip(path, position + 70)
    broker.start()
    assert offsets(broker) == list(range(72))
    (message,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "barnabas log repair --salvage" in message
    assert "offset 74 on follow" in message
    kept = Path(f"{path}.damaged-72").read_bytes()
    assert len(kept) == len(content) - position


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("step", range(12))
def test_a_crash_while_damage_is_cut_out_loses_no_more(step, number):
    disk = MemoryDisk()
    disk.make_dirs("/data")
    disk.sync_dir("/")
    broker = Broker("/data", disk=disk, segment_bytes=3_000, index_interval_bytes=200)
    for n in range(40):
        append(broker.log(), batch(b"%d" % n, b"x" * 50))
    broker.log().flush(NOW_MS)
    broker.manager.write_checkpoints()
    segment = broker.log().active
    position, damaged = list(segment.headers())[number]
    path = segment.path(names.LOG)
    disk.open(path).write(b"?", position + 70)
    disk.open(path).sync()
    disk = disk.crash()
    with disk.failing("sync", after=step), suppress(StorageError):
        Broker("/data", disk=disk, segment_bytes=3_000, index_interval_bytes=200)
    broker = Broker("/data", disk=disk.crash(), segment_bytes=3_000, index_interval_bytes=200)
    log = broker.log()
    log.advance_high_watermark(log.log_end_offset)
    lost = range(damaged.base_offset, damaged.next_offset)
    assert [record.offset for record in read_all(log)] == [n for n in range(80) if n not in lost]


def test_a_batch_in_the_value_of_a_record_is_no_batch_of_the_log(tmp_path):
    """A search that begins in a damaged batch passes over what a client has put into its records."""
    inner = bytearray(encode_batch([Record(0, NOW_MS, b"k", b"inner")]))
    inner[:8] = (500).to_bytes(8, "big")
    outer = bytearray(batch(b"before" + bytes(inner) + b"behind", b"more"))
    following = bytearray(batch(b"next"))
    following[:8] = (2).to_bytes(8, "big")
    outer[11] ^= 0x40  # its length, so that what follows must be searched for
    path = tmp_path / "x.log"
    path.write_bytes(outer + following)
    sound = find_sound_batch(OsDisk().open(str(path)), 0, len(outer) + len(following), first_offset=0)
    assert sound == (len(outer), 2)


# --- a disk that fails while indexes are built again ---


@pytest.mark.parametrize("is_damaged", [False, True], ids=["sound", "damaged"])
@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EIO], ids=["no-room", "broken"])
def test_rebuilt_indexes_stay_in_memory_on_a_full_disk(tmp_path, caplog, reason, is_damaged):
    disk = FaultyDisk()
    broker = Broker(tmp_path, disk=disk, segment_bytes=5_000, index_interval_bytes=200)
    for n in range(BATCHES):
        append(broker.log(), batch(b"%d" % n, b"x" * 50, timestamp=NOW_MS + n))
    segment = broker.log().segments[1]
    if is_damaged:
        *_, (position, _) = segment.headers()
        flip(Path(segment.path(names.LOG)), position + MAGIC_OFFSET, 0x15)
    disk.room, disk.suffix, disk.error = 0, "index", reason
    with nullcontext() if reason == errno.ENOSPC else pytest.raises(OSError, match="no room left"):
        segment.rebuild_indexes()
    assert ("no room for the indexes of" in caplog.text) == (reason == errno.ENOSPC)
    assert (" is damaged at position " in caplog.text) == is_damaged
    assert segment.find(segment.base_offset + 20) is not None
