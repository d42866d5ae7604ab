"""Groups with member epochs (consumer, share, streams): set-up of their states, and their requests.

The rule: members adopt assignments immediately, and confirm them with their next heartbeats, until no step is pending.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from compat.groups.classic import MEMBER_ID_REQUIRED, TOPIC, GroupFixture, joining, syncing
from compat.kit.scenarios import ScenarioError, ScenarioRun
from compat.kit.wire import Values

REBALANCE_MS = 5_000
CONSUMER, SHARE, STREAMS = "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat"


@dataclass
class EpochGroupFixture(GroupFixture):
    """A group of members with epochs; `generation` is anna's epoch."""

    api: str = CONSUMER
    epochs: dict[str, int] = field(default_factory=dict)
    has: dict[str, Any] = field(default_factory=dict)
    """Partitions or tasks of each member, as heartbeats report them."""


def beat(fixture: GroupFixture, who: str, epoch: int | None = None, **changes: Any) -> Values:
    """Return a heartbeat without news."""
    if epoch is None:
        epoch = (
            fixture.epochs.get(who, fixture.generation)
            if isinstance(fixture, EpochGroupFixture)
            else fixture.generation
        )
    return {"GroupId": fixture.group, "MemberId": fixture.id(who), "MemberEpoch": epoch} | changes


def entering(fixture: GroupFixture, who: str, **changes: Any) -> Values:
    """The heartbeat of a consumer that joins."""
    member_id = fixture.members.setdefault(who, f"id-of-{who}")
    return {
        "GroupId": fixture.group, "MemberId": member_id, "MemberEpoch": 0, "RebalanceTimeoutMs": REBALANCE_MS,
        "SubscribedTopicNames": [TOPIC], "TopicPartitions": [],
    } | changes  # fmt: skip


def entering_share(fixture: GroupFixture, who: str, **changes: Any) -> Values:
    """The heartbeat of a member of a share group that joins."""
    member_id = fixture.members.setdefault(who, f"id-of-{who}")
    return {
        "GroupId": fixture.group,
        "MemberId": member_id,
        "MemberEpoch": 0,
        "SubscribedTopicNames": [TOPIC],
    } | changes


def topology(epoch: int = 1, *parts: Values) -> Values:
    """Return the topology of a streams application; by default it reads one topic."""
    subtopology = {"SubtopologyId": "0", "SourceTopics": [TOPIC]}
    return {"Epoch": epoch, "Subtopologies": list(parts) or [subtopology]}


def entering_streams(fixture: GroupFixture, who: str, **changes: Any) -> Values:
    """The heartbeat of a member of a streams group that joins."""
    member_id = fixture.members.setdefault(who, f"id-of-{who}")
    return {
        "GroupId": fixture.group, "MemberId": member_id, "MemberEpoch": 0, "RebalanceTimeoutMs": REBALANCE_MS,
        "Topology": topology(), "ActiveTasks": [], "StandbyTasks": [], "WarmupTasks": [], "ProcessId": f"process-{who}",
        "ClientTags": [], "TaskOffsets": None, "TaskEndOffsets": None,
    } | changes  # fmt: skip


ENTERING = {CONSUMER: entering, SHARE: entering_share, STREAMS: entering_streams}
QUIET: dict[str, Values] = {
    CONSUMER: {"RebalanceTimeoutMs": -1, "SubscribedTopicNames": None, "TopicPartitions": None},
    SHARE: {"SubscribedTopicNames": None},
    STREAMS: {
        "RebalanceTimeoutMs": -1, "Topology": None, "ActiveTasks": None, "StandbyTasks": None, "WarmupTasks": None,
        "ProcessId": None, "ClientTags": None, "TaskOffsets": None, "TaskEndOffsets": None,
    },
}  # fmt: skip


def quiet(fixture: EpochGroupFixture, who: str, **changes: Any) -> Values:
    """A heartbeat between changes, as clients send them."""
    return beat(fixture, who) | QUIET[fixture.api] | changes


