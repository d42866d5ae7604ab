"""Groups whose members have epochs (consumer, share, streams): how they are brought into their states, and their requests.

The rule: a member takes what it is given at once, and says so with its next heartbeat, until nobody has a step to take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from compat.groups.classic import MEMBER_ID_REQUIRED, TOPIC, Stage, joining, syncing
from compat.kit.play import Play, SceneError
from compat.kit.wire import Values

REBALANCE_MS = 5_000
CONSUMER, SHARE, STREAMS = "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat"


@dataclass
class EpochStage(Stage):
    """A group of members with epochs; `generation` is anna's epoch."""

    api: str = CONSUMER
    epochs: dict[str, int] = field(default_factory=dict)
    has: dict[str, Any] = field(default_factory=dict)
    """What each member has, as heartbeats report it."""


def beat(stage: Stage, who: str, epoch: int | None = None, **changes: Any) -> Values:
    """A heartbeat that says nothing new."""
    if epoch is None:
        epoch = stage.epochs.get(who, stage.generation) if isinstance(stage, EpochStage) else stage.generation
    return {"GroupId": stage.group, "MemberId": stage.id(who), "MemberEpoch": epoch} | changes


def entering(stage: Stage, who: str, **changes: Any) -> Values:
    """The heartbeat of a consumer that joins."""
    member_id = stage.members.setdefault(who, f"id-of-{who}")
    return {
        "GroupId": stage.group, "MemberId": member_id, "MemberEpoch": 0, "RebalanceTimeoutMs": REBALANCE_MS,
        "SubscribedTopicNames": [TOPIC], "TopicPartitions": [],
    } | changes  # fmt: skip


def entering_share(stage: Stage, who: str, **changes: Any) -> Values:
    """The heartbeat of a member of a share group that joins."""
    member_id = stage.members.setdefault(who, f"id-of-{who}")
    return {
        "GroupId": stage.group,
        "MemberId": member_id,
        "MemberEpoch": 0,
        "SubscribedTopicNames": [TOPIC],
    } | changes


def topology(epoch: int = 1, *parts: Values) -> Values:
    """What a streams application is made of; by default it reads one topic."""
    one = {"SubtopologyId": "0", "SourceTopics": [TOPIC]}
    return {"Epoch": epoch, "Subtopologies": list(parts) or [one]}


