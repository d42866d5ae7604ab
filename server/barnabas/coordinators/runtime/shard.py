"""A shard: a coordinator's state of one partition of its internal topic, and its life cycle.

    (unloaded) -> LOADING -> ACTIVE -> UNLOADING
                     |
                     +-> FAILED, DAMAGED

The rule: a shard belongs to one leader epoch. When that epoch ends, the shard does not return: another one is loaded in
its place.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from itertools import count, islice
from typing import Final, Generic, Protocol, TypeVar

import trio

from barnabas.coordinators.runtime.waiting import Waiter
from barnabas.coordinators.statemachine.decision import Decision, Entry
from barnabas.errors import RequestError


class Machine(Protocol):
    """State machine of one partition."""

    def replay(self, key: bytes, value: bytes | None, *, loading: bool) -> None:
        """Apply a record. Raises PeerError if it cannot be read."""

    def loaded(self, now_ms: int, out: Decision) -> None:
        """Decide on the actions that must follow once all records have been replayed."""

    def expire(self, timer: Hashable, now_ms: int, out: Decision) -> None:
        """Decide on the actions that follow from an expired timer."""


M = TypeVar("M", bound=Machine)
R_contra = TypeVar("R_contra", bound=Machine, contravariant=True)
WOKEN_PER_TURN_MAX: Final = 32
Checkpoint = Callable[[], Awaitable[None]]
"""Yields if this turn of the event loop has been long (`LoopBudget.checkpoint`)."""


async def no_checkpoint() -> None:
    """Do not yield: for runtimes without other tasks, as in tests."""


class Replay(Protocol[R_contra]):
    """Passes the records of a log to a machine."""

    def __call__(self, partition: int, machine: R_contra, entry: Entry, *, loading: bool) -> None:
        """Replay the records of a batch of this partition."""


class ShardState(Enum):
    """States of a shard; without a shard, the partition is unloaded."""

    LOADING = "loading"
    """Its records are being replayed."""
    ACTIVE = "active"
    """In service, in one leader epoch."""
    UNLOADING = "unloading"
    """Leadership is lost, or an append has failed: nothing more is decided."""
    FAILED = "failed"
    """Its records cannot be read; the next request tries again."""
    DAMAGED = "damaged"
    """Some of its records are damaged: out of service for this leader epoch."""


TRANSITIONS: Final[dict[ShardState, frozenset[ShardState]]] = {
    ShardState.LOADING: frozenset(
        (
            ShardState.ACTIVE,  # all records are replayed
            ShardState.FAILED,  # the log cannot be read, or a record cannot be replayed
            ShardState.DAMAGED,  # a batch does not match its checksum, or was cut out by a recovery
            ShardState.UNLOADING,  # meanwhile the leader moved, or the topic was deleted
        )
    ),
    ShardState.ACTIVE: frozenset(
        (
            ShardState.UNLOADING,  # the leader moved, the topic was deleted, or the machine may differ from its log
            ShardState.FAILED,  # the event that follows loading has failed
        )
    ),
    ShardState.UNLOADING: frozenset(
        (
            ShardState.UNLOADING,  # for a second reason, while its waiters fail
            ShardState.FAILED,  # the event that follows loading could not be appended, which unloads the shard
        )
    ),
    ShardState.FAILED: frozenset((ShardState.UNLOADING,)),  # the leader moved, or the topic was deleted
    ShardState.DAMAGED: frozenset((ShardState.UNLOADING,)),  # the same; a new leader epoch reads again
}
"""States that may follow each state; an unloaded shard never returns: another one is loaded in its place."""


class Timer:
    """Due time of a timer, and the time of its one entry in the heap, which is never later."""

    __slots__ = ("due_ms", "entry_ms")

    def __init__(self, due_ms: int, entry_ms: int) -> None:
        self.due_ms = due_ms
        self.entry_ms = entry_ms


class TimersToSet:
    """Pending decisions of one event on very many timers. `overruled` has the keys with later decisions."""

    __slots__ = ("overruled", "timers")

    def __init__(self, timers: Iterator[tuple[Hashable, int | None]], overruled: set[Hashable]) -> None:
        self.timers = timers
        self.overruled = overruled


class Shard(Generic[M]):
    """A machine with its waiting requests. `end_offset` is after the last record that it has read or appended."""

    __slots__ = (
        "_at_once",
        "_queue",
        "_tickets",
        "after_hold",
        "committing",
        "end_offset",
        "entries",
        "failure",
        "is_forgotten",
        "is_held",
        "large_entry",
        "leader_epoch",
        "machine",
        "partition",
        "records_read",
        "settled",
        "state",
        "timers",
        "timers_to_set",
        "waiting",
    )

    def __init__(self, partition: int, leader_epoch: int, machine: M, entries: Iterator[Entry]) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.machine = machine
        self.entries = entries
        self.state = ShardState.LOADING
        self.end_offset = 0
        self.records_read = 0
        self.failure: RequestError | None = None
        self.settled = trio.Event()
        """Set when it is no longer loading."""
        self.waiting: dict[int, Waiter] = {}
        self.timers: dict[Hashable, Timer] = {}
        self.timers_to_set: deque[TimersToSet] = deque()
        self.committing: set[trio.CancelScope] = set()
        """Scope of the waits for the high watermark; cancelled when the shard is unloaded."""
        self.is_forgotten = False
        """True if its partition was deleted: no later shard resumes its decisions."""
        self.large_entry: Entry | None = None
        """The next batch to be read, if it is too long for a turn of the event loop."""
        self.is_held = False
        """True while a large event holds the machine in a thread."""
        self.after_hold: list[Callable[[], None]] = []
        """Calls that bring the machine up to date with the log, before the next event."""
        self._queue: OrderedDict[int, trio.Event] = OrderedDict()
        """Waiting events while the machine is held, in order; each is removed after its turn."""
        self._tickets = count(1)
        self._at_once = 1
        """Limit of awake waiting events: 1 after a large event, more while none of them is large."""

    @property
    def is_active(self) -> bool:
        """True while it may decide."""
        return self.state is ShardState.ACTIVE

    def check(self) -> None:
        """Raise the RequestError that explains why the shard is out of service, if it is."""
        if self.failure is not None:
            raise self.failure

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Reserve the machine for one event; others wait in `when_free`."""
        assert not self.is_held, "a shard is held by one at a time"
        self.is_held = True
        try:
            yield
        finally:
            self.is_held = False
            self._at_once = 1
            self._wake_first()
            for follow in self.after_hold:
                follow()
            self.after_hold.clear()

    async def when_free(self) -> None:
        """Wait until no large event holds the machine, which the caller may use until its next wait.

        Callers are woken in their order, and few at a time: a thousand members that join together with large events
        would wake each other a million times. Up to `WOKEN_PER_TURN_MAX` callers with small events run in the same turn
        of the event loop.
        """
        ticket = 0
        try:
            while self.is_held:
                ticket = ticket or next(self._tickets)
                self._queue[ticket] = woken = trio.Event()  # in its place, even if it was woken in vain
                await woken.wait()
            if ticket:
                self._at_once = min(2 * self._at_once, WOKEN_PER_TURN_MAX)
        finally:
            if ticket:
                del self._queue[ticket]
                self._wake_first()  # they run after the caller has decided

    def _wake_first(self) -> None:
        if self.is_held:
            return
        for woken in islice(self._queue.values(), self._at_once):
            woken.set()

    def enter(self, state: ShardState, failure: RequestError | None = None) -> None:
        """Enter a state; the end of loading wakes the tasks that wait for it."""
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state, self.failure = state, failure
        if state is not ShardState.LOADING:
            self.settled.set()

    def unload(self, failure: RequestError, state: ShardState = ShardState.UNLOADING) -> None:
        """Take the shard out of service, without timers; the caller must then call `fail_waiting`."""
        self.enter(state, failure)
        self.timers.clear()
        self.timers_to_set.clear()

    def fail(self, code: int, numbers: Iterable[int]) -> Iterator[None]:
        """Fail those of these requests that still wait, one in each step."""
        for number in numbers:
            waiter = self.waiting.get(number)
            if waiter is not None and not waiter.is_answered:
                waiter.fail(code)
                yield

    def fail_waiting(self, code: int) -> Iterator[None]:
        """Fail every waiting request, one in each step."""
        yield from self.fail(code, tuple(self.waiting))
        for scope in tuple(self.committing):
            scope.cancel()
            yield
