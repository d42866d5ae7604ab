"""Indexes that are damaged in the middle: every lookup is right all the same, and leads to a rebuilt index."""

from __future__ import annotations

import shutil

import pytest

from barnabas.log.format import names
from barnabas.records.validate import Origin
from tests.support.effort import drawing
from tests.support.logs import NOW_MS, Broker, append, batch, marker, quick_directory, read_all

BATCHES = 400
STEP_MS = 10


@pytest.fixture
def directory():
    path = quick_directory()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def broker(directory):
    broker = Broker(directory, segment_bytes=20_000, index_interval_bytes=300)
    for n in range(BATCHES):
        append(broker.log(), batch(b"%d" % n, b"x" * 50, timestamp=NOW_MS + n * STEP_MS))
    broker.manager.close()
    return broker


def damage(directory, suffix, rng, count):
    """Flip so many bytes in the middle of the first index of a kind; says where."""
    path = min((directory / "t-0").glob(f"*{suffix}"))
    data = bytearray(path.read_bytes())
    size = {names.OFFSET_INDEX: 8, names.TIME_INDEX: 12}[suffix]
    assert len(data) > 10 * size
    places = rng.sample(range(size, len(data) - size), count)
    for at in places:
        data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return places


@pytest.mark.parametrize("suffix", [names.OFFSET_INDEX, names.TIME_INDEX])
@pytest.mark.parametrize("count", [1, 20])
def test_no_lookup_is_wrong(broker, directory, suffix, count):
    rng = drawing()
    sound = {path.name: path.read_bytes() for path in (directory / "t-0").iterdir()}
    wrong = 0
    for _ in range(10):
        for name, content in sound.items():
            (directory / "t-0" / name).write_bytes(content)
        damage(directory, suffix, rng, count)
        broker.start()
        log = broker.log()
        log.advance_high_watermark(log.log_end_offset)
        for n in rng.sample(range(BATCHES), 50):
            place = find(log, NOW_MS + n * STEP_MS)
            wrong += (place.timestamp, place.offset) != (NOW_MS + n * STEP_MS, 2 * n)
            read = log.read(2 * n + 1, max_bytes=400, upper_offset=log.high_watermark)
            wrong += int.from_bytes(read.to_bytes()[:8], "big") != 2 * n
            wrong += read.next_offset < 2 * n + 2
        broker.manager.close()
    assert wrong == 0


def find(log, timestamp):
    return log.offset_for_timestamp(timestamp)


@pytest.mark.parametrize("suffix", [names.OFFSET_INDEX, names.TIME_INDEX])
def test_every_byte_of_the_last_entry_may_be_damaged(broker, directory, suffix):
    """Retention, the log's end and the next append go by it."""
    size = {names.OFFSET_INDEX: 8, names.TIME_INDEX: 12}[suffix]
    for path in sorted((directory / "t-0").glob(f"*{suffix}")):
        sound = path.read_bytes()
        for at in range(len(sound) - size, len(sound)):
            path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x11]) + sound[at + 1 :])
            broker.start()
            log = broker.log()
            assert log.log_end_offset == 2 * BATCHES
            n = next(n for n, segment in enumerate(log.segments) if path.name[:20] in segment.path(names.LOG))
            following = [*log.segments, None][n + 1]
            last = (following.base_offset if following else 2 * BATCHES) // 2 - 1
            assert log.segments[n].largest_timestamp == NOW_MS + last * STEP_MS
            broker.manager.close()
            path.write_bytes(sound)


def test_log_with_a_damaged_last_index_entry_takes_appends(broker, directory):
    path = max((directory / "t-0").glob(f"*{names.OFFSET_INDEX}"))
    data = bytearray(path.read_bytes())
    data[-7] ^= 0x40  # the offset of the last entry, far beyond the log's end
    path.write_bytes(data)
    broker.start()
    for n in range(20):
        assert append(broker.log(), batch(b"%d" % n, b"x" * 50)).base_offset == 2 * (BATCHES + n)
    broker.manager.close()