def take(fixture: EpochGroupFixture, who: str, answer: Values) -> None:
    """Handle a heartbeat's response."""
    if answer.get("ErrorCode", 0):
        raise ScenarioError(f"{who} is answered {answer}")
    fixture.epochs[who] = answer["MemberEpoch"]
    fixture.members[who] = answer["MemberId"] or fixture.members[who]
    if fixture.api == STREAMS:
        if answer["ActiveTasks"] is not None:
            fixture.has[who] = {key: answer[key] for key in ("ActiveTasks", "StandbyTasks", "WarmupTasks")}
    elif answer["Assignment"] is not None:
        fixture.has[who] = {"TopicPartitions": answer["Assignment"]["TopicPartitions"]}
    fixture.generation = fixture.epochs.get("anna", 0)


def enter(run: ScenarioRun, fixture: EpochGroupFixture, who: str, **changes: Any) -> None:
    """Join."""
    take(
        fixture,
        who,
        run.ask(f"set-up: {who} joins", fixture.api, who, **ENTERING[fixture.api](fixture, who, **changes)),
    )


def report(
    run: ScenarioRun, fixture: EpochGroupFixture, who: str, label: str = "set-up", **changes: Any
) -> None:
    """Report a member's partitions, and adopt the assignment of the response."""
    has = fixture.has.get(who, {}) if fixture.api != SHARE else {}
    take(
        fixture,
        who,
        run.ask(f"{label}: {who} reports", fixture.api, who, **quiet(fixture, who, **has, **changes)),
    )


def settle(run: ScenarioRun, fixture: EpochGroupFixture, *who: str, rounds: int = 3, **changes: Any) -> None:
    """Let all members take their steps."""
    for _ in range(rounds):
        for name in who:
            report(run, fixture, name, **changes)


# --- states -----------------------------------------------------------------------------------------------------


def _begun(run: ScenarioRun, api: str = CONSUMER) -> EpochGroupFixture:
    run.topic(TOPIC)
    return EpochGroupFixture(run.group, api=api)


def consumer_alone(run: ScenarioRun) -> EpochGroupFixture:
    """One consumer with all partitions."""
    fixture = _begun(run)
    enter(run, fixture, "anna")
    report(run, fixture, "anna")
    return fixture


def consumer_stable(run: ScenarioRun) -> EpochGroupFixture:
    """Two consumers with their target assignment."""
    fixture = consumer_alone(run)
    enter(run, fixture, "bert")
    settle(run, fixture, "anna", "bert")
    return fixture


def consumer_moving(run: ScenarioRun) -> EpochGroupFixture:
    """A second consumer waits for partitions that the first must revoke."""
    fixture = consumer_alone(run)
    enter(run, fixture, "bert")
    return fixture


def consumer_full(run: ScenarioRun) -> EpochGroupFixture:
    """As many as may be in: three."""
    fixture = consumer_stable(run)
    enter(run, fixture, "carl")
    settle(run, fixture, "anna", "bert", "carl")
    return fixture


def consumer_empty(run: ScenarioRun) -> EpochGroupFixture:
    """There was a consumer, which has left."""
    fixture = consumer_alone(run)
    run.ask("set-up: anna leaves", fixture.api, "anna", **quiet(fixture, "anna") | {"MemberEpoch": -1})
    return fixture


def consumer_static(run: ScenarioRun) -> EpochGroupFixture:
    """Two static consumers."""
    fixture = _begun(run)
    for who in ("anna", "bert"):
        enter(run, fixture, who, InstanceId=f"i-{who}")
    for _ in range(3):
        for who in ("anna", "bert"):
            report(run, fixture, who, InstanceId=f"i-{who}")
    return fixture


def consumer_static_away(run: ScenarioRun) -> EpochGroupFixture:
    """Two static consumers, one of which has left temporarily."""
    fixture = consumer_static(run)
    away = quiet(fixture, "anna", InstanceId="i-anna") | {"MemberEpoch": -2}
    run.ask("set-up: anna leaves for a while", fixture.api, "anna", **away)
    return fixture


