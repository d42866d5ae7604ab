"""A transactional id by Kafka's rules (KIP-98, KIP-360, KIP-890), as short as they can be said.

Written from those rules, and without any code of the broker's: each request changes the state or names the error that
refuses it. Two rules are ours, and stricter: no producer gets, or keeps, the epoch that is kept for fencing. What may
change the state is told to wait while an end is prepared, before its producer is judged; EndTxn without bumps after that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

NONE = -1
LAST_EPOCH = 32_766
"""The last epoch that a client may have of a producer id; the one above it is for fencing alone."""
FENCE_EPOCH = 32_767
TIMEOUT_MAX_MS = 900_000
IDLE_MS = 7 * 24 * 3_600_000


class Named(NamedTuple):
    """A producer id and an epoch of it."""

    id: int
    epoch: int


class Marker(NamedTuple):
    """The end of a transaction that its partitions are told of."""

    producer: Named
    is_commit: bool
    places: frozenset[tuple[str, int]]


class RefusedError(Exception):
    """A refused request; its text is the name of the error code."""


def refuse_unless(condition: bool, code: str) -> None:
    """Raise RefusedError with `code` unless the condition holds."""
    if not condition:
        raise RefusedError(code)


@dataclass
class TransactionalId:
    """State of one transactional id; `new_id` gives a producer id that no producer had before. Times in ms."""

    new_id: Callable[[], int]
    state: str = "none"
    id: int = NONE
    epoch: int = NONE
    last_epoch: int = NONE
    former_id: int = NONE
    next_id: int = NONE
    timeout_ms: int = 0
    places: frozenset[tuple[str, int]] = frozenset()
    start_ms: int = NONE
    update_ms: int = NONE
    markers: list[Marker] = field(default_factory=list)

    # --- requests -------------------------------------------------------------------------------------------

    def init_producer_id(self, timeout_ms: int, expected: Named | None, now_ms: int) -> Named:
        """A producer begins (nothing expected) or goes on with the id and epoch that it has (KIP-360)."""
        refuse_unless(0 < timeout_ms <= TIMEOUT_MAX_MS, "INVALID_TRANSACTION_TIMEOUT")
        if self.state == "none":
            self.state, self.id = "Empty", self.new_id()
        refuse_unless(not self.is_prepared, "CONCURRENT_TRANSACTIONS")
        if expected is not None and self.epoch != NONE:
            is_former = expected.id == self.former_id and expected.epoch >= LAST_EPOCH
            refuse_unless(expected.id == self.id or is_former, "PRODUCER_FENCED")
        if self.state == "Ongoing":
            self.fence(now_ms)
            raise RefusedError("CONCURRENT_TRANSACTIONS")
        if expected is not None and expected.epoch == self.last_epoch != NONE and self.epoch <= LAST_EPOCH:
            pass  # asked again by who did not hear the answer
        elif (
            expected is not None
            and self.epoch != NONE
            and expected.epoch not in (self.epoch, self.last_epoch)
        ):
            raise RefusedError("PRODUCER_FENCED")
        elif self.epoch >= LAST_EPOCH:
            self.former_id, self.id, self.epoch = self.id, self.new_id(), 0
            self.last_epoch = NONE if expected is None else expected.epoch
        else:
            self.last_epoch = NONE if expected is None else self.epoch
            self.epoch += 1
        self.state, self.timeout_ms, self.update_ms = "Empty", timeout_ms, now_ms
        self.places, self.start_ms = frozenset(), NONE
        return Named(self.id, self.epoch)

    def add_partitions(self, producer: Named, places: frozenset[tuple[str, int]], now_ms: int) -> None:
        """Partitions become part of the transaction; the first ones begin it, and its timeout."""
        refuse_unless(not self.is_prepared, "CONCURRENT_TRANSACTIONS")
        self.must_be_of(producer)
        refuse_unless(self.epoch <= LAST_EPOCH, "PRODUCER_FENCED")
        if self.state != "Ongoing":
            self.state, self.start_ms, self.places = "Ongoing", now_ms, frozenset()
        elif places <= self.places:
            return
        self.places |= places
        self.update_ms = now_ms

    def verify(self, producer: Named) -> frozenset[tuple[str, int]]:
        """Return the partitions of the open transaction (KIP-890)."""
        self.must_be_of(producer)
        refuse_unless(not self.is_prepared, "CONCURRENT_TRANSACTIONS")
        return self.places if self.state == "Ongoing" else frozenset()

    def end(self, producer: Named, *, is_commit: bool, bumps: bool, now_ms: int) -> Named:
        """Commit or abort. With version 2 (`bumps`) the answer is the id and epoch for the next transaction."""
        refuse_unless(self.state != "none", "INVALID_PRODUCER_ID_MAPPING")
        refuse_unless(not bumps or not self.is_prepared, "CONCURRENT_TRANSACTIONS")
        is_bumped = bumps and producer.epoch + 1 == self.epoch
        is_rotated = bumps and producer == Named(self.former_id, LAST_EPOCH) and self.epoch == 0
        refuse_unless(producer.id == self.id or is_rotated, "INVALID_PRODUCER_ID_MAPPING")
        is_same = producer.epoch == self.epoch
        if bumps and self.state.startswith("Complete"):
            refuse_unless(is_same or is_bumped or is_rotated, "PRODUCER_FENCED")
        else:
            refuse_unless(is_same, "PRODUCER_FENCED")
        refuse_unless(not self.is_prepared, "CONCURRENT_TRANSACTIONS")
        if self.state != "Ongoing":
            is_repeated = is_bumped or is_rotated or not bumps
            if is_repeated and self.state == ("CompleteCommit" if is_commit else "CompleteAbort"):
                return Named(self.id, self.epoch)
            # Version 2 aborts what has not begun, so that nothing late can begin it.
            refuse_unless(bumps and not is_commit and not is_repeated, "INVALID_TXN_STATE")
        refuse_unless(not bumps or self.epoch <= LAST_EPOCH, "PRODUCER_FENCED")
        if self.state != "Ongoing":
            self.start_ms, self.places = now_ms, frozenset()
        if bumps:
            self.next_id = self.new_id() if self.epoch == LAST_EPOCH else NONE
            self.last_epoch, self.epoch = self.epoch, self.epoch + 1
        self.prepare("PrepareCommit" if is_commit else "PrepareAbort", now_ms)
        return Named(self.id, self.epoch) if self.next_id == NONE else Named(self.next_id, 0)

    # --- what happens without a request ---------------------------------------------------------------------

    def fence(self, now_ms: int) -> None:
        """The coordinator aborts the open transaction: a higher epoch keeps its producer out."""
        self.last_epoch, self.epoch = self.epoch, min(self.epoch + 1, FENCE_EPOCH)
        self.next_id = NONE
        self.prepare("PrepareAbort", now_ms)

    def prepare(self, state: str, now_ms: int) -> None:
        """The end is decided, and its partitions are to be told."""
        self.state, self.update_ms = state, now_ms
        self.markers.append(Marker(Named(self.id, self.epoch), state == "PrepareCommit", self.places))

    def complete(self, now_ms: int) -> None:
        """All partitions know of the end."""
        if self.is_prepared:
            self.state, self.update_ms = self.state.replace("Prepare", "Complete"), now_ms
            self.places = frozenset()
            if self.next_id != NONE:
                self.former_id, self.id, self.next_id = self.id, self.next_id, NONE
                self.epoch, self.last_epoch = 0, LAST_EPOCH

    def pass_time(self, now_ms: int) -> None:
        """Let time pass: a transaction that has been open for its timeout is aborted."""
        if self.deadline_ms is not None and self.deadline_ms <= now_ms:
            self.fence(now_ms)

    def forget_if_idle(self, now_ms: int) -> None:
        """An id that was not used for seven days, with nothing open, is forgotten."""
        if (
            self.state == "Empty" or self.state.startswith("Complete")
        ) and now_ms - self.update_ms >= IDLE_MS:
            self.__init__(self.new_id)  # type: ignore[misc]

    def restart(self) -> None:
        """Another coordinator reads what is written: what is prepared is told again, the last epoch is not known."""
        self.last_epoch, self.markers = NONE, []
        if self.is_prepared:
            self.prepare(self.state, self.update_ms)

    # --- questions ------------------------------------------------------------------------------------------

    @property
    def is_prepared(self) -> bool:
        """Tell if the end is decided and not all brokers know of it."""
        return self.state.startswith("Prepare")

    @property
    def deadline_ms(self) -> int | None:
        """The time at which the open transaction is aborted; None if none is open."""
        return self.start_ms + self.timeout_ms if self.state == "Ongoing" else None

    def must_be_of(self, producer: Named) -> None:
        """Raise RefusedError unless this is the producer that the id has now."""
        refuse_unless(self.state != "none" and producer.id == self.id, "INVALID_PRODUCER_ID_MAPPING")
        refuse_unless(producer.epoch == self.epoch, "PRODUCER_FENCED")
