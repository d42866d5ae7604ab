"""A share group (KIP-932), heartbeat by heartbeat, without a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.cluster.metadata.changes import PartitionsAdded, TopicCreated
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.coordinators.groups import share_states
from barnabas.coordinators.groups.assignors.simple import assign_shared
from barnabas.coordinators.groups.assignors.subscriber import Subscriber
from barnabas.coordinators.groups.expiry import expiring
from barnabas.coordinators.groups.group import Committer
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.groups.share import records
from barnabas.coordinators.groups.share.membership import Answer, Heartbeat, check_heartbeat
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.share_group_heartbeat import ShareGroupHeartbeatRequest as Request
from barnabas.wire.topic_partitions import TopicIdPartition
from tests.support.refusals import code_of

T, U = b"t" * 16, b"u" * 16
ONE = PartitionInfo(1, (1,), (1,))


class Coordinator:
    """A shard, its log, and a share coordinator that does at once what it is asked."""

    def __init__(self, **settings: Any) -> None:
        self.image = ClusterImage("cluster").apply(
            [TopicCreated(TopicInfo("t", T, (ONE, ONE))), TopicCreated(TopicInfo("u", U, (ONE,)))]
        )
        self.settings = GroupSettings(**{"share_assignment_interval_ms": 0, **settings})
        self.shard = GroupShard(self.settings, self)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[Any, int | None] = {}
        self.now_ms = 1_700_000_000_000
        self.begun: dict[TopicIdPartition, int] = {}

    def apply(self, out: Decision) -> None:
        self.log += out.records
        for key, value in out.records:
            self.shard.replay(key, value, loading=False)
        self.timers.update(out.timers)

    def beat(self, member: str, epoch: int, *topics: str, group: str = "g", begins: bool = True) -> Answer:
        names = list(topics) if topics else None
        request = Request(group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names)
        out = Decision()
        answer = self.shard.share_heartbeat(Heartbeat(request, "client", "/host"), self.now_ms, out)
        self.apply(out)
        if answer.beginning is not None and begins:
            self.begun.update(answer.beginning.offsets)
            out = Decision()
            share_states.begun(self.shard, group, answer.beginning.offsets, [], out)
            self.apply(out)
        return answer

    def join(self, member: str, *topics: str) -> int:
        """Join and take what there is; the member's epoch."""
        answer = self.beat(member, 0, *topics)
        return self.beat(member, answer.response.member_epoch).response.member_epoch

    def has(self, member: str) -> list[TopicIdPartition]:
        return sorted(self.shard.share_group("g").members[member].assigned)

    def reloaded(self) -> GroupShard:
        shard = GroupShard(self.settings, self)
        for key, value in self.log:
            shard.replay(key, value, loading=True)
        return shard

    def context(self) -> EventContext:
        return EventContext(self.image, self.now_ms, Decision())


def test_partitions_are_assigned_once_they_have_a_state() -> None:
    coordinator = Coordinator()
    answer = coordinator.beat("a", 0, "t")
    assert answer.response.member_epoch == 2
    assert answer.response.assignment is not None
    assert answer.response.assignment.topic_partitions == []
    assert answer.beginning is not None
    assert (answer.beginning.state_epoch, answer.beginning.offsets) == (2, {(T, 0): -1, (T, 1): -1})
    second = coordinator.beat("a", 2).response
    assert second.member_epoch == 3
    assert coordinator.has("a") == [(T, 0), (T, 1)]
    third = coordinator.beat("a", 3)
    assert (third.response.member_epoch, third.response.assignment, third.beginning) == (3, None, None)
    assert coordinator.reloaded().groups == coordinator.shard.groups


def test_members_share_partitions() -> None:
    coordinator = Coordinator()
    epoch = coordinator.join("a", "t")
    coordinator.join("b", "t")
    coordinator.beat("a", epoch)
    assert sorted(coordinator.has("a") + coordinator.has("b")) == [(T, 0), (T, 1)]
    coordinator.join("c", "t")
    everything = [
        topic_partition
        for member in "abc"
        for topic_partition in coordinator.shard.share_group("g").target[member]
    ]
    assert set(everything) == {(T, 0), (T, 1)}
    assert len(everything) == 4, "every partition has two of the three members"


