"""Message sets for fetch versions that came before record batches (v0-v1: format v0, v2-v3: format v1)."""

from __future__ import annotations

from barnabas.log.results import ReadResult
from barnabas.records.convert import down_convert

FORMAT_V1_SINCE = 2
PARTIAL_FIRST_UNTIL = 2
CONVERTED_BYTES_MAX = 128 << 20


def down_converted(result: ReadResult, version: int, fetch_offset: int, max_bytes: int) -> bytes:
    """The records of `result` in the format that the fetch version knows.

    Up to v2 no more than `max_bytes` are sent, even if that cuts off the first message: a client of that time takes
    a partial message for one that is larger than its buffer, and says so. Raises RequestError when the records cannot
    be told in that format (zstd).
    """
    magic = 1 if version >= FORMAT_V1_SINCE else 0
    converted = down_convert(
        result.to_bytes(), magic, bytes_max=CONVERTED_BYTES_MAX, fetch_offset=fetch_offset
    )
    return bytes(converted[:max_bytes] if version <= PARTIAL_FIRST_UNTIL else converted)
