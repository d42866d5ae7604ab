"""Producer snapshots: the state of a partition's producers at the offset in the file's name.

The rule: an inconsistent snapshot is refused as a whole; the state can be rebuilt from the log.

    version int16 (1), crc uint32 (CRC-32C of all that follows), count int32, entries
    entry = producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32,
            timestamp int64, coordinator epoch int32, current transaction's first offset int64 (-1: none)
"""

from collections.abc import Collection
from struct import Struct
from typing import NamedTuple

from barnabas.log.format import CorruptFileError
from barnabas.records.crc import crc32c

VERSION = 1
_PREFIX = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")


class SnapshotEntry(NamedTuple):
    """One producer; sequence, offset and delta are of its last batch (-1, -1, 0 without one)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode(entries: Collection[SnapshotEntry]) -> bytes:
    """Write a snapshot file."""
    body = _COUNT.pack(len(entries)) + b"".join([_ENTRY.pack(*entry) for entry in entries])
    return _PREFIX.pack(VERSION, crc32c(body)) + body


def decode(data: bytes) -> list[SnapshotEntry]:
    """Read a snapshot file. Raises CorruptFileError."""
    if len(data) < _PREFIX.size + _COUNT.size:
        raise CorruptFileError(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise CorruptFileError(f"producer snapshot version {version} is unknown")
    body = memoryview(data)[_PREFIX.size :]
    if crc32c(body) != crc:
        raise CorruptFileError("the checksum of the producer snapshot is wrong")
    (count,) = _COUNT.unpack_from(body)
    entries = body[_COUNT.size :]
    if count * _ENTRY.size != len(entries):
        raise CorruptFileError(f"{count} producers are not in {len(entries)} bytes")
    return [SnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(entries)]
