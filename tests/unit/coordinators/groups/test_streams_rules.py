"""Streams groups, rule by rule: what makes a new epoch, how large topics are, and what a request may say."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.metadata.changes import TopicCreated
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.coordinators.groups.streams.assignor import Worker, assign_tasks
from barnabas.coordinators.groups.streams.requests import topology_value
from barnabas.coordinators.groups.streams.tasks import ACTIVE
from barnabas.coordinators.groups.streams.topology import Configured, Shape, configure
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest as Request

ONE = PartitionInfo(1, (1,), (1,))


# --- topics -------------------------------------------------------------------------------------------------------


def fitted(*parts: Request.Subtopology, **sizes: int) -> Configured:
    changes = [
        TopicCreated(TopicInfo(name.replace("_", "-"), bytes([number]) * 16, (ONE,) * size))
        for number, (name, size) in enumerate(sizes.items(), 1)
    ]
    return configure(
        topology_value(Request.Topology(subtopologies=list(parts))), ClusterImage("c").apply(changes)
    )


def part(id: str, *sources: str, **fields: Any) -> Request.Subtopology:
    """A subtopology; `reads` are repartition topics, with their sizes or 0, `keeps` its changelogs."""
    reads = [Request.TopicInfo(name=name, partitions=size) for name, size in fields.pop("reads", {}).items()]
    keeps = [Request.TopicInfo(name=name) for name in fields.pop("keeps", ())]
    writes = list(fields.pop("writes", ()))
    return Request.Subtopology(
        subtopology_id=id, source_topics=list(sources), repartition_sink_topics=writes,
        repartition_source_topics=reads, state_changelog_topics=keeps, **fields,
    )  # fmt: skip


@pytest.mark.parametrize(("small", "large"), [(2, 5), (5, 2), (3, 3)])
def test_task_count_is_that_of_the_largest_source_topic(small, large):
    configured = fitted(part("0", "s", "l", keeps=["log"]), part("1", "s"), s=small, l=large)
    most = max(small, large)
    assert configured.shapes["0"] == Shape(most, True, frozenset({"s", "l"}))
    assert configured.shapes["1"] == Shape(small, False, frozenset({"s"}))
    assert [(topic.name, topic.partitions) for topic in configured.missing] == [("log", most)]
    assert not configured.is_ready


def test_sizes_are_passed_on_from_writer_to_writer():
    configured = fitted(
        part("2", reads={"q": 0}), part("1", reads={"r": 0}, writes=["q"]), part("0", "in", writes=["r"]),
        **{"in": 4},
    )  # fmt: skip
    assert {name: shape.tasks for name, shape in configured.shapes.items()} == {"0": 4, "1": 4, "2": 4}


# --- the assignor -------------------------------------------------------------------------------------------------


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
