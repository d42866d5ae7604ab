"""Records as bytes: one uncompressed batch of magic 2, enough to fill a partition."""

from __future__ import annotations

import struct
import time

from compat.kit.wire import uvarint

TRANSACTIONAL = 0x10


def record_batch(
    values: list[bytes],
    timestamp_ms: int | None = None,
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    """Return a batch of records with the key `k`; `producer` is its id, epoch and first sequence, by default none.

    The default timestamp is the present: Kafka's first retention check, 30 s after the start, deletes old records.
    """
    if timestamp_ms is None:
        timestamp_ms = time.time_ns() // 1_000_000
    records = b""
    for index, value in enumerate(values):
        record = b"\0\0" + _varint(index) + _varint(1) + b"k" + _varint(len(value)) + value + b"\0"
        records += _varint(len(record)) + record
    count = len(values)
    attributes = TRANSACTIONAL if transactional else 0
    tail = (
        struct.pack(">hiqqqhii", attributes, count - 1, timestamp_ms, timestamp_ms, *producer, count)
        + records
    )
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, _crc32c(tail)) + tail


def _varint(number: int) -> bytes:
    return uvarint(number << 1 ^ number >> 63)


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
