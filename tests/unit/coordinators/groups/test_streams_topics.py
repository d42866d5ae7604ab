"""The topics of a streams group (KIP-1071): which must be there, which are made, and how large."""

from __future__ import annotations

from barnabas.coordinators.groups.streams.topology import Status
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest as Request
from tests.support.refusals import code_of
from tests.support.streams import ALL, Member, Streams, converge, topology


def test_internal_topics_are_made_and_then_the_tasks_are_given() -> None:
    coordinator = Streams()
    a = Member(coordinator, "a")
    a.beat()
    assert a.status == [Status.MISSING_INTERNAL_TOPICS]
    assert a.told == set()
    assert coordinator.streams().state_name == "NotReady"
    assert {"app-words-repartition", "app-counts-changelog"} <= coordinator.image.topics.keys()
    assert len(coordinator.image.topics["app-counts-changelog"].partitions) == 4
    a.beat()
    a.settle()
    assert a.status == []
    assert a.active() == ALL
    assert coordinator.streams().state_name == "Stable"


def test_missing_source_topics_are_told_and_looked_for_again() -> None:
    coordinator = Streams(partitions=0)
    a = Member(coordinator, "a")
    a.beat()
    assert a.status == [Status.MISSING_SOURCE_TOPICS]
    coordinator.create("in", 2)
    converge(a)
    assert a.status == []
    assert len(a.active()) == 4


def test_copartitioned_repartition_topics_get_the_larger_size() -> None:
    coordinator = Streams()
    coordinator.create("large", 6)
    names = ("app-left-repartition", "app-right-repartition")
    parts = [
        Request.Subtopology(subtopology_id="0", source_topics=["in"], repartition_sink_topics=[names[0]]),
        Request.Subtopology(subtopology_id="1", source_topics=["large"], repartition_sink_topics=[names[1]]),
        Request.Subtopology(
            subtopology_id="2",
            repartition_source_topics=[Request.TopicInfo(name=name) for name in names],
            copartition_groups=[Request.CopartitionGroup(repartition_source_topics=[0, 1])],
        ),
    ]
    a = Member(coordinator, "a", topology=Request.Topology(subtopologies=parts))
    converge(a)
    assert [len(coordinator.image.topics[name].partitions) for name in names] == [6, 6]
    assert len(a.active()) == 4 + 6 + 6


def test_repartition_topics_that_feed_each_other_have_no_size() -> None:
    coordinator = Streams()
    circle = [
        Request.Subtopology(
            subtopology_id=str(number),
            repartition_source_topics=[Request.TopicInfo(name=f"app-{number}-repartition")],
            repartition_sink_topics=[f"app-{1 - number}-repartition"],
        )
        for number in (0, 1)
    ]
    a = Member(coordinator, "a", topology=Request.Topology(subtopologies=circle))
    assert code_of(a.beat) == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert coordinator.journal == []


def test_source_topics_that_grow_need_internal_topics_that_do() -> None:
    coordinator = Streams()
    a = Member(coordinator, "a")
    converge(a)
    coordinator.grow("in", 1)
    a.beat()
    assert a.status == [Status.INCORRECTLY_PARTITIONED_TOPICS]
    assert coordinator.streams().state_name == "NotReady"


def test_copartitioned_source_topics_need_equal_partition_counts() -> None:
    coordinator = Streams()
    coordinator.create("other", 3)
    joined = topology(
        source_topics=["in", "other"], copartition_groups=[Request.CopartitionGroup(source_topics=[0, 1])]
    )
    a = Member(coordinator, "a", topology=joined)
    a.beat()
    assert a.status == [Status.INCORRECTLY_PARTITIONED_TOPICS]
    coordinator.grow("other", 1)
    converge(a)
    assert a.status == []


def test_internal_topic_of_another_size_is_a_status() -> None:
    coordinator = Streams()
    coordinator.create("app-counts-changelog", 1)
    a = Member(coordinator, "a")
    a.beat()
    assert a.status == [Status.INCORRECTLY_PARTITIONED_TOPICS]
