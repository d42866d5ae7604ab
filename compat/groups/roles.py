"""Who is in the middle of something when a data dir is handed over, and how they go on.

The rule: `enter` brings a role to where it is interrupted; `go_on` asks only what a client would that has noticed nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from compat.groups import classic, epochs, offsets, transactions
from compat.groups.classic import TOPIC, leaving, syncing
from compat.groups.epochs import CONSUMER, SHARE, STREAMS, EpochStage, enter, quiet, settle
from compat.groups.members import describe
from compat.kit.play import Play
from compat.kit.records import record_batch
from compat.kit.wire import Connection, Values

LONG_MS = 600_000
NOT_LEADER_OR_FOLLOWER = 6
"""What Kafka says while it starts."""
OTHER = "groups-of-others"
STREAM = "groups-of-streams"


@dataclass(frozen=True)
class Role:
    """A group or a transactional id."""

    name: str
    enter: Callable[[Play], Any]
    go_on: Callable[[Play, Any], None]


def _named(play: Play, name: str) -> Play:
    """The same play, with names of this role's own."""
    return Play(play.side, name, play.back, play.versions, play.answers, _topics=play._topics)


def role(name: str, begin: Callable[[Play], Any], go_on: Callable[[Play, Any], None]) -> Role:
    """A role whose labels begin with its name."""

    def entered(play: Play) -> Any:
        return begin(_named(play, name))

    def gone_on(play: Play, stage: Any) -> None:
        mine = Play(play.side, name, play.back, play.versions, _topics=play._topics)
        go_on(mine, stage)
        mine.close()
        for label, answer in mine.answers.items():
            play.answers[f"{name}: {label}"] = answer

    return Role(name, entered, gone_on)


def _commit(play: Play, stage: Any, who: str, *places: tuple[str, int, int], **changes: Any) -> None:
    ids = offsets.topics_of(play)
    topics = [offsets.place(ids, topic, partition, offset=offset) for topic, partition, offset in places]
    answer = play.ask(
        "commit", "OffsetCommit", version=9, **offsets.committing(stage, who, *topics, **changes)
    )
    codes = {p["ErrorCode"] for topic in answer["Topics"] for p in topic["Partitions"]}
    assert codes == {0}, codes


# --- classic groups ---------------------------------------------------------------------------------------------


def classic_static(play: Play) -> classic.Stage:
    """Two static members, and offsets."""
    stage = classic.stable_static(play, SessionTimeoutMs=LONG_MS)
    _commit(play, stage, "anna", (TOPIC, 0, 4), (TOPIC, 1, 7), GroupInstanceId="i-anna")
    return stage


def classic_dynamic(play: Play) -> classic.Stage:
    """Two dynamic members, and offsets."""
    stage = classic.stable(play, SessionTimeoutMs=LONG_MS)
    _commit(play, stage, "bert", (TOPIC, 0, 2), (OTHER, 1, 1))
    return stage


def classic_empty(play: Play) -> classic.Stage:
    """A group whose members have left."""
    stage = classic.empty(play)
    _commit(play, stage, "", (TOPIC, 2, 3))
    return stage


def classic_offsets(play: Play) -> classic.Stage:
    """A group that only keeps offsets, some of which have been deleted."""
    stage = classic.absent(play)
    _commit(play, stage, "", (TOPIC, 2, 3), (OTHER, 0, 9))
    gone = [{"Name": OTHER, "Partitions": [{"PartitionIndex": 0}]}]
    play.ask("delete", "OffsetDelete", GroupId=stage.group, Topics=gone)
    return stage


