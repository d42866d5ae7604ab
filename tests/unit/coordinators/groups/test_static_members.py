"""A static member of a classic group that comes back without its member id: what it takes over, and what others notice."""

from __future__ import annotations

import pytest

from barnabas.coordinators.groups.classic import NEW_MEMBER_JOIN_TIMEOUT_MS
from barnabas.coordinators.groups.group import Committer
from barnabas.coordinators.groups.member import State
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.join_group import JoinGroupResponse
from tests.support.refusals import code_of

from .test_classic import NO_DELAY, NO_TOPICS, Harness
from .test_classic_times import REBALANCE_MS, protocols, session


class World(Harness):
    """A group with two static members, s and t, with member ids s-1 and t-1 at first, and a dynamic one, d."""

    def came(self, new_id: str, member_id: str = "", *, now: int = 5_000, **fields: object) -> int:
        """A JoinGroup of the static member that `new_id` begins with, if there is one."""
        name = (member_id or new_id)[0]
        instance = {} if name == "d" else {"group_instance_id": name}
        return self.join(new_id, member_id, now=now, **instance, **fields)

    def restored(self) -> Harness:
        """The group as another coordinator reads it."""
        other = Harness()
        other.shard = GroupShard(NO_DELAY, NO_TOPICS)
        for key, value in self.journal:
            other.shard.replay(key, value, loading=True)
        return other


@pytest.fixture
def world() -> World:
    """They are stable in generation 1, s-1 leads, and each has been assigned its own name."""
    world = World()
    world.gather = lambda now: None  # type: ignore[method-assign]
    for member_id in ("s-1", "t-1", "d-1"):
        world.came(member_id, now=0)
    world.expire("join", "g", now=3)
    world.expire("join", "g", now=6)
    for member_id in ("d-1", "t-1", "s-1"):
        world.sync(member_id, 1, **{"s-1": b"s", "t-1": b"t", "d-1": b"d"})
    assert (world.group.state, world.group.leader, world.group.generation) == (State.STABLE, "s-1", 1)
    del world.gather
    return world


def members(answer: JoinGroupResponse) -> list[str]:
    return [member.member_id for member in answer.members]


# --- a stable group -----------------------------------------------------------------------------------------------


def test_a_follower_takes_over_its_part_in_the_same_generation(world):
    records = len(world.journal)
    answer = world.answers[world.came("t-2")]
    assert (answer.error_code, answer.generation_id, answer.member_id) == (0, 1, "t-2")
    assert (answer.leader, answer.skip_assignment, members(answer)) == ("s-1", False, [])
    assert (world.group.state, world.group.leader) == (State.STABLE, "s-1")
    assert sorted(world.group.members) == ["d-1", "s-1", "t-2"]
    assert world.answers[world.sync("t-2", 1)].assignment == b"t"
    assert len(world.journal) == records + 1, "its new id is written down"
    other = world.restored().group
    assert other.static_ids == world.group.static_ids == {"s": "s-1", "t": "t-2"}
    assert sorted(other.members) == ["d-1", "s-1", "t-2"]
    assert other.assignments["t-2"] == b"t"


def test_who_still_has_the_former_id_is_fenced_in_everything(world):
    world.came("t-2")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert code_of(world.group.heartbeat, "t-1", "t", 1, 0, Decision()) == fenced
    assert code_of(world.group.leave, "t-1", "t", Decision()) == fenced
    assert code_of(world.came, "x", "t-1") == fenced
    commit = Committer("t-1", 1, instance_id="t")
    assert code_of(world.shard.check_commit, "g", commit, 0, Decision()) == fenced
    assert code_of(world.group.heartbeat, "t-1", None, 1, 0, Decision()) == ErrorCode.UNKNOWN_MEMBER_ID
    unknown = code_of(world.group.heartbeat, "t-2", "another", 1, 0, Decision())
    assert unknown == ErrorCode.UNKNOWN_MEMBER_ID
    assert sorted(world.group.members) == ["d-1", "s-1", "t-2"]


def test_static_return_in_a_tie_of_protocols_rebalances_nobody():
    world = World()
    world.gather = lambda now: None  # type: ignore[method-assign]
    world.came("s-1", now=0, protocols=protocols("sticky", "range"))
    world.came("t-1", now=0, protocols=protocols("range", "sticky"))
    world.expire("join", "g", now=3)
    world.expire("join", "g", now=6)
    for member_id in ("t-1", "s-1"):
        world.sync(member_id, 1, **{"s-1": b"s", "t-1": b"t"})
    assert (world.group.state, world.group.protocol) == (State.STABLE, "sticky")
    answer = world.answers[world.came("s-2", protocols=protocols("sticky", "range"))]
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "sticky")
    assert world.group.state is State.STABLE


def test_static_return_that_changes_the_protocol_rebalances(world):
    """One that merely says more of itself has not."""
    waiter = world.came("t-2", protocols=protocols("range", metadata=b"more"))
    assert world.group.state is State.STABLE
    assert waiter in world.answers
    for member_id in ("s-1", "t-2", "d-1"):
        world.came("", member_id, protocols=protocols("range", "sticky"))
    assert (world.group.state, world.group.protocol, world.group.generation) == (
        State.COMPLETING_REBALANCE, "range", 2,
    )  # fmt: skip
    for member_id in ("t-2", "d-1", "s-1"):
        world.sync(member_id, 2)
    records = len(world.journal)
    waiter = world.came("t-3", now=8_000, protocols=protocols("sticky"))
    assert world.group.state is State.PREPARING_REBALANCE
    assert waiter not in world.answers
    assert len(world.journal) == records
    assert world.timers[session("t-3")] == 8_000 + NEW_MEMBER_JOIN_TIMEOUT_MS
    assert session("t-2") not in world.timers
    assert world.timers["join", "g"] == 8_000 + REBALANCE_MS


# --- a group that is not stable -----------------------------------------------------------------------------------


@pytest.mark.parametrize("leads", [True, False])
def test_static_return_during_a_join_replaces_the_member(world, leads):
    name = "s" if leads else "t"
    world.came("", "d-1", protocols=protocols("range", metadata=b"2"))
    former = world.came("", f"{name}-1")
    back = world.came(f"{name}-2")
    fenced = JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=f"{name}-1")
    assert world.answers[former] == fenced
    assert back not in world.answers
    assert session(f"{name}-1") not in world.timers
    assert world.timers[session(f"{name}-2")] == 5_000 + NEW_MEMBER_JOIN_TIMEOUT_MS
    world.came("", "t-1" if leads else "s-1")
    answer = world.answers[back]
    assert (answer.error_code, answer.generation_id) == (0, 2)
    assert answer.leader == world.group.leader == ("s-2" if leads else "s-1")
    assert bool(answer.members) is leads
