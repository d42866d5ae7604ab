"""Heartbeats of members with epochs: every state of every kind of group, every field right and wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from compat.groups import classic
from compat.groups.classic import TOPIC, GroupFixture
from compat.groups.epochs import (
    CONSUMER,
    EPOCH_STATES,
    QUIET,
    SHARE,
    STREAMS,
    EpochGroupFixture,
    beat,
    entering,
    entering_share,
    entering_streams,
    topology,
)
from compat.groups.offsets import end
from compat.kit.scenarios import Scenario, ScenarioRun
from compat.kit.wire import Values

BACKS = (0, 1)
OTHER = "groups-of-others"
UNKNOWN_ID = bytes(range(16))
Asked = dict[str, Callable[[GroupFixture], Values]]


def _quiet(api: str, fixture: GroupFixture, who: str, epoch: int | None = None, **changes: Any) -> Values:
    return beat(fixture, who, epoch) | QUIET[api] | changes


def _has(fixture: GroupFixture, who: str) -> Values:
    return dict(fixture.has.get(who, {})) if isinstance(fixture, EpochGroupFixture) else {}


def _some(fixture: GroupFixture, who: str, keep: int) -> Values:
    """Return the assignment of a member, with only the first `keep` partitions of each topic."""
    topics = _has(fixture, who).get("TopicPartitions") or []
    return {"TopicPartitions": [topic | {"Partitions": topic["Partitions"][:keep]} for topic in topics]}


def _epoch(fixture: GroupFixture, who: str) -> int:
    return fixture.epochs.get(who, 0) if isinstance(fixture, EpochGroupFixture) else fixture.generation


def of_any(api: str, enter: Callable[..., Values]) -> Asked:
    """Return requests that all protocols share."""
    return {
        "carl joins": lambda s: enter(s, "carl"),
        "carl joins, other topic": lambda s: (
            enter(s, "carl", SubscribedTopicNames=[OTHER])
            if api != STREAMS
            else enter(s, "carl", Topology=topology(1, {"SubtopologyId": "0", "SourceTopics": [OTHER]}))
        ),
        "carl joins a long id": lambda s: enter(s, "carl", MemberId="c" * 37),
        "carl joins with a rack": lambda s: enter(s, "carl", RackId="r1"),
        "carl joins with an empty rack": lambda s: enter(s, "carl", RackId=""),
        "carl joins with a blank rack": lambda s: enter(s, "carl", RackId="  "),
        "nobody joins": lambda s: enter(s, "carl", MemberId=""),
        "a blank id joins": lambda s: enter(s, "carl", MemberId=" "),
        "carl joins no group": lambda s: enter(s, "carl", GroupId=""),
        "carl joins a blank group": lambda s: enter(s, "carl", GroupId=" "),
        "anna joins again": lambda s: enter(s, "anna"),
        "anna": lambda s: _quiet(api, s, "anna"),
        "bert": lambda s: _quiet(api, s, "bert"),
        "anna, what she has": lambda s: _quiet(api, s, "anna", **(_has(s, "anna") if api != SHARE else {})),
        "anna, an epoch ahead": lambda s: _quiet(api, s, "anna", _epoch(s, "anna") + 1),
        "anna, an epoch behind": lambda s: _quiet(api, s, "anna", _epoch(s, "anna") - 1),
        "anna, an epoch behind, what she has": lambda s: _quiet(
            api, s, "anna", _epoch(s, "anna") - 1, **(_has(s, "anna") if api != SHARE else {})
        ),
        "anna, two epochs behind": lambda s: _quiet(api, s, "anna", max(_epoch(s, "anna") - 2, 1)),
        "unknown": lambda s: _quiet(api, s, "nobody", 1),
        "unknown leaves": lambda s: _quiet(api, s, "nobody", -1),
        "nobody leaves": lambda s: _quiet(api, s, "anna", -1, MemberId=""),
        "anna leaves": lambda s: _quiet(api, s, "anna", -1),
        "bert leaves": lambda s: _quiet(api, s, "bert", -1),
        "anna leaves no group": lambda s: _quiet(api, s, "anna", -1, GroupId=""),
        "anna leaves for a while": lambda s: _quiet(api, s, "anna", -2),
        "anna, epoch -3": lambda s: _quiet(api, s, "anna", -3),
    }


def of_consumers() -> Asked:
    """Return requests of consumers: those of any protocol, and instance ids, patterns, assignors, owned partitions."""
    slots = [{"TopicId": UNKNOWN_ID, "Partitions": [0]}]
    return of_any(CONSUMER, entering) | {
        "carl joins, unknown topic": lambda s: entering(s, "carl", SubscribedTopicNames=["nowhere"]),
        "carl joins, no topics": lambda s: entering(s, "carl", SubscribedTopicNames=[]),
        "carl joins, null topics": lambda s: entering(s, "carl", SubscribedTopicNames=None),
        "carl joins, bad topic": lambda s: entering(s, "carl", SubscribedTopicNames=["a b"]),
        "carl joins, empty topic": lambda s: entering(s, "carl", SubscribedTopicNames=[""]),
        "carl joins, topics twice": lambda s: entering(s, "carl", SubscribedTopicNames=[TOPIC, TOPIC]),
        "carl joins, null partitions": lambda s: entering(s, "carl", TopicPartitions=None),
        "carl joins, with partitions": lambda s: entering(s, "carl", TopicPartitions=slots),
        "carl joins, no timeout": lambda s: entering(s, "carl", RebalanceTimeoutMs=-1),
        "carl joins, timeout 0": lambda s: entering(s, "carl", RebalanceTimeoutMs=0),
        "carl joins, timeout -2": lambda s: entering(s, "carl", RebalanceTimeoutMs=-2),
        "carl joins, assignor range": lambda s: entering(s, "carl", ServerAssignor="range"),
        "carl joins, assignor mine": lambda s: entering(s, "carl", ServerAssignor="mine"),
        "carl joins, assignor empty": lambda s: entering(s, "carl", ServerAssignor=""),
        "carl joins, pattern": lambda s: entering(
            s, "carl", SubscribedTopicNames=None, SubscribedTopicRegex="groups-of-(mem|no)bers"
        ),
        "carl joins, pattern and topics": lambda s: entering(s, "carl", SubscribedTopicRegex="groups-of-.*bers"),
        "carl joins, pattern of nothing": lambda s: entering(
            s, "carl", SubscribedTopicNames=[], SubscribedTopicRegex=""
        ),
        "carl joins, bad pattern": lambda s: entering(
            s, "carl", SubscribedTopicNames=None, SubscribedTopicRegex="(x"
        ),
        "carl joins, other bad pattern": lambda s: entering(
            s, "carl", SubscribedTopicNames=None, SubscribedTopicRegex="[[:bad:]"
        ),
        "carl joins by his instance": lambda s: entering(s, "carl", InstanceId="i-carl"),
        "carl joins by an empty instance": lambda s: entering(s, "carl", InstanceId=""),
        "carl joins by anna's instance": lambda s: entering(s, "carl", InstanceId="i-anna"),
        "carl joins by bert's instance": lambda s: entering(s, "carl", InstanceId="i-bert"),
        "carl joins by anna's instance, other topic": lambda s: entering(
            s, "carl", InstanceId="i-anna", SubscribedTopicNames=[OTHER]
        ),
        "anna joins again by her instance": lambda s: entering(s, "anna", InstanceId="i-anna"),
        "anna joins again by bert's instance": lambda s: entering(s, "anna", InstanceId="i-bert"),
        "anna joins again, other topic": lambda s: entering(s, "anna", SubscribedTopicNames=[OTHER]),
        "anna by her instance": lambda s: _quiet(CONSUMER, s, "anna", InstanceId="i-anna"),
        "anna by bert's instance": lambda s: _quiet(CONSUMER, s, "anna", InstanceId="i-bert"),
        "anna by a new instance": lambda s: _quiet(CONSUMER, s, "anna", InstanceId="i-carl"),
        "anna by an empty instance": lambda s: _quiet(CONSUMER, s, "anna", InstanceId=""),
        "anna, ahead, by her instance": lambda s: _quiet(
            CONSUMER, s, "anna", _epoch(s, "anna") + 1, InstanceId="i-anna"
        ),
        "anna leaves by her instance": lambda s: _quiet(CONSUMER, s, "anna", -1, InstanceId="i-anna"),
        "anna leaves by bert's instance": lambda s: _quiet(CONSUMER, s, "anna", -1, InstanceId="i-bert"),
        "anna leaves by a new instance": lambda s: _quiet(CONSUMER, s, "anna", -1, InstanceId="i-carl"),
        "anna leaves for a while by her instance": lambda s: _quiet(CONSUMER, s, "anna", -2, InstanceId="i-anna"),
        "anna leaves for a while by bert's instance": lambda s: _quiet(
            CONSUMER, s, "anna", -2, InstanceId="i-bert"
        ),
        "anna leaves for a while by a new instance": lambda s: _quiet(
            CONSUMER, s, "anna", -2, InstanceId="i-carl"
        ),
        "anna, other topics": lambda s: _quiet(CONSUMER, s, "anna", SubscribedTopicNames=[OTHER]),
        "anna, no topics": lambda s: _quiet(CONSUMER, s, "anna", SubscribedTopicNames=[]),
        "anna, a pattern": lambda s: _quiet(CONSUMER, s, "anna", SubscribedTopicRegex=".*-of-others"),
        "anna, a bad pattern": lambda s: _quiet(CONSUMER, s, "anna", SubscribedTopicRegex="(x"),
        "anna, an assignor": lambda s: _quiet(CONSUMER, s, "anna", ServerAssignor="range"),
        "anna, an unknown assignor": lambda s: _quiet(CONSUMER, s, "anna", ServerAssignor="mine"),
        "anna, a rack": lambda s: _quiet(CONSUMER, s, "anna", RackId="r2"),
        "anna, an empty rack": lambda s: _quiet(CONSUMER, s, "anna", RackId=""),
        "anna, other timeout": lambda s: _quiet(CONSUMER, s, "anna", RebalanceTimeoutMs=90_000),
        "anna, has one": lambda s: _quiet(CONSUMER, s, "anna", **_some(s, "anna", 1)),
        "anna, has nothing": lambda s: _quiet(CONSUMER, s, "anna", TopicPartitions=[]),
        "anna, has what she has not": lambda s: _quiet(CONSUMER, s, "anna", TopicPartitions=slots),
        "anna, says everything": lambda s: _quiet(
            CONSUMER, s, "anna", RebalanceTimeoutMs=5_000, SubscribedTopicNames=[TOPIC],
            **({"TopicPartitions": []} | _has(s, "anna")),
        ),
        "anna, behind, has what she has not": lambda s: _quiet(
            CONSUMER, s, "anna", _epoch(s, "anna") - 1, TopicPartitions=slots
        ),
    }  # fmt: skip


def of_sharers() -> Asked:
    """Requests of members of share groups."""
    return of_any(SHARE, entering_share) | {
        "carl joins, unknown topic": lambda s: entering_share(s, "carl", SubscribedTopicNames=["nowhere"]),
        "carl joins, no topics": lambda s: entering_share(s, "carl", SubscribedTopicNames=[]),
        "carl joins, null topics": lambda s: entering_share(s, "carl", SubscribedTopicNames=None),
        "carl joins, bad topic": lambda s: entering_share(s, "carl", SubscribedTopicNames=["a b"]),
        "anna, no topics": lambda s: _quiet(SHARE, s, "anna", SubscribedTopicNames=[]),
        "anna, other topics": lambda s: _quiet(SHARE, s, "anna", SubscribedTopicNames=["nowhere"]),
        "anna, her topics": lambda s: _quiet(SHARE, s, "anna", SubscribedTopicNames=[TOPIC]),
        "anna, a rack": lambda s: _quiet(SHARE, s, "anna", RackId="r2"),
    }


def of_streamers() -> Asked:
    """Requests of members of streams groups."""
    part = {"SubtopologyId": "0", "SourceTopics": [TOPIC]}
    tasks = [{"SubtopologyId": "0", "Partitions": [0]}]
    unknown_tasks = [{"SubtopologyId": "9", "Partitions": [0]}]
    many_tasks = [{"SubtopologyId": "0", "Partitions": [99]}]
    offset = {"SubtopologyId": "0", "Partition": 0, "Offset": 5}
    changelog = {"Name": "x-changelog", "Partitions": 0, "ReplicationFactor": 1, "TopicConfigs": []}

    def with_topology(*parts: Values, epoch: int = 1) -> Callable[[GroupFixture], Values]:
        return lambda s: entering_streams(s, "carl", Topology=topology(epoch, *parts))

    def staying(**changes: Any) -> Callable[[GroupFixture], Values]:
        return lambda s: _quiet(STREAMS, s, "anna", **changes)

    return of_any(STREAMS, entering_streams) | {
        "carl joins, no topology": lambda s: entering_streams(s, "carl", Topology=None),
        "carl joins, empty topology": lambda s: entering_streams(
            s, "carl", Topology={"Epoch": 1, "Subtopologies": []}
        ),
        "carl joins, older topology": with_topology(part, epoch=0),
        "carl joins, newer topology": with_topology(part, epoch=2),
        "carl joins, unknown source": with_topology(part | {"SourceTopics": ["nowhere"]}),
        "carl joins, no source": with_topology(part | {"SourceTopics": []}),
        "carl joins, bad source": with_topology(part | {"SourceTopics": ["a b"]}),
        "carl joins, a pattern": with_topology(part | {"SourceTopicRegex": ["x.*"]}),
        "carl joins, changelog": with_topology(part | {"StateChangelogTopics": [changelog]}),
        "carl joins, changelog with partitions": with_topology(
            part | {"StateChangelogTopics": [changelog | {"Partitions": 3}]}
        ),
        "carl joins, changelog with a bad name": with_topology(
            part | {"StateChangelogTopics": [changelog | {"Name": "a b"}]}
        ),
        "carl joins, copartition": with_topology(
            part | {"SourceTopics": [TOPIC, OTHER], "CopartitionGroups": [{"SourceTopics": [0, 1]}]}
        ),
        "carl joins, bad copartition": with_topology(part | {"CopartitionGroups": [{"SourceTopics": [7]}]}),
        "carl joins, sink without source": with_topology(part | {"RepartitionSinkTopics": ["x-repartition"]}),
        "carl joins, repartition": with_topology(
            part | {"RepartitionSinkTopics": ["x-repartition"]},
            {"SubtopologyId": "1", "RepartitionSourceTopics": [changelog | {"Name": "x-repartition"}]},
        ),
        "carl joins, a part twice": with_topology(part, part),
        "carl joins, no timeout": lambda s: entering_streams(s, "carl", RebalanceTimeoutMs=-1),
        "carl joins, timeout 0": lambda s: entering_streams(s, "carl", RebalanceTimeoutMs=0),
        "carl joins, with tasks": lambda s: entering_streams(s, "carl", ActiveTasks=tasks),
        "carl joins, null tasks": lambda s: entering_streams(
            s, "carl", ActiveTasks=None, StandbyTasks=None, WarmupTasks=None
        ),
        "carl joins, half null": lambda s: entering_streams(s, "carl", StandbyTasks=None),
        "carl joins, no process": lambda s: entering_streams(s, "carl", ProcessId=None),
        "carl joins, empty process": lambda s: entering_streams(s, "carl", ProcessId=""),
        "carl joins by an instance": lambda s: entering_streams(s, "carl", InstanceId="i-carl"),
        "carl joins by an empty instance": lambda s: entering_streams(s, "carl", InstanceId=""),
        "carl joins with an endpoint": lambda s: entering_streams(
            s, "carl", UserEndpoint={"Host": "h", "Port": 7}
        ),
        "carl joins with tags": lambda s: entering_streams(
            s, "carl", ClientTags=[{"Key": "zone", "Value": "a"}]
        ),
        "carl joins with a tag twice": lambda s: entering_streams(
            s, "carl", ClientTags=[{"Key": "zone", "Value": "a"}, {"Key": "zone", "Value": "b"}]
        ),
        "carl joins to shut down": lambda s: entering_streams(s, "carl", ShutdownApplication=True),
        "anna shuts down": staying(ShutdownApplication=True),
        "anna, a topology": staying(Topology=topology()),
        "anna, half of her tasks": staying(ActiveTasks=tasks),
        "anna, only one task": staying(ActiveTasks=tasks, StandbyTasks=[], WarmupTasks=[]),
        "anna, unknown tasks": staying(ActiveTasks=unknown_tasks, StandbyTasks=[], WarmupTasks=[]),
        "anna, too high a task": staying(ActiveTasks=many_tasks, StandbyTasks=[], WarmupTasks=[]),
        "anna, no tasks": staying(ActiveTasks=[], StandbyTasks=[], WarmupTasks=[]),
        "anna, an endpoint": staying(UserEndpoint={"Host": "h", "Port": 7}),
        "anna, endpoint epoch 9": staying(EndpointInformationEpoch=9),
        "anna, other process": staying(ProcessId="p2"),
        "anna, other rack": staying(RackId="r2"),
        "anna, an instance": staying(InstanceId="i-anna"),
        "anna, task offsets": staying(TaskOffsets=[offset]),
        "anna, task offsets twice": staying(TaskOffsets=[offset, offset | {"Offset": 6}]),
        "anna, task offsets and ends": staying(
            TaskOffsets=[], TaskEndOffsets=[offset, offset | {"Partition": 1}]
        ),
        "carl joins with task offsets": lambda s: entering_streams(s, "carl", TaskOffsets=[offset]),
        "anna, warm-up tasks": staying(ActiveTasks=[], StandbyTasks=[], WarmupTasks=tasks),
    }


ASKED = {CONSUMER: of_consumers(), SHARE: of_sharers(), STREAMS: of_streamers()}
DESCRIBES = {CONSUMER: "ConsumerGroupDescribe", SHARE: "ShareGroupDescribe", STREAMS: "StreamsGroupDescribe"}
STRANGERS = ("absent", "only offsets", "empty", "pending", "stable", "preparing", "of connect", "deleted")
"""States of classic groups in which the newer protocols are tried, too."""


def describe(run: ScenarioRun, label: str, fixture: GroupFixture) -> None:
    """Ask every API that describes the group."""
    run.ask(f"{label} described as classic", "DescribeGroups", Groups=[fixture.group])
    for api in DESCRIBES.values():
        if api not in run.versions:
            continue
        run.ask(f"{label}: {api}", api, GroupIds=[fixture.group, f"no-{fixture.group}"])
    listed = [entry for entry in run.look("ListGroups", 5)["Groups"] if entry["GroupId"] == fixture.group]
    run.note(f"{label} listed", listed)


def cell(
    state: Callable[[ScenarioRun], GroupFixture],
    api: str,
    values: Callable[[GroupFixture], Values],
    run: ScenarioRun,
) -> None:
    """Bring a group into a state, send a heartbeat, and describe the group and its members."""
    run.topic(OTHER)
    run.topic(TOPIC)
    fixture = state(run)
    asked = values(fixture)
    answer = run.ask("asked", api, "carl", **asked)
    describe(run, "then", fixture)
    if not answer.get("ErrorCode") and asked["MemberEpoch"] >= 0:
        epoch = answer["MemberEpoch"]
        run.ask(
            "and again",
            api,
            "carl",
            **(asked | QUIET[api] | {"MemberEpoch": epoch, "MemberId": answer["MemberId"]}),
        )
    for who in ("anna", "bert"):
        if who in fixture.members and isinstance(fixture, EpochGroupFixture):
            has = _has(fixture, who) if fixture.api != SHARE else {}
            run.ask(f"{who} after that", fixture.api, who, **_quiet(fixture.api, fixture, who, **has))
    describe(run, "at last", fixture)
    end(run, fixture)


def classic_cell(
    state: Callable[[ScenarioRun], GroupFixture],
    api: str,
    values: Callable[[GroupFixture], Values],
    run: ScenarioRun,
) -> None:
    """A request of the classic protocol to a group of members with epochs."""
    fixture = state(run)
    asked = run.begin("asked", api, "carl", **values(fixture))
    if not run.waits(asked):
        run.end(asked)
    describe(run, "then", fixture)
    for who in ("anna", "bert"):
        has = _has(fixture, who) if isinstance(fixture, EpochGroupFixture) and fixture.api != SHARE else {}
        if who in fixture.members and isinstance(fixture, EpochGroupFixture):
            run.ask(f"{who} after that", fixture.api, who, **_quiet(fixture.api, fixture, who, **has))
    end(run, fixture)
    if asked.is_open:
        run.end(asked)


def scenarios() -> Iterator[Scenario]:
    """Yield heartbeats of each protocol in each state, and classic requests in the states of the other protocols."""
    for name, state in EPOCH_STATES.items():
        for api, asked in ASKED.items():
            own = name.split()[0].capitalize() in api
            for label, values in asked.items():
                if own or label in STRANGE_REQUESTS:
                    yield Scenario(
                        f"{name}: {api} {label}", partial(cell, state, api, values), BACKS if own else (0,)
                    )
        for label, api, request in classic.requests():
            if not name.startswith("consumer") and label not in STRANGE_CLASSIC:
                continue
            yield Scenario(f"{name}: {api} {label}", partial(classic_cell, state, api, request), (0, 9))
    for name in STRANGERS:
        for api, asked in ASKED.items():
            for label, values in asked.items():
                if label in STRANGE_REQUESTS or name == "absent":
                    scenario = partial(cell, classic.STATES[name], api, values)
                    yield Scenario(f"{name}: {api} {label}", scenario, BACKS)


STRANGE_CLASSIC = ("new", "new static", "unknown", "anna", "no group")
STRANGE_REQUESTS = (
    "carl joins", "carl joins, other topic", "nobody joins", "anna joins again", "anna", "anna, an epoch ahead", "unknown",
    "unknown leaves", "anna leaves", "anna leaves for a while", "carl joins by anna's instance",
)  # fmt: skip
"""Requests that are tried where the group is of another kind."""
