"""A classic group over time: which timer is set to what, who is heard of, and what comes back after a restart."""

from __future__ import annotations

import pytest

from barnabas.coordinators.groups.classic import NEW_MEMBER_JOIN_TIMEOUT_MS, ClassicGroup
from barnabas.coordinators.groups.group import Committer
from barnabas.coordinators.groups.member import State
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.join_group import JoinGroupRequest
from barnabas.wire.generated.records.group_metadata import GroupMetadataValue
from barnabas.wire.generated.sync_group import SyncGroupRequest
from tests.support.refusals import code_of

from .test_classic import NO_DELAY, Harness

SESSION_MS, REBALANCE_MS = 10_000, 30_000  # what the harness's members ask for


def session(member_id: str) -> tuple[str, str, str]:
    return "session", "g", member_id


def protocols(*names: str, metadata: bytes = b"m") -> list[JoinGroupRequest.JoinGroupRequestProtocol]:
    return [JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names]


def stable(*ids: str) -> Harness:
    """A stable group of these, the first of which leads; the clock stands at 1,000."""
    h = Harness()
    for member_id in ids:
        h.join(member_id, now=1_000)
    if len(ids) > 1:
        for member_id in ids[:-1]:
            h.join("", member_id, now=1_000)
    generation = h.group.generation
    for member_id in reversed(ids):
        h.sync(member_id, generation, now=1_000, **{each: each.encode() for each in ids})
    assert h.group.state is State.STABLE
    assert h.group.leader == ids[0]
    return h


# --- timers -------------------------------------------------------------------------------------------------------


def test_a_member_that_has_just_joined_may_wait_long_for_the_others_and_has_its_session_timeout_then():
    h = stable("a")
    h.join("b", now=2_000, session_timeout_ms=7_000)
    assert h.timers[session("b")] == 2_000 + NEW_MEMBER_JOIN_TIMEOUT_MS
    assert h.timers["join", "g"] == 2_000 + REBALANCE_MS
    h.join("", "a", now=3_000)
    assert h.timers == {
        session("a"): 3_000 + SESSION_MS, session("b"): 3_000 + 7_000, ("sync", "g"): 3_000 + REBALANCE_MS,
    }  # fmt: skip


def test_a_rebalance_waits_as_long_as_the_member_that_allows_most():
    h = Harness()
    h.join("a", rebalance_timeout_ms=20_000)
    h.join("b", rebalance_timeout_ms=50_000)
    h.join("", "a", rebalance_timeout_ms=20_000)
    assert h.timers["sync", "g"] == 50_000
    h.sync("a", 2, a=b"1", b=b"2")
    h.sync("b", 2)
    h.leave("b")
    assert h.timers["join", "g"] == 5 + 20_000, "it is not asked how long b would have waited"


def test_a_heartbeat_a_commit_a_join_and_a_sync_each_give_a_whole_session():
    h = stable("a", "b")
    generation = h.group.generation
    out = Decision()
    h.group.heartbeat("a", None, generation, 5_000, out)
    assert out.timers == {session("a"): 5_000 + SESSION_MS}
    out = Decision()
    h.shard.check_commit("g", Committer("b", generation), 6_000, out)
    assert out.timers == {session("b"): 6_000 + SESSION_MS}
    h.join("", "b", now=7_000)  # nothing has changed, so that it is told its generation again
    assert h.group.state is State.STABLE
    assert h.timers[session("b")] == 7_000 + SESSION_MS
    h.sync("a", generation, now=8_000)
    assert h.timers[session("a")] == 8_000 + SESSION_MS


def test_when_the_leader_has_assigned_those_who_waited_for_it_have_a_whole_session():
    h = Harness()
    h.join("a")
    h.join("b")
    h.join("", "a")
    h.sync("b", 2, now=4_000)
    h.sync("a", 2, now=9_000, a=b"1", b=b"2")
    assert h.timers == {session("a"): 9_000 + SESSION_MS, session("b"): 9_000 + SESSION_MS}


