"""The digest of a range of the log: two reads with the same digest had the same batches, byte for byte.

The rule: a batch belongs to the range that has its last offset, so the digests of ranges that follow each other add up
to that of the whole, wherever it was cut. What may differ between replicas (the leader epoch) is not part of it.

Each sound batch counts with the SHA-256 of its header, cut to 128 bits; sums are taken modulo 2^128. The header has the
checksum of the bytes after it, so readers must have checked that before they add a batch.
"""

from __future__ import annotations

from hashlib import sha256

from barnabas.records.batch import (
    HEADER_SIZE,
    LEADER_EPOCH_OFFSET,
    LEGACY_CRC_OFFSET,
    MAGIC_OFFSET,
    BatchHeader,
)

MODULUS = 1 << 128
_LEGACY_END = LEGACY_CRC_OFFSET + 5  # offset, length, crc, magic: the crc covers the rest


def of_batch(data: bytes | memoryview, header: BatchHeader) -> int:
    """Return the contribution of a sound batch, or a legacy message, to the digest of the range with its last offset."""
    if header.magic >= 2:
        seen = sha256(data[:LEADER_EPOCH_OFFSET])
        seen.update(data[MAGIC_OFFSET:HEADER_SIZE])
    else:
        seen = sha256(data[:_LEGACY_END])
    return int.from_bytes(seen.digest()[:16], "big")


def add(*digests: int) -> int:
    """Return the digest of two adjacent ranges together."""
    return sum(digests) % MODULUS


def encode(digest: int) -> str:
    """Return a digest in the form stored in manifests."""
    return f"{digest:032x}"


def decode(text: str) -> int | None:
    """Return the digest stored in a manifest; None for manifests written before digests were stored."""
    return int(text, 16) if text else None