def consumer_with_classic(run: ScenarioRun) -> EpochGroupFixture:
    """Anna uses the new protocol, bert the classic one."""
    fixture = consumer_alone(run)
    first = run.ask("set-up: bert asks", "JoinGroup", "bert", version=9, **joining(fixture.group))
    if first["ErrorCode"] != MEMBER_ID_REQUIRED:
        raise ScenarioError(f"bert is answered {first['ErrorCode']}")
    fixture.members["bert"] = first["MemberId"]
    for number in range(3):
        asked = joining(fixture.group, first["MemberId"], RebalanceTimeoutMs=REBALANCE_MS)
        answer = run.ask(f"set-up: bert joins {number}", "JoinGroup", "bert", version=9, **asked)
        fixture.epochs["bert"] = answer["GenerationId"]
        asked = syncing(fixture, "bert", GenerationId=answer["GenerationId"])
        run.ask(f"set-up: bert syncs {number}", "SyncGroup", "bert", version=5, **asked)
        report(run, fixture, "anna")
    return fixture


def share_alone(run: ScenarioRun) -> EpochGroupFixture:
    """One member of a share group."""
    fixture = _begun(run, SHARE)
    enter(run, fixture, "anna")
    run.until(
        "set-up: anna is assigned", SHARE, lambda answer: _has_all(answer),
        **beat(fixture, "anna", SubscribedTopicNames=[TOPIC]),
    )  # fmt: skip
    return share_epochs(run, fixture, "anna")


def _has_all(answer: Values) -> bool:
    topics = (answer["Assignment"] or {}).get("TopicPartitions") or ()
    return sum(len(topic["Partitions"]) for topic in topics) == 3


def share_epochs(run: ScenarioRun, fixture: EpochGroupFixture, *who: str) -> EpochGroupFixture:
    """Take epochs from a description: the number of steps so far is the brokers' own affair."""
    group = run.look("ShareGroupDescribe", 1, GroupIds=[fixture.group])["Groups"][0]
    for member in group["Members"]:
        for name in who:
            if member["MemberId"] == fixture.members[name]:
                fixture.epochs[name] = member["MemberEpoch"]
    fixture.generation = fixture.epochs.get("anna", 0)
    return fixture


def share_stable(run: ScenarioRun) -> EpochGroupFixture:
    """Two members of a share group."""
    fixture = share_alone(run)
    enter(run, fixture, "bert")
    report(run, fixture, "anna")
    return fixture


def share_empty(run: ScenarioRun) -> EpochGroupFixture:
    """There was a member, which has left."""
    fixture = share_alone(run)
    run.ask("set-up: anna leaves", SHARE, "anna", **quiet(fixture, "anna") | {"MemberEpoch": -1})
    return fixture


def streams_alone(run: ScenarioRun) -> EpochGroupFixture:
    """One member of a streams application."""
    fixture = _begun(run, STREAMS)
    enter(run, fixture, "anna")
    report(run, fixture, "anna")
    return fixture


def streams_stable(run: ScenarioRun) -> EpochGroupFixture:
    """Two members of a streams application."""
    fixture = streams_alone(run)
    enter(run, fixture, "bert")
    settle(run, fixture, "anna", "bert")
    return fixture


def streams_empty(run: ScenarioRun) -> EpochGroupFixture:
    """There was a member, which has left."""
    fixture = streams_alone(run)
    run.ask("set-up: anna leaves", STREAMS, "anna", **quiet(fixture, "anna") | {"MemberEpoch": -1})
    return fixture


EPOCH_STATES: dict[str, Callable[[ScenarioRun], EpochGroupFixture]] = {
    state.__name__.replace("_", " "): state
    for state in (
        consumer_alone, consumer_stable, consumer_moving, consumer_full, consumer_empty, consumer_static,
        consumer_static_away, consumer_with_classic, share_alone, share_stable, share_empty,
        streams_alone, streams_stable, streams_empty,
    )
}  # fmt: skip


def end(run: ScenarioRun, fixture: EpochGroupFixture) -> None:
    """All members leave."""
    for who, member_id in fixture.members.items():
        gone = {"GroupId": fixture.group, "MemberId": member_id, "MemberEpoch": -1} | QUIET[fixture.api]
        run.ask(f"{who} leaves", fixture.api, who, **gone)
    run.ask("at last listed", "DescribeGroups", version=5, Groups=[fixture.group])