def entering_streams(stage: Stage, who: str, **changes: Any) -> Values:
    """The heartbeat of a member of a streams group that joins."""
    member_id = stage.members.setdefault(who, f"id-of-{who}")
    return {
        "GroupId": stage.group, "MemberId": member_id, "MemberEpoch": 0, "RebalanceTimeoutMs": REBALANCE_MS,
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


def quiet(stage: EpochStage, who: str, **changes: Any) -> Values:
    """A heartbeat between changes, as clients send them."""
    return beat(stage, who) | QUIET[stage.api] | changes


def take(stage: EpochStage, who: str, answer: Values) -> None:
    """Take up what a heartbeat answers."""
    if answer.get("ErrorCode", 0):
        raise SceneError(f"{who} is answered {answer}")
    stage.epochs[who] = answer["MemberEpoch"]
    stage.members[who] = answer["MemberId"] or stage.members[who]
    if stage.api == STREAMS:
        if answer["ActiveTasks"] is not None:
            stage.has[who] = {key: answer[key] for key in ("ActiveTasks", "StandbyTasks", "WarmupTasks")}
    elif answer["Assignment"] is not None:
        stage.has[who] = {"TopicPartitions": answer["Assignment"]["TopicPartitions"]}
    stage.generation = stage.epochs.get("anna", 0)


def enter(play: Play, stage: EpochStage, who: str, **changes: Any) -> None:
    """Join."""
    take(
        stage,
        who,
        play.ask(f"set-up: {who} joins", stage.api, who, **ENTERING[stage.api](stage, who, **changes)),
    )


def report(play: Play, stage: EpochStage, who: str, label: str = "set-up", **changes: Any) -> None:
    """Say what one has, and take what is given."""
    has = stage.has.get(who, {}) if stage.api != SHARE else {}
    take(
        stage, who, play.ask(f"{label}: {who} reports", stage.api, who, **quiet(stage, who, **has, **changes))
    )


def settle(play: Play, stage: EpochStage, *who: str, rounds: int = 3, **changes: Any) -> None:
    """Let everybody take their steps."""
    for _ in range(rounds):
        for name in who:
            report(play, stage, name, **changes)


# --- states -----------------------------------------------------------------------------------------------------


def _begun(play: Play, api: str = CONSUMER) -> EpochStage:
    play.topic(TOPIC)
    return EpochStage(play.group, api=api)


def consumer_alone(play: Play) -> EpochStage:
    """One consumer with all partitions."""
    stage = _begun(play)
    enter(play, stage, "anna")
    report(play, stage, "anna")
    return stage


def consumer_stable(play: Play) -> EpochStage:
    """Two consumers who have what they shall have."""
    stage = consumer_alone(play)
    enter(play, stage, "bert")
    settle(play, stage, "anna", "bert")
    return stage


def consumer_moving(play: Play) -> EpochStage:
    """A second consumer waits for what the first must give up."""
    stage = consumer_alone(play)
    enter(play, stage, "bert")
    return stage


def consumer_full(play: Play) -> EpochStage:
    """As many as may be in: three."""
    stage = consumer_stable(play)
    enter(play, stage, "carl")
    settle(play, stage, "anna", "bert", "carl")
    return stage


def consumer_empty(play: Play) -> EpochStage:
    """There was a consumer, who has left."""
    stage = consumer_alone(play)
    play.ask("set-up: anna leaves", stage.api, "anna", **quiet(stage, "anna") | {"MemberEpoch": -1})
    return stage


def consumer_static(play: Play) -> EpochStage:
    """Two static consumers."""
    stage = _begun(play)
    for who in ("anna", "bert"):
        enter(play, stage, who, InstanceId=f"i-{who}")
    for _ in range(3):
        for who in ("anna", "bert"):
            report(play, stage, who, InstanceId=f"i-{who}")
    return stage


def consumer_static_away(play: Play) -> EpochStage:
    """Two static consumers, one of whom has left for a while."""
    stage = consumer_static(play)
    away = quiet(stage, "anna", InstanceId="i-anna") | {"MemberEpoch": -2}
    play.ask("set-up: anna leaves for a while", stage.api, "anna", **away)
    return stage


def consumer_with_classic(play: Play) -> EpochStage:
    """Anna uses the new protocol, bert the classic one."""
    stage = consumer_alone(play)
    first = play.ask("set-up: bert asks", "JoinGroup", "bert", version=9, **joining(stage.group))
    if first["ErrorCode"] != MEMBER_ID_REQUIRED:
        raise SceneError(f"bert is answered {first['ErrorCode']}")
    stage.members["bert"] = first["MemberId"]
    for number in range(3):
        asked = joining(stage.group, first["MemberId"], RebalanceTimeoutMs=REBALANCE_MS)
        answer = play.ask(f"set-up: bert joins {number}", "JoinGroup", "bert", version=9, **asked)
        stage.epochs["bert"] = answer["GenerationId"]
        asked = syncing(stage, "bert", GenerationId=answer["GenerationId"])
        play.ask(f"set-up: bert syncs {number}", "SyncGroup", "bert", version=5, **asked)
        report(play, stage, "anna")
    return stage


def share_alone(play: Play) -> EpochStage:
    """One member of a share group."""
    stage = _begun(play, SHARE)
    enter(play, stage, "anna")
    play.until(
        "set-up: anna is assigned", SHARE, lambda answer: _has_all(answer),
        **beat(stage, "anna", SubscribedTopicNames=[TOPIC]),
    )  # fmt: skip
    return share_epochs(play, stage, "anna")


def _has_all(answer: Values) -> bool:
    topics = (answer["Assignment"] or {}).get("TopicPartitions") or ()
    return sum(len(topic["Partitions"]) for topic in topics) == 3


def share_epochs(play: Play, stage: EpochStage, *who: str) -> EpochStage:
    """How many steps it took is the brokers' own affair: from here on it counts by who is described."""
    group = play.look("ShareGroupDescribe", 1, GroupIds=[stage.group])["Groups"][0]
    for member in group["Members"]:
        for name in who:
            if member["MemberId"] == stage.members[name]:
                stage.epochs[name] = member["MemberEpoch"]
    stage.generation = stage.epochs.get("anna", 0)
    return stage


def share_stable(play: Play) -> EpochStage:
    """Two members of a share group."""
    stage = share_alone(play)
    enter(play, stage, "bert")
    report(play, stage, "anna")
    return stage


def share_empty(play: Play) -> EpochStage:
    """There was a member, who has left."""
    stage = share_alone(play)
    play.ask("set-up: anna leaves", SHARE, "anna", **quiet(stage, "anna") | {"MemberEpoch": -1})
    return stage


def streams_alone(play: Play) -> EpochStage:
    """One member of a streams application."""
    stage = _begun(play, STREAMS)
    enter(play, stage, "anna")
    report(play, stage, "anna")
    return stage


def streams_stable(play: Play) -> EpochStage:
    """Two members of a streams application."""
    stage = streams_alone(play)
    enter(play, stage, "bert")
    settle(play, stage, "anna", "bert")
    return stage


def streams_empty(play: Play) -> EpochStage:
    """There was a member, who has left."""
    stage = streams_alone(play)
    play.ask("set-up: anna leaves", STREAMS, "anna", **quiet(stage, "anna") | {"MemberEpoch": -1})
    return stage


EPOCH_STATES: dict[str, Callable[[Play], EpochStage]] = {
    state.__name__.replace("_", " "): state
    for state in (
        consumer_alone, consumer_stable, consumer_moving, consumer_full, consumer_empty, consumer_static,
        consumer_static_away, consumer_with_classic, share_alone, share_stable, share_empty,
        streams_alone, streams_stable, streams_empty,
    )
}  # fmt: skip


def end(play: Play, stage: EpochStage) -> None:
    """All leave who are in it."""
    for who, member_id in stage.members.items():
        gone = {"GroupId": stage.group, "MemberId": member_id, "MemberEpoch": -1} | QUIET[stage.api]
        play.ask(f"{who} leaves", stage.api, who, **gone)
    play.ask("at last listed", "DescribeGroups", version=5, Groups=[stage.group])
