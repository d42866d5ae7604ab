"""State of a partition's idempotent and transactional producers (KIP-98, KIP-360).

The rule: `check` decides and changes nothing, `append` applies the decision, and a replay of the same batches leads to
the same state. So the state can be rebuilt from a snapshot and the log after it.

A producer is known by its id. Its batches carry an epoch, which fences older instances, and a sequence number, which
must follow the last one. The last five batches are remembered, because a client may have five requests in flight: one of
them sent again is a duplicate and is answered with the offsets that it got the first time. After changes of the leader a
client may send an older batch again: if it is certainly in the log and committed, it is answered
DUPLICATE_SEQUENCE_NUMBER, which clients take for success.

The first sequence number of a transaction's batch is noted before its producer is verified (`expect`): while that batch
is expected again, as the producer could not be verified or too few replicas were in sync, no later batch may be
appended.

A transaction is open from its first batch to the control batch that ends it. As long as one is open, or its
end is not yet below the high watermark, the last stable offset cannot pass its first offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from barnabas.errors import RequestError
from barnabas.log.errors import Code
from barnabas.log.format.snapshot import SnapshotEntry
from barnabas.records.batch import (
    CONTROL_BIT,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    SEQUENCE_MAX,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from barnabas.records.control import EndMarker

BATCHES_KEPT: Final = 5  # an idempotent producer has at most 5 in max.in.flight.requests.per.connection
SEQUENCES_KNOWN_MAX: Final = 1 << 30
"""Sequence numbers wrap: beyond this distance a sequence behind cannot be told from one ahead."""
NO_COORDINATOR_EPOCH: Final = -1
NO_OFFSET: Final = -1
PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000  # producer.id.expiration.ms
AWAITED_MAX: Final = 1_000
"""Limit of producers of a partition with awaited first sequence numbers; the oldest is dropped for a new one."""


class ProducedBatch(NamedTuple):
    """A batch of a producer; `timestamp` is its largest, in ms."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """The sequence number of its first record; they wrap to 0 after 2^31 - 1."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX


