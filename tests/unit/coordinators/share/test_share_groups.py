"""Share groups over both of their coordinators: what is asked of the one, written down at the other, and told to others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cluster.metadata.changes import TopicCreated
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.groups.share.membership import Heartbeat
from barnabas.coordinators.share.groups import ShareGroups
from barnabas.coordinators.statemachine.decision import EVENT_SIZE_MAX, Decision
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.wire.topic_partitions import TopicIdPartition

T, U = b"t" * 16, b"u" * 16
ONE = PartitionInfo(1, (1,), (1,))
UNAVAILABLE = RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


class World:
    """Stands for both coordinators: a shard of groups, and states by group, topic and partition."""

    def __init__(self) -> None:
        self.image = ClusterImage("cluster").apply(
            [TopicCreated(TopicInfo("t", T, (ONE, ONE))), TopicCreated(TopicInfo("u", U, (ONE,)))]
        )
        self.shard = GroupShard(GroupSettings(share_assignment_interval_ms=0), self)  # type: ignore[arg-type]
        self.states: dict[tuple[str, bytes, int], tuple[int, int]] = {}
        self.broken: set[TopicIdPartition] = set()
        self.changed: list[str] = []
        self.size_of: Any = None
        """Stands for the shard where it is asked how large an event is."""
        self.sizes: list[bool] = []
        self.groups = ShareGroups(self, self, lambda: 1_000, self.changed.append)  # type: ignore[arg-type]

    async def write(self, group_id: str, event: Any, *, is_large: Any = None) -> Any:
        if is_large is not None:
            self.sizes.append(is_large(self.size_of or self.shard))
        out = Decision()
        result = event(self.shard, out)
        for key, value in out.records:
            self.shard.replay(key, value, loading=False)
        return result

    async def read(self, group_id: str, look: Any) -> Any:
        return look(self.shard)

    async def delete_group(self, group_id: str) -> None:
        await self.write(group_id, lambda shard, out: shard.delete_group(group_id, out))

    async def initialize(self, key: tuple[str, bytes, int], state_epoch: int, start_offset: int) -> None:
        if key[1:] in self.broken:
            raise UNAVAILABLE
        self.states[key] = state_epoch, start_offset

    async def delete(self, key: tuple[str, bytes, int]) -> None:
        if key[1:] in self.broken:
            raise UNAVAILABLE
        del self.states[key]

    async def beat(self, epoch: int, *topics: str) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=epoch, subscribed_topic_names=list(topics) or None
        )
        return await self.groups.heartbeat(Heartbeat(request, "client", "/host"))

    @property
    def topic_states(self) -> Any:
        return self.shard.share_group("g").topic_states


@pytest.fixture
async def world():
    """An empty group that has read topic t."""
    world = World()
    await world.beat(0, "t")
    assert not any(world.sizes)
    await world.beat(-1)
    assert world.states == {("g", T, 0): (2, -1), ("g", T, 1): (2, -1)}
    assert world.changed == []
    return world


async def test_first_subscriber_gets_its_assignment_immediately():
    world = World()
    answer = await world.beat(0, "t")
    assert answer.assignment is not None
    assert [(row.topic_id, row.partitions) for row in answer.assignment.topic_partitions] == [(T, [0, 1])]
    assert world.shard.share_group("g").members["m"].assigned == frozenset(), "nothing is decided yet"


async def test_failed_initialization_is_answered_and_retried():
    world = World()
    world.broken = {(T, 1)}
    with pytest.raises(RequestError) as refused:
        await world.beat(0, "t")
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.topic_states.initialized == {T: frozenset({0})}
    world.broken = set()
    answer = await world.beat(0, "t")
    assert world.topic_states.initialized == {T: frozenset({0, 1})}
    assert answer.assignment is not None


async def test_altered_offsets_have_a_new_state_epoch(world):
    epoch = world.shard.share_group("g").epoch
    assert await world.groups.alter_offsets("g", {(T, 0): 77, (U, 0): 5}) == {(T, 0): None, (U, 0): None}
    assert world.states[("g", T, 0)] == (epoch + 1, 77)
    assert world.states[("g", U, 0)] == (epoch + 1, 5)
    assert world.states[("g", T, 1)] == (2, -1)
    assert world.topic_states.initialized == {T: frozenset({0, 1}), U: frozenset({0})}
    assert world.changed == ["g"], "whoever leads a partition must read its state again"


async def test_the_state_of_a_topic_is_forgotten_and_others_are_told(world):
    assert await world.groups.delete_offsets("g", [T, U]) == {T: None}
    assert world.states == {}
    assert world.topic_states.topic_partitions == frozenset()
    assert (world.topic_states.deleting, world.topic_states.topic_ids) == (frozenset(), frozenset()), (
        "and all of it is done"
    )
    assert world.changed == ["g"]


async def test_failed_state_deletion_stays_pending(world):
    world.broken = {(T, 1)}
    results = await world.groups.delete_offsets("g", [T])
    assert results[T].code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.topic_states.deleting == {T}
    world.broken = set()
    world.states["g", T, 0] = world.states["g", T, 1] = (2, -1)
    assert await world.groups.alter_offsets("g", {(U, 0): 5}) == {(U, 0): None}
    assert await world.groups.delete_offsets("g", [U]) == {U: None}
    assert world.topic_states.deleting == {T}, "the one that is done is not the other"


async def test_deleted_group_leaves_no_state(world):
    await world.groups.delete_group("g")
    assert world.states == {}
    assert world.shard.groups == {}
    assert world.changed == ["g"]


CHANGES = {
    "alter": lambda groups: groups.alter_offsets("g", {(T, 0): 77}),
    "delete": lambda groups: groups.delete_offsets("g", [T]),
    "delete group": lambda groups: groups.delete_group("g"),
}


@pytest.mark.parametrize("way", CHANGES)
async def test_the_state_of_a_group_with_members_stays_as_it_is(world, way):
    await world.beat(0, "t")
    before = dict(world.states)
    with pytest.raises(RequestError) as refused:
        await CHANGES[way](world.groups)
    assert refused.value.code == ErrorCode.NON_EMPTY_GROUP
    assert (world.states, world.changed) == (before, [])


# --- how large an event is ----------------------------------------------------------------------------------------


class SizeOf:
    """A shard in which the group g has so many states, and an event of its member m goes through so much."""

    def __init__(self, states: int = 0, of_member: int = 0, says_more: bool | None = None) -> None:
        self.states = states
        self.of_member = of_member
        self.says_more = says_more

    def share_state_size(self, group_id: str) -> int:
        return self.states if group_id == "g" else 0

    def event_size(self, group_id: str, member_id: str, *, says_more: bool) -> int:
        assert self.says_more in (None, says_more)
        return self.of_member if (group_id, member_id) == ("g", "m") else 0


async def test_member_behind_in_epoch_1_is_no_large_event():
    world = World()
    await world.beat(0, "t")
    world.size_of = SizeOf(says_more=False)
    count = len(world.sizes)
    with pytest.raises(RequestError) as refused:
        await world.beat(1)
    assert refused.value.code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.sizes[count:] == [False]


async def test_offsets_are_alterable_without_members(world):
    await world.groups.check_alterable("g")
    await world.groups.check_alterable("none")
    await world.beat(0, "t")
    with pytest.raises(RequestError) as refused:
        await world.groups.check_alterable("g")
    assert refused.value.code == ErrorCode.NON_EMPTY_GROUP
    world.shard.groups["c"] = ClassicGroup("c", world.shard.settings)
    with pytest.raises(RequestError) as refused:
        await world.groups.check_alterable("c")
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("more", [0, 1])
async def test_heartbeat_is_large_by_its_topics_and_its_member(more):
    world = World()
    sizes = {"event_size": lambda *_, says_more: EVENT_SIZE_MAX - 10, "share_state_size": lambda _: 0}
    world.size_of = SimpleNamespace(**sizes)
    request = ShareGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["t"])
    await world.groups.heartbeat(Heartbeat(request, "client", "/host"), 10 + more)
    assert world.sizes == [bool(more), False, False]
