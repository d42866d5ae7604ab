"""Offsets of a classic group: commits, deletion, and the time since which they are unused."""

from __future__ import annotations

import pytest

from barnabas.coordinators.groups.group import Committer
from barnabas.coordinators.groups.member import State
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.generated.errors import ErrorCode
from tests.support.refusals import code_of

from .test_classic import NO_DELAY, Harness
from .test_classic_times import SESSION_MS, protocols, session, stable

OTHER = protocols("range", metadata=b"other")


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE])
def test_commit_between_generations_needs_a_transaction(state, transactional):
    """While members gather the former generation still counts."""
    h = stable("a", "b")
    h.join("", "a", protocols=OTHER)
    if state is State.COMPLETING_REBALANCE:
        h.join("", "b")
    assert h.group.state is state
    committer = Committer("b", h.group.generation, transactional=transactional)
    if state is State.COMPLETING_REBALANCE and not transactional:
        refused = code_of(h.shard.check_commit, "g", committer, 0, Decision())
        assert refused == ErrorCode.REBALANCE_IN_PROGRESS
    else:
        out = Decision()
        h.shard.check_commit("g", committer, 2_000, out)
        assert out.timers == {session("b"): 2_000 + SESSION_MS}


# --- offsets that are kept ------------------------------------------------------------------------------------------


def test_offset_delete_needs_consumers_or_an_empty_group():
    h = stable("a")
    h.group.check_offset_deletion()
    w = Harness()
    w.join("w", protocol_type="connect")
    assert code_of(w.group.check_offset_deletion) == ErrorCode.NON_EMPTY_GROUP
    w.leave("w")
    w.group.check_offset_deletion()


def test_offsets_are_kept_since_the_last_member_has_left():
    h = stable("a")
    h.group.leave("a", None, out := Decision())
    h.group.members_left(7_000, out)
    h.settle(out)
    retention = h.group.offset_retention()
    assert retention is not None
    assert retention.empty_since_ms == 7_000
    other = Harness()
    for key, value in h.journal:
        other.shard.replay(key, value, loading=True)
    assert (other.group.state, other.group.state_since_ms) == (State.EMPTY, 7_000)
    assert (other.group.leader, other.group.protocol) == (None, None)


def test_gathering_group_is_empty_once_no_join_is_expected():
    h = stable("a")
    h.join("given", id_required=True, now=2_000)
    h.join("", "a", protocols=OTHER, now=2_000)
    h.leave("a")
    assert (h.group.state, h.group.state_since_ms) == (State.PREPARING_REBALANCE, 2_000)
    h.expire("session", "g", "given", now=12_000)
    other = Harness()
    for key, value in h.journal:
        other.shard.replay(key, value, loading=True)
    for group in (h.group, other.group):
        assert (group.state, group.state_since_ms, group.leader) == (State.EMPTY, 12_000, None)


def test_group_without_any_member_has_no_empty_time():
    h = Harness()
    h.join("given", id_required=True)
    retention = h.group.offset_retention()
    assert retention is not None
    assert retention.empty_since_ms == 0
    assert not h.group.is_unused, "somebody is about to join"
    assert not h.group.is_written
    out = Decision()
    h.group.end(out)
    assert out.timers == {session("given"): None}


def test_while_members_join_no_offset_expires():
    h = stable("a")
    h.join("b")
    assert h.group.offset_retention() is None


def test_state_timestamp_is_written_when_the_leader_assigns():
    h = Harness(NO_DELAY)
    h.join("a", now=100)
    h.sync("a", 1, now=200, a=b"1")
    other = Harness()
    for key, value in h.journal:
        other.shard.replay(key, value, loading=True)
    assert (other.group.state, other.group.state_since_ms, other.group.assignments) == (
        State.STABLE,
        200,
        {"a": b"1"},
    )
