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

from .test_classic import Harness

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
