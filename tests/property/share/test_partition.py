"""Random lives of a share partition, against a model that knows every offset by itself.

The model does not choose: it checks that what was chosen was allowed, that nothing is delivered to two members at
once or beyond its limit, and that in the end every record is complete.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.errors import RequestError
from barnabas.share.acknowledgement import Acknowledgement, Verdict
from barnabas.share.acquisition import AcquireRequest
from barnabas.share.batches import StateBatch, combine
from barnabas.share.inflight import RecordState
from barnabas.share.partition import SharePartition, Written
from barnabas.share.settings import ShareSettings
from tests.support.effort import examples

MEMBERS = st.sampled_from("abc")
LOCK_MS, WINDOW = 100, 40
AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
TARGETS = {
    Verdict.GAP: RecordState.ARCHIVED,
    Verdict.ACCEPT: RecordState.ACKNOWLEDGED,
    Verdict.RELEASE: AVAILABLE,
    Verdict.REJECT: RecordState.ARCHIVED,
}


@dataclass
class Known:
    """What the model knows of one offset."""

    state: RecordState = AVAILABLE
    deliveries: int = 0
    member: str = ""
    due_ms: int = 0
    target: RecordState | None = None


class Lives(RuleBasedStateMachine):
    @initialize(limit=st.integers(2, 6), start=st.integers(0, 5))
    def begin(self, limit: int, start: int) -> None:
        self.settings = ShareSettings(
            record_lock_ms=LOCK_MS, deliveries_max=limit, records_in_flight_max=WINDOW
        )
        self.shared = SharePartition.restore(self.settings, start, [])
        self.log: list[tuple[int, int]] = []
        self.log_start = 0
        self.log_end = 0
        self.model: dict[int, Known] = {}
        self.saved_start = start
        self.saved: list[StateBatch] = []
        self.writing: list[Written] = []
        self.now_ms = 0

    def known(self, offset: int) -> Known:
        return self.model.setdefault(offset, Known())

    def aim(self, known: Known, target: RecordState) -> RecordState:
        if target is AVAILABLE and known.deliveries >= self.settings.deliveries_max:
            return RecordState.ARCHIVED
        return target

    # --- the log ----------------------------------------------------------------------------------------------

    @rule(sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4), hole=st.integers(0, 2))
    def produce(self, sizes: list[int], hole: int) -> None:
        self.log_end += hole
        for size in sizes:
            self.log.append((self.log_end, self.log_end + size - 1))
            self.log_end += size

    @rule(count=st.integers(1, 10))
    def lose_the_beginning(self, count: int) -> None:
        self.log_start = min(self.log_start + count, self.log_end)
        self.log = [batch for batch in self.log if batch[1] >= self.log_start]

    # --- members ----------------------------------------------------------------------------------------------

    @rule(
        member=MEMBERS,
        count=st.integers(1, 30),
        batch_size=st.integers(1, 20),
        strict=st.booleans(),
        batches_read=st.integers(1, 6),
        aborts=st.booleans(),
    )
    def fetch(
        self, member: str, count: int, batch_size: int, strict: bool, batches_read: int, aborts: bool
    ) -> None:
        if self.shared.next_offset < self.log_start:
            self.shared.log_starts_at(self.log_start)
        position = self.shared.next_offset
        batches = [batch for batch in self.log if batch[1] >= position][:batches_read]
        aborted = batches[1:2] if aborts else []
        room = WINDOW - (self.shared.end - self.shared.start_offset)
        end_before = self.shared.end
        taken = self.shared.acquire(
            AcquireRequest(member, count, batch_size, strict), batches, self.now_ms, aborted
        )
        offsets = [offset for first, last, _ in taken for offset in range(first, last + 1)]
        assert offsets == sorted(set(offsets))
        assert len(offsets) <= count or not strict
        if room <= 0:
            assert all(offset < end_before for offset in offsets)
        for first, last, deliveries in taken:
            for offset in range(first, last + 1):
                known = self.known(offset)
                assert batches[0][0] <= offset <= batches[-1][1]
                assert not any(base <= offset <= end for base, end in aborted)
                assert known.state is AVAILABLE, f"offset {offset} was not free"
                assert known.target is None
                assert deliveries == known.deliveries + 1 <= self.settings.deliveries_max
                known.state, known.member, known.deliveries = ACQUIRED, member, deliveries
                known.due_ms = self.now_ms + LOCK_MS
        for base, end in aborted:
            # Those that were met count as archived; no member may ever have them.
            for offset in range(base, end + 1):
                if self.known(offset).state is AVAILABLE and not self.is_free(offset):
                    self.known(offset).state = RecordState.ARCHIVED

    def is_free(self, offset: int) -> bool:
        runs = self.shared.flight.between(offset, offset)
        inside = any(run.first <= offset <= run.last for run in runs)
        if not inside:
            return offset >= self.shared.end
        return any(run.first <= offset <= run.last and run.state is AVAILABLE for run in runs)

    @rule(member=MEMBERS, data=st.data())
    def acknowledge(self, member: str, data: st.DataObject) -> None:
        if self.shared.end == self.shared.start_offset:
            return
        first = data.draw(st.integers(self.shared.start_offset, self.shared.end - 1))
        last = data.draw(st.integers(first, min(first + 12, self.shared.end - 1)))
        each = st.sampled_from(list(Verdict))
        count = last - first + 1
        verdicts = data.draw(
            st.lists(each, min_size=1, max_size=1) | st.lists(each, min_size=count, max_size=count)
        )
        allowed = all(
            known.state is ACQUIRED and known.target is None and known.member == member
            for known in (self.known(offset) for offset in range(first, last + 1))
        )
        try:
            written = self.shared.acknowledge(member, [Acknowledgement(first, last, verdicts)], self.now_ms)
        except RequestError:
            assert not allowed
            # What was renewed before the mistake stays renewed.
            for run in self.shared.flight:
                for offset in range(run.first, run.last + 1):
                    if run.state is ACQUIRED and run.target is None:
                        self.known(offset).due_ms = run.lock_due_ms
            return
        assert allowed
        for position, offset in enumerate(range(first, last + 1)):
            verdict = verdicts[position if len(verdicts) > 1 else 0]
            if verdict is Verdict.RENEW:
                self.known(offset).due_ms = self.now_ms + LOCK_MS
            else:
                self.known(offset).target = self.aim(self.known(offset), TARGETS[verdict])
        self.expect_written(written)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        for known in self.model.values():
            if known.state is ACQUIRED and known.target is None and known.member == member:
                known.target = self.aim(known, AVAILABLE)
        self.expect_written(self.shared.release(member))

    def expect_written(self, written: Written) -> None:
        for batch in written.batches:
            for offset in range(batch.first, batch.last + 1):
                if offset >= self.shared.start_offset:
                    assert self.known(offset).target == batch.state
                    assert self.known(offset).deliveries == batch.deliveries
        if written:
            self.writing.append(written)

    @rule(done=st.booleans())
    def finish_writing(self, done: bool) -> None:
        if not self.writing:
            return
        written = self.writing.pop(0)
        self.shared.settle(written, done=done)
        if done:
            self.save(written)
        for batch in written.batches:
            for offset in range(batch.first, batch.last + 1):
                known = self.known(offset)
                if known.target is not None and done:
                    known.state, known.member = known.target, ""
                known.target = None

    def save(self, written: Written) -> None:
        self.saved_start = max(self.saved_start, written.start_offset)
        self.saved = combine(self.saved, written.batches, self.saved_start)

    # --- time -------------------------------------------------------------------------------------------------

    @rule(passed_ms=st.integers(1, LOCK_MS))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        written = self.shared.expire(self.now_ms)
        for offset, known in self.model.items():
            overdue = known.state is ACQUIRED and known.target is None and known.due_ms <= self.now_ms
            if overdue and offset >= self.shared.start_offset:
                known.state, known.member = self.aim(known, AVAILABLE), ""
        self.save(written)
        self.shared.settle(written, done=True)

    @rule()
    def restart(self) -> None:
        """The broker comes back with what it has written; deliveries that were not decided on never happened."""
        self.shared = SharePartition.restore(self.settings, self.saved_start, self.saved)
        self.writing.clear()
        self.model.clear()
        for batch in self.saved:
            for offset in range(batch.first, batch.last + 1):
                self.model[offset] = Known(RecordState(batch.state), batch.deliveries)

    # --- always -----------------------------------------------------------------------------------------------

    @invariant()
    def agrees_with_the_model(self) -> None:
        offset = self.shared.start_offset
        complete = 0
        for run in self.shared.flight:
            assert run.first == offset, "the runs have a hole"
            assert run.last >= run.first
            offset = run.last + 1
            for each in range(run.first, run.last + 1):
                known = self.known(each)
                if run.state is RecordState.ARCHIVED and known.state is AVAILABLE:
                    assert not any(base <= each <= end for base, end in self.log if each >= run.last)
                    known.state = RecordState.ARCHIVED
                if run.state.is_terminal:
                    assert known.state.is_terminal
                else:
                    assert (run.state, run.target) == (known.state, known.target)
                    assert run.deliveries == known.deliveries
                    if run.state is ACQUIRED:
                        assert (run.member, run.lock_due_ms) == (known.member, known.due_ms)
                complete += run.outlook.is_terminal
        assert offset == self.shared.end
        assert complete == self.shared.complete_count
        assert self.shared.next_offset <= self.shared.end
        first = next(iter(self.shared.flight), None)
        assert first is None or first.target is not None or not first.state.is_terminal

    def teardown(self) -> None:
        """One patient member can finish everything."""
        if not hasattr(self, "shared"):
            return
        while self.writing:
            self.finish_writing(done=True)
        for _ in range(500):
            self.wait(LOCK_MS)
            self.fetch("a", 100, 100, strict=False, batches_read=100, aborts=False)
            for first, last in [(run.first, run.last) for run in self.shared.flight if run.state is ACQUIRED]:
                written = self.shared.acknowledge(
                    "a", [Acknowledgement(first, last, [Verdict.ACCEPT])], self.now_ms
                )
                self.shared.settle(written, done=True)
                for offset in range(first, last + 1):
                    self.known(offset).state = RecordState.ACKNOWLEDGED
            self.agrees_with_the_model()
            if self.shared.end == self.shared.start_offset >= self.log_end:
                break
        end = max((batch[1] + 1 for batch in self.log), default=0)
        assert self.shared.start_offset >= end
        assert self.shared.end == self.shared.start_offset


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
