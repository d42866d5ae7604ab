"""Validated records of a leader, ready to append.

The rule: each kind of validation returns ValidatedBatches; only the offsets are set later.
"""

from dataclasses import dataclass

from barnabas.records.batch import (
    NO_TIMESTAMP,
    OF_A_BROKER_BITS,
    BatchHeader,
    TimestampType,
    place_batch,
    read_header,
    set_max_timestamp,
)
from barnabas.records.rules import AppendRules
from barnabas.records.varint import Buffer


@dataclass(slots=True, init=False)  # with an __init__ that can be compiled
class ValidatedBatches:
    """Records ready to be appended.

    `records` is the request's own memory, patched, wherever that was possible. Offsets begin at 0 until `place` sets them.
    `offset_of_max_timestamp` is the last offset of the batch with the max timestamp, as the time index stores it, or -1
    without timestamps. `log_append_time_ms` is -1 with CreateTime. `batches` are the headers of `records`: one, or none if
    an old client sent no whole message (then the offsets are -1 and nothing is appended).
    """

    records: Buffer
    base_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    log_append_time_ms: int
    record_count: int
    batches: list[BatchHeader]

    def __init__(
        self,
        records: Buffer,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
        log_append_time_ms: int,
        record_count: int,
        batches: list[BatchHeader],
    ) -> None:
        self.records = records
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.log_append_time_ms = log_append_time_ms
        self.record_count = record_count
        self.batches = batches

    def place(self, first_offset: int, leader_epoch: int) -> None:
        """Set the offsets of the records; these are outside the checksum, so nothing else must change."""
        if not self.batches:
            return
        header = self.batches[0]
        header.base_offset = self.base_offset = first_offset
        header.leader_epoch = leader_epoch
        last_offset = first_offset + header.last_offset_delta
        self.last_offset = last_offset
        if self.offset_of_max_timestamp >= 0:
            self.offset_of_max_timestamp = last_offset
        assert not isinstance(self.records, bytes)
        place_batch(self.records, header)


def described(records: Buffer, header: BatchHeader, config: AppendRules, now_ms: int) -> ValidatedBatches:
    """Return one batch to be appended, as validated."""
    last_offset = header.base_offset + header.last_offset_delta
    return ValidatedBatches(
        records,
        header.base_offset,
        last_offset,
        header.max_timestamp,
        last_offset if header.max_timestamp != NO_TIMESTAMP else -1,
        now_ms if config.append_time else -1,
        header.records_count,
        [header],
    )


def stamped(
    buf: bytearray | memoryview, header: BatchHeader, config: AppendRules, now_ms: int, max_timestamp: int
) -> BatchHeader:
    """Set the timestamps of the batch in `buf` by the topic's settings, and return its new header."""
    if config.append_time:
        set_max_timestamp(buf, 0, TimestampType.LOG_APPEND_TIME, now_ms)
    elif max_timestamp != header.max_timestamp or header.attributes & OF_A_BROKER_BITS:
        set_max_timestamp(buf, 0, TimestampType.CREATE_TIME, max_timestamp)
    else:
        return header
    return read_header(buf)
