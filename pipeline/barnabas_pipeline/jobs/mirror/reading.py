"""Records of a range, unchanged: keys, values and headers byte by byte.

The rule: a record that cannot be read ends the range with an error, after all earlier records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.records.any_magic import iter_any_records
from barnabas.records.errors import RecordsError
from barnabas.records.record import Record
from barnabas_pipeline.errors import IncompleteError
from barnabas_pipeline.jobs.mirror.model import HEADER, Coordinates, parse_coordinates
from barnabas_pipeline.log.model import CorruptSpan, Log, OffsetRange

RECORDS_PER_BLOCK = 500
MAGIC_WITH_CONTROL = 2


@dataclass(slots=True)
class Counts:
    """Counts of offsets without a visible record."""

    control: int = 0


def read_blocks(log: Log, offset_range: OffsetRange, counts: Counts | None = None) -> Iterator[list[Record]]:
    """Yield the records visible to consumers, in order, in blocks. Raises IncompleteError, DataLossError."""
    block: list[Record] = []
    try:
        for record in read_records(log, offset_range, counts):
            block.append(record)
            if len(block) >= RECORDS_PER_BLOCK:
                yield block
                block = []
    except IncompleteError:
        yield block
        raise
    yield block


def read_records(log: Log, offset_range: OffsetRange, counts: Counts | None = None) -> Iterator[Record]:
    """Yield the records visible to consumers, in order. Raises IncompleteError, DataLossError."""
    for item in log.read(offset_range):
        if isinstance(item, CorruptSpan):
            raise _damaged(log, offset_range, item.start, item.detail)
        header = item.header
        if header.magic >= MAGIC_WITH_CONTROL and header.is_control:
            if counts is not None:
                counts.control += header.records_count
            continue
        if item.aborted:
            continue
        try:
            for record in iter_any_records(item.data):
                if offset_range.start <= record.offset < offset_range.end:
                    yield record
        except RecordsError as error:
            raise _damaged(log, offset_range, header.base_offset, error.message) from None


def _damaged(log: Log, offset_range: OffsetRange, offset: int, detail: str) -> IncompleteError:
    topic = getattr(log, "options").topic  # noqa: B009  # of both transports
    return IncompleteError(f"{topic}-{offset_range.partition} is damaged at {offset}: {detail}")


def coordinates_of(record: Record) -> list[Coordinates]:
    """Return a record's coordinates in the clusters that it was mirrored from, the newest last."""
    parsed = (parse_coordinates(value) for name, value in record.headers if name == HEADER)
    return [record for record in parsed if record is not None]
