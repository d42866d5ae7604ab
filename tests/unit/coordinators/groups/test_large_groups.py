"""Events in groups of thousands of members: each takes a few lines of Python for a member at most, however many there are.

Counted as executed lines, for a small and for a larger group: what an event does for each member shows as the difference.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from itertools import chain
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from barnabas.cluster.metadata.changes import TopicCreated
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.coordinators.groups import share_states
from barnabas.coordinators.groups.consumer.membership import Heartbeat
from barnabas.coordinators.groups.consumer.target import TargetNeeded as ConsumerTarget
from barnabas.coordinators.groups.generation import RecordNeeded
from barnabas.coordinators.groups.member import MANY_MEMBERS, Joining, State
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.groups.share.membership import Answer
from barnabas.coordinators.groups.share.membership import Heartbeat as ShareHeartbeat
from barnabas.coordinators.groups.share.membership import TargetNeeded as ShareTarget
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.join_group import JoinGroupRequest
from barnabas.wire.generated.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.wire.generated.sync_group import SyncGroupRequest
from barnabas.wire.topic_partitions import TopicIdPartitions

SMALL, LARGE = 2 * MANY_MEMBERS, 4 * MANY_MEMBERS
LINES_PER_MEMBER_MAX = 5
PARTITIONS = 2_000
TOPIC = TopicInfo("t", bytes(range(16)), (PartitionInfo(1, (1,), (1,)),) * PARTITIONS)
IMAGE = ClusterImage("cluster").apply([TopicCreated(TOPIC)])
SETTINGS = GroupSettings(
    initial_rebalance_delay_ms=3_000, share_size_max=LARGE * 2, share_assignment_interval_ms=0
)


class Group:
    """A shard with one group `g`; replays what is decided and counts the lines of the last event."""

    def __init__(self, members: int) -> None:
        self.shard = GroupShard(SETTINGS, SimpleNamespace(image=IMAGE))
        self.count = members
        self.lines = 0
        self.now_ms = 0
        self.effects: list[Any] = []

    def do(self, event: Callable[[GroupShard, Decision], Any]) -> Decision:
        out = Decision()
        event(self.shard, out)
        for key, value in out.records:
            self.shard.replay(key, value, loading=False)
        self.effects += out.effects
        return out

    def counted(self, event: Callable[[GroupShard, Decision], Any]) -> Decision:
        """Do the same, and count its lines."""
        self.lines = 0

        def at_line(_frame: FrameType, _event: str, _argument: Any) -> Any:
            self.lines += 1
            return at_line

        before = sys.gettrace()
        sys.settrace(at_line)
        try:
            return self.do(event)
        finally:
            sys.settrace(before)

    # --- the classic protocol -------------------------------------------------------------------------------

    def join(self, waiter: int, member_id: str = "", instance_id: str | None = None) -> Decision:
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=30_000, member_id=member_id,
            group_instance_id=instance_id, protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
        )  # fmt: skip
        joining = Joining(
            request, "c", "/h", waiter, f"m-{waiter}", known_id_required=False, can_skip_assignment=True
        )
        return self.do(lambda shard, out: shard.join(joining, self.now_ms, out))

    def gather(self) -> None:
        for waiter in range(self.count):
            self.join(waiter)

    def expire(self, timer: str) -> Decision:
        self.now_ms += 100_000
        return self.counted(lambda shard, out: shard.expire((timer, "g"), self.now_ms, out))

    def begin_generation(self) -> Decision:
        out = self.expire("join")
        while self.shard.group("g").state is State.PREPARING_REBALANCE:
            out = self.expire("join")
        return out

    def sync(self, waiter: int, member_id: str, assignments: dict[str, bytes] | None = None) -> Decision:
        entries = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=assigned)
            for member_id, assigned in (assignments or {}).items()
        ]
        generation = self.shard.group("g").generation
        request = SyncGroupRequest(
            group_id="g", generation_id=generation, member_id=member_id, assignments=entries
        )
        event = lambda shard, out: shard.sync(request, waiter, self.now_ms, out)  # noqa: E731
        return self.counted(event)

    def assign(self) -> Decision:
        group = self.shard.group("g")
        for waiter, member_id in enumerate(group.members):
            if member_id != group.leader:
                self.sync(10_000 + waiter, member_id)
        assert group.leader is not None
        return self.sync(20_000, group.leader, dict.fromkeys(group.members, b"a"))

    # --- members with epochs --------------------------------------------------------------------------------

    def consumer_joins(self, member_id: str, *, is_counted: bool = True) -> Decision:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"], topic_partitions=[],
        )  # fmt: skip
        beat = Heartbeat(request, "c", "/h", "new")
        do = self.counted if is_counted else self.do
        return do(lambda shard, out: shard.consumer_heartbeat(beat, self.now_ms, out))

    def sharer_beats(self, member_id: str, epoch: int = 0, *, is_counted: bool = True) -> Decision:
        request = ShareGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=epoch,
            subscribed_topic_names=["t"] if epoch == 0 else None,
        )  # fmt: skip
        beat = ShareHeartbeat(request, "c", "/h")
        answers: list[Answer] = []
        do = self.counted if is_counted else self.do
        out = do(lambda shard, out: answers.append(shard.share_heartbeat(beat, self.now_ms, out)))
        beginning = answers[0].beginning
        if beginning is not None:
            self.do(lambda shard, out: share_states.begun(shard, "g", list(beginning.offsets), [], out))
        return out

    def compute(self) -> None:
        """Compute what is asked for, and write it in parts, then as a whole."""
        while self.effects:
            needed = self.effects.pop(0)
            assert isinstance(needed, ConsumerTarget | ShareTarget)
            self.write(needed, needed.compute())

    def write(self, needed: ConsumerTarget | ShareTarget, target: Mapping[str, TopicIdPartitions]) -> None:
        for _ in range(2):
            for part in target.items():
                self.do(lambda shard, out, part=part: shard.write_part_of_target(needed, [part], 1, out))
        self.counted(lambda shard, out: shard.target_computed(needed, target, self.now_ms, out))


def classic_join_completes(group: Group) -> None:
    group.gather()
    group.begin_generation()


def leader_assigns(group: Group) -> None:
    classic_join_completes(group)
    group.assign()


def generation_is_kept(group: Group) -> None:
    leader_assigns(group)
    (needed,) = group.effects
    assert isinstance(needed, RecordNeeded)
    group.counted(lambda shard, out: shard.generation_kept(needed, 0, group.now_ms, out))


def consumer_joins(group: Group) -> None:
    for number in range(group.count):
        group.consumer_joins(f"m-{number}", is_counted=False)
        group.effects.clear()
        group.shard.consumer_group("g").assigning_epoch = 0
    group.now_ms += 100_000
    group.consumer_joins("late")
    assert group.effects


def consumer_target_is_known(group: Group) -> None:
    consumer_joins(group)
    group.compute()
    consumer_group = group.shard.consumer_group("g")
    assert consumer_group.assignment_epoch == consumer_group.epoch


def sharer_joins(group: Group) -> None:
    for number in range(group.count):
        group.sharer_beats(f"m-{number}", is_counted=False)
        group.effects.clear()
        group.shard.share_group("g").assigning_epoch = 0
    group.sharer_beats("late")
    assert group.effects


def share_target_is_known(group: Group) -> None:
    sharer_joins(group)
    group.compute()
    share_group = group.shard.share_group("g")
    assert share_group.assignment_epoch == share_group.epoch


def sharer_beats(group: Group) -> None:
    share_target_is_known(group)
    share_group = group.shard.share_group("g")
    for _ in range(2):
        group.sharer_beats("m-1", share_group.members["m-1"].epoch)
    assert share_group.members["m-1"].epoch == share_group.epoch


@pytest.mark.parametrize(
    "event",
    [
        classic_join_completes,
        leader_assigns,
        generation_is_kept,
        consumer_joins,
        consumer_target_is_known,
        sharer_joins,
        share_target_is_known,
        sharer_beats,
    ],
)
def test_an_event_does_little_for_each_member(event: Callable[[Group], None]) -> None:
    small, large = Group(SMALL), Group(LARGE)
    event(small)
    event(large)
    assert (large.lines - small.lines) / (LARGE - SMALL) <= LINES_PER_MEMBER_MAX


def test_late_members_are_removed_and_static_ones_stay() -> None:
    group = Group(SMALL)
    group.gather()
    group.join(SMALL, instance_id="s")
    group.begin_generation()
    group.assign()
    (needed,) = group.effects
    group.do(lambda shard, out: shard.generation_kept(needed, 0, group.now_ms, out))
    classic_group = group.shard.group("g")
    leader = classic_group.leader
    out = group.join(30_000, "m-1")
    assert out.replies, "nothing has changed for it"
    group.do(lambda shard, out: classic_group.begin_rebalance(group.now_ms, out))
    group.join(30_001, "m-1")
    out = group.expire("join")
    assert set(classic_group.members) == {"m-1", f"m-{SMALL}"}
    assert (classic_group.leader, classic_group.state) == ("m-1", State.COMPLETING_REBALANCE)
    cancelled = {key[2] for key, due_ms in chain.from_iterable(out.many_timers) if due_ms is None}
    assert cancelled == {f"m-{number}" for number in range(SMALL)} - {"m-1"}
    assert leader in cancelled
