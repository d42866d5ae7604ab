"""The partition of an internal topic that is responsible for an id. Pure."""

from __future__ import annotations

from functools import lru_cache

IDS_REMEMBERED_MAX, REMEMBERED_LENGTH_MAX = 20_000, 128
"""Limits of the cache of partitions by id: number of ids, and length of an id; members name their group in each request."""


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be")
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(text: str, count: int) -> int:
    """Return the partition, of `count`, of an id: the same as in Kafka.

    Kafka uses the absolute value here, and zero for the one hash without one; it clears the sign bit only for keys.
    """
    return _remembered(text, count) if len(text) <= REMEMBERED_LENGTH_MAX else _partition_for(text, count)


def _partition_for(text: str, count: int) -> int:
    value = java_hash(text)
    return (0 if value == -(1 << 31) else abs(value)) % count


_remembered = lru_cache(IDS_REMEMBERED_MAX)(_partition_for)
