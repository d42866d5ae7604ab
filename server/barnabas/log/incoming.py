"""Checks of records that a log appends unchanged.

The rule: bytes in, batch headers out; nothing is changed.
"""

from __future__ import annotations

from barnabas.errors import RequestError
from barnabas.log.errors import Code
from barnabas.records.batch import BatchHeader, iter_batches, read_records, require_crc
from barnabas.records.control import EndMarker, parse_end_marker


def check_replicated(
    records: bytes | bytearray | memoryview, next_offset: int, name: str
) -> list[tuple[int, BatchHeader]]:
    """Return (position, header) of each whole batch that a leader sent to its follower `name`.

    Raises CorruptRecordsError for a wrong checksum, RequestError(OFFSET_OUT_OF_RANGE) if an offset is before `next_offset`
    or before the end of the preceding batch.
    """
    entries = list(iter_batches(records))
    for position, header in entries:
        require_crc(records, position, header)
        if header.base_offset < next_offset:
            raise RequestError(
                Code.OFFSET_OUT_OF_RANGE,
                f"offset {header.base_offset} came to {name}, where {next_offset} is next",
            )
        next_offset = header.next_offset
    return entries


def read_end_marker(
    records: bytes | bytearray | memoryview, position: int, header: BatchHeader
) -> EndMarker | None:
    """Return the end marker in a control batch; None if it has another record, or none.

    Raises InvalidRecordsError if the marker is malformed.
    """
    decoded = read_records(memoryview(records)[position : position + header.size])
    return parse_end_marker(decoded[0]) if decoded else None
