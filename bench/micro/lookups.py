"""Finding the place of an offset or a timestamp in a log of many segments."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.micro.recovery import write
from bench.micro.timing import Timing, measure
from bench.tools import ROOT

BATCHES = 8_192  # of 16 KB: 128 MB in eight segments
RECORDS = 15
PLACES = 512


def run() -> Iterator[Timing]:
    from barnabas.log.config import LogConfig
    from barnabas.log.manager import LogManager

    (ROOT / ".data").mkdir(exist_ok=True)
    choose = random.Random(1)
    with TemporaryDirectory(dir=ROOT / ".data") as directory:
        path = Path(directory) / "data"
        write(path, RECORDS, 1024, BATCHES)
        manager = LogManager([str(path)], config_for=lambda topic: LogConfig(segment_bytes=16 << 20))
        manager.open(time.time_ns() // 1_000_000)
        log = manager.get("topic", 0)
        assert log is not None
        end = log.log_end_offset
        log.advance_high_watermark(end)
        offsets = [choose.randrange(end) for _ in range(PLACES)]
        first = log.segments[0].load_first_timestamp()
        stamps = [first + choose.randrange(BATCHES) for _ in range(PLACES)]

        def each(call: Callable[[int], object], values: list[int]) -> Callable[[], object]:
            at = 0

            def one() -> None:
                nonlocal at
                at = (at + 1) % len(values)
                call(values[at])

            return one

        yield measure("find the batch of an offset", each(log.store.find, offsets))
        read = each(lambda offset: log.read(offset, max_bytes=1 << 20, upper_offset=end), offsets)
        yield measure("read from an offset anywhere (a region, not the bytes)", read)
        yield measure("find the first record of a timestamp", each(log.offset_for_timestamp, stamps))
        manager.close()
