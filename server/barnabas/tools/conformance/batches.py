"""Record batches for rows and suites."""

from __future__ import annotations

import time
from typing import Any

from barnabas.records.building import encode_batch
from barnabas.records.record import Record


def now_ms() -> int:
    """The time of day in ms."""
    return int(time.time() * 1000)


def batch(
    *values: bytes | None, timestamp_ms: int | None = None, key: bytes | None = b"k", **more: Any
) -> bytes:
    """Return a batch of records with these values, by default of one record, with the present time."""
    at = now_ms() if timestamp_ms is None else timestamp_ms
    records = [Record(number, at, key, value) for number, value in enumerate(values or (b"v",))]
    return encode_batch(records, **more)
