"""Fetcher to which a partition belongs. Pure."""

from __future__ import annotations

from barnabas.cluster.metadata.partitioning import java_hash


def fetcher_of(topic: str, index: int, count: int) -> int:
    """Return the number of the fetcher, from 0 to `count` - 1, that fetches a partition, as Kafka spreads them."""
    value = (31 * java_hash(topic) + index) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return (0 if signed == -(1 << 31) else abs(signed)) % count
