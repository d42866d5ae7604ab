"""Choice of a record's partition by its key, as in Kafka's Java client. Pure."""

from __future__ import annotations

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32 bit MurmurHash2 of a key, unsigned, with the seed that Kafka uses."""
    mixed = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        mixed = (mixed * _MULTIPLIER & _MASK) ^ word
    if whole < len(data):
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    mixed = (mixed ^ mixed >> 13) * _MULTIPLIER & _MASK
    return mixed ^ mixed >> 15


def partition_of_key(key: bytes, count: int) -> int:
    """Return the partition of a key among `count`."""
    return (murmur2(key) & 0x7FFFFFFF) % count
