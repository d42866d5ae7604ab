"""Compaction: bytes that a cleaner reads per second."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.micro.timing import Timing
from bench.tools import ROOT

ROUNDS = 3
BATCH = 100
SHAPES = (  # records, bytes of a value, keys: about a tenth remains
    (100_000, 100, 10_000),
    (100_000, 1_000, 10_000),
)
NOW_MS = 1_700_000_000_000


def run() -> Iterator[Timing]:
    """Seconds to clean a log once, and the rate of its bytes."""
    from barnabas.log.cleaner.cleaner import LogCleaner
    from barnabas.log.config import LogConfig
    from barnabas.log.manager import LogManager
    from barnabas.records.building import encode_batch
    from barnabas.records.record import Record

    (ROOT / ".data").mkdir(exist_ok=True)
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=16 << 20)
    for count, size, keys in SHAPES:
        choose = random.Random(1)
        seconds, total = [], 0
        for _ in range(ROUNDS):
            with TemporaryDirectory(dir=ROOT / ".data") as directory:
                manager = LogManager([str(Path(directory))], config_for=lambda topic: config)
                manager.open(NOW_MS)
                log = manager.create("topic", 0, bytes(15) + b"1", now_ms=NOW_MS)
                for _ in range(count // BATCH):
                    records = [
                        Record(n, NOW_MS, b"key-%d" % choose.randrange(keys), b"x" * size)
                        for n in range(BATCH)
                    ]
                    log.append_as_leader(bytearray(encode_batch(records)), leader_epoch=0, now_ms=NOW_MS)
                log.advance_high_watermark(log.log_end_offset)
                log.roll()
                log.flush(NOW_MS)
                total = log.size_bytes
                start = time.perf_counter()
                if not LogCleaner(lambda logs=manager: logs).clean(NOW_MS) or log.size_bytes > total // 2:
                    raise AssertionError("nothing was cleaned")
                seconds.append(time.perf_counter() - start)
                manager.close()
        yield Timing(f"clean {count:,} records of {size:,} B", min(seconds), median(seconds), total)