def test_a_group_is_assigned_once_in_its_interval() -> None:
    coordinator = Coordinator(share_assignment_interval_ms=1_000)
    coordinator.now_ms = 1_000_000
    epoch = coordinator.join("a", "t")
    assert coordinator.has("a") == [], "the first assignment waits for nothing, and found no partitions"
    coordinator.now_ms += 999
    assert coordinator.beat("a", epoch).response.member_epoch == epoch
    coordinator.now_ms += 1
    assert coordinator.beat("a", epoch).response.member_epoch == epoch + 1
    assert coordinator.has("a") == [(T, 0), (T, 1)]
    late = coordinator.beat("b", 0, "t").response.member_epoch
    assert (late, coordinator.has("b")) == (epoch + 1, [])
    coordinator.now_ms += 1_000
    coordinator.beat("b", late)
    coordinator.beat("a", epoch + 1)
    assert sorted(coordinator.has("a") + coordinator.has("b")) == [(T, 0), (T, 1)]
    assert coordinator.reloaded().share_group("g").assigned_ms == coordinator.now_ms


def test_clock_set_back_delays_no_assignment() -> None:
    coordinator = Coordinator(share_assignment_interval_ms=1_000)
    coordinator.now_ms = 1_000_000_000
    epoch = coordinator.join("a", "t")
    coordinator.now_ms -= 3_600_000
    late = coordinator.beat("b", 0, "t").response.member_epoch
    coordinator.beat("b", late)
    coordinator.beat("a", epoch)
    assert sorted(coordinator.has("a") + coordinator.has("b")) == [(T, 0), (T, 1)]


def test_new_partitions_of_a_topic_begin_at_offset_0() -> None:
    coordinator = Coordinator()
    epoch = coordinator.join("a", "t")
    coordinator.image = coordinator.image.apply([PartitionsAdded("t", (ONE,))])
    answer = coordinator.beat("a", epoch)
    assert answer.beginning is not None
    assert answer.beginning.offsets == {(T, 2): 0}
    coordinator.beat("a", answer.response.member_epoch)
    assert coordinator.has("a") == [(T, 0), (T, 1), (T, 2)]


def test_initialization_is_retried_after_a_while() -> None:
    coordinator = Coordinator()
    assert coordinator.beat("a", 0, "u", begins=False).beginning is not None
    assert coordinator.beat("a", 2, begins=False).beginning is None
    coordinator.now_ms += 30_000
    again = coordinator.beat("a", 2)
    assert again.beginning is not None
    assert again.beginning.offsets == {(U, 0): -1}


def test_only_an_empty_group_begins_elsewhere() -> None:
    coordinator = Coordinator()
    coordinator.join("a", "t")
    context = coordinator.context()
    assert code_of(share_states.begin, coordinator.shard, "g", [(T, 0)], context) == ErrorCode.NON_EMPTY_GROUP
    coordinator.beat("a", -1)
    before = coordinator.shard.share_group("g").epoch
    assert share_states.begin(coordinator.shard, "g", [(T, 0)], context) == before + 1
    coordinator.apply(context.out)
    assert coordinator.shard.share_group("g").epoch == before + 1
    context = coordinator.context()
    assert share_states.begin(coordinator.shard, "new", [(U, 0)], context) == 1
    coordinator.apply(context.out)
    assert coordinator.shard.share_group("new").topic_states.initializing == {U: frozenset((0,))}


def test_states_are_deleted_in_two_steps() -> None:
    coordinator = Coordinator()
    coordinator.join("a", "t", "u")
    shard, out = coordinator.shard, Decision()
    assert code_of(share_states.being_deleted, shard, "g", frozenset((T,)), out) == ErrorCode.NON_EMPTY_GROUP
    assert (
        code_of(share_states.being_deleted, shard, "none", frozenset((T,)), out)
        == ErrorCode.GROUP_ID_NOT_FOUND
    )
    coordinator.beat("a", -1)
    assert share_states.being_deleted(shard, "g", frozenset((T,)), out) == {(T, 0), (T, 1)}
    coordinator.apply(out)
    assert shard.share_group("g").topic_states.deleting == {T}
    out = Decision()
    share_states.deleted(shard, "g", frozenset((T,)), out)
    coordinator.apply(out)
    topic_states = shard.share_group("g").topic_states
    assert (topic_states.deleting, topic_states.topic_partitions, topic_states.names) == (
        frozenset(),
        {(U, 0)},
        {U: "u"},
    )
    out = Decision()
    for event in share_states.forgetting_topics(shard, frozenset((U,))):
        event(shard, out)
    coordinator.apply(out)
    assert not shard.share_group("g").topic_states.topic_partitions