def classic_goes_on(play: Play, stage: classic.Stage) -> None:
    """Heartbeats, assignments and offsets as before; then a static member comes back, and all leave."""
    describe(play, "found", stage)
    offsets.look(play, "offsets", stage.group)
    is_static = "static" in play.name
    for who in sorted(stage.members):
        instance = {"GroupInstanceId": f"i-{who}"} if is_static else {}
        beat = {"GroupId": stage.group, "GenerationId": stage.generation, "MemberId": stage.id(who)}
        play.ask(f"{who} beats", "Heartbeat", who, **beat, **instance)
        play.ask(f"{who} syncs", "SyncGroup", who, **syncing(stage, who, **instance))
        ids = offsets.topics_of(play)
        play.ask(
            f"{who} commits", "OffsetCommit", who,
            **offsets.committing(stage, who, offsets.place(ids, TOPIC, 2, offset=11), **instance),
        )  # fmt: skip
    if is_static:
        asked = classic.joining(stage.group, "", "i-bert", SessionTimeoutMs=LONG_MS)
        play.ask("bert comes back", "JoinGroup", "bert", **asked)
    offsets.look(play, "offsets then", stage.group)
    for who, member_id in stage.members.items():
        play.ask(f"{who} leaves", "LeaveGroup", who, **leaving(stage.group, (member_id, None)))
    describe(play, "at last", stage)


# --- groups with epochs -----------------------------------------------------------------------------------------


def consumer_static(play: Play) -> EpochStage:
    """Two static consumers, one of whom is away for a while, and offsets."""
    stage = epochs.consumer_static(play)
    _commit(play, stage, "bert", (TOPIC, 1, 5), GenerationIdOrMemberEpoch=stage.epochs["bert"])
    gone = quiet(stage, "anna", InstanceId="i-anna") | {"MemberEpoch": -2}
    play.ask("anna leaves for a while", CONSUMER, "anna", **gone)
    return stage


def consumer_pattern(play: Play) -> EpochStage:
    """A consumer by a pattern and one by name, with other assignors."""
    offsets.topics_of(play)
    stage = EpochStage(play.group)
    enter(play, stage, "anna", SubscribedTopicNames=None, SubscribedTopicRegex="groups-of-(members|others)")
    play.until(
        "anna is assigned", CONSUMER, lambda answer: bool((answer["Assignment"] or {}).get("TopicPartitions")), "anna",
        **quiet(stage, "anna"),
    )  # fmt: skip
    stage.epochs["anna"] = play.look("ConsumerGroupDescribe", 1, GroupIds=[stage.group])["Groups"][0][
        "GroupEpoch"
    ]
    ids = offsets.topics_of(play)
    stage.has["anna"] = {
        "TopicPartitions": [{"TopicId": topic, "Partitions": [0, 1, 2]} for topic in ids.values()]
    }
    enter(play, stage, "bert", ServerAssignor="range")
    settle(play, stage, "anna", "bert")
    _commit(play, stage, "anna", (OTHER, 0, 6), GenerationIdOrMemberEpoch=stage.epochs["anna"])
    return stage


def consumer_moving(play: Play) -> EpochStage:
    """A consumer must still give up what another waits for."""
    return epochs.consumer_moving(play)


def consumer_mixed(play: Play) -> EpochStage:
    """A member of each protocol."""
    return epochs.consumer_with_classic(play)


def streams(play: Play) -> EpochStage:
    """Two members of an application with a state."""
    play.topic(STREAM)
    play.topic(f"{play.group}-store-changelog")
    stage = EpochStage(play.group, api=STREAMS)
    changelog = {
        "Name": f"{play.group}-store-changelog",
        "Partitions": 0,
        "ReplicationFactor": 1,
        "TopicConfigs": [],
    }
    part = {"SubtopologyId": "0", "SourceTopics": [STREAM], "StateChangelogTopics": [changelog]}
    for who in ("anna", "bert"):
        host = {"Host": f"host-of-{who}", "Port": 7}
        enter(play, stage, who, Topology=epochs.topology(1, part), UserEndpoint=host, RackId="r1")
        settle(play, stage, *sorted(stage.members))
    return stage


