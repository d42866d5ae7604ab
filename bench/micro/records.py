"""Record batches: a leader's work on a batch before it is appended."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial

from bench.micro.timing import Timing, measure
from bench.wire import record_batch

# (name, record bytes, records)
BATCHES = [
    ("1 record of 100 B", 100, 1),
    ("16 KB of 100 B", 100, 150),
    ("1 MB of 100 B", 100, 9_200),
    ("16 KB of 1 KB", 1_024, 15),
    ("1 MB of 1 KB", 1_024, 970),
]


def run() -> Iterator[Timing]:
    from dataclasses import replace

    from barnabas.records.batch import check_crc, read_header
    from barnabas.records.rules import AppendRules
    from barnabas.records.steps import run as run_steps
    from barnabas.records.validate import validate_steps

    def validate(data: memoryview, rules: AppendRules) -> None:
        run_steps(validate_steps(data, api_version=7, config=rules, now_ms=now_ms)).place(0, 0)

    now_ms = time.time_ns() // 1_000_000
    full = AppendRules()
    header_only = replace(full, record_validation="header")
    vary = random.Random(7)
    for name, size, count in BATCHES:
        alike = [b"x" * size] * count
        varied = [b"x" * vary.randint(size * 3 // 4, size * 5 // 4) for _ in range(count)]
        batch = bytearray(record_batch(alike, now_ms))
        header = read_header(batch)
        yield measure(f"checksum, {name}", partial(check_crc, batch, 0, header), len(batch))
        for what, values, rules in (
            ("header", alike, header_only),
            ("full, alike", alike, full),
            ("full, varied", varied, full),
        ):
            # A client's batch begins at offset 0, so patching it with 0 changes nothing.
            data = memoryview(bytearray(record_batch(values, now_ms)))
            yield measure(
                f"validate ({what}), {name}",
                partial(validate, data, rules),
                len(data),
            )
