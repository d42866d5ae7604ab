"""Batches of a partition, the outcome of each record, and sequence numbers. No I/O.

The rule: batches are sent in the order of their records, also when they are retried; of several retried batches only the
first is in flight. A batch keeps its sequence while the broker may have appended it: numbers are assigned again only in a
new epoch, after the broker has refused the sequence or no batch is in flight (KIP-360).
"""

from __future__ import annotations

import bisect
from collections import deque
from operator import attrgetter

import trio

from barnabas.client.errors import ClientError, copy_of
from barnabas.client.values import RecordMetadata
from barnabas.records.batch import NO_LEADER_EPOCH, SEQUENCE_MAX, TRANSACTIONAL_BIT, BatchHeader
from barnabas.records.building import join_batch
from barnabas.records.compression import compress
from barnabas.records.record import append_record, iter_body
from barnabas.records.varint import Buffer

Producer = tuple[int, int]
"""Producer id and epoch."""
NO_PRODUCER = (-1, -1)
Headers = list[tuple[str, bytes | None]]


class Delivery:
    """Handle on a record that was sent: waits for its acknowledgement or error."""

    __slots__ = ("batch", "index", "timestamp_ms")

    def __init__(self, batch: Batch, index: int, timestamp_ms: int) -> None:
        self.batch = batch
        self.index = index
        self.timestamp_ms = timestamp_ms

    @property
    def topic(self) -> str:
        """The record's topic."""
        return self.batch.outbox.topic

    @property
    def partition(self) -> int:
        """The index of the record's partition."""
        return self.batch.outbox.index

    @property
    def is_done(self) -> bool:
        """True once the record is acknowledged, or has failed."""
        return self.batch.is_done

    async def wait(self) -> RecordMetadata:
        """Wait for the acknowledgement and return partition, offset and timestamp. Raises ClientError if the record
        failed.
        """
        while not self.batch.is_done:
            await self.batch.done.wait()
        return self.result()

    def result(self) -> RecordMetadata:
        """Return the result of `wait` without waiting. Raises RuntimeError before the record is acknowledged or has
        failed.
        """
        batch = self.batch
        if not batch.is_done:
            raise RuntimeError("the record is still on its way")
        batch.is_seen = True
        failure = batch.failures.get(self.index, batch.failure)
        if failure is not None:
            raise copy_of(failure)
        offset = batch.base_offset + self.index if batch.base_offset >= 0 else -1
        timestamp_ms = batch.append_time_ms if batch.append_time_ms >= 0 else self.timestamp_ms
        return RecordMetadata(self.topic, self.partition, offset, timestamp_ms)


