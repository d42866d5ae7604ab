"""A coordinator of streams groups with its surroundings, and members that behave like the Java client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.groups.streams.group import StreamsGroup
from barnabas.coordinators.groups.streams.membership import Answer, Heartbeat
from barnabas.coordinators.groups.streams.requests import check_heartbeat
from barnabas.coordinators.groups.streams.tasks import ACTIVE, ROLES, Task, of_role, read_tasks
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest as Request
from tests.support.consumers import Coordinator


def topology(epoch: int = 0, **fields: Any) -> Request.Topology:
    """Return the topology of a word count: `in` is read, repartitioned by word, and counted in a store."""
    first = Request.Subtopology(
        subtopology_id="0", source_topics=["in"], repartition_sink_topics=["app-words-repartition"]
    )
    second = Request.Subtopology(
        subtopology_id="1",
        repartition_source_topics=[Request.TopicInfo(name="app-words-repartition")],
        state_changelog_topics=[
            Request.TopicInfo(
                name="app-counts-changelog",
                topic_configs=[Request.KeyValue(key="cleanup.policy", value="compact")],
            )
        ],
    )
    for name, value in fields.items():
        setattr(first, name, value)
    return Request.Topology(epoch=epoch, subtopologies=[second, first])


ALL = [(name, number) for name in ("0", "1") for number in range(4)]
"""The tasks of that topology, for a topic of four partitions."""
JOINING: dict[str, Any] = {
    "rebalance_timeout_ms": 1_000,
    "topology": topology(),
    "active_tasks": [],
    "standby_tasks": [],
    "warmup_tasks": [],
}
"""Fields of a member that joins, besides its ids."""


class Streams(Coordinator):
    """A coordinator that creates the required internal topics, as the broker does.

    Its delays and assignment intervals are 0, unless set otherwise.
    """

    def __init__(self, partitions: int = 4, **settings: Any) -> None:
        at_once = {"streams_initial_rebalance_delay_ms": 0, "streams_assignment_interval_ms": 0}
        super().__init__(GroupSettings(**{**at_once, **settings}))
        if partitions:
            self.create("in", partitions)

    def streams_heartbeat(self, member_id: str, epoch: int, version: int = 1, **fields: Any) -> Answer:
        request = Request(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        check_heartbeat(request)
        beat = Heartbeat(request, "client", "/host", version)
        answer: Answer = self.write(lambda shard, out: shard.streams_heartbeat(beat, self.now_ms, out))
        for _ in answer.add_endpoints():
            pass
        for topic in answer.to_create:
            self.create(topic.name, topic.partitions)
        return answer

    def streams(self) -> StreamsGroup:
        return self.shard.streams_group("g")


@dataclass
class Member:
    """A member that behaves like the Java client."""

    coordinator: Streams
    id: str
    process_id: str = "p"
    instance_id: str | None = None
    endpoint: tuple[str, int] | None = None
    topology: Request.Topology = field(default_factory=topology)
    rebalance_timeout_ms: int = 10_000
    epoch: int = 0
    endpoints_epoch: int = 0
    tasks: set[Task] = field(default_factory=set)
    told: set[Task] = field(default_factory=set)
    status: list[int] = field(default_factory=list)
    endpoints: dict[int, dict[str, list[int]]] = field(default_factory=dict)

    def beat(self, **fields: Any) -> None:
        if self.epoch == 0:
            self.tasks = set()
            fields = {
                "rebalance_timeout_ms": self.rebalance_timeout_ms,
                "topology": self.topology,
                "process_id": self.process_id,
                **fields,
            }
            if self.endpoint is not None:
                fields["user_endpoint"] = Request.Endpoint(host=self.endpoint[0], port=self.endpoint[1])
        if self.instance_id is not None:
            fields["instance_id"] = self.instance_id
        for role in ROLES:
            fields[f"{role}_tasks"] = [
                Request.TaskIds(subtopology_id=name, partitions=numbers)
                for name, numbers in of_role(role, self.tasks)
            ]
        answer = self.coordinator.streams_heartbeat(
            self.id, self.epoch, endpoint_information_epoch=self.endpoints_epoch, **fields
        )
        response = answer.response
        self.epoch, self.endpoints_epoch = response.member_epoch, response.endpoint_information_epoch
        self.status = [status.status_code for status in response.status or ()]
        if response.active_tasks is not None:
            assert response.standby_tasks is not None
            assert response.warmup_tasks is not None
            self.told = set(read_tasks(response.active_tasks, response.standby_tasks, response.warmup_tasks))
        if response.partitions_by_user_endpoint is not None:
            self.endpoints = {
                entry.user_endpoint.port: {part.topic: part.partitions for part in entry.active_partitions}
                for entry in response.partitions_by_user_endpoint
            }

    def settle(self) -> None:
        self.tasks = set(self.told)

    def active(self) -> list[tuple[str, int]]:
        return sorted(task[1:] for task in self.tasks if task[0] == ACTIVE)


def converge(*members: Member, pause_ms: int = 0) -> None:
    """Let all members send heartbeats and adopt their assignments until nothing changes; with a pause after each round."""
    for _ in range(30):
        before = [(member.epoch, set(member.tasks)) for member in members]
        for member in members:
            member.beat()
            member.settle()
        if before == [(member.epoch, member.tasks) for member in members]:
            return
        if pause_ms:
            members[0].coordinator.advance(pause_ms)
    raise AssertionError("no agreement")
