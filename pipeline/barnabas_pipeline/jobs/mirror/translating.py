"""Offsets of a source as offsets of the target, found by the coordinates that records carry.

The rule: a consumer that continues at the translated offset reads exactly the records that it would have read at the
source, although compaction, aborted transactions and markers shift the offsets on both sides.
"""

from __future__ import annotations

from barnabas.records.record import Record
from barnabas_pipeline.jobs.mirror.model import Place
from barnabas_pipeline.jobs.mirror.reading import coordinates_of, read_records
from barnabas_pipeline.log.model import Bounds, Log, OffsetRange


class Translator:
    """Binary search in a partition of the target; mirrored records are in the order of the source."""

    def __init__(self, log: Log, place: Place, bound: Bounds) -> None:
        self._log = log
        self._place = place
        self._bound = bound

    @property
    def is_settled(self) -> bool:
        """True if no transaction is open: all committed records are visible."""
        return self._bound.end == self._bound.high_watermark

    def offset_of(self, offset: int) -> int:
        """Return the offset of the first visible record after those before `offset` of the source, or the end."""
        low, high = self._bound.start, self._bound.end
        while low < high:  # mirrored records before `low` precede the offset, records from `high` on do not
            middle = (low + high) // 2
            mirrored = self._first_mirrored(middle, high)
            if mirrored is None or mirrored[1] >= offset:
                high = middle
            else:
                low = mirrored[0] + 1
        visible = self._first(low, self._bound.end)
        return self._bound.end if visible is None else visible.offset

    def _first(self, start: int, end: int) -> Record | None:
        if start >= end:
            return None
        return next(read_records(self._log, OffsetRange(self._place.partition, start, end)), None)

    def _first_mirrored(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the offsets of the first record of this mirror: (in the target, in the source)."""
        for record in read_records(self._log, OffsetRange(self._place.partition, start, end)):
            for coordinates in coordinates_of(record)[-1:]:
                if coordinates[:3] == (self._place.cluster_id, self._place.topic_id, self._place.partition):
                    return record.offset, coordinates.offset
        return None