class Batch:
    """Records of one partition that are sent together. Lifecycle: open, closed (compressed), done."""

    def __init__(self, outbox: Outbox, number: tuple[int, ...], now: float) -> None:
        self.outbox = outbox
        self.number = number
        """Its place among the batches of the partition; halves have one more part than the whole."""
        self.created_at = now
        self.retry_at = 0.0
        self.attempts = 0
        """Number of times that it was sent, without the first."""
        self.deliveries: list[Delivery] = []
        self.memory_bytes = 0
        self.body = bytearray()
        self.payload: Buffer | None = None
        """The encoded body, once the batch is closed."""
        self.codec = 0
        self.first_timestamp_ms = self.max_timestamp_ms = 0
        self.producer = NO_PRODUCER
        self.sequence = -1
        self.was_restarted = False
        """True if it got another sequence than that of its first attempt."""
        self.is_sending = False
        self.base_offset = self.append_time_ms = -1
        self.failure: ClientError | None = None
        self.failures: dict[int, ClientError] = {}
        """Failures of single records, by index, where they differ."""
        self.is_seen = False
        """True if the program has read the result of one of its records."""
        self.is_done = False
        self.done = trio.Event()

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.deliveries)

    def append(
        self, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int, memory_bytes: int
    ) -> Delivery:
        """Add a record. Raises OverflowError, ValueError, TypeError if it cannot be encoded; then nothing is added."""
        index = len(self.deliveries)
        if not index:
            self.first_timestamp_ms = self.max_timestamp_ms = timestamp_ms
        append_record(self.body, timestamp_ms - self.first_timestamp_ms, index, key, value, headers)
        self.max_timestamp_ms = max(self.max_timestamp_ms, timestamp_ms)
        self.memory_bytes += memory_bytes
        delivery = Delivery(self, index, timestamp_ms)
        self.deliveries.append(delivery)
        return delivery

    def close(self, codec: int, level: int | None) -> None:
        """Compress the records; no more can be added."""
        if self.payload is None:
            self.codec = codec
            self.payload = compress(codec, self.body, level) if codec else self.body

    def encoded(self, *, transactional: bool) -> bytearray:
        """Return the encoded batch, with its producer and its sequence."""
        assert self.payload is not None
        count = self.count
        header = BatchHeader(
            0, 0, NO_LEADER_EPOCH, 2, 0, self.codec | (TRANSACTIONAL_BIT if transactional else 0), count - 1,
            self.first_timestamp_ms, self.max_timestamp_ms, *self.producer, self.sequence, count,
        )  # fmt: skip
        return join_batch(header, self.payload)

    def halves(self) -> tuple[Batch, Batch]:
        """Return two batches with the records of this one; they take over its deliveries."""
        records = list(iter_body(bytes(self.body), self.count, 0, self.first_timestamp_ms))
        middle = self.count // 2
        parts = tuple(Batch(self.outbox, (*self.number, half), self.created_at) for half in (0, 1))
        for part, moved in zip(parts, (records[:middle], records[middle:]), strict=True):
            part.producer, part.sequence = self.producer, self.sequence
            part.attempts, part.was_restarted = self.attempts, self.was_restarted
            for record in moved:
                delivery = self.deliveries[record.offset]
                part.append(record.key, record.value, record.headers, record.timestamp, 0)
                delivery.batch, delivery.index = part, part.count - 1
                part.deliveries[-1] = delivery
        first, second = parts
        first.memory_bytes = self.memory_bytes // 2
        second.memory_bytes = self.memory_bytes - first.memory_bytes
        if self.sequence >= 0:
            second.sequence = (self.sequence + first.count) & SEQUENCE_MAX
        return first, second

    def end(self, failure: ClientError | None = None) -> None:
        """Record the outcome of the batch, and wake the tasks that wait for it."""
        self.failure = failure
        self.is_done = True
        self.body, self.payload = bytearray(), None
        self.done.set()

    def give_way(self) -> None:
        """Wake the waiting tasks, because the deliveries belong to other batches now."""
        self.done.set()


