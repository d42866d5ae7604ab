"""Any byte of a compacted log is damaged: its cleaning stops, or leaves what it would have left of the sound one.

A record that is written again gets a checksum again: damage that was not noticed before would never be.
"""

from __future__ import annotations

import logging
from pathlib import Path

from barnabas.log.format import names
from barnabas.log.partition_log import PartitionLog
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.cleaning import COMPACTED, cleaner, write
from tests.support.effort import EFFORT, drawing
from tests.support.logs import NOW_MS, Broker, read_all

from .test_flipped_bytes import files

DATA = Path("/data")
SETTINGS = {"segment_bytes": 500, "index_interval_bytes": 100, **COMPACTED}
SAMPLE = 400  # of the bytes, on an ordinary day


def written() -> MemoryDisk:
    """A log that was cleaned once, and has got records since."""
    disk = MemoryDisk()
    disk.make_dirs("/data")
    broker = Broker(DATA, disk=disk, **SETTINGS)
    log = broker.log()
    for n in range(20):
        write(log, (b"%d" % (n % 7), b"value %d" % n), (b"%d" % (n % 3), b"%d" % -n), codec=n % 5)
        if n == 10:
            log.roll()
            assert cleaner(broker).clean(1)
    log.roll()
    broker.manager.close()
    return disk.fork()


def cleaned(disk: MemoryDisk, flip: tuple[str, int, int] | None = None) -> PartitionLog:
    """Start on a disk, damage a byte of a segment (path, position, bit), and clean."""
    broker = Broker(DATA, disk=disk, **SETTINGS)
    log = broker.log()
    log.advance_high_watermark(log.log_end_offset)
    work = cleaner(broker)
    if flip is not None:
        path, at, bit = flip
        files(disk.root)[path].content[at] ^= bit
    assert work.clean(NOW_MS)
    return log


def bytes_of(disk: MemoryDisk) -> dict[str, bytes]:
    return {
        path: bytes(inode.content) for path, inode in files(disk.root).items() if path.endswith(names.LOG)
    }


def pairs(log: PartitionLog) -> list[tuple[bytes, bytes]]:
    return [(record.key, record.value) for record in read_all(log)]


def test_a_damaged_log_is_cleaned_rightly_or_not_at_all(caplog):
    caplog.set_level(logging.ERROR)
    rng = drawing()
    sound = written()
    before = bytes_of(sound)
    expected = pairs(cleaned(sound.fork()))
    assert len(expected) < 25
    every = [(path, at) for path, content in before.items() for at in range(len(content))]
    refused, failures = 0, []
    for path, at in every if EFFORT > 1 else sorted(rng.sample(every, SAMPLE)):
        flip = (path, at, 1 << rng.randrange(8))
        caplog.clear()
        disk = sound.fork()
        log = cleaned(disk, flip)
        if "t-0 is damaged and will not be cleaned" in caplog.text:
            refused += 1
            files(disk.root)[path].content[at] ^= flip[2]
            if bytes_of(disk) != before:
                failures.append((flip, "changed though it was refused"))
        elif pairs(log) != expected:
            failures.append((flip, "cleaned otherwise"))
    assert not failures, f"{len(failures)}: {failures[:20]}"
    assert refused > SAMPLE // 2
