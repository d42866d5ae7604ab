"""A classic group over time: timers, signs of life, and the group after a restart."""

from __future__ import annotations

import pytest

from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.member import MANY_MEMBERS, Member, State
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.join_group import JoinGroupRequest
from barnabas.wire.generated.records.group_metadata import GroupMetadataValue
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


def test_rebalance_waits_for_the_longest_timeout():
    h = Harness()
    h.join("a", rebalance_timeout_ms=20_000)
    h.join("b", rebalance_timeout_ms=50_000)
    h.join("", "a", rebalance_timeout_ms=20_000)
    assert h.timers["sync", "g"] == 50_000
    h.sync("a", 2, a=b"1", b=b"2")
    h.sync("b", 2)
    h.leave("b")
    assert h.timers["join", "g"] == 5 + 20_000, "it is not asked how long b would have waited"


def test_late_static_member_stays_until_its_session_ends():
    h = Harness()
    h.join("s-1", group_instance_id="s")
    h.join("a", now=1)
    h.expire("join", "g", now=30_001)
    assert set(h.group.members) == {"s-1", "a"}
    assert h.group.leader == "a", "who leads has joined"
    assert h.group.generation == 2
    h.expire("session", "g", "s-1", now=30_002)
    assert set(h.group.members) == {"a"}


def test_rebalance_without_any_static_member_waits_on():
    h = Harness()
    h.join("s-1", group_instance_id="s")
    h.sync("s-1", 1, **{"s-1": b"mine"})
    h.group.begin_rebalance(1_000, Decision())
    h.expire("join", "g", now=31_000)
    assert (h.group.state, h.group.generation) == (State.PREPARING_REBALANCE, 1)
    assert h.timers["join", "g"] == 31_000 + REBALANCE_MS


# --- who leads, and what is chosen --------------------------------------------------------------------------------


def test_protocol_with_most_votes_is_chosen():
    h = Harness()
    h.join("a", protocols=protocols("range", "sticky", "mine"))
    h.join("b", protocols=protocols("sticky", "range"))
    h.join("c", protocols=protocols("sticky", "range"))
    h.join("", "a", protocols=protocols("range", "sticky", "mine"))
    h.join("", "b", protocols=protocols("sticky", "range"))
    assert h.group.protocol == "sticky"
    assert code_of(h.join, "d", protocols=protocols("mine")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_repeated_request_supersedes_the_waiting_one():
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


def test_assignments_come_from_the_leader_for_members_only():
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


# --- rooms --------------------------------------------------------------------------------------------------------


def test_pending_id_that_finds_a_full_group_is_dropped():
    h = Harness(GroupSettings(initial_rebalance_delay_ms=0, size_max=2))
    h.stable_pair()
    h.join("c", id_required=True, now=2_000)
    assert h.group.pending == set(), "there was no room for it"
    h.leave("b")
    h.join("", "a", now=2_000)
    h.join("c", id_required=True, now=3_000)
    assert h.group.pending == {"c"}
    h.join("d", now=3_000)
    h.join("", "a", now=3_000)
    refused = h.join("", "c", now=3_000)
    assert h.answers[refused].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.group.pending == set()
    assert h.group.state is State.COMPLETING_REBALANCE


# --- after a restart ----------------------------------------------------------------------------------------------


def test_restored_group_is_equal_with_whole_sessions():
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


def test_restored_group_above_the_size_limit_rebalances():
    members = [GroupMetadataValue.MemberMetadata(member_id=name, session_timeout=9) for name in "abc"]
    value = GroupMetadataValue(protocol_type="consumer", generation=5, protocol="range", members=members)
    for size_max, state in ((3, State.STABLE), (2, State.PREPARING_REBALANCE)):
        group = ClassicGroup.restored("g", GroupSettings(size_max=size_max), value)
        group.watch_sessions(0, Decision())
        assert group.state is state


@pytest.mark.parametrize("count", [MANY_MEMBERS - 1, MANY_MEMBERS])
def test_late_syncs_remove_sessions_and_instance_ids(count):
    h = Harness()
    members = [Member(f"m{n}", f"s{n}", "", "", 9, 9, [("range", b"")]) for n in range(count)]
    h.join("in time")
    for member in members:
        h.group.members.put(member)
        h.group.static_ids[f"s{member.id[1:]}"] = member.id
        h.timers[session(member.id)] = 9
    h.group.leader, h.group.state, h.group.synced = "m0", State.COMPLETING_REBALANCE, {"in time"}
    h.expire("sync", "g", now=50_000)
    assert list(h.group.members) == ["in time"]
    assert (h.group.static_ids, h.group.leader) == ({}, "in time")
    assert h.group.state is State.PREPARING_REBALANCE
    assert {key for key in h.timers if key[0] == "session"} == {session("in time")}
