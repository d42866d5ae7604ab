"""State of a consumer's partition: its position, and fetched records. No I/O.

The rule: a change of the position from outside (`seek`) invalidates answers to older requests; `seeks` identifies them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from barnabas.client.consuming.opening import damaged, readable_batches
from barnabas.client.errors import ClientError, DamagedRecordsError
from barnabas.client.values import ConsumedRecord, FetchedRecords, TopicPartition
from barnabas.records.batch import BatchHeader, TimestampType, iter_batches
from barnabas.records.committed import AbortedBatches, AbortedTransaction
from barnabas.records.errors import RecordsError
from barnabas.records.varint import Buffer


class Chunk:
    """Records of one partition from one response; batches are opened when their first record is needed."""

    __slots__ = ("aborted", "data", "end_epoch", "end_offset", "offset", "records", "size")

    def __init__(
        self,
        place: TopicPartition,
        data: Buffer,
        offset: int,
        aborted: list[AbortedTransaction] | None,
        *,
        checks_crcs: bool,
    ) -> None:
        """Parse the headers of the batches. Raises DamagedRecordsError if the first one is damaged."""
        self.size = len(data)
        self.data, self.offset, self.aborted = data, offset, aborted
        self.end_offset, self.end_epoch = offset, -1
        batches: list[tuple[int, BatchHeader]] = []
        try:
            batches.extend(iter_batches(data))  # batches before an error are kept
        except RecordsError as error:
            if not batches:
                raise DamagedRecordsError(f"{place} at {offset}: {error.message}") from error
        if batches:
            last = batches[-1][1]
            self.end_offset, self.end_epoch = max(offset, last.next_offset), last.leader_epoch
        self.records = _records(place, data, offset, batches, AbortedBatches(aborted), checks_crcs)


def _records(
    place: TopicPartition,
    data: Buffer,
    offset: int,
    batches: list[tuple[int, BatchHeader]],
    aborted: AbortedBatches,
    checks_crcs: bool,
) -> Iterator[ConsumedRecord]:
    topic, partition = place
    at = offset
    try:
        for header, opened in readable_batches(place, data, batches, aborted, checks_crcs=checks_crcs):
            at, epoch = header.base_offset, header.leader_epoch
            is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
            for record in opened:
                if record.offset >= offset:  # a batch may begin before it
                    yield ConsumedRecord(
                        topic, partition, record.offset, record.timestamp, record.key, record.value,
                        record.headers, epoch, is_append_time,
                    )  # fmt: skip
    except RecordsError as error:
        raise damaged(place, at, error) from error


class Partition:
    """A partition that the consumer has."""

    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.offset = -1
        """The position: next offset to hand out; -1 while it is not known."""
        self.epoch = -1
        """Leader epoch of the record before it; -1 if unknown."""
        self.done_offset = -1
        """Offset after the records that the program is done with; -1 if none."""
        self.committed_offset = -1
        """Offset that was committed last."""
        self.fetch_offset = -1
        """Next offset to fetch."""
        self.fetch_epoch = -1
        """Leader epoch of the record before that."""
        self.reset = ""
        """Requested start: earliest or latest, still to be looked up; None if none was requested."""
        self.chunks: deque[Chunk] = deque()
        self.seeks = 0
        self.is_paused = False
        self.is_revoked = False
        """True if it is about to be revoked: no more records are delivered."""
        self.is_under_way = False
        """True while a request for it is in flight."""
        self.leader_epoch = -1
        """Epoch of the leader by which the position was found good."""
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        self.nearby = -1
        """The replica to read from, if not the leader."""
        self.nearby_until = 0.0
        self.bytes_max_factor = 1
        self.failure: ClientError | None = None
        """Error to raise for it, once."""
        self.retry_at = 0.0

    @property
    def buffered_bytes(self) -> int:
        """Number of fetched bytes that the program has not received."""
        return sum(chunk.size for chunk in self.chunks)

    def seek(self, offset: int, epoch: int = -1) -> None:
        """Move the position."""
        self._forget_fetched()
        self.reset = ""
        self.offset = self.fetch_offset = offset
        self.epoch = self.fetch_epoch = epoch
        self.done_offset = offset

    def seek_to(self, reset: str) -> None:
        """Move the position to the start or end offset, which must be looked up."""
        self._forget_fetched()
        self.reset = reset
        self.offset = self.fetch_offset = self.done_offset = -1

    def drop_fetched(self) -> None:
        """Fetch again from the position on."""
        self._forget_fetched()
        self.fetch_offset, self.fetch_epoch = self.offset, self.epoch

    def _forget_fetched(self) -> None:
        self.seeks += 1
        self.chunks.clear()
        self.failure = None

    def add(self, chunk: Chunk) -> None:
        """Keep fetched records."""
        self.chunks.append(chunk)
        self.fetch_offset = chunk.end_offset
        if chunk.end_epoch >= 0:
            self.fetch_epoch = chunk.end_epoch

    def next(self) -> ConsumedRecord | None:
        """Return the next record; None if none was fetched. Raises DamagedRecordsError, and fetches again then."""
        while self.chunks:
            chunk = self.chunks[0]
            try:
                record = next(chunk.records, None)
            except DamagedRecordsError:
                self.drop_fetched()
                raise
            if record is not None:
                self.offset, self.epoch = record.offset + 1, record.leader_epoch
                return record
            self.chunks.popleft()
            # after the last record there are only markers, aborted or compacted records: the program is done with them
            is_done = self.done_offset == self.offset
            self.offset = chunk.end_offset
            if chunk.end_epoch >= 0:
                self.epoch = chunk.end_epoch
            if is_done:
                self.done_offset = self.offset
        return None

    def add_opened(self, records: list[ConsumedRecord], records_max: int) -> None:
        """Append the next records of the response that is being read, until the list has `records_max` records.

        Stops at the end of the response, and before damage, which `next` reports.
        """
        if self.is_paused or self.is_revoked or not self.chunks:
            return
        count = len(records)
        is_damaged = False
        try:
            for record in islice(self.chunks[0].records, records_max - count):
                records.append(record)  # noqa: PERF402 (those before damage stay: `extend` does not promise it)
        except DamagedRecordsError:
            is_damaged = True
        if len(records) > count:
            self.offset, self.epoch = records[-1].offset + 1, records[-1].leader_epoch
        if is_damaged:
            self.drop_fetched()

    def next_unopened(self) -> FetchedRecords | None:
        """Return the fetched batches of one response, undecoded; None without any."""
        if not self.chunks:
            return None
        chunk = self.chunks.popleft()
        self.offset = chunk.end_offset
        if chunk.end_epoch >= 0:
            self.epoch = chunk.end_epoch
        aborted = tuple(
            (transaction.producer_id, transaction.first_offset) for transaction in chunk.aborted or ()
        )
        return FetchedRecords(*self.place, chunk.offset, chunk.end_offset, chunk.data, aborted)

    def lag(self, *, is_committed_only: bool) -> int | None:
        """Return the number of offsets up to the end, if it is known."""
        end = self.last_stable_offset if is_committed_only else self.high_watermark
        return None if end < 0 or self.offset < 0 else max(0, end - self.offset)