class Outbox:
    """Batches of one partition, the oldest first."""

    def __init__(self, topic: str, index: int) -> None:
        self.topic = topic
        self.index = index
        self.queue: deque[Batch] = deque()
        """Batches that wait to be sent, for the first time or again."""
        self.sending = 0
        """Number of batches that are under way."""
        self.unacknowledged: list[Batch] = []
        """Batches that have a sequence and are not done, in that order."""
        self.producer: Producer = NO_PRODUCER
        self.next_sequence = 0
        self.last_acknowledged = -1
        """Last sequence that the broker has acknowledged in this epoch; -1 if none."""
        self.last_offset = -1
        """Offset of the record that has it."""
        self.is_unresolved = False
        """True if a batch with a sequence has failed, so that the broker may miss it or not."""
        self._number = 0

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    # --- filling --------------------------------------------------------------------------------------------

    def open_batch(self, size: int, bytes_max: int, now: float) -> Batch:
        """Return the batch for a record of some size: the last one, or a new one if that has no room."""
        last = self.queue[-1] if self.queue else None
        if (
            last is not None
            and last.payload is None
            and (len(last.body) + size <= bytes_max or not last.count)
        ):
            return last
        self._number += 1
        batch = Batch(self, (self._number,), now)
        self.queue.append(batch)
        return batch

    def put_back(self, batch: Batch) -> None:
        """Queue a batch again, in its place."""
        if not self.queue or self.queue[0].number > batch.number:
            self.queue.appendleft(batch)
            return
        waiting = list(self.queue)
        bisect.insort(waiting, batch, key=attrgetter("number"))
        self.queue = deque(waiting)

    # --- sending --------------------------------------------------------------------------------------------

    def may_send(self, current: Producer | None, in_flight_max: int) -> bool:
        """Return whether the first batch may go now; `current` is the producer, None if it is not idempotent."""
        batch = self.queue[0]
        if current is None:
            return in_flight_max > 1 or not self.sending
        if batch.sequence >= 0:
            return self.unacknowledged[0] is batch
        return not (
            self.is_unresolved
            or len(self.unacknowledged) >= in_flight_max
            or (self.unacknowledged and self.producer != current)
        )

    def number(self, batch: Batch, current: Producer) -> None:
        """Assign a batch its sequence, unless it has one."""
        if batch.sequence >= 0:
            return
        if self.producer != current:
            self.restart(current)
        batch.producer, batch.sequence = self.producer, self.next_sequence
        self.next_sequence = self.next_sequence + batch.count & SEQUENCE_MAX
        self.unacknowledged.append(batch)

    def restart(self, producer: Producer) -> None:
        """Begin a new epoch: the sequences of unacknowledged records start at 0."""
        self.producer, self.next_sequence = producer, 0
        self.last_acknowledged = self.last_offset = -1
        self.is_unresolved = False
        for batch in self.unacknowledged:
            batch.producer, batch.sequence, batch.was_restarted = producer, self.next_sequence, True
            self.next_sequence += batch.count

    def split(self, batch: Batch) -> tuple[Batch, Batch]:
        """Put two halves in the place of a batch that was too large, and return them."""
        halves = batch.halves()
        if batch in self.unacknowledged:
            at = self.unacknowledged.index(batch)
            self.unacknowledged[at : at + 1] = halves
        for half in halves:
            self.put_back(half)
        batch.give_way()
        return halves

    # --- outcomes -------------------------------------------------------------------------------------------

    def acknowledge(self, batch: Batch, base_offset: int) -> None:
        """Note that the broker has a batch."""
        if batch.sequence >= 0 and batch.producer == self.producer:
            last = batch.sequence + batch.count - 1 & SEQUENCE_MAX
            if last - self.last_acknowledged & SEQUENCE_MAX < SEQUENCE_MAX // 2:  # sequences wrap
                self.last_acknowledged = last
            if base_offset >= 0:
                self.last_offset = max(self.last_offset, base_offset + batch.count - 1)
        self._remove(batch)

    def give_up(self, batch: Batch) -> None:
        """Note that a batch has failed; the following batches wait until its sequence is resolved."""
        if batch in self.unacknowledged:
            self.is_unresolved = True
        self._remove(batch)

    def _remove(self, batch: Batch) -> None:
        if batch in self.unacknowledged:
            self.unacknowledged.remove(batch)
        if not batch.is_sending and batch in self.queue:
            self.queue.remove(batch)

    def is_next(self, batch: Batch) -> bool:
        """Return whether the broker must expect just this batch."""
        return batch.sequence == (self.last_acknowledged + 1 & SEQUENCE_MAX)

    def needs_restart(self) -> bool:
        """Return whether only a new epoch helps: a failed batch has left a gap, and no batch is in flight.

        If there turns out to be no gap, the partition continues without a new epoch.
        """
        if not self.is_unresolved or self.unacknowledged:
            return False
        if self.next_sequence == (self.last_acknowledged + 1 & SEQUENCE_MAX):
            self.is_unresolved = False
            return False
        return True
