"""A share partition: the state of the records of one partition, for one share group. Pure.

    Available -> Acquired -> Acknowledged | Archived, or back to Available
                          -> Archiving -> Archived   where the group has a dead letter queue

The rule: a member's decision counts once it is persisted. Until then its records can be neither decided on again nor
acquired; `settle` takes the outcome of the write. The start offset moves past records in a final state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from barnabas.coordinators.share.acknowledgement import Acknowledgement, Verdict
from barnabas.coordinators.share.acquisition import Acquired, AcquireRequest, again, fresh
from barnabas.coordinators.share.batches import StateBatch, joined
from barnabas.coordinators.share.dead_letters import EXCEEDED, REJECTED, DeadLetters
from barnabas.coordinators.share.inflight import ACQUIRED, AVAILABLE, InFlight, RecordState, Run, Span
from barnabas.coordinators.share.settings import ShareSettings
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

_TARGETS = {
    Verdict.GAP: RecordState.ARCHIVED,
    Verdict.ACCEPT: RecordState.ACKNOWLEDGED,
    Verdict.RELEASE: RecordState.AVAILABLE,
    Verdict.REJECT: RecordState.ARCHIVED,
}
_STATES = {int(state): state for state in RecordState}


@dataclass(frozen=True, slots=True)
class Written:
    """Changes to persist: the start offset, the number of complete records after it, and the changed batches.

    With `are_decided` their records wait for the write; records with expired locks do not.
    """

    start_offset: int
    complete_count: int
    batches: tuple[StateBatch, ...] = ()
    are_decided: bool = True
    dead: tuple[DeadLetters, ...] = ()
    """Records that go to the dead letter queue after this write."""

    def __bool__(self) -> bool:
        return bool(self.batches)


@dataclass(slots=True)
class SharePartition:
    """State of a share partition.

    Lifecycle: `restore` once with the persisted state; `settings` may be replaced at any time.
    """

    settings: ShareSettings
    start_offset: int = 0
    flight: InFlight = field(default_factory=InFlight)
    overtaken: list[Run] = field(default_factory=list)
    """Acquired records that were deleted from the log since: as in Kafka, the new start offset is persisted when their
    locks expire or their member leaves.
    """

    @classmethod
    def restore(
        cls, settings: ShareSettings, start_offset: int, batches: Iterable[StateBatch]
    ) -> SharePartition:
        """Return a partition with the persisted state.

        Offsets between the batches were never delivered, or not in a final way.
        """
        partition = cls(settings, start_offset)
        for batch in batches:
            first = max(batch.first, partition.end)
            if first > batch.last:
                continue
            partition._append_fresh(first - 1)
            state = _STATES.get(batch.state, AVAILABLE)
            if state is ACQUIRED:
                state = AVAILABLE
            span = (first, batch.last)
            partition.flight.append(Run(*span, state, batch.deliveries, span))
        partition.advance()
        return partition

    # --- asking ---------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The offset after the last record in flight; the start offset if none is in flight."""
        return self.flight.last + 1 if self.flight else self.start_offset

    @property
    def next_offset(self) -> int:
        """The first offset that can be acquired."""
        return next((run.first for run in self.flight if run.state is AVAILABLE), self.end)

    @property
    def can_acquire(self) -> bool:
        """True if records can be acquired, or there is room for new ones."""
        return (
            self.next_offset < self.end or self.end - self.start_offset < self.settings.records_in_flight_max
        )

    @property
    def complete_count(self) -> int:
        """Number of acknowledged or archived records from the start offset on."""
        return sum(len(run) for run in self.flight if run.outlook.is_terminal)

    @property
    def unfinished(self) -> tuple[DeadLetters, ...]:
        """Return the records that were being archived to the dead letter queue when their state was read."""
        limit = self.settings.deliveries_max
        return tuple(
            DeadLetters(
                run.first, run.last, run.deliveries, EXCEEDED if run.deliveries >= limit else REJECTED
            )
            for run in self.flight
            if run.state is RecordState.ARCHIVING
        )

    @property
    def run_count(self) -> int:
        """Number of runs of records in flight with the same state."""
        return len(self.flight)

    @property
    def lock_due_ms(self) -> int | None:
        """Time at which the next acquisition lock ends."""
        return min((run.lock_due_ms for run in self._locked()), default=None)

    def _locked(self) -> Iterable[Run]:
        runs = chain(self.overtaken, self.flight)
        return (run for run in runs if run.state is ACQUIRED and run.target is None)

    # --- acquiring ------------------------------------------------------------------------------------------

    def acquire(
        self,
        acquire_request: AcquireRequest,
        batches: Sequence[Span],
        now_ms: int,
        aborted: Sequence[Span] = (),
    ) -> list[Acquired]:
        """Acquire records for a member from these batches of the log, read from `next_offset` on.

        `aborted` are the batches of aborted transactions, which no member gets.
        """
        if not batches or acquire_request.records_max <= 0:
            return []
        last, count_max = batches[-1][1], min(acquire_request.records_max, self._room())
        if count_max <= 0:
            # the window is full: only records in it can be delivered again
            last = min(last, self.end - 1)
            count_max = min(acquire_request.records_max, self.end - self.next_offset)
        if count_max <= 0 or last < self.start_offset:
            return []
        self._pass_over(self.next_offset, batches[0][0] - 1)
        first = max(batches[0][0], self.start_offset)
        taken = self._acquire_known(acquire_request, batches, first, last, count_max, now_ms)
        self._hide(taken, aborted)
        self.flight.close_up()
        self.advance()
        return _without(taken, aborted)

    def _room(self) -> int:
        return self.settings.records_in_flight_max - (self.end - self.start_offset)

    def _acquire_known(
        self,
        acquire_request: AcquireRequest,
        batches: Sequence[Span],
        first: int,
        last: int,
        count_max: int,
        now_ms: int,
    ) -> list[Acquired]:
        """Acquire from runs that were delivered before and from runs that were not, in order."""
        taken: list[Acquired] = []
        position = first
        while position <= last and count_max > 0:
            stretch = self._stretch(position, last)
            asked = AcquireRequest(
                acquire_request.member, count_max, acquire_request.batch_size, acquire_request.strict
            )
            more = True
            if stretch is None:
                spans = fresh(batches, max(position, self.end), last, asked, count_max)
                position = last + 1
            elif stretch[0].state is AVAILABLE and not stretch[0].deliveries:
                run = stretch[0]
                spans = fresh(batches, max(run.first, position), min(run.last, last), asked, count_max)
                position = run.last + 1
            else:
                limit = self.settings.deliveries_max
                spans, more = again(stretch, position, last, asked, limit, after_others=bool(taken))
                position = stretch[-1].last + 1
            for span in spans:
                acquired = self._lock(span, acquire_request.member, now_ms)
                count_max -= span[1] - span[0] + 1
                taken.append(acquired)
            if not more:
                break
        return taken

    def _stretch(self, position: int, last: int) -> list[Run] | None:
        """Return the never-delivered run at `position`, or all runs up to the next such run; None at the end."""
        stretch: list[Run] = []
        for run in self.flight.between(position, last):
            if run.state is AVAILABLE and not run.deliveries:
                return stretch or [run]
            stretch.append(run)
        return stretch or None

    def _lock(self, span: Span, member: str, now_ms: int) -> Acquired:
        """Acquire these offsets, available or new, for a member."""
        first, last = span
        if first >= self.end:
            self._append_archived(first - 1)
            self.flight.append(Run(first, last, AVAILABLE, 0, span))
        due_ms = now_ms + self.settings.record_lock_ms
        deliveries = 0
        for run in self.flight.cut(first, last):
            assert run.state is AVAILABLE
            if not run.deliveries:
                run.batch = span
            run.state, run.member, run.lock_due_ms = ACQUIRED, member, due_ms
            run.deliveries += 1
            deliveries = run.deliveries
        return Acquired(first, last, deliveries)

    def _append_fresh(self, last: int) -> None:
        """Add the records up to `last` that are not in flight: they were never delivered."""
        self._append(last, AVAILABLE)

    def _append_archived(self, last: int) -> None:
        """Archive the offsets up to `last` that are not in flight, as the log does not have them."""
        if self.flight:
            self._append(last, RecordState.ARCHIVED)
        else:
            self.start_offset = max(self.start_offset, last + 1)

    def _append(self, last: int, state: RecordState) -> None:
        first = self.end
        if first <= last:
            self.flight.append(Run(first, last, state, 0, (first, last)))

    def _pass_over(self, first: int, last: int) -> None:
        """Archive offsets that are no longer in the log."""
        for run in self.flight.cut(first, last):
            if run.state is AVAILABLE:
                run.state = RecordState.ARCHIVED

    def _hide(self, taken: Iterable[Acquired], aborted: Sequence[Span]) -> None:
        for first, last, _ in taken if aborted else ():
            for base, end in aborted:
                for run in self.flight.cut(max(first, base), min(last, end)):
                    run.state, run.member, run.lock_due_ms = RecordState.ARCHIVED, "", 0

    # --- deciding -------------------------------------------------------------------------------------------

    def acknowledge(self, member: str, acknowledgements: Sequence[Acknowledgement], now_ms: int) -> Written:
        """Apply the acknowledgements of a member, all or none. Returns the changes to persist and then to pass to `settle`.

        Raises INVALID_RECORD_STATE, INVALID_REQUEST.
        """
        decided: list[StateBatch] = []
        dead: list[DeadLetters] = []
        try:
            for each in acknowledgements:
                if each.last < self.start_offset:
                    continue
                self._check_known(each)
                for first, last, verdict in each.spans():
                    for run in self._owned(member, max(first, self.start_offset), last):
                        self._decide(run, verdict, now_ms, decided)
                        if run.target is RecordState.ARCHIVING:
                            dead.append(_dead(run, REJECTED if verdict is Verdict.REJECT else EXCEEDED))
        except RequestError:
            for batch in decided:
                for run in self.flight.cut(batch.first, batch.last):
                    run.target = None
            self.flight.close_up()
            raise
        return self._to_write(decided, dead)

    def _check_known(self, each: Acknowledgement) -> None:
        if not self.flight:
            raise RequestError(ErrorCode.INVALID_RECORD_STATE, "no records are in flight")
        if each.last >= self.end:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"offset {each.last} was never acquired")

    def _owned(self, member: str, first: int, last: int) -> list[Run]:
        runs = self.flight.cut(first, last)
        for run in runs:
            why = ""
            if run.state is not ACQUIRED:
                why = f"offset {run.first} is not acquired"
            elif run.target is not None:
                why = f"offset {run.first} is decided on already"
            elif run.member != member:
                why = f"offset {run.first} is acquired by another member"
            if why:
                raise RequestError(ErrorCode.INVALID_RECORD_STATE, why)
        return runs

    def _decide(self, run: Run, verdict: Verdict, now_ms: int, decided: list[StateBatch]) -> None:
        if verdict is Verdict.RENEW:
            if not self.settings.renew_enabled:
                raise RequestError(ErrorCode.INVALID_RECORD_STATE, "the group does not allow to renew locks")
            run.lock_due_ms = now_ms + self.settings.record_lock_ms
            return
        target = self._dead_state if verdict is Verdict.REJECT else _TARGETS[verdict]
        run.target = self._unless_exhausted(run, target)
        decided.append(_batch(run))

    def _unless_exhausted(self, run: Run, target: RecordState) -> RecordState:
        if target is AVAILABLE and run.deliveries >= self.settings.deliveries_max:
            return self._dead_state
        return target

    @property
    def _dead_state(self) -> RecordState:
        """Return the state of a given-up record."""
        return RecordState.ARCHIVING if self.settings.dead_letter_topic else RecordState.ARCHIVED

    def release(self, member: str) -> Written:
        """Release the acquired records of a member that has left. The changes are persisted and settled as above."""
        decided = [run for run in self._locked() if run.member == member]
        for run in decided:
            run.target = self._freed(run)
        return self._to_write([_batch(run) for run in decided], _exceeded(decided))

    def _freed(self, run: Run) -> RecordState:
        """Return the state of a released record; a record that the log no longer has is archived."""
        if run.last < self.start_offset:
            return RecordState.ARCHIVED
        return self._unless_exhausted(run, AVAILABLE)

    def _to_write(self, decided: Iterable[StateBatch], dead: Iterable[DeadLetters]) -> Written:
        batches = tuple(joined(decided))
        self.flight.close_up()
        return Written(self.start_offset, self.complete_count, batches, dead=tuple(joined(dead)))

    def settle(self, written: Written, *, done: bool) -> None:
        """Complete a persisted decision, or undo it, so that the records stay acquired."""
        for batch in written.batches if written.are_decided else ():
            lost = [run for run in self.overtaken if batch.first <= run.first <= batch.last]
            for run in (*lost, *self.flight.cut(max(batch.first, self.start_offset), batch.last)):
                if run.target is None:
                    continue
                if done:
                    run.state, run.member, run.lock_due_ms = run.target, "", 0
                run.target = None
        self._forget_decided()
        self.flight.close_up()
        self.advance()

    # --- time and log start ---------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> Written:
        """Release records with expired acquisition locks immediately; the returned changes are to be persisted."""
        overdue = [run for run in self._locked() if run.lock_due_ms <= now_ms]
        for run in overdue:
            run.state = self._freed(run)
            run.member, run.lock_due_ms = "", 0
        self._forget_decided()
        written = self._to_write([_batch(run) for run in overdue], _exceeded(overdue))
        return replace(written, are_decided=False)

    def bury(self, letters: DeadLetters) -> Written:
        """Archive records that are in the dead letter queue, or cannot be written; persisted and settled like `expire`."""
        runs = self.flight.cut(max(letters.first, self.start_offset), letters.last)
        batches = []
        for run in runs:
            if run.state is RecordState.ARCHIVING:
                run.state = RecordState.ARCHIVED
                batches.append(_batch(run))
        return replace(self._to_write(batches, ()), are_decided=False)

    def _forget_decided(self) -> None:
        self.overtaken = [run for run in self.overtaken if run.state is ACQUIRED]

    def advance(self) -> None:
        """Move the start offset past acknowledged and archived records."""
        for run in self.flight:
            if run.target is not None or not run.state.is_terminal:
                break
            self.start_offset = run.last + 1
        self.flight.drop_before(self.start_offset)

    def log_starts_at(self, offset: int) -> None:
        """Handle a new log start offset: records before it are deleted, acquired or not."""
        if offset > self.start_offset:
            before = self.flight.cut(self.start_offset, offset - 1)
            self.overtaken += [run for run in before if run.state is ACQUIRED]
            self.flight.drop_before(offset)
            self.start_offset = offset
            self.advance()


def _dead(run: Run, cause: str) -> DeadLetters:
    return DeadLetters(run.first, run.last, run.deliveries, cause)


def _exceeded(runs: Iterable[Run]) -> list[DeadLetters]:
    """Return the records of these runs that were delivered too often, for the dead letter queue."""
    return [_dead(run, EXCEEDED) for run in runs if run.outlook is RecordState.ARCHIVING]


def _batch(run: Run) -> StateBatch:
    return StateBatch(run.first, run.last, int(run.outlook), run.deliveries)


def _without(taken: list[Acquired], hidden: Sequence[Span]) -> list[Acquired]:
    """Return the parts of `taken` outside the ordered spans of `hidden`."""
    for base, end in hidden:
        rest: list[Acquired] = []
        for each in taken:
            if each.last < base or each.first > end:
                rest.append(each)
                continue
            if each.first < base:
                rest.append(each._replace(last=base - 1))
            if each.last > end:
                rest.append(each._replace(first=end + 1))
        taken = rest
    return taken