def epochs_go_on(play: Play, stage: EpochStage) -> None:
    """Heartbeats as before, offsets as before; then everybody comes back, and leaves."""
    describe(play, "found", stage)
    offsets.look(play, "offsets", stage.group)
    for number in range(3):
        for who in sorted(stage.members):
            has = stage.has.get(who, {}) if stage.api != SHARE and number else {}
            play.ask(f"{who} beats {number}", stage.api, who, **quiet(stage, who, **has))
    describe(play, "then", stage)
    if stage.api == CONSUMER and "static" in play.name:
        again = epochs.entering(stage, "anna", MemberId="id-of-another-anna", InstanceId="i-anna")
        play.ask("anna comes back", CONSUMER, "anna", **again)
        describe(play, "after that", stage)
    for who, member_id in stage.members.items():
        gone = {"GroupId": stage.group, "MemberId": member_id, "MemberEpoch": -1} | epochs.QUIET[stage.api]
        play.ask(f"{who} leaves", stage.api, who, **gone)
    describe(play, "at last", stage)


SHARED = "groups-of-sharers"


def sharing(play: Play) -> EpochStage:
    """A member of a share group; records are accepted, released, rejected and held."""
    topic_id = play.topic(SHARED, 1)
    stage = EpochStage(play.group, api=SHARE)
    enter(play, stage, "anna", SubscribedTopicNames=[SHARED])
    play.until(
        "anna is assigned", SHARE, lambda answer: bool((answer["Assignment"] or {}).get("TopicPartitions")), "anna",
        **epochs.beat(stage, "anna", SubscribedTopicNames=[SHARED]),
    )  # fmt: skip
    batches = [
        {"FirstOffset": first, "LastOffset": last, "AcknowledgeTypes": [kind]}
        for first, last, kind in ((0, 1, ACCEPT), (2, 2, RELEASE), (3, 3, REJECT), (5, 5, ACCEPT))
    ]
    with play.side.connect("anna") as connection:
        session = Session(play, stage, topic_id, connection)
        session.fetch()  # from here on there is a start
        records = record_batch([b"%d" % n for n in range(8)], time.time_ns() // 1_000_000)
        data = {"Name": SHARED, "PartitionData": [{"Index": 0, "Records": records}]}
        play.ask("write", "Produce", version=8, Acks=-1, TimeoutMs=9_000, TopicData=[data])
        acquired = session.fetch_some()
        assert acquired == [(0, 7, 1)], acquired
        session.acknowledge(batches)
    return epochs.share_epochs(play, stage, "anna")


ACCEPT, RELEASE, REJECT = 1, 2, 3


@dataclass
class Session:
    """A share session, which is one connection's."""

    play: Play
    stage: EpochStage
    topic_id: bytes
    connection: Connection
    epoch: int = 0

    def _ask(self, api: str, **values: Any) -> Values:
        who = {
            "GroupId": self.stage.group, "MemberId": self.stage.id("anna"), "ShareSessionEpoch": self.epoch,
        }  # fmt: skip
        answer = self.connection.ask(api, self.play.version(api), who | values)
        assert answer["ErrorCode"] == 0, answer
        self.epoch += 1
        return answer

    def fetch(self) -> list[tuple[int, int, int]]:
        """The ranges of offsets that are acquired, with how often they have been delivered."""
        topics = [
            {"TopicId": self.topic_id, "Partitions": [{"PartitionIndex": 0, "PartitionMaxBytes": 1 << 20}]}
        ]
        answer = self._ask(
            "ShareFetch",
            MaxWaitMs=1_000, MinBytes=1, MaxBytes=1 << 20, MaxRecords=100, BatchSize=100,
            Topics=topics if not self.epoch else [],
        )  # fmt: skip
        return [
            (run["FirstOffset"], run["LastOffset"], run["DeliveryCount"])
            for topic in answer["Responses"]
            for partition in topic["Partitions"]
            for run in partition["AcquiredRecords"]
        ]

    def fetch_some(self) -> list[tuple[int, int, int]]:
        """The same, until there are some."""
        for _ in range(20):
            if found := self.fetch():
                return found
        return []

    def acknowledge(self, batches: list[Values]) -> None:
        """Say what has become of records."""
        partition = {"PartitionIndex": 0, "AcknowledgementBatches": batches}
        answer = self._ask("ShareAcknowledge", Topics=[{"TopicId": self.topic_id, "Partitions": [partition]}])
        assert answer["Responses"][0]["Partitions"][0]["ErrorCode"] == 0, answer


def sharing_goes_on(play: Play, stage: EpochStage) -> None:
    """Heartbeats as before; what was accepted does not come again, and what was not does."""
    groups = [{"GroupId": stage.group, "Topics": None}]
    play.ask("offsets", "DescribeShareGroupOffsets", Groups=groups)
    describe(play, "found", stage)
    play.ask("anna beats", SHARE, "anna", **quiet(stage, "anna"))
    with play.side.connect("anna") as connection:
        acquired = Session(play, stage, play.topic(SHARED, 1), connection).fetch_some()
        play.note("acquired", [list(run) for run in acquired])
    play.ask("offsets then", "DescribeShareGroupOffsets", Groups=groups)
    play.ask("anna leaves", SHARE, "anna", **quiet(stage, "anna") | {"MemberEpoch": -1})
    describe(play, "at last", stage)


# --- transactions -----------------------------------------------------------------------------------------------


def prepared(play: Play) -> transactions.Stage:
    """A transaction that has been ended; what says so may be lost."""
    stage = transactions.ongoing_written(play)
    answer = play.ask("end", "EndTxn", **transactions.producer(stage), Committed=True)
    transactions.settle(play, stage, "ended")
    if answer.get("ProducerId", -1) >= 0:
        stage.producer_id, stage.epoch, stage.sequence = answer["ProducerId"], answer["ProducerEpoch"], 0
    return stage


def transaction_goes_on(play: Play, stage: transactions.Stage, *, commit: bool) -> None:
    """The producer writes its next record and ends; then it begins again."""
    transactions.look(play, stage, "found")
    topic_id = play.topic(stage.topic)
    play.until(
        "write", "Produce",
        lambda answer: answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"] != NOT_LEADER_OR_FOLLOWER,
        **transactions.producing(play, stage, topic_id),
    )  # fmt: skip
    play.ask("end", "EndTxn", **transactions.producer(stage), Committed=commit)
    transactions.look(play, stage, "then")
    play.until(
        "begin", "InitProducerId", lambda answer: answer["ErrorCode"] != transactions.CONCURRENT_TRANSACTIONS,
        version=4, **transactions.initializing(stage),
    )  # fmt: skip
    transactions.look(play, stage, "at last")


def _transactions() -> tuple[Role, ...]:
    states = (
        ("txn empty", transactions.empty), ("txn ongoing", transactions.ongoing),
        ("txn written", transactions.ongoing_written), ("txn committed", transactions.committed),
        ("txn aborted", transactions.aborted), ("txn fenced", transactions.fenced),
    )  # fmt: skip
    both = [
        role(f"{name} {word}", state, partial(transaction_goes_on, commit=commit))
        for name, state in states
        for word, commit in (("commits", True), ("aborts", False))
    ]
    # The last, so that it is its end that a power cut loses.
    return (*both, role("txn prepared", prepared, partial(transaction_goes_on, commit=True)))


CLASSIC = (
    role("classic static", classic_static, classic_goes_on),
    role("classic dynamic", classic_dynamic, classic_goes_on),
    role("classic empty", classic_empty, classic_goes_on),
    role("classic offsets", classic_offsets, classic_goes_on),
    *_transactions(),
)
ALL = (
    role("consumer static", consumer_static, epochs_go_on),
    role("consumer pattern", consumer_pattern, epochs_go_on),
    role("consumer moving", consumer_moving, epochs_go_on),
    role("consumer mixed", consumer_mixed, epochs_go_on),
    role("streams", streams, epochs_go_on),
    role("sharing", sharing, sharing_goes_on),
    *CLASSIC,
)