def test_a_member_that_waits_for_the_others_is_not_dropped_when_its_session_is_over():
    """Its client sends no heartbeats while it waits. One that has only just come may be gone."""
    h = stable("a", "b", "c")
    h.leave("c")
    h.join("", "a", now=2_000)
    h.expire("session", "g", "a", now=11_000)
    assert set(h.group.members) == {"a", "b"}
    assert h.timers[session("a")] == 11_000 + SESSION_MS
    h.join("new", now=12_000)
    h.expire("session", "g", "new", now=12_000 + NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert set(h.group.members) == {"a", "b"}
    h.expire("session", "g", "b", now=400_000)
    assert set(h.group.members) == {"a"}
    assert h.group.state is State.COMPLETING_REBALANCE, "nobody else is waited for"


def test_an_id_that_was_given_is_waited_for_and_forgotten_with_its_session():
    h = stable("a")
    h.join("given", known=True, now=2_000)
    assert h.timers[session("given")] == 2_000 + SESSION_MS
    h.join("", "a", now=3_000, protocols=protocols("range", metadata=b"other"))
    assert h.group.state is State.PREPARING_REBALANCE, "it waits for who has been given an id"
    h.expire("session", "g", "given", now=12_000)
    assert session("given") not in h.timers
    assert h.group.pending == set()
    assert h.group.state is State.COMPLETING_REBALANCE


@pytest.mark.parametrize("state", ["stable", "completing"])
def test_the_time_for_joining_means_nothing_when_nobody_joins(state):
    h = stable("a") if state == "stable" else Harness()
    if state == "completing":
        h.join("a")
    generation, before = h.group.generation, h.group.state
    h.expire("join", "g", now=50_000)
    assert (h.group.generation, h.group.state) == (generation, before)


def test_a_static_member_that_does_not_join_again_in_time_stays_until_its_session_is_over():
    h = Harness()
    h.join("s-1", group_instance_id="s")
    h.join("a", now=1)
    h.expire("join", "g", now=30_001)
    assert set(h.group.members) == {"s-1", "a"}
    assert h.group.leader == "a", "who leads has joined"
    assert h.group.generation == 2
    h.expire("session", "g", "s-1", now=30_002)
    assert set(h.group.members) == {"a"}


def test_while_none_of_the_static_members_has_come_back_a_rebalance_waits_on():
    h = Harness()
    h.join("s-1", group_instance_id="s")
    h.sync("s-1", 1, **{"s-1": b"mine"})
    h.group.begin_rebalance(1_000, Decision())
    h.expire("join", "g", now=31_000)
    assert (h.group.state, h.group.generation) == (State.PREPARING_REBALANCE, 1)
    assert h.timers["join", "g"] == 31_000 + REBALANCE_MS


# --- who leads, and what is chosen --------------------------------------------------------------------------------


def test_the_leader_stays_the_leader_and_is_followed_by_who_came_next():
    h = stable("a", "b", "c")
    for member_id in ("c", "b", "a"):
        h.join("", member_id, now=2_000, protocols=protocols("range", metadata=member_id.encode()))
    assert h.group.leader == "a"
    h.leave("a")
    assert h.group.leader == "b"
    h.join("", "c", now=3_000)
    answer = h.join("", "b", now=3_000)
    assert h.answers[answer].leader == "b"
    assert [member.member_id for member in h.answers[answer].members] == ["b", "c"]


def test_only_the_leader_is_told_who_the_members_are():
    h = Harness()
    h.join("a")
    of_b = h.join("b")
    of_a = h.join("", "a")
    assert [member.member_id for member in h.answers[of_a].members] == ["a", "b"]
    assert h.answers[of_b].members == []
    assert h.answers[of_b].leader == "a"


def test_the_leader_that_joins_a_stable_group_again_has_all_join_again_and_a_follower_has_not():
    h = stable("a", "b")
    of_b = h.join("", "b", now=2_000)
    assert h.answers[of_b].generation_id == 2
    of_a = h.join("", "a", now=2_000)
    assert of_a not in h.answers
    assert h.group.state is State.PREPARING_REBALANCE


def test_a_follower_that_says_something_else_has_all_join_again():
    h = stable("a", "b")
    assert h.join("", "b", now=2_000, protocols=protocols("range", metadata=b"more topics")) not in h.answers
    assert h.group.state is State.PREPARING_REBALANCE


def test_of_the_protocols_that_all_know_the_one_is_taken_that_most_prefer():
    h = Harness()
    h.join("a", protocols=protocols("range", "sticky", "mine"))
    h.join("b", protocols=protocols("sticky", "range"))
    h.join("c", protocols=protocols("sticky", "range"))
    h.join("", "a", protocols=protocols("range", "sticky", "mine"))
    h.join("", "b", protocols=protocols("sticky", "range"))
    assert h.group.protocol == "sticky"
    assert code_of(h.join, "d", protocols=protocols("mine")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_request_that_is_sent_again_supersedes_the_one_that_waits():
    h = stable("a", "b")
    first = h.join("", "a", now=2_000, protocols=protocols("range", metadata=b"x"))
    second = h.join("", "a", now=2_001, protocols=protocols("range", metadata=b"x"))
    assert h.answers[first].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    h.join("", "b", now=2_002)
    assert h.answers[second].error_code == 0
    generation = h.group.generation
    third = h.sync("b", generation, now=2_003)
    fourth = h.sync("b", generation, now=2_004)
    assert h.answers[third].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    h.sync("a", generation, now=2_005, a=b"1", b=b"2")
    assert h.answers[fourth].assignment == b"2"


def test_assignments_for_strangers_and_by_others_than_the_leader_are_not_taken():
    h = Harness()
    h.join("a")
    h.join("b")
    h.join("", "a")
    h.sync("b", 2, a=b"stolen", b=b"all")
    assert h.group.state is State.COMPLETING_REBALANCE
    h.sync("a", 2, a=b"1", stranger=b"2")
    assert h.group.assignments == {"a": b"1"}
    late = h.sync("b", 2)
    assert h.answers[late].assignment == b""


@pytest.mark.parametrize("field", ["protocol_type", "protocol_name"])
def test_a_sync_that_names_another_protocol_is_refused(field):
    h = stable("a")
    names = {"protocol_type": "consumer", "protocol_name": "range"}
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="a", **names)
    h.group.sync(request, 1, 0, Decision())
    setattr(request, field, "another")
    assert code_of(h.group.sync, request, 2, 0, Decision()) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# --- rooms --------------------------------------------------------------------------------------------------------


def test_a_full_group_takes_its_members_again_and_nobody_else():
    h = Harness(GroupSettings(initial_rebalance_delay_ms=0, size_max=2))
    h.stable_pair()
    full = h.join("c", now=2_000)
    assert h.answers[full].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.group.state is State.STABLE
    h.join("", "a", now=2_000)
    h.join("", "b", now=2_000)
    assert h.group.generation == 3
    assert set(h.group.members) == {"a", "b"}


def test_an_id_that_comes_back_to_a_full_group_is_waited_for_no_longer():
    h = Harness(GroupSettings(initial_rebalance_delay_ms=0, size_max=2))
    h.stable_pair()
    h.join("c", known=True, now=2_000)
    assert h.group.pending == set(), "there was no room for it"
    h.leave("b")
    h.join("", "a", now=2_000)
    h.join("c", known=True, now=3_000)
    assert h.group.pending == {"c"}
    h.join("d", now=3_000)
    h.join("", "a", now=3_000)
    refused = h.join("", "c", now=3_000)
    assert h.answers[refused].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.group.pending == set()
    assert h.group.state is State.COMPLETING_REBALANCE


# --- after a restart ----------------------------------------------------------------------------------------------


def test_a_group_that_is_read_again_is_what_it_was_and_everybody_has_a_whole_session():
    member = GroupMetadataValue.MemberMetadata(
        member_id="a", group_instance_id="s", client_id="c", client_host="/h", rebalance_timeout=11,
        session_timeout=12, subscription=b"said", assignment=b"given",
    )  # fmt: skip
    old = GroupMetadataValue.MemberMetadata(member_id="b", rebalance_timeout=-1, session_timeout=13)
    value = GroupMetadataValue(
        protocol_type="consumer", generation=5, protocol="range", leader="b", current_state_timestamp=77,
        members=[member, old],
    )  # fmt: skip
    group = ClassicGroup.restored("g", NO_DELAY, value)
    a, b = group.members.values()
    assert (a.rebalance_timeout_ms, a.session_timeout_ms, a.protocols) == (11, 12, [("range", b"said")])
    assert (a.id, a.instance_id, a.client_id, a.client_host) == ("a", "s", "c", "/h")
    assert (b.rebalance_timeout_ms, b.session_timeout_ms) == (13, 13)
    assert (group.state, group.generation, group.leader, group.protocol) == (State.STABLE, 5, "b", "range")
    assert (group.state_since_ms, group.static_ids) == (77, {"s": "a"})
    assert group.assignments == {"a": b"given", "b": b""}
    out = Decision()
    group.watch_sessions(1_000, out)
    assert out.timers == {session("a"): 1_012, session("b"): 1_013}
    assert not out.replies
    written = group.metadata_of(group.state_since_ms, [a.record("range", b"given")])
    assert (written.members[0], written.generation, written.current_state_timestamp) == (member, 5, 77)


def test_a_group_without_members_is_empty_since_it_was_and_keeps_its_offsets_from_then_on():
    value = GroupMetadataValue(protocol_type="consumer", generation=5, current_state_timestamp=77)
    group = ClassicGroup.restored("g", NO_DELAY, value)
    assert group.state is State.EMPTY
    retention = group.offset_retention()
    assert retention is not None
    assert retention.empty_since_ms == 77


def test_a_group_that_is_larger_than_allowed_by_now_must_join_again():
    members = [GroupMetadataValue.MemberMetadata(member_id=name, session_timeout=9) for name in "abc"]
    value = GroupMetadataValue(protocol_type="consumer", generation=5, protocol="range", members=members)
    for size_max, state in ((3, State.STABLE), (2, State.PREPARING_REBALANCE)):
        group = ClassicGroup.restored("g", GroupSettings(size_max=size_max), value)
        group.watch_sessions(0, Decision())
        assert group.state is state
