"""State of one transactional id, an immutable value; each change returns a new one. Pure.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
                     -> PrepareAbort  -> CompleteAbort  -> Ongoing ...

The rule: once a transaction is prepared its outcome cannot change. The epoch identifies the current instance of a
producer: every new instance gets a higher one, and so does a transaction that the coordinator itself ends. Clients of
transaction version 2 (KIP-890) get a higher epoch after each transaction, so that late requests cannot get into the next
one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from barnabas.wire.topic_partitions import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of transactions that never time out, those of two-phase commit (KIP-939)."""
EPOCH_MAX = 32_767
EPOCH_MAX_OF_CLIENTS = EPOCH_MAX - 1
"""Epochs above it are reserved for fencing: a transaction that no client can end still gets a higher epoch."""
EPOCH_BUMPED_SINCE = 2
"""The transaction version from which on each end of a transaction bumps the epoch."""


class State(Enum):
    """The states: number in the log, name in responses."""

    EMPTY = (0, "Empty")
    ONGOING = (1, "Ongoing")
    PREPARE_COMMIT = (2, "PrepareCommit")
    PREPARE_ABORT = (3, "PrepareAbort")
    COMPLETE_COMMIT = (4, "CompleteCommit")
    COMPLETE_ABORT = (5, "CompleteAbort")
    DEAD = (6, "Dead")
    PREPARE_EPOCH_FENCE = (7, "PrepareEpochFence")

    @property
    def number(self) -> int:
        """The number in the log."""
        return self.value[0]

    @property
    def title(self) -> str:
        """The name that clients see."""
        return self.value[1]

    @property
    def is_prepared(self) -> bool:
        """True if the end is decided, but not all partitions have the marker yet."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """True if all partitions have the marker."""
        return self in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


BY_NUMBER = {state.number: state for state in State}


class Producer(NamedTuple):
    """A producer as clients know it."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id; times in ms, -1 for none.

    `last_epoch` is the epoch before the last bump that its own producer requested, so that the request can be repeated.
    `next_producer_id` is the id of the producer once this transaction has ended.
    """

    id: str
    producer_id: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    timeout_ms: int = 0
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    update_ms: int = -1
    client_version: int = 0

    @property
    def producer(self) -> Producer:
        """Its producer's id and epoch."""
        return Producer(self.producer_id, self.epoch)

    @property
    def is_ongoing(self) -> bool:
        """True while a transaction is open, and its outcome is not decided."""
        return self.state is State.ONGOING

    @property
    def is_exhausted(self) -> bool:
        """True if clients can have no higher epoch of this producer id."""
        return self.epoch >= EPOCH_MAX_OF_CLIENTS

    def needs_producer_id(self, expected: Producer | None) -> bool:
        """Return whether a producer that begins, or resumes as `expected`, needs a new id.

        No producer resumes with the epoch that is reserved for fencing: none would be left to fence it.
        """
        if not self.is_exhausted or expected is None:
            return self.is_exhausted
        return expected.epoch == self.epoch or (self.epoch == EPOCH_MAX and expected.epoch == self.last_epoch)

    def matches(self, states: set[str], producer_ids: set[int], longer_than_ms: int, now_ms: int) -> bool:
        """Return whether a transaction has one of these states and producers, and is older; an empty filter matches all.

        As in Kafka, an ended transaction keeps its start time, and a transaction that has not begun has -1, which counts as
        long ago.
        """
        if self.state is State.DEAD:
            return False
        if (states and self.state.title not in states) or (
            producer_ids and self.producer_id not in producer_ids
        ):
            return False
        return longer_than_ms < 0 or now_ms - self.start_ms > longer_than_ms

    # --- changes --------------------------------------------------------------------------------------------

    def with_epoch(self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """Return the state for a new instance of the producer, with a higher epoch of the same id."""
        return replace(
            self, state=State.EMPTY, epoch=epoch, last_epoch=last_epoch, timeout_ms=timeout_ms,
            partitions=frozenset(), start_ms=-1, update_ms=now_ms,
        )  # fmt: skip

    def with_producer_id(
        self, producer_id: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        """Return the state for a new instance with a new producer id, as the epochs of the old one are used up."""
        return replace(
            self, state=State.EMPTY, producer_id=producer_id, previous_producer_id=self.producer_id, epoch=0,
            last_epoch=last_epoch, timeout_ms=timeout_ms,
            partitions=frozenset(), start_ms=-1, update_ms=now_ms,
        )  # fmt: skip

    def with_partitions(
        self, topic_partitions: frozenset[TopicPartition], client_version: int, now_ms: int
    ) -> Transaction:
        """Return the state with more partitions; the first ones begin the transaction."""
        begins = self.state is not State.ONGOING
        return replace(
            self, state=State.ONGOING, partitions=topic_partitions if begins else self.partitions | topic_partitions,
            start_ms=now_ms if begins else self.start_ms, update_ms=now_ms, client_version=client_version,
        )  # fmt: skip

    def prepared(
        self, *, commit: bool, client_version: int, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> Transaction:
        """Return the state after the producer has ended the transaction: only the markers are missing."""
        bumps = client_version >= EPOCH_BUMPED_SINCE
        return replace(
            self, state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            epoch=self.epoch + 1 if bumps else self.epoch, last_epoch=self.epoch if bumps else self.last_epoch,
            next_producer_id=next_producer_id, update_ms=now_ms, client_version=client_version,
            start_ms=self.start_ms if self.state is State.ONGOING else now_ms,
            partitions=self.partitions if self.state is State.ONGOING else frozenset(),
        )  # fmt: skip

    def fenced(self, now_ms: int) -> Transaction:
        """Return the state after an abort by the coordinator, which fences the producer by a higher epoch.

        It has version 2 even for producers of version 1. A producer that requests a new epoch with the old one may
        resume with the higher one.
        """
        return replace(
            self, state=State.PREPARE_ABORT, epoch=min(self.epoch + 1, EPOCH_MAX),
            last_epoch=self.epoch, next_producer_id=NO_PRODUCER_ID, update_ms=now_ms,
            client_version=EPOCH_BUMPED_SINCE,
        )  # fmt: skip

    def completed(self, now_ms: int) -> Transaction:
        """Return the state after all partitions have the marker."""
        state = State.COMPLETE_COMMIT if self.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
        done = replace(self, state=state, partitions=frozenset(), update_ms=now_ms)
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        # the client sees its epoch change from the last but one directly to 0 of the new id
        return replace(
            done, producer_id=self.next_producer_id, previous_producer_id=self.producer_id, epoch=0,
            last_epoch=EPOCH_MAX_OF_CLIENTS, next_producer_id=NO_PRODUCER_ID,
        )  # fmt: skip
