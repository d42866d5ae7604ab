"""Random fetches and acknowledgements of a share partition by several members: the model predicts what each is given.

Each record's state, holder, lock and number of deliveries is compared after every step, over writes that end late or fail,
over restarts, and while the log loses its beginning. In the end one patient member can finish everything.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from barnabas.coordinators.share import acknowledgement, acquisition, partition
from barnabas.coordinators.share.acquisition import AcquireRequest
from barnabas.coordinators.share.batches import StateBatch
from barnabas.coordinators.share.inflight import ACQUIRED, AVAILABLE, RecordState
from barnabas.coordinators.share.partition import SharePartition
from barnabas.coordinators.share.settings import ShareSettings
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from tests.models import share_partition as model
from tests.models.share_partition import ACCEPT, RENEW, Acknowledgement
from tests.support.effort import examples
from tests.support.outcomes import outcome
from tests.support.slips import unnoticed

MEMBERS = st.sampled_from("aabc")
LOCK_MS, WINDOW = 100, 40
TYPES = st.sampled_from([0, 1, 2, 2, 2, 2, 3, 4, 4])


class Requests(RuleBasedStateMachine):
    """`writing` has what is being written down, as either side says it."""

    @initialize(
        limit=st.integers(2, 6), start=st.integers(0, 5), may_renew=st.sampled_from([True, True, False])
    )
    def begin(self, limit: int, start: int, may_renew: bool) -> None:
        self.settings = ShareSettings(LOCK_MS, limit, WINDOW, may_renew)
        self.log: list[tuple[int, int]] = []
        self.log_start = self.log_end = 0
        self.saved_start, self.saved = start, {}
        self.now_ms = 0
        self.produce([2, 5, 3], 0)
        self.restart()

    # --- both sides -----------------------------------------------------------------------------------------

    def decide(self, event, predicted) -> None:
        """Let the partition decide and the model predict; what is written down is the same, or why it is refused."""
        try:
            written = event()
            got = (written.start_offset, written.complete_count, flat(written.batches))
        except RequestError as error:
            written, got = None, ErrorCode(error.code).name
        write = outcome(predicted)
        assert got == (write[:3] if isinstance(write, model.Write) else write)
        if written:
            self.writing.append((written, write))
        self.same()

    def same(self) -> None:
        shared, model = self.shared, self.model
        assert (shared.start_offset, shared.end, shared.next_offset) == (
            model.start,
            model.end,
            model.next_offset,
        )
        records = {}
        before = shared.start_offset
        for run in shared.flight:
            assert run.first == before
            before = run.last + 1
            what = run.state, run.deliveries, run.batch, run.member, run.lock_due_ms, run.target
            records |= dict.fromkeys(range(run.first, run.last + 1), what)
        assert records == {
            offset: (
                record.state,
                record.deliveries,
                record.batch,
                record.member,
                record.due_ms,
                record.target,
            )
            for offset, record in model.records.items()
        }
        assert shared.complete_count == sum(record.is_complete for record in model.records.values())
        assert shared.can_acquire is (model.next_offset < model.end or model.end - model.start < WINDOW)
        assert shared.lock_due_ms == min(model.locks(), default=None)

    # --- the log --------------------------------------------------------------------------------------------

    @rule(sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4), hole=st.sampled_from([0, 0, 1, 2]))
    def produce(self, sizes: list[int], hole: int) -> None:
        self.log_end += hole
        for size in sizes:
            self.log.append((self.log_end, self.log_end + size - 1))
            self.log_end += size

    @rule(count=st.sampled_from([0, 0, 0, 1, 5, 10]))
    def lose_the_beginning(self, count: int) -> None:
        self.log_start = min(self.log_start + count, self.log_end)
        self.log = [batch for batch in self.log if batch[1] >= self.log_start]

    # --- members --------------------------------------------------------------------------------------------

    @rule(
        member=MEMBERS, count=st.integers(1, 30), portion=st.integers(1, 20), is_strict=st.booleans(),
        batches_read=st.integers(1, 6), aborts=st.sampled_from([False, False, True]),
    )  # fmt: skip
    def fetch(self, member, count, portion, is_strict, batches_read, aborts) -> None:
        if self.model.next_offset < self.log_start:
            self.shared.log_starts_at(self.log_start)
            self.model.log_starts_at(self.log_start)
            self.same()
        if self.model.next_offset >= self.log_end:
            self.produce([portion % 8 + 1, 3, 2], 0)
        batches = [batch for batch in self.log if batch[1] >= self.model.next_offset][:batches_read]
        aborted = batches[1:2] if aborts else []
        taken = self.shared.acquire(
            AcquireRequest(member, count, portion, is_strict), batches, self.now_ms, aborted
        )
        deliveries = [(offset, times) for first, last, times in taken for offset in range(first, last + 1)]
        told = self.model.acquire(
            member, batches, count, portion, self.now_ms, is_strict=is_strict, aborted=aborted
        )
        assert deliveries == sorted(told.items())
        self.same()

    @rule(
        member=MEMBERS, data=st.data(), knows_renew=st.sampled_from([True, True, True, False]),
        is_renew=st.sampled_from([True, True, True, False]),
        mistake=st.sampled_from([""] * 12 + ["far", "more", "back", "9"]),
    )  # fmt: skip
    def acknowledge(self, member, data, knows_renew, is_renew, mistake) -> None:
        """A member says something of records, most often of those that it has; it fetches some if it has none."""
        while len(self.writing) > 2:
            self.finish_writing(done=True, is_first=True)
        if not self.held(member):
            self.fetch(member, 6, 4, is_strict=False, batches_read=3, aborts=False)
        held, acknowledgements = self.held(member), []
        first = data.draw(
            st.sampled_from(sorted(held) * 3 + [max(self.model.start - 1, 0), self.model.start + 3])
        )
        for _ in range(data.draw(st.integers(1, 2))):
            last = first + data.draw(st.integers(0, 4))
            while last > first and last not in held and data.draw(st.sampled_from([True, True, True, False])):
                last -= 1
            count = data.draw(st.sampled_from([1, last - first + 1]))
            acknowledgements.append((first, last, data.draw(st.lists(TYPES, min_size=count, max_size=count))))
            first = last + data.draw(st.sampled_from([0, 1, 1, 1, 2]))
        if mistake == "far":
            acknowledgements[-1] = (acknowledgements[-1][0], self.model.end + 1, acknowledgements[-1][2][:1])
        elif mistake == "more":
            acknowledgements[-1][2].append(ACCEPT)
        elif mistake == "back":
            acknowledgements.append((max(acknowledgements[-1][1] - 1, 0), acknowledgements[-1][1], [ACCEPT]))
        elif mistake == "9":
            acknowledgements[-1][2][-1] = 9
        self.say(member, acknowledgements, knows_renew=knows_renew, is_renew=is_renew)

    def held(self, member: str) -> list[int]:
        return [
            offset
            for offset, acknowledgement in self.model.records.items()
            if acknowledgement.is_locked and acknowledgement.member == member
        ]

    def say(self, member, acks, *, knows_renew, is_renew) -> None:
        def event():
            every = [acknowledgement.Acknowledgement(*ack) for ack in acks]
            acknowledgement.check_acknowledgements(every, knows_renew=knows_renew, is_renew=is_renew)
            return self.shared.acknowledge(member, every, self.now_ms)

        every = [Acknowledgement(first, last, tuple(types)) for first, last, types in acks]
        self.decide(
            event,
            lambda: self.model.acknowledge(
                member, every, self.now_ms, knows_renew=knows_renew, is_renew=is_renew
            ),
        )

    @rule(member=st.sampled_from("abcxxx"))
    def leave(self, member: str) -> None:
        self.decide(lambda: self.shared.release(member), lambda: self.model.release(member))

    # --- writing and time -----------------------------------------------------------------------------------

    @precondition(lambda self: self.writing)
    @rule(done=st.sampled_from([True, True, False]), is_first=st.booleans())
    def finish_writing(self, done: bool, is_first: bool) -> None:
        """Finish a write: in order if it succeeds, and at any time if it fails."""
        written, write = self.writing.pop(0 if done or is_first else -1)
        self.shared.settle(written, done=done)
        self.model.written(write, done=done)
        if done:
            self.saved_start = max(self.saved_start, write.start)
            for offset, what in write.changed.items():
                before = self.saved.get(offset, (0, 0))
                self.saved[offset] = max(before, what, key=lambda state: (state[1], state[0]))
            self.saved = {offset: what for offset, what in self.saved.items() if offset >= self.saved_start}
        self.same()

    @rule(passed_ms=st.integers(1, LOCK_MS))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.decide(lambda: self.shared.expire(self.now_ms), lambda: self.model.expire(self.now_ms))

    @rule(happens=st.sampled_from([False, False, False, True]))
    def may_restart(self, happens: bool) -> None:
        if happens:
            self.restart()

    def restart(self) -> None:
        """The broker comes back with what is written; deliveries that were not decided on never happened."""
        spans = model.runs(self.saved)
        batches = [StateBatch(first, last, *self.saved[first]) for first, last in spans]
        self.shared = SharePartition.restore(self.settings, self.saved_start, batches)
        self.model = model.SharePartition(
            self.saved_start,
            self.saved,
            self.settings.deliveries_max,
            LOCK_MS,
            WINDOW,
            self.settings.renew_enabled,
        )
        self.writing = []
        self.same()

    def teardown(self) -> None:
        if not hasattr(self, "shared"):
            return
        for _ in range(500):
            while self.writing:
                self.finish_writing(done=True, is_first=True)
            if self.model.start >= self.log_end and not self.model.records:
                return
            self.wait(LOCK_MS)
            self.fetch("a", 100, 100, is_strict=False, batches_read=100, aborts=False)
            held = model.runs({offset: (0, 0) for offset, r in self.model.records.items() if r.is_locked})
            for first, last in held:
                self.say("a", [(first, last, [ACCEPT])], knows_renew=True, is_renew=False)
        raise AssertionError("something is never finished")


def flat(batches) -> dict[int, tuple[int, int]]:
    return {
        offset: (record.state, record.deliveries)
        for record in batches
        for offset in range(record.first, record.last + 1)
    }


Requests.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
TestRequests = Requests.TestCase


# --- planted slips ----------------------------------------------------------------------------------------------

_fresh, _restore, _room = acquisition.fresh, SharePartition.restore, SharePartition._room
_log_starts_at = SharePartition.log_starts_at
_check, _decide, _hide = (
    acknowledgement.check_acknowledgements, SharePartition._decide, SharePartition._hide,
)  # fmt: skip


def _whoever_has_it(self, member, first, last):
    runs = self.flight.cut(first, last)
    if any(run.state is not ACQUIRED or run.target is not None for run in runs):
        raise RequestError(ErrorCode.INVALID_RECORD_STATE)
    return runs


def _decided_or_not(self, member, first, last):
    runs = self.flight.cut(first, last)
    if any(run.state is not ACQUIRED or run.member != member for run in runs):
        raise RequestError(ErrorCode.INVALID_RECORD_STATE)
    return runs


def _half_of_it(self, member, acknowledgements, now_ms):
    decided = []
    for each in acknowledgements:
        if each.last >= self.start_offset:
            self._check_known(each)
            for first, last, verdict in each.spans():
                for run in self._owned(member, max(first, self.start_offset), last):
                    self._decide(run, verdict, now_ms, decided)
    return self._to_write(decided, ())


def _one_delivery_more(self, run, target):
    return (
        RecordState.ARCHIVED
        if target is AVAILABLE and run.deliveries > self.settings.deliveries_max
        else target
    )


def _until_its_lock_ends(self, run, verdict, now_ms, decided):
    due_ms = run.lock_due_ms
    _decide(self, run, verdict, now_ms, decided)
    run.lock_due_ms = due_ms


def _always(self, run, verdict, now_ms, decided):
    if verdict == RENEW:
        run.lock_due_ms = now_ms + self.settings.record_lock_ms
    else:
        _decide(self, run, verdict, now_ms, decided)


def _whole_batches(batches, first, last, acquire_request, remaining):
    return _fresh(batches, first, last, replace(acquire_request, strict=False), remaining)


def _past_what_is_being_written(self):
    before = self.start_offset
    for run in self.flight:
        if not run.outlook.is_terminal:
            break
        self.start_offset = run.last + 1
    self.flight.drop_before(self.start_offset)
    return self.start_offset > before


def _whatever_is_written(self, written, *, done):
    for batch in written.batches:
        for run in self.flight.cut(max(batch.first, self.start_offset), batch.last):
            if run.target is not None and done:
                run.state, run.member, run.lock_due_ms = run.target, "", 0
            run.target = None
    self.flight.close_up()
    self.advance()


def _nobody_has_what_is_lost(self, offset):
    _log_starts_at(self, offset)
    self.overtaken.clear()


def _past_the_end(self, each):
    if each.last >= self.end:
        raise RequestError(ErrorCode.INVALID_RECORD_STATE)


def _in_any_version(acknowledgements, *, knows_renew, is_renew):
    _check(acknowledgements, knows_renew=True, is_renew=is_renew)


def _gaps_are_archived(cls, settings, start_offset, batches):
    shared = _restore(settings, start_offset, batches)
    for run in shared.flight:
        if not run.deliveries:
            run.state = RecordState.ARCHIVED
    shared.advance()
    return shared


def _everybodys(self, member):
    freed = list(self._locked())
    for run in freed:
        run.target = self._unless_exhausted(run, AVAILABLE)
    return self._to_write([partition._batch(run) for run in freed], partition._exceeded(freed))


SLIPS = {
    "records that the log has lost are nobody's at once": (SharePartition, "log_starts_at", _nobody_has_what_is_lost),
    "a member decides on what another has": (SharePartition, "_owned", _whoever_has_it),
    "what is decided on is decided again": (SharePartition, "_owned", _decided_or_not),
    "half of what is refused counts": (SharePartition, "acknowledge", _half_of_it),
    "the limit of deliveries is one more": (SharePartition, "_unless_exhausted", _one_delivery_more),
    "a lock ends although it was renewed": (SharePartition, "_decide", _until_its_lock_ends),
    "a lock is renewed where the group forbids it": (SharePartition, "_decide", _always),
    "a strict limit is not": (partition, "fresh", _whole_batches),
    "the window has room for one more": (SharePartition, "_room", lambda self: _room(self) + 1),
    "what fails often is taken whole": (acquisition, "fewer_from", lambda deliveries_max: deliveries_max),
    "the start offset passes what is not written": (SharePartition, "advance", _past_what_is_being_written),
    "the write of an ended lock decides": (SharePartition, "settle", _whatever_is_written),
    "what the log has lost stays available": (SharePartition, "_pass_over", lambda self, first, last: None),
    "aborted records are not passed over": (SharePartition, "_hide", lambda self, taken, aborted: _hide(self, taken, ())),
    "what was never acquired is in a wrong state": (SharePartition, "_check_known", _past_the_end),
    "locks are renewed in every version": (acknowledgement, "check_acknowledgements", _in_any_version),
    "after a restart nothing is delivered late": (SharePartition, "restore", classmethod(_gaps_are_archived)),
    "who leaves frees what others have": (SharePartition, "release", _everybodys),
}  # fmt: skip


def test_slips_are_noticed() -> None:
    assert unnoticed(Requests, SLIPS, f"{__file__}::test_slips_are_noticed") == []
