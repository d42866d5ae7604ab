"""Streams groups, rule by rule: what makes a new epoch, how large topics are, and what a request may say."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.metadata.changes import TopicCreated
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.coordinators.groups.streams import answers, membership
from barnabas.coordinators.groups.streams.assignor import Worker, assign_tasks
from barnabas.coordinators.groups.streams.member import StreamsMember
from barnabas.coordinators.groups.streams.requests import check_heartbeat, topology_value
from barnabas.coordinators.groups.streams.tasks import ACTIVE, STANDBY, WARMUP
from barnabas.coordinators.groups.streams.topology import Configured, Shape, Status, configure
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest as Request
from tests.support.consumers import Client, with_topic
from tests.support.refusals import code_of
from tests.support.streams import JOINING, Member, Streams, converge, topology

from .test_share import Coordinator as ShareCoordinator

ONE = PartitionInfo(1, (1,), (1,))


# --- epochs -------------------------------------------------------------------------------------------------------


def ready(**fields: Any) -> tuple[Streams, Member]:
    coordinator = Streams()
    member = Member(coordinator, "a", **fields)
    converge(member)
    assert coordinator.streams().state_name == "Stable"
    return coordinator, member


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({}, 0),
        ({"rack_id": "r"}, 1),
        ({"process_id": "q"}, 1),
        ({"rebalance_timeout_ms": 77}, 1),
        ({"client_tags": [Request.KeyValue(key="k", value="v")]}, 1),
        ({"user_endpoint": Request.Endpoint(host="h", port=1)}, 1),
    ],
)
@pytest.mark.parametrize("is_static", [False, True])
def test_a_member_that_says_something_new_begins_an_epoch(fields, more, is_static):
    """Of a static one only what an assignor looks at counts."""
    coordinator, a = ready(**({"instance_id": "i"} if is_static else {}))
    before = coordinator.streams().epoch
    a.beat(**fields)
    counts = more and not (is_static and {"rebalance_timeout_ms", "user_endpoint"} & fields.keys())
    assert coordinator.streams().epoch - before == counts
    written = coordinator.reloaded().streams_group("g").members["a"]
    assert written == coordinator.streams().members["a"]
    assert (written.rack_id, written.process_id) == (fields.get("rack_id"), fields.get("process_id", "p"))
    a.beat()
    assert coordinator.streams().epoch - before == counts, "said once"


def test_each_topic_that_changes_begins_one_epoch():
    coordinator, a = ready()
    before = coordinator.streams().epoch
    coordinator.create("unrelated", 1)
    a.beat()
    assert coordinator.streams().epoch == before
    coordinator.grow("in", 1)
    a.beat()
    assert coordinator.streams().epoch == before + 1


def test_who_leaves_begins_one_epoch_in_a_group_of_every_kind():
    coordinator, _ = ready()
    before = coordinator.streams().epoch
    coordinator.streams_heartbeat("a", -1)
    assert coordinator.streams().epoch == coordinator.reloaded().streams_group("g").epoch == before + 1
    consumers = with_topic(2)
    a, b = Client(consumers, "a"), Client(consumers, "b")
    a.join()
    b.join()
    epoch = consumers.group().epoch
    a.leave()
    assert consumers.group().epoch == epoch + 1
    shares = ShareCoordinator()
    shares.join("a", "t")
    shares.join("b", "t")
    epoch = shares.shard.share_group("g").epoch
    shares.beat("a", -1)
    assert shares.shard.share_group("g").epoch == epoch + 1


@pytest.mark.parametrize("way", ["leaves", "overdue"])
def test_a_member_that_is_gone_is_waited_for_no_more_and_the_last_one_takes_the_shutdown_along(way):
    coordinator, a = ready()
    b = Member(coordinator, "b", process_id="q")
    converge(a, b)
    a.beat(shutdown_application=True)
    assert coordinator.streams().shutdown_by == "a"
    for name, shutdown_by in (("a", "a"), ("b", None)):
        out = Decision()
        context = EventContext(coordinator.image, coordinator.now_ms, out)
        if way == "leaves":
            request = Request(group_id="g", member_id=name, member_epoch=-1)
            membership.leave(coordinator.streams(), request, context)
        else:
            membership.overdue(coordinator.streams(), "session", name, context)
        assert out.timers == {("session", "g", name): None, ("revocation", "g", name): None}
        coordinator._settle(out)
        assert coordinator.streams().shutdown_by == shutdown_by
    assert coordinator.timers == {}


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
def test_there_are_as_many_tasks_as_the_largest_topic_has_partitions_and_stores_are_as_large(small, large):
    found = fitted(part("0", "s", "l", keeps=["log"]), part("1", "s"), s=small, l=large)
    most = max(small, large)
    assert found.shapes["0"] == Shape(most, True, frozenset({"s", "l"}))
    assert found.shapes["1"] == Shape(small, False, frozenset({"s"}))
    assert [(topic.name, topic.partitions) for topic in found.missing] == [("log", most)]
    assert not found.is_ready


@pytest.mark.parametrize(("said", "expected"), [(0, 4), (7, 7), (1, 1)])
def test_a_repartition_topic_is_as_large_as_it_is_said_to_be_or_as_what_its_writer_reads(said, expected):
    found = fitted(part("0", "in", writes=["r"]), part("1", reads={"r": said}, keeps=["log"]), **{"in": 4})
    assert found.shapes["1"].tasks == expected
    assert {topic.name: topic.partitions for topic in found.missing} == {"r": expected, "log": expected}


def test_sizes_are_passed_on_from_writer_to_writer():
    found = fitted(
        part("2", reads={"q": 0}), part("1", reads={"r": 0}, writes=["q"]), part("0", "in", writes=["r"]),
        **{"in": 4},
    )  # fmt: skip
    assert {name: shape.tasks for name, shape in found.shapes.items()} == {"0": 4, "1": 4, "2": 4}


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ({"in": 4}, Status.MISSING_INTERNAL_TOPICS),
        ({"in": 4, "r": 4}, Status.MISSING_INTERNAL_TOPICS),
        ({"in": 4, "r": 4, "log": 4}, None),
        ({"in": 4, "r": 3, "log": 4}, Status.INCORRECTLY_PARTITIONED_TOPICS),
        ({"in": 4, "r": 4, "log": 3}, Status.INCORRECTLY_PARTITIONED_TOPICS),
        ({"r": 4, "log": 4}, Status.MISSING_SOURCE_TOPICS),
    ],
)
def test_a_topology_is_ready_when_all_topics_are_there_and_fit(sizes, problem):
    found = fitted(part("0", "in", writes=["r"]), part("1", reads={"r": 0}, keeps=["log"]), **sizes)
    assert (found.problem[0] if found.problem else None) is problem
    assert found.is_ready is (problem is None)
    if problem is None:
        assert dict(found.sizes) == sizes


@pytest.mark.parametrize(
    ("left", "right", "joined", "is_good"),
    [(0, 0, 6, True), (3, 0, 3, True), (0, 5, 5, True), (3, 3, 3, True), (3, 5, 0, False)],
)
def test_of_topics_that_are_joined_those_without_a_size_follow_the_others(left, right, joined, is_good):
    group = Request.CopartitionGroup(repartition_source_topics=[0, 1])
    found = fitted(
        part("0", "a", writes=["l"]), part("1", "b", writes=["r"]),
        part("2", reads={"l": left, "r": right}, copartition_groups=[group]), a=4, b=6,
    )  # fmt: skip
    if is_good:
        assert {topic.name: topic.partitions for topic in found.missing} == {"l": joined, "r": joined}
    else:
        assert found.problem == (
            Status.INCORRECTLY_PARTITIONED_TOPICS, "Topics are not co-partitioned: l=3, r=5",
        )  # fmt: skip


# --- requests -----------------------------------------------------------------------------------------------------


def request(epoch: int = 0, **fields: Any) -> Request:
    joining = JOINING if epoch == 0 else {}
    return Request(**{"group_id": "g", "member_id": "a", "member_epoch": epoch, **joining, **fields})


TASKS = [Request.TaskIds(subtopology_id="0", partitions=[1])]
TAGS = [Request.KeyValue(key="k", value=value) for value in "ab"]


@pytest.mark.parametrize(
    "good",
    [
        request(), request(1), request(-1), request(-2, instance_id="i"),
        request(3, active_tasks=TASKS, standby_tasks=[], warmup_tasks=[]), request(client_tags=TAGS[:1]),
    ],
)  # fmt: skip
def test_what_makes_sense_is_let_through(good):
    check_heartbeat(good)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        *((request(**{name: " "}), ErrorCode.INVALID_REQUEST) for name in ("member_id", "group_id", "rack_id")),
        (request(-3), ErrorCode.INVALID_REQUEST),
        (request(-2), ErrorCode.INVALID_REQUEST),
        (request(1, topology=topology()), ErrorCode.INVALID_REQUEST),
        (request(-1, topology=topology()), ErrorCode.INVALID_REQUEST),
        (request(standby_tasks=TASKS), ErrorCode.INVALID_REQUEST),
        (request(warmup_tasks=None), ErrorCode.INVALID_REQUEST),
        (request(client_tags=TAGS), ErrorCode.INVALID_REQUEST),
        (request(3, active_tasks=TASKS), ErrorCode.INVALID_REQUEST),
        (request(3, active_tasks=[], standby_tasks=[]), ErrorCode.INVALID_REQUEST),
        (request(3, warmup_tasks=TASKS, active_tasks=[], standby_tasks=[]), ErrorCode.INVALID_REQUEST),
        (request(topology=topology(subtopology_id="1")), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (request(topology=topology(source_topics=["bad name"])), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (request(topology=topology(repartition_sink_topics=["bad name"])), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        *(
            (request(topology=topology(copartition_groups=[Request.CopartitionGroup(**group)])),
             ErrorCode.INVALID_REQUEST)
            for group in ({"source_topics": [-1]}, {"source_topics": [1]}, {"repartition_source_topics": [0]})
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(bad, code):
    assert code_of(check_heartbeat, bad) == code


# --- answers ------------------------------------------------------------------------------------------------------


def test_a_member_answers_queries_for_what_it_runs_and_for_its_copies_apart():
    configured = Configured(
        {"0": Shape(4, True, frozenset({"in", "small"})), "1": Shape(2, True, frozenset({"r"}))},
        {"in": 4, "small": 2, "r": 2},
    )
    member = StreamsMember(
        "a", endpoint=("h", 9),
        assigned={(ACTIVE, "0", 3): 1, (ACTIVE, "0", 1): 1, (STANDBY, "1", 0): 1, (WARMUP, "1", 1): 1,
                  (ACTIVE, "gone", 0): 1},
    )  # fmt: skip
    told = answers.endpoint_of(member, configured)
    assert (told.user_endpoint.host, told.user_endpoint.port) == ("h", 9)
    assert [(one.topic, one.partitions) for one in told.active_partitions] == [("in", [1, 3]), ("small", [1])]
    assert [(one.topic, one.partitions) for one in told.standby_partitions] == [("r", [0, 1])]


@pytest.mark.parametrize(
    ("topology_epoch", "delayed_by", "problem", "shutdown_by", "codes"),
    [
        (1, "", None, None, []),
        (0, "", None, None, [Status.STALE_TOPOLOGY]),
        (1, "interval", None, None, [Status.ASSIGNMENT_DELAYED]),
        (1, "", (Status.MISSING_SOURCE_TOPICS, "none"), None, [Status.MISSING_SOURCE_TOPICS]),
        (1, "", None, "b", [Status.SHUTDOWN_APPLICATION]),
    ],
)
def test_each_thing_that_is_unusual_is_told_by_itself(
    topology_epoch, delayed_by, problem, shutdown_by, codes
):
    coordinator = Streams()
    group = coordinator.shard.new_streams_group("g")
    group.shutdown_by = shutdown_by
    told = answers.status(
        group, StreamsMember("a", topology_epoch=topology_epoch), topology_value(topology(1)),
        Configured(problem=problem), delayed_by,
    )  # fmt: skip
    assert [one.status_code for one in told] == codes


# --- the assignor -------------------------------------------------------------------------------------------------


def test_not_everybody_keeps_the_larger_share_where_another_has_nothing():
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
