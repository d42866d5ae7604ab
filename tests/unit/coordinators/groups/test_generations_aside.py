"""A large generation of a classic group: it is written aside, unless it has ended meanwhile."""

from __future__ import annotations

import pytest

from barnabas.coordinators.groups.generation import LARGE_RECORD_BYTES, RecordNeeded
from barnabas.coordinators.groups.member import State
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.sync_group import SyncGroupRequest

from .test_classic import Harness
from .test_classic_times import SESSION_MS, protocols, session, stable

OTHER = protocols("range", metadata=b"other")


LARGE = b"x" * LARGE_RECORD_BYTES


class Aside:
    """A group of a, which leads, and b; its next generation is so large that its record is made in a thread."""

    def __init__(self) -> None:
        self.h = stable("a", "b")
        for member_id in ("a", "b"):
            self.h.join("", member_id, protocols=OTHER)
        self.waiting = self.h.sync("b", self.generation)
        self.needed = self.assigned()

    @property
    def generation(self) -> int:
        return int(self.h.group.generation)

    def assigned(self, assignment: bytes = LARGE) -> RecordNeeded | None:
        """Let the leader assign; what is to be written aside then, if it is."""
        out, self.h.waiter = Decision(), self.h.waiter + 1
        entry = SyncGroupRequest.SyncGroupRequestAssignment(member_id="b", assignment=assignment)
        request = SyncGroupRequest(
            group_id="g", generation_id=self.generation, member_id="a", assignments=[entry]
        )
        self.h.group.sync(request, self.h.waiter, 2_000, out)
        self.h.settle(out)
        return out.effects[0] if out.effects else None

    def keep(self, needed: RecordNeeded) -> bool:
        out = Decision()
        is_kept = self.h.shard.keep_generation(needed, needed.compute(), out)
        assert bool(out.records) is is_kept
        self.h.settle(out)
        return is_kept

    def kept(self, needed: RecordNeeded, code: int = 0) -> None:
        out, before = Decision(), self.h.group.state
        self.h.shard.generation_kept(needed, code, 3_000, out)
        assert out.is_ahead is (self.h.group.state is not before)
        self.h.settle(out)


def test_large_generation_is_answered_once_it_is_written():
    aside = Aside()
    assert aside.needed is not None
    h = aside.h
    assert (h.group.state, aside.waiting in h.answers) == (State.COMPLETING_REBALANCE, False)
    assert aside.assigned() is None, "one is enough"
    assert aside.keep(aside.needed)
    assert aside.waiting not in h.answers
    aside.kept(aside.needed)
    assert (h.group.state, h.group.state_since_ms) == (State.STABLE, 3_000)
    assert h.answers[aside.waiting].assignment == LARGE
    assert h.timers[session("b")] == 3_000 + SESSION_MS
    h.group.state_since_ms = 1
    aside.kept(aside.needed)
    assert h.group.state_since_ms == 1, "told once"
    assert not aside.keep(aside.needed)
    other = Harness()
    for key, value in h.journal:
        other.shard.replay(key, value, loading=True)
    assert (other.group.assignments["b"], other.group.state_since_ms) == (LARGE, 2_000)


@pytest.mark.parametrize("code", [0, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_ended_large_generation_is_not_written(code):
    aside = Aside()
    former, h = aside.needed, aside.h
    assert former is not None
    h.join("c")
    assert h.answers[aside.waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    for member_id in (None, "a", "b"):
        if member_id is not None:
            h.join("", member_id)
        assert not aside.keep(former), h.group.state
        state = h.group.state
        aside.kept(former, code)
        assert h.group.state is state
    waiting = h.sync("b", aside.generation)
    newer = aside.assigned()
    assert newer is not None
    assert newer.generation == former.generation + 1
    assert not aside.keep(former)
    aside.kept(former, code)
    assert waiting not in h.answers
    assert aside.keep(newer)
    aside.kept(newer)
    assert h.answers[waiting].assignment == LARGE


def test_small_generation_after_a_large_one_needs_no_thread():
    aside = Aside()
    for member_id in ("a", "b"):
        aside.h.join("", member_id)
    assert aside.assigned(b"small") is None
    assert aside.h.group.state is State.STABLE


def test_failed_write_of_a_large_generation_rebalances():
    aside = Aside()
    h = aside.h
    assert aside.needed is not None
    aside.kept(aside.needed, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert h.answers[aside.waiting].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert h.group.state is State.PREPARING_REBALANCE
    assert h.group.assignments == {}
    for member_id in ("a", "b"):
        h.join("", member_id)
    assert aside.assigned() is not None