def test_nothing_is_left_of_a_deleted_group() -> None:
    coordinator = Coordinator()
    coordinator.join("a", "t")
    out = Decision()
    assert code_of(coordinator.shard.delete_group, "g", out) == ErrorCode.NON_EMPTY_GROUP
    coordinator.beat("a", -1)
    coordinator.shard.delete_group("g", out)
    coordinator.apply(out)
    assert coordinator.shard.groups == coordinator.reloaded().groups == {}


def test_a_share_group_is_nothing_for_others() -> None:
    coordinator = Coordinator()
    coordinator.join("a", "t")
    shard = coordinator.shard
    assert code_of(shard.check_commit, "g", Committer("a", 1), 0, Decision()) == ErrorCode.GROUP_ID_NOT_FOUND
    shard.check_fetch("g", None, -1)  # there are none, as of a group that is not there
    assert code_of(shard.consumer_group, "g") == ErrorCode.GROUP_ID_NOT_FOUND
    out = Decision()
    for event in expiring(shard, 10**15):
        event(shard, out)
    assert not out.records, "an empty share group stays"


@pytest.mark.parametrize(
    "wrong",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"member_id": "x" * 37},
        {"rack_id": " "},
        {"member_epoch": 0, "subscribed_topic_names": None},
        {"member_epoch": 0, "subscribed_topic_names": []},
        {"member_epoch": -2},
    ],
)
def test_heartbeats_must_make_sense(wrong: dict[str, Any]) -> None:
    fine = {"group_id": "g", "member_id": "a", "member_epoch": 0, "subscribed_topic_names": ["t"]}
    check_heartbeat(Request(**fine))
    assert code_of(check_heartbeat, Request(**(fine | wrong))) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("members", range(1, 9))
@pytest.mark.parametrize("partitions", range(1, 9))
def test_every_partition_is_read_and_every_member_is_busy(members: int, partitions: int) -> None:
    topic_partitions = [(T, index) for index in range(partitions)]
    target: dict[str, frozenset[TopicIdPartition]] = {}
    for count in (members, members + 2, members):
        subscribers = [
            Subscriber(str(i), frozenset((T,)), assigned=target.get(str(i), frozenset()))
            for i in range(count)
        ]
        target = assign_shared(subscribers, topic_partitions)
        assert set().union(*target.values()) == set(topic_partitions)
        sizes = [len(mine) for mine in target.values()]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1
    settled = [Subscriber(s.id, s.topic_ids, assigned=target[s.id]) for s in subscribers]
    assert assign_shared(settled, topic_partitions) == target, "nobody moves without need"


def test_a_member_whose_assignment_has_ended_is_in_no_epoch() -> None:
    coordinator = Coordinator()
    coordinator.join("a", "t")
    before = coordinator.shard.share_group("g").members["a"]
    key, _ = records.current_record("g", before)
    for shard in (coordinator.shard, coordinator.reloaded()):
        shard.replay(key, None, loading=True)
        after = shard.share_group("g").members["a"]
        assert after == replace(before, epoch=-1, previous_epoch=-1, assigned=frozenset())


def test_member_is_up_to_date_without_uninitialized_partitions() -> None:
    coordinator = Coordinator()
    epoch = coordinator.join("a", "t")
    coordinator.beat("a", epoch)
    group, topics = coordinator.shard.share_group("g"), coordinator.image.topics
    assert group.is_at_rest("a", topics)
    assert not group.is_at_rest("nobody", topics)
    assert not group.is_at_rest("a", dict(topics)), "other topics need another look"
    group.complete, complete = (), group.complete
    assert not group.is_at_rest("a", topics)
    group.complete, group.settled = complete, ()
    assert not group.is_at_rest("a", topics)
