"""Finding the place of an offset or a timestamp in a log, as it grows from 10 MB to 10 GB."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from crc32c import crc32c

from bench.micro.timing import Timing, measure
from bench.tools import ROOT
from bench.wire import record_batch

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog

RECORDS, RECORD_BYTES = 15, 1024  # 16 KB a batch
SIZES = (10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000)
PLACES = 512
CRC_AT, ATTRIBUTES_AT, TIMESTAMPS_AT = 17, 21, 27


def run() -> Iterator[Timing]:
    """Yield times at each size of the same log; the disk has room for all of it."""
    from barnabas.log.config import LogConfig
    from barnabas.log.manager import LogManager

    (ROOT / ".data").mkdir(exist_ok=True)
    config = LogConfig(segment_bytes=128 << 20, record_validation="header")
    first_ms = time.time_ns() // 1_000_000 - 3_600_000
    with TemporaryDirectory(dir=ROOT / ".data") as directory:
        manager = LogManager([directory], config_for=lambda topic: config)
        manager.open(first_ms)
        log = manager.create("topic", 0, bytes(15) + b"1", now_ms=first_ms)
        for size in SIZES:
            grow(log, size, first_ms)
            yield from _at(log, f"{size / 1e6:,.0f} MB", first_ms)
        manager.close()


def grow(log: PartitionLog, size: int, first_ms: int) -> None:
    """Append batches, each a millisecond later than its predecessor, up to `size`."""
    batch = bytearray(record_batch([b"x" * RECORD_BYTES] * RECORDS, first_ms))
    while log.size_bytes < size:
        stamp = first_ms + log.log_end_offset // RECORDS
        batch[:8] = bytes(8)
        struct.pack_into(">qq", batch, TIMESTAMPS_AT, stamp, stamp)
        struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
        log.append_as_leader(batch, leader_epoch=0, now_ms=stamp)
    log.advance_high_watermark(log.log_end_offset)


def _at(log: PartitionLog, size: str, first_ms: int) -> Iterator[Timing]:
    choose = random.Random(1)
    end = log.log_end_offset
    offsets = [choose.randrange(end) for _ in range(PLACES)]
    stamps = [first_ms + choose.randrange(end // RECORDS) for _ in range(PLACES)]

    def each(call: Callable[[int], object], values: list[int]) -> Callable[[], object]:
        at = 0

        def one() -> None:
            nonlocal at
            at = (at + 1) % len(values)
            call(values[at])

        return one

    yield measure(f"{size}: find the batch of an offset", each(log.store.find, offsets))
    read = each(lambda offset: log.read(offset, max_bytes=1 << 20, upper_offset=end), offsets)
    yield measure(f"{size}: read from an offset (a region)", read)
    yield measure(f"{size}: first record of a timestamp", each(log.offset_for_timestamp, stamps))