class CompletedTransaction(NamedTuple):
    """A transaction that was ended by the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class AwaitedSequence(NamedTuple):
    """The lowest first sequence number received since a producer's last transaction ended, while none is open here.

    `from_zero`: the producer uses transaction version 2, where each transaction has its own epoch and sequences.
    """

    epoch: int
    sequence: int
    from_zero: bool
    since_ms: int


class Producer:
    """One producer; timestamps in ms, -1 for missing values."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "first_sequence",
        "last_timestamp",
        "marker_offset",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        last_timestamp: int = NO_TIMESTAMP,
        current_txn_first_offset: int = NO_OFFSET,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.batches: list[ProducedBatch] = []
        self.first_sequence = NO_SEQUENCE
        """First of the sequence numbers up to `last_sequence` that are certainly in the log without a gap."""
        self.marker_offset = NO_OFFSET
        """Offset of the marker of its last transaction, if one was read since the log was opened."""

    @property
    def last_sequence(self) -> int:
        """The last sequence number of this epoch, or NO_SEQUENCE."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The last offset written in this epoch, or NO_OFFSET."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def find(self, first_sequence: int, last_sequence: int) -> ProducedBatch | None:
        """Return the remembered batch with exactly these sequence numbers, None if it is not remembered."""
        for batch in reversed(self.batches):
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        return None

    def has_all(self, first_sequence: int, last_sequence: int, high_watermark: int) -> bool:
        """Return whether all these sequence numbers are certainly committed, in batches that were evicted."""
        if not self.batches:
            return False
        oldest = self.batches[0]
        before = (oldest.first_sequence - self.first_sequence) & SEQUENCE_MAX
        first = (first_sequence - self.first_sequence) & SEQUENCE_MAX
        last = (last_sequence - self.first_sequence) & SEQUENCE_MAX
        remembered = (self.last_sequence - self.first_sequence) & SEQUENCE_MAX
        # after a gap, the oldest remembered batch may be from before it: then all known batches are remembered
        return first <= last < before <= remembered and oldest.base_offset <= high_watermark

    def take(self, batch: ProducedBatch) -> None:
        """Remember an appended batch; only the last five are kept."""
        batches = self.batches
        if batch.last_sequence < 0:
            self.first_sequence = NO_SEQUENCE
        elif (
            self.first_sequence < 0
            or (batches[-1].last_sequence + 1) & SEQUENCE_MAX != batch.first_sequence
            or (batch.last_sequence - self.first_sequence) & SEQUENCE_MAX > SEQUENCES_KNOWN_MAX
        ):
            self.first_sequence = batch.first_sequence
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append(batch)

    def enter_epoch(self, epoch: int) -> None:
        """Drop the batches of another epoch."""
        if epoch != self.producer_epoch:
            self.producer_epoch = epoch
            self.batches.clear()
            self.first_sequence = NO_SEQUENCE


class ProducerState:
    """All producers of a partition up to `end_offset`, and the transactions that are open or have just ended."""

    __slots__ = ("_awaited", "_ended", "_ongoing", "_producers", "end_offset", "expiration_ms", "name")

    def __init__(self, name: str = "", *, expiration_ms: int = PRODUCER_ID_EXPIRATION_MS) -> None:
        self.name = name
        self.expiration_ms = expiration_ms
        self.end_offset = 0
        self._producers: dict[int, Producer] = {}
        self._awaited: dict[int, AwaitedSequence] = {}  # by producer id, the oldest first
        self._ongoing: dict[int, int] = {}  # first offset -> producer id, in the order of offsets
        self._ended: dict[
            int, int
        ] = {}  # first offset -> marker's offset, until the high watermark has passed it

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        """Return a producer's state."""
        return self._producers.get(producer_id)

    def active(self) -> Iterator[Producer]:
        """Iterate over all producers that have not expired (DescribeProducers)."""
        yield from self._producers.values()

    # --- appends --------------------------------------------------------------------------------------------

    def expect(self, producer_id: int, epoch: int, sequence: int, *, from_zero: bool, now_ms: int) -> None:
        """Note the first sequence number of a batch that begins a transaction here, before its producer is verified.

        The lowest one of an epoch counts, until a batch of the transaction, or its end marker, is in the log.
        """
        before = self._awaited.get(producer_id)
        if before is None:
            if len(self._awaited) >= AWAITED_MAX:
                del self._awaited[next(iter(self._awaited))]
            self._awaited[producer_id] = AwaitedSequence(epoch, sequence, from_zero, now_ms)
        elif epoch > before.epoch or (epoch == before.epoch and sequence < before.sequence):
            self._awaited[producer_id] = before._replace(epoch=epoch, sequence=sequence)

    def check(
        self, header: BatchHeader, *, from_client: bool, high_watermark: int = 0
    ) -> ProducedBatch | None:
        """Check whether a data batch may be appended; returns the earlier batch if it is a duplicate.

        Raises RequestError with INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER for a
        committed batch that is no longer remembered, or INVALID_TXN_STATE. An unknown producer may begin with any
        sequence number: it may have expired (KIP-360); but not while a lower one is awaited, nor in transaction version
        2, where each transaction has a new epoch and begins at 0 (KIP-890).
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            if from_client:
                self._check_awaited(header, is_new=True)
            return None
        epoch, sequence = header.producer_epoch, header.base_sequence
        if from_client and epoch == producer.producer_epoch:
            duplicate = producer.find(sequence, header.last_sequence)
            if duplicate is not None:
                return duplicate
        self._check_epoch(producer, epoch)
        if from_client:
            self._check_awaited(header, is_new=not producer.batches)
            self._check_sequence(producer, header, high_watermark)
        if producer.current_txn_first_offset >= 0 and not header.attributes & TRANSACTIONAL_BIT:
            raise RequestError(
                Code.INVALID_TXN_STATE,
                f"producer {producer.producer_id} wrote outside of its open transaction in {self.name}",
            )
        return None

    def check_marker(self, header: BatchHeader, marker: EndMarker) -> None:
        """Check whether a transaction's end marker may be appended.

        Raises RequestError with INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return
        self._check_epoch(producer, header.producer_epoch)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise RequestError(
                Code.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} for producer {producer.producer_id} "
                f"in {self.name} is older than {producer.coordinator_epoch}",
            )

    def _check_epoch(self, producer: Producer, epoch: int) -> None:
        if epoch < producer.producer_epoch:
            raise RequestError(
                Code.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of producer {producer.producer_id} in {self.name} is older than "
                f"{producer.producer_epoch}",
            )

    def _check_awaited(self, header: BatchHeader, *, is_new: bool) -> None:
        """Refuse a batch that must not come before an awaited one; `is_new`: no sequences of the producer are known."""
        awaited = self._awaited.get(header.producer_id)
        if awaited is None:
            return
        lowest = 0 if awaited.from_zero and is_new else awaited.sequence
        if header.base_sequence > lowest:
            raise RequestError(
                Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} in {self.name}: sequence {header.base_sequence} came before {lowest}",
            )

    def _check_sequence(self, producer: Producer, header: BatchHeader, high_watermark: int) -> None:
        epoch, sequence = header.producer_epoch, header.base_sequence
        if epoch != producer.producer_epoch:
            in_order = sequence == 0 or producer.producer_epoch == NO_PRODUCER_EPOCH
            expected = 0
        else:
            expected = (producer.last_sequence + 1) & SEQUENCE_MAX
            in_order = sequence == expected
            if not in_order and producer.has_all(sequence, header.last_sequence, high_watermark):
                raise RequestError(
                    Code.DUPLICATE_SEQUENCE_NUMBER,
                    f"producer {producer.producer_id}, epoch {epoch}, in {self.name}: the records from sequence {sequence} "
                    "on are there already",
                )
        if not in_order:
            raise RequestError(
                Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer.producer_id}, epoch {epoch}, in {self.name}: sequence {sequence} came "
                f"where {expected} must be",
            )

    def append(self, header: BatchHeader) -> None:
        """Update the state with a data batch that has been appended, or is in the log."""
        producer = self._enter(header)
        base_offset, delta = header.base_offset, header.last_offset_delta
        last_offset = base_offset + delta
        producer.take(ProducedBatch(header.last_sequence, last_offset, delta, header.max_timestamp))
        producer.last_timestamp = header.max_timestamp
        if header.attributes & TRANSACTIONAL_BIT:
            self._awaited.pop(header.producer_id, None)
            if producer.current_txn_first_offset < 0:
                producer.current_txn_first_offset = base_offset
                self._ongoing[base_offset] = producer.producer_id
        self.end_offset = last_offset + 1

    def append_marker(self, header: BatchHeader, marker: EndMarker) -> CompletedTransaction | None:
        """Update the state with an end marker that is appended, or in the log; returns the transaction that it ends."""
        self._awaited.pop(header.producer_id, None)
        producer = self._enter(header)
        first_offset = producer.current_txn_first_offset
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = header.max_timestamp
        producer.current_txn_first_offset = NO_OFFSET
        producer.marker_offset = header.base_offset
        self.end_offset = header.next_offset
        if first_offset < 0:
            return None
        self._ongoing.pop(first_offset, None)
        self._ended[first_offset] = header.base_offset
        return CompletedTransaction(
            producer.producer_id, first_offset, header.base_offset, is_aborted=not marker.is_commit
        )

    def _enter(self, header: BatchHeader) -> Producer:
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = Producer(header.producer_id)
        producer.enter_epoch(header.producer_epoch)
        return producer

    # --- the last stable offset -----------------------------------------------------------------------------

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._ongoing)) if self._ongoing else None

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or ended above the high watermark."""
        first = next(iter(self._ongoing)) if self._ongoing else None
        if self._ended:
            ended = min(self._ended)
            return ended if first is None or ended < first else first
        return first

    def on_high_watermark(self, high_watermark: int) -> None:
        """Drop the ended transactions with markers below the high watermark."""
        if self._ended:
            self._ended = {first: last for first, last in self._ended.items() if last >= high_watermark}

    def ended_before(self, offset: int) -> dict[int, int]:
        """Return the transactions that ended above the high watermark and below the offset of a truncation.

        No snapshot has them; `keep_ended` restores them.
        """
        return {first: last for first, last in self._ended.items() if last < offset}

    def keep_ended(self, ended: dict[int, int]) -> None:
        """Restore transactions that ended before a truncation, beside those read after the snapshot."""
        self._ended.update(ended)

    # --- expiry and snapshots -------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> int:
        """Remove producers that were silent for `expiration_ms` and have no open transaction; returns how many."""
        limit = now_ms - self.expiration_ms
        expired = [
            producer.producer_id
            for producer in self._producers.values()
            if producer.current_txn_first_offset < 0 and producer.last_timestamp <= limit
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        for producer_id in [
            producer_id for producer_id, awaited in self._awaited.items() if awaited.since_ms <= limit
        ]:
            del self._awaited[producer_id]
        return len(expired)

    def clear(self, end_offset: int) -> None:
        """Remove all producers; the log must be replayed from `end_offset`."""
        self._producers.clear()
        self._awaited.clear()
        self._ongoing.clear()
        self._ended.clear()
        self.end_offset = end_offset

    def snapshot(self) -> list[SnapshotEntry]:
        """Return the content of a snapshot at `end_offset`."""
        entries = []
        for producer in self._producers.values():
            last = producer.batches[-1] if producer.batches else None
            entries.append(
                SnapshotEntry(
                    producer.producer_id,
                    producer.producer_epoch,
                    last.last_sequence if last else NO_SEQUENCE,
                    last.last_offset if last else NO_OFFSET,
                    last.offset_delta if last else 0,
                    producer.last_timestamp,
                    producer.coordinator_epoch,
                    producer.current_txn_first_offset,
                )
            )
        return entries

    def load(self, entries: Iterable[SnapshotEntry], end_offset: int, now_ms: int) -> None:
        """Load a snapshot of `end_offset`, without the producers that have expired since."""
        self.clear(end_offset)
        for entry in entries:
            producer = self._producers[entry.producer_id] = Producer(
                entry.producer_id,
                entry.producer_epoch,
                entry.coordinator_epoch,
                entry.timestamp,
                entry.current_txn_first_offset,
            )
            if entry.last_offset >= 0:
                producer.take(
                    ProducedBatch(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
                )
        self.expire(now_ms)
        open_transactions = [
            (producer.current_txn_first_offset, producer.producer_id)
            for producer in self._producers.values()
            if producer.current_txn_first_offset >= 0
        ]
        self._ongoing.update(sorted(open_transactions))


def is_end_marker(header: BatchHeader) -> bool:
    """Return whether a batch may have a transaction's end marker: a control batch of a producer."""
    return header.attributes & CONTROL_BIT != 0 and header.producer_id >= 0