def test_what_follows_damage_can_be_found_by_rebuilt_indexes(broker, directory):
    first = min((directory / "t-0").glob("*.log"))
    data = bytearray(first.read_bytes())
    data[11] ^= 0x40  # the length of the first batch
    first.write_bytes(data)
    first.with_suffix(".index").unlink()
    broker.start()
    log = broker.log()
    log.advance_high_watermark(log.log_end_offset)
    assert len(log.segments[0].offset_index) > 10
    assert log.segments[0].largest_timestamp > NOW_MS
    assert [record.offset for record in read_all(log, 20)] == list(range(20, 2 * BATCHES))
    broker.manager.close()


def test_aborted_transactions_are_not_missed_for_a_damaged_index(directory):
    broker = Broker(directory, index_interval_bytes=300)
    log = broker.log()
    for n in range(60):
        records = batch(
            b"t%d" % n, b"y" * 40, producer_id=7, producer_epoch=0, base_sequence=2 * n, transactional=True
        )
        append(log, records)
        append(log, marker(commit=False, producer_id=7), origin=Origin.COORDINATOR)
    broker.manager.close()
    path = next((directory / "t-0").glob("*.index"))
    data = bytearray(path.read_bytes())
    for at in range(0, len(data) - 8, 8):
        data[at + 3] ^= 0x01 if data[at + 3] & 1 else 0x10
    path.write_bytes(data)
    broker.start()
    log = broker.log()
    log.advance_high_watermark(log.log_end_offset)
    for offset in range(0, 180, 3):
        result = log.read(offset, max_bytes=1_000, upper_offset=log.high_watermark)
        aborted = log.aborted_transactions(offset, result.next_offset)
        expected = {3 * n for n in range(60) if offset <= 3 * n and 3 * n + 2 < offset + 12}
        assert expected <= {entry.first_offset for entry in aborted}
    broker.manager.close()


@pytest.mark.parametrize("slot", [0, 1, 20, -2])
@pytest.mark.parametrize("bit", [0x80, 0x40], ids=["negative", "beyond the end"])
@pytest.mark.parametrize("max_bytes", [400, 1 << 20])
def test_index_position_outside_the_segment_hides_no_record(broker, directory, slot, bit, max_bytes):
    """Neither in a segment that is full, after which readers would go on in the next one, nor in the active one."""
    paths = sorted((directory / "t-0").glob(f"*{names.OFFSET_INDEX}"))
    sound = [path.read_bytes() for path in paths]
    for path, data in zip(paths, sound, strict=True):
        damaged = bytearray(data)
        damaged[slot * 8 + 4 if slot >= 0 else len(data) + slot * 8 + 4] ^= bit
        path.write_bytes(damaged)
    broker.start()
    log = broker.log()
    assert log.log_end_offset == 2 * BATCHES
    log.advance_high_watermark(log.log_end_offset)
    for n in range(BATCHES):
        read = log.read(2 * n + 1, max_bytes=max_bytes, upper_offset=log.high_watermark)
        assert int.from_bytes(read.to_bytes()[:8], "big") == 2 * n
    broker.manager.close()


def test_damaged_last_time_hides_no_later_one_after_truncation(directory):
    """The largest timestamp is far from the end, so only the batches from the beginning on say what it is."""
    broker = Broker(directory, index_interval_bytes=0)
    for later_ms in (0, 10, 5, 6, 50):
        append(broker.log(), batch(b"v", timestamp=NOW_MS + later_ms))
    path = broker.log().active.path(names.TIME_INDEX)
    broker.manager.close()
    with open(path, "rb") as file:
        data = bytearray(file.read())
    at = data.index((NOW_MS + 10).to_bytes(8, "big"))
    data[at : at + 8] = (NOW_MS + 11).to_bytes(8, "big")
    with open(path, "wb") as file:
        file.write(data)
    broker.start()
    log = broker.log()
    assert log.active.largest_timestamp == NOW_MS + 50
    log.truncate_to(4, now_ms=NOW_MS)
    assert log.active.largest_timestamp == NOW_MS + 10
    broker.manager.close()
