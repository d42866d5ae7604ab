"""A log as its producers know it, by Kafka's rules (KIP-98, KIP-360, KIP-890), as short as they can be said.

Written from those rules, and without any code of the broker's. All that is known is the list of batches; what a producer
may append next is found by going over it from the beginning. A restart or a truncation may forget all but the last batch of
a producer: of what is older, the model says that it is not appended again, with one of several answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.models.transactions import refuse_unless

SEQUENCES = 1 << 31
REMEMBERED = 5
DUPLICATE, OUT_OF_ORDER = "DUPLICATE_SEQUENCE_NUMBER", "OUT_OF_ORDER_SEQUENCE_NUMBER"


class Batch(NamedTuple):
    """A batch of a producer, or with `is_commit` the marker that ends its transaction."""

    producer: int
    epoch: int
    sequence: int = -1
    count: int = 1
    in_transaction: bool = False
    is_commit: bool | None = None
    coordinator_epoch: int = -1
    base: int = -1

    @property
    def next_offset(self) -> int:
        return self.base + self.count

    @property
    def next_sequence(self) -> int:
        return (self.sequence + self.count) % SEQUENCES


@dataclass
class Known:
    """The state of a producer: its epoch, the batches in it, its open transaction, its last coordinator."""

    epoch: int
    batches: list[Batch]
    open_since: int | None = None
    coordinator_epoch: int = -1


class Awaited(NamedTuple):
    """The first sequence of a batch of a producer to verify; `from_zero`: by version 2 of transactions."""

    epoch: int
    sequence: int
    from_zero: bool


class Log:
    """The batches of a log in their order, how far they are committed, and which batches are awaited."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.high_watermark = 0
        self.awaited: dict[int, list[Awaited]] = {}
        """By producer, all that was to begin a transaction since the last one."""
        self.sure_from = 0
        """The end of the log at the last restart or truncation: what is before may be forgotten."""

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def known(self, producer: int) -> Known | None:
        """Return what the batches say of a producer."""
        state: Known | None = None
        for batch in self.batches:
            if batch.producer != producer:
                continue
            if state is None or state.epoch != batch.epoch:
                state = Known(
                    batch.epoch, [], state and state.open_since, state.coordinator_epoch if state else -1
                )
            if batch.is_commit is not None:
                state.open_since, state.coordinator_epoch = None, batch.coordinator_epoch
            else:
                state.batches.append(batch)
                if batch.in_transaction and state.open_since is None:
                    state.open_since = batch.base
        return state

    # --- requests -------------------------------------------------------------------------------------------

    def expect(self, batch: Batch, *, from_zero: bool) -> None:
        """A producer's batch comes that may begin a transaction; whether it does is found out before it is appended."""
        state = self.known(batch.producer)
        has_begun = state is not None and state.open_since is not None and state.epoch == batch.epoch
        if not has_begun and (state is None or batch.epoch >= state.epoch):
            expected = Awaited(batch.epoch, batch.sequence, from_zero)
            self.awaited.setdefault(batch.producer, []).append(expected)

    def refuse_ahead(self, batch: Batch, state: Known | None) -> None:
        """Refuse what would come before the lowest sequence of the newest epoch that is awaited."""
        awaited = self.awaited.get(batch.producer)
        if awaited:
            newest = max(expected.epoch for expected in awaited)
            lowest = min(expected.sequence for expected in awaited if expected.epoch == newest)
            refuse_unless(batch.sequence <= lowest, OUT_OF_ORDER)
            if awaited[0].from_zero and (state is None or not state.batches):
                refuse_unless(batch.sequence == 0, OUT_OF_ORDER)

    def append(self, batch: Batch) -> set[object]:
        """Append a producer's batch and return its offset; for a repeated one the outcomes that there may be."""
        state = self.known(batch.producer)
        if state is None:
            self.refuse_ahead(batch, state)
            return self.add(batch)
        if batch.epoch == state.epoch:
            repeated = self.repeated(batch, state)
            if repeated is not None:
                return repeated
        refuse_unless(batch.epoch >= state.epoch, "INVALID_PRODUCER_EPOCH")
        self.refuse_ahead(batch, state)
        if batch.epoch != state.epoch or not state.batches:
            refuse_unless(batch.sequence == 0, OUT_OF_ORDER)
        else:
            refuse_unless(batch.sequence == state.batches[-1].next_sequence, OUT_OF_ORDER)
        refuse_unless(state.open_since is None or batch.in_transaction, "INVALID_TXN_STATE")
        return self.add(batch)

    def repeated(self, batch: Batch, state: Known) -> set[object] | None:
        """Return how a batch that is there already is answered; None if it is not there."""
        recent, older = state.batches[-REMEMBERED:], state.batches[:-REMEMBERED]
        for earlier in reversed(recent):
            if (earlier.sequence, earlier.count) == (batch.sequence, batch.count):
                is_sure = earlier.base >= self.sure_from or earlier is recent[-1]
                return {earlier.base} if is_sure else {earlier.base, DUPLICATE, OUT_OF_ORDER}
        there = contiguous(older, recent)
        numbers = {(batch.sequence + number) % SEQUENCES for number in range(batch.count)}
        if numbers <= there and recent[0].base <= self.high_watermark:
            return {DUPLICATE, OUT_OF_ORDER} if self.sure_from else {DUPLICATE}
        return None

    def end_transaction(self, marker: Batch) -> set[object]:
        """Append the marker that ends a producer's transaction."""
        state = self.known(marker.producer)
        if state is not None:
            refuse_unless(marker.epoch >= state.epoch, "INVALID_PRODUCER_EPOCH")
            refuse_unless(
                marker.coordinator_epoch >= state.coordinator_epoch, "TRANSACTION_COORDINATOR_FENCED"
            )
        return self.add(marker)

    def add(self, batch: Batch) -> set[object]:
        if batch.in_transaction or batch.is_commit is not None:
            self.awaited.pop(batch.producer, None)
        self.batches.append(batch._replace(base=self.end))
        return {self.batches[-1].base}

    # --- what happens to a log ------------------------------------------------------------------------------

    def truncate(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.next_offset <= offset]
        self.awaited.clear()
        self.high_watermark = min(self.high_watermark, offset)
        self.sure_from = self.end

    # --- questions ------------------------------------------------------------------------------------------

    def transactions(self) -> list[tuple[int, int, int | None, bool]]:
        """Producer, first offset, offset of the marker (None while it is open), committed or not."""
        results: list[tuple[int, int, int | None, bool]] = []
        open_since: dict[int, int] = {}
        for batch in self.batches:
            if batch.is_commit is None and batch.in_transaction:
                open_since.setdefault(batch.producer, batch.base)
            elif batch.is_commit is not None and batch.producer in open_since:
                results.append(
                    (batch.producer, open_since.pop(batch.producer), batch.base, bool(batch.is_commit))
                )
        return results + [(producer, first, None, False) for producer, first in open_since.items()]

    @property
    def last_stable_offset(self) -> int:
        """The first offset of a transaction that is open, or has an uncommitted end; else the high watermark."""
        unstable = [
            first for _, first, last, _ in self.transactions() if last is None or last >= self.high_watermark
        ]
        return min([self.high_watermark, *unstable])

    def aborted(self) -> list[tuple[int, int, int]]:
        """Producer, first offset and marker of the aborted transactions, in the order of their markers."""
        ended = [(producer, first, last) for producer, first, last, is_commit in self.transactions()
                 if last is not None and not is_commit]  # fmt: skip
        return sorted(ended, key=lambda txn: txn[2])


def contiguous(older: list[Batch], recent: list[Batch]) -> set[int]:
    """Return the sequence numbers of older batches that lead to the recent ones without a gap."""
    there: set[int] = set()
    after = recent[0].sequence if recent else -1
    for batch in reversed(older):
        if batch.next_sequence != after:
            break
        there |= {(batch.sequence + number) % SEQUENCES for number in range(batch.count)}
        after = batch.sequence
    return there
