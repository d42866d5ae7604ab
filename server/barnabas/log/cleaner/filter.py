"""Filter of the records of one batch when its log is cleaned.

The rule: offsets, epochs, sequences, formats and codecs stay as they were. A batch is dropped, kept unchanged, or
written again with the records that remain; a producer's last batch is kept even without records (KIP-98).

A tombstone (a null value), and the marker of a transaction without remaining records, first get a delete horizon
(KIP-534): the time until which they are kept, so that every reader can see them. Formats v0 and v1 have no field for it:
there the age of the segment decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.log.cleaner.offset_map import OffsetMap
from barnabas.log.cleaner.transactions import TransactionTracker
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import RECORD_BYTES_MAX, BatchHeader
from barnabas.records.building import retain_records
from barnabas.records.control import ControlType, parse_type
from barnabas.records.record import Record


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last batch of an active producer: its last offset (-1 if it is a marker), and its epoch."""

    last_offset: int
    producer_epoch: int


@dataclass(slots=True)
class BatchFilter:
    """The circumstances of one cleaning.

    Times in ms. `end_offset` is the end of the cleaned range: the last batch before it is kept, so that the range's end
    offset is not lost.
    """

    offsets: OffsetMap
    transactions: TransactionTracker
    last_records: dict[int, LastRecord]
    now_ms: int
    delete_retention_ms: int
    end_offset: int
    keep_legacy_tombstones: bool = True
    keyless_count: int = 0
    record_bytes_max: int = RECORD_BYTES_MAX

    def filter(self, header: BatchHeader, data: memoryview) -> bytes | memoryview | None:
        """Return the remaining part of a batch: `data` itself if all remains, None if nothing does.

        Raises RecordsError if the batch is damaged, or a record in it exceeds the topic's limit.
        """
        if header.magic < 2:
            return self._filter_legacy(header, data)
        if header.is_control:
            return self._filter_marker(header, data)
        is_aborted = self.transactions.see_batch(header)
        if is_aborted:
            return self._emptied(header)
        records = list(iter_any_records(data, record_bytes_max=self.record_bytes_max))
        kept = [record for record in records if self.keeps(header, record)]
        if not kept:
            return self._emptied(header)
        needs_horizon = not header.has_delete_horizon and any(record.value is None for record in kept)
        if len(kept) == len(records) and not needs_horizon:
            return data
        horizon_ms = self.now_ms + self.delete_retention_ms if needs_horizon else header.delete_horizon_ms
        return retain_records(header, kept, delete_horizon_ms=horizon_ms)

    def keeps(self, header: BatchHeader, record: Record) -> bool:
        """Return whether a record is kept: the last one of its key is, a tombstone for some time."""
        if record.offset > self.offsets.latest_offset:
            return True
        if record.key is None:
            self.keyless_count += 1
            return False
        if record.offset < self.offsets.get(record.key):
            return False
        if record.value is not None:
            return True
        if header.magic < 2:
            return self.keep_legacy_tombstones
        horizon_ms = header.delete_horizon_ms
        return horizon_ms is None or self.now_ms < horizon_ms

    def _filter_marker(self, header: BatchHeader, data: memoryview) -> bytes | memoryview | None:
        records = list(iter_any_records(data))
        is_orphan = self.transactions.see_marker(header, control_type_of(data))
        horizon_ms = header.delete_horizon_ms
        if not records or (is_orphan and horizon_ms is not None and horizon_ms <= self.now_ms):
            return self._emptied(header)
        if is_orphan and horizon_ms is None:
            return retain_records(header, records, delete_horizon_ms=self.now_ms + self.delete_retention_ms)
        return data

    def _emptied(self, header: BatchHeader) -> bytes | None:
        """Return a batch without records if its header is still needed, else None."""
        if header.next_offset != self.end_offset and not self._is_last_of_producer(header):
            return None
        return retain_records(header, [])

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _filter_legacy(self, header: BatchHeader, data: memoryview) -> bytes | memoryview | None:
        records = list(iter_any_records(data, record_bytes_max=self.record_bytes_max))
        kept = [record for record in records if self.keeps(header, record)]
        if len(kept) == len(records):
            return data
        if not kept:
            return None
        from barnabas.records import legacy

        return legacy.encode_message_set(
            kept,
            magic=header.magic,
            codec=header.codec,
            timestamp_type=header.timestamp_type,
            append_timestamp=header.max_timestamp,
        )


def control_type_of(data: memoryview) -> ControlType | None:
    """Return the type in a control batch; None if a cleaner has removed its record. Raises RecordsError."""
    record = next(iter(iter_any_records(data)), None)
    return None if record is None else parse_type(record.key)
