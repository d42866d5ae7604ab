"""Decisions of a recovery stay, whatever comes after it: power cuts, a second pass, the next start."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.log.damage import SoundBatch, find_sound_batch
from barnabas.log.epoch_file import load_epochs, save_epochs
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.format import names
from barnabas.records.building import encode_batch
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.cleaning import COMPACTED, clean
from tests.support.logs import NOW_MS, Broker, append, batch, read_all, rebase

SEGMENTS = {"segment_bytes": 700, "index_interval_bytes": 200}


def broker_on(disk: MemoryDisk, **settings: Any) -> Broker:
    return Broker("/d", disk=disk, **settings)  # type: ignore[arg-type]


def new_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dirs("/d")
    disk.sync_dir("/")
    return disk


def spoil(disk: MemoryDisk, path: str, at: int) -> None:
    file = disk.open(path)
    file.write(bytes([file.read(1, at)[0] ^ 1]), at)
    file.sync()


def values(broker: Broker) -> list[bytes | None]:
    log = broker.log()
    log.advance_high_watermark(log.log_end_offset)
    return [record.value for record in read_all(log)]


def test_segments_set_aside_stay_away_after_the_next_power_cut() -> None:
    """They would follow what was written since, with just the offsets that it ends before."""
    disk = new_disk()
    broker = broker_on(disk, **SEGMENTS)
    for n in range(40):
        append(broker.log(), batch(b"old %d" % n))
    segments = broker.log().segments
    assert len(segments) > 3
    next_base = segments[2].base_offset
    broker.log().flush(NOW_MS)
    spoil(disk, segments[1].path(names.LOG), 70)
    disk = disk.crash()
    broker = broker_on(disk, **SEGMENTS)
    new = [b"new %d" % n for n in range(broker.log().log_end_offset, next_base)]
    for value in new:
        append(broker.log(), batch(value))
    broker.log().active.file.sync()  # as an operating system writes it back in its own time
    expected = [b"old %d" % n for n in range(next_base - len(new))] + new
    assert values(broker_on(disk.crash(), **SEGMENTS)) == expected


def test_epochs_before_damage_are_known_without_their_file() -> None:
    """A second pass reads the rest behind the damage, and does not look at what is before it again."""
    disk = new_disk()
    broker = broker_on(disk)
    for n in range(9):
        append(broker.log(), batch(b"%d" % n), epoch=n // 3)
    active = broker.log().active
    position = list(active.headers())[7][0]
    broker.crash()
    save_epochs(disk, "/d/t-0", LeaderEpochs([(0, 0)]), sync=True)
    spoil(disk, active.path(names.LOG), position + 65)
    broker.start()
    assert values(broker) == [b"%d" % n for n in range(9) if n != 7]
    assert broker.log().epochs.entries == [(0, 0), (1, 3), (2, 6)]


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("missing", [0, 1])
def test_damaged_whole_last_batch_is_kept_beside_the_log(count: int, missing: int) -> None:
    """Also one without a record, as a cleaner leaves it. The end of a process tears a batch, and damages none."""
    disk = new_disk()
    broker = broker_on(disk)
    append(broker.log(), batch(b"v"))
    last = batch(b"w") if count else bytearray(encode_batch([], base_offset=0, last_offset=0))
    rebase(last, 0, 1, 0)
    broker.log().append_as_follower(last, now_ms=NOW_MS)
    active = broker.log().active
    at, path = active.size - len(last), active.path(names.LOG)
    broker.crash()
    spoil(disk, path, at + 30)
    disk.open(path).truncate(active.size - missing)
    broker.start()
    assert broker.log().log_end_offset == 1
    kept = [entry.name for entry in disk.list("/d/t-0") if names.DAMAGED in entry.name]
    assert kept == ([] if missing else ["00000000000000000000.log.damaged-1"])


@pytest.mark.parametrize("rubbish", [1, 2, 61, 300])
@pytest.mark.parametrize("count", [0, 1])
def test_sound_last_batch_is_found_behind_any_damage(count: int, rubbish: int) -> None:
    last = batch(b"w") if count else bytearray(encode_batch([], base_offset=0, last_offset=0))
    rebase(last, 0, 7, 0)
    file = MemoryDisk().open("/f", create=True)
    file.write(b"?" * rubbish + last, 0)
    assert find_sound_batch(file, 0, rubbish + len(last)) == SoundBatch(rubbish, 7)
    assert find_sound_batch(file, 0, rubbish + len(last) - 1) is None


def test_files_read_before_damage_is_cut_out_are_closed() -> None:
    disk = new_disk()
    broker = broker_on(disk, **SEGMENTS)
    for n in range(20):
        append(broker.log(), batch(b"%d" % n, b"x" * 50))
    path = broker.log().segments[1].path(names.LOG)
    broker.crash()
    spoil(disk, path, 70)
    broker.start()
    log = broker.log()
    assert len(log.store.pool) <= len(log.segments)
    assert {*log.store.pool._queue} <= {*log.segments}


def test_an_empty_file_of_epochs_is_nothing_to_warn_of(caplog: pytest.LogCaptureFixture) -> None:
    """Apache Kafka leaves it so until there is an epoch."""
    disk = new_disk()
    disk.replace(f"/d/{names.LEADER_EPOCH_CHECKPOINT}", b"", sync=True)
    assert load_epochs(disk, "/d") is None
    assert not caplog.records
    disk.replace(f"/d/{names.LEADER_EPOCH_CHECKPOINT}", b"?", sync=True)
    assert load_epochs(disk, "/d") is None
    assert "is damaged" in caplog.text


def test_offsets_too_far_apart_for_an_index_are_usable() -> None:
    """As Apache Kafka once left them in a segment."""
    disk = new_disk()
    broker = broker_on(disk, **COMPACTED)
    append(broker.log(), batch(b"v"))
    far = batch(b"w", timestamp=NOW_MS + 1)
    rebase(far, 0, 1 << 32, 0)
    broker.log().active.file.write(far, broker.log().active.size)
    broker.manager.close()
    disk.remove(f"/d/{names.RECOVERY_POINT_CHECKPOINT}")
    broker.start()
    assert broker.log().log_end_offset == (1 << 32) + 1
    broker.log().roll()
    append(broker.log(), batch(b"x"))
    assert values(broker) == [b"v", b"w", b"x"]
    clean(broker)
    assert values(broker) == [b"w", b"x"]


def test_damaged_position_of_the_last_entry_costs_only_indexes(caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    broker = broker_on(disk, index_interval_bytes=200)
    for n in range(20):
        append(broker.log(), batch(b"%d" % n, b"x" * 50))
    index = broker.log().active.path(names.OFFSET_INDEX)
    broker.manager.close()
    data = bytearray(disk.read(index))
    data[-1] ^= 1
    disk.replace(index, data, sync=True)
    broker.start()
    assert broker.log().log_end_offset == 40
    assert "rebuilding the indexes" in caplog.text
    assert "its end is damaged" not in caplog.text


def test_unsynced_log_dir_outlives_a_power_cut() -> None:
    disk = MemoryDisk()
    disk.make_dirs("/d")
    broker = broker_on(disk)
    append(broker.log(), batch(b"v"))
    broker.log().flush(NOW_MS)
    assert values(broker_on(disk.crash())) == [b"v"]
