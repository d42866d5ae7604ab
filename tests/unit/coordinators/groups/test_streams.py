"""A streams group (KIP-1071), heartbeat by heartbeat, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinators.groups.streams.assignor import Worker, assign_tasks
from barnabas.coordinators.groups.streams.tasks import ACTIVE
from barnabas.coordinators.groups.streams.topology import Shape
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records import streams_group_current_member_assignment as current
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest as Request
from tests.support.refusals import code_of
from tests.support.streams import JOINING, Member, Streams, converge, topology


def test_members_are_told_who_answers_queries() -> None:
    coordinator = Streams()
    a = Member(coordinator, "a", endpoint=("h", 1))
    b = Member(coordinator, "b", process_id="q", endpoint=("h", 2))
    converge(a, b)
    converge(a, b)
    assert a.endpoints.keys() == b.endpoints.keys() == {1, 2}
    numbers = sorted(a.endpoints[1]["in"] + a.endpoints[2]["in"])
    assert numbers == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topology": None}, ErrorCode.INVALID_REQUEST),
        ({"active_tasks": None}, ErrorCode.INVALID_REQUEST),
        ({"active_tasks": [Request.TaskIds(subtopology_id="0", partitions=[1])]}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"warmup_tasks": [Request.TaskIds(subtopology_id="0", partitions=[1])]}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"topology": topology(source_topic_regex=["a.*"])}, ErrorCode.INVALID_REQUEST),
        (
            {"topology": topology(state_changelog_topics=[Request.TopicInfo(name="x", partitions=3)])},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        ({"topology": topology(repartition_sink_topics=[])}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": topology(source_topics=[])}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (
            {"topology": topology(copartition_groups=[Request.CopartitionGroup(source_topics=[7])])},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(fields: dict[str, Any], code: int) -> None:
    coordinator = Streams()
    assert code_of(coordinator.streams_heartbeat, "a", 0, **{**JOINING, **fields}) == code
    assert coordinator.journal == []


def test_the_journal_tells_everything() -> None:
    coordinator = Streams()
    coordinator.configure("g", streams_num_standby_replicas="1")
    a, b = Member(coordinator, "a", endpoint=("h", 1)), Member(coordinator, "b", process_id="q")
    converge(a)
    b.beat()
    a.beat()
    assert coordinator.reloaded().groups == coordinator.shard.groups
    coordinator.restart()
    converge(a, b)
    assert coordinator.reloaded().groups == coordinator.shard.groups
    for member in (a, b):
        coordinator.streams_heartbeat(member.id, -1)
    coordinator.write(lambda shard, out: shard.delete_group("g", out))
    assert coordinator.reloaded().groups == coordinator.shard.groups == {}
    assert all(value is None for value in dict(coordinator.journal).values())


def test_static_member_that_is_back_has_no_previous_epoch() -> None:
    coordinator = Streams()
    a = Member(coordinator, "a", instance_id="i")
    converge(a)
    coordinator.streams_heartbeat("a", -2, instance_id="i")
    coordinator.streams_heartbeat("b", 0, instance_id="i", **JOINING)
    values = [
        current.RECORD.decode_value(value) for key, value in coordinator.journal if key[1] == 22 and value
    ]
    assert [value.previous_member_epoch for value in values][-2:] == [0, 0]


def test_larger_shares_leave_tasks_for_idle_members():
    """Six tasks of four members: two have two each, and the other two one each."""
    had = {"a": (0, 1), "b": (2, 3), "c": (4, 5), "d": ()}
    workers = [
        Worker(name, name, frozenset((ACTIVE, "0", number) for number in numbers))
        for name, numbers in had.items()
    ]
    target = assign_tasks(workers, {"0": Shape(6, False, frozenset())}, 0)
    assert sorted(len(tasks) for tasks in target.values()) == [1, 1, 2, 2]
    moved = [task for worker in workers for task in worker.assigned - target[worker.id]]
    assert len(moved) == 1
