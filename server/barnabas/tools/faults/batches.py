"""Damaged record batches, as a client gets them after a failure of a disk, a network card or a broker.

The rule: only the named part is wrong; a checksum that would reveal other damage is recomputed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.records.crc import crc32c

if TYPE_CHECKING:
    from barnabas.tools.faults.chance import Chance

DAMAGES = (
    "crc", "count", "count-negative", "count-huge", "compression", "magic", "length", "payload", "byte", "truncate",
)  # fmt: skip
COUNTS = {"count-negative": 2**32 - 1, "count-huge": 2**31 - 1}
"""Counts of records that no batch has: -1, and the largest there is."""

_LENGTH, _MAGIC, _CRC, _ATTRIBUTES, _COUNT, _RECORDS = 8, 16, 17, 21, 57, 61
"""Positions of the parts of a record batch (magic 2)."""
_LEGACY_CRC, _LEGACY_PAYLOAD = 12, 17
_CODEC_BITS = 0x07
_GZIP, _SNAPPY = 1, 2


def damaged(records: bytes, how: str, chance: Chance) -> bytes:
    """Return records of a Fetch answer with their first batch damaged; they are empty if they were.

    `how` is one of DAMAGES. In a message set older than batches, counts and `compression` damage the checksum.
    """
    data = bytearray(records)
    if len(data) <= _LEGACY_PAYLOAD:
        return records
    if how == "truncate":
        return bytes(data[: max(_batch_end(data) // 2, _LEGACY_PAYLOAD)])
    if how == "magic":
        data[_MAGIC] = 9
        return bytes(data)
    if how == "length":
        data[_LENGTH : _LENGTH + 4] = (4).to_bytes(4, "big")
        return bytes(data)
    if data[_MAGIC] < 2 or len(data) <= _RECORDS:
        at = _LEGACY_CRC if how not in ("payload", "byte") else _LEGACY_PAYLOAD
        data[at] ^= 1 + chance.below(255)
        return bytes(data)
    if how == "crc":
        data[_CRC + chance.below(4)] ^= 1 + chance.below(255)
        return bytes(data)
    if how == "byte":  # the checksum gives it away
        data[(_RECORDS + _batch_end(data)) // 2] ^= 1 + chance.below(255)
        return bytes(data)
    if how == "count":
        count = int.from_bytes(data[_COUNT : _COUNT + 4], "big")
        data[_COUNT : _COUNT + 4] = (count + 1).to_bytes(4, "big")
    elif how in COUNTS:
        data[_COUNT : _COUNT + 4] = COUNTS[how].to_bytes(4, "big")
    elif how == "compression":
        used = data[_ATTRIBUTES + 1] & _CODEC_BITS
        data[_ATTRIBUTES + 1] ^= used ^ (_GZIP if used != _GZIP else _SNAPPY)
    elif how == "payload":
        data[_RECORDS + chance.below(_batch_end(data) - _RECORDS)] ^= 1 + chance.below(255)
    _sign(data)
    return bytes(data)


def _batch_end(data: bytearray) -> int:
    """Return where the first batch ends, or the data if that is sooner."""
    return min(_LENGTH + 4 + int.from_bytes(data[_LENGTH : _LENGTH + 4], "big"), len(data))


def _sign(data: bytearray) -> None:
    """Compute the first batch's checksum again."""
    checksum = crc32c(bytes(data[_ATTRIBUTES : _batch_end(data)]))
    data[_CRC : _CRC + 4] = checksum.to_bytes(4, "big")
