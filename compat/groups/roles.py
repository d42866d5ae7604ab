"""Roles of clients with work in progress when a data dir is handed over, and their next steps.

The rule: `enter` brings a role to its interruption; `go_on` sends only requests of a client that has noticed nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from compat.groups import classic, epochs, offsets, transaction_states, transactions
from compat.groups.classic import TOPIC, leaving, syncing
from compat.groups.epochs import CONSUMER, SHARE, STREAMS, EpochGroupFixture, enter, quiet, report, settle
from compat.groups.members import describe
from compat.kit.records import record_batch
from compat.kit.scenarios import SETTLE_S, ScenarioError, ScenarioRun
from compat.kit.wire import Connection, Values

LONG_MS = 600_000
NOT_LEADER_OR_FOLLOWER = 6
"""Kafka's error code while it starts."""
PARTITIONS = 3
SETTLING_REQUESTS_MAX = 200
OTHER = "groups-of-others"
STREAM = "groups-of-streams"
MATCHING_TOPICS = 2


@dataclass(frozen=True)
class Role:
    """A group or a transactional id."""

    name: str
    enter: Callable[[ScenarioRun], Any]
    go_on: Callable[[ScenarioRun, Any], None]


def _named(run: ScenarioRun, name: str) -> ScenarioRun:
    """The same run, with names of this role's own."""
    return ScenarioRun(run.side, name, run.back, run.versions, run.answers, _topics=run._topics)


def role(name: str, begin: Callable[[ScenarioRun], Any], go_on: Callable[[ScenarioRun, Any], None]) -> Role:
    """A role; its labels begin with its name."""

    def entered(run: ScenarioRun) -> Any:
        return begin(_named(run, name))

    def gone_on(run: ScenarioRun, fixture: Any) -> None:
        mine = ScenarioRun(run.side, name, run.back, run.versions, _topics=run._topics)
        go_on(mine, fixture)
        mine.close()
        for label, answer in mine.answers.items():
            run.answers[f"{name}: {label}"] = answer

    return Role(name, entered, gone_on)


def _commit(run: ScenarioRun, fixture: Any, who: str, *places: tuple[str, int, int], **changes: Any) -> None:
    ids = offsets.topics_of(run)
    topics = [offsets.place(ids, topic, partition, offset=offset) for topic, partition, offset in places]
    answer = run.ask(
        "commit", "OffsetCommit", version=9, **offsets.committing(fixture, who, *topics, **changes)
    )
    codes = {p["ErrorCode"] for topic in answer["Topics"] for p in topic["Partitions"]}
    assert codes == {0}, codes


# --- classic groups ---------------------------------------------------------------------------------------------


def classic_static(run: ScenarioRun) -> classic.GroupFixture:
    """Two static members, and offsets."""
    fixture = classic.stable_static(run, SessionTimeoutMs=LONG_MS)
    _commit(run, fixture, "anna", (TOPIC, 0, 4), (TOPIC, 1, 7), GroupInstanceId="i-anna")
    return fixture


def classic_dynamic(run: ScenarioRun) -> classic.GroupFixture:
    """Two dynamic members, and offsets."""
    fixture = classic.stable(run, SessionTimeoutMs=LONG_MS)
    _commit(run, fixture, "bert", (TOPIC, 0, 2), (OTHER, 1, 1))
    return fixture


def classic_empty(run: ScenarioRun) -> classic.GroupFixture:
    """A group after all members have left."""
    fixture = classic.empty(run)
    _commit(run, fixture, "", (TOPIC, 2, 3))
    return fixture


def classic_offsets(run: ScenarioRun) -> classic.GroupFixture:
    """A group that only keeps offsets, some of which have been deleted."""
    fixture = classic.absent(run)
    _commit(run, fixture, "", (TOPIC, 2, 3), (OTHER, 0, 9))
    gone = [{"Name": OTHER, "Partitions": [{"PartitionIndex": 0}]}]
    run.ask("delete", "OffsetDelete", GroupId=fixture.group, Topics=gone)
    return fixture


def classic_goes_on(run: ScenarioRun, fixture: classic.GroupFixture) -> None:
    """Heartbeats, assignments and offsets as before; then a static member returns, and all leave."""
    describe(run, "found", fixture)
    offsets.look(run, "offsets", fixture.group)
    is_static = "static" in run.name
    for who in sorted(fixture.members):
        instance = {"GroupInstanceId": f"i-{who}"} if is_static else {}
        beat = {"GroupId": fixture.group, "GenerationId": fixture.generation, "MemberId": fixture.id(who)}
        run.ask(f"{who} beats", "Heartbeat", who, **beat, **instance)
        run.ask(f"{who} syncs", "SyncGroup", who, **syncing(fixture, who, **instance))
        ids = offsets.topics_of(run)
        run.ask(
            f"{who} commits", "OffsetCommit", who,
            **offsets.committing(fixture, who, offsets.place(ids, TOPIC, 2, offset=11), **instance),
        )  # fmt: skip
    if is_static:
        asked = classic.joining(fixture.group, "", "i-bert", SessionTimeoutMs=LONG_MS)
        run.ask("bert comes back", "JoinGroup", "bert", **asked)
    offsets.look(run, "offsets then", fixture.group)
    for who, member_id in fixture.members.items():
        run.ask(f"{who} leaves", "LeaveGroup", who, **leaving(fixture.group, (member_id, None)))
    describe(run, "at last", fixture)


# --- groups with epochs -----------------------------------------------------------------------------------------


def consumer_static(run: ScenarioRun) -> EpochGroupFixture:
    """Two static consumers, one of which is temporarily away, and offsets."""
    fixture = epochs.consumer_static(run)
    _commit(run, fixture, "bert", (TOPIC, 1, 5), GenerationIdOrMemberEpoch=fixture.epochs["bert"])
    gone = quiet(fixture, "anna", InstanceId="i-anna") | {"MemberEpoch": -2}
    run.ask("anna leaves for a while", CONSUMER, "anna", **gone)
    return fixture


def consumer_pattern(run: ScenarioRun) -> EpochGroupFixture:
    """A consumer by pattern and another by name, with different assignors."""
    offsets.topics_of(run)
    fixture = EpochGroupFixture(run.group)
    enter(run, fixture, "anna", SubscribedTopicNames=None, SubscribedTopicRegex="groups-of-(members|others)")
    give_up = time.monotonic() + SETTLE_S
    # Kafka's coordinator learns of topics by and by, and matches them beside the heartbeats.
    while len(fixture.has.get("anna", {}).get("TopicPartitions", ())) < MATCHING_TOPICS:
        if time.monotonic() > give_up:
            raise ScenarioError(f"anna is assigned {fixture.has.get('anna')}")
        time.sleep(0.05)
        report(run, fixture, "anna")
    enter(run, fixture, "bert", ServerAssignor="range")
    settle(run, fixture, "anna", "bert")
    _commit(run, fixture, "anna", (OTHER, 0, 6), GenerationIdOrMemberEpoch=fixture.epochs["anna"])
    return fixture


def consumer_moving(run: ScenarioRun) -> EpochGroupFixture:
    """A consumer must still revoke partitions that another waits for."""
    return epochs.consumer_moving(run)


def consumer_mixed(run: ScenarioRun) -> EpochGroupFixture:
    """A member of each protocol."""
    return epochs.consumer_with_classic(run)


def streams(run: ScenarioRun) -> EpochGroupFixture:
    """Two members of an application with a state."""
    run.topic(STREAM)
    run.topic(f"{run.group}-store-changelog")
    fixture = EpochGroupFixture(run.group, api=STREAMS)
    changelog = {
        "Name": f"{run.group}-store-changelog",
        "Partitions": 0,
        "ReplicationFactor": 1,
        "TopicConfigs": [],
    }
    part = {"SubtopologyId": "0", "SourceTopics": [STREAM], "StateChangelogTopics": [changelog]}
    for who in ("anna", "bert"):
        host = {"Host": f"host-of-{who}", "Port": 7}
        enter(run, fixture, who, Topology=epochs.topology(1, part), UserEndpoint=host, RackId="r1")
        settle(run, fixture, *sorted(fixture.members))
    while not _has_all_tasks(
        run, fixture
    ):  # the topics are made, and may not be known to the coordinator yet
        settle(run, fixture, *sorted(fixture.members))
    return fixture


def _has_all_tasks(run: ScenarioRun, fixture: EpochGroupFixture) -> bool:
    """Return whether a group of Kafka Streams is stable, with its three tasks."""
    if run.requests > SETTLING_REQUESTS_MAX:
        raise ScenarioError(f"{fixture.group} does not settle")
    group = run.look("StreamsGroupDescribe", 0, GroupIds=[fixture.group])["Groups"][0]
    tasks = [task for member in group["Members"] for task in member["Assignment"]["ActiveTasks"]]
    return group["GroupState"] == "Stable" and sum(len(task["Partitions"]) for task in tasks) == PARTITIONS


def epochs_go_on(run: ScenarioRun, fixture: EpochGroupFixture) -> None:
    """Heartbeats and offsets as before; then all members rejoin, and leave."""
    describe(run, "found", fixture)
    offsets.look(run, "offsets", fixture.group)
    for number in range(3):
        for who in sorted(fixture.members):
            has = fixture.has.get(who, {}) if fixture.api != SHARE and number else {}
            run.ask(f"{who} beats {number}", fixture.api, who, **quiet(fixture, who, **has))
    describe(run, "then", fixture)
    if fixture.api == CONSUMER and "static" in run.name:
        again = epochs.entering(fixture, "anna", MemberId="id-of-another-anna", InstanceId="i-anna")
        run.ask("anna comes back", CONSUMER, "anna", **again)
        describe(run, "after that", fixture)
    for who, member_id in fixture.members.items():
        gone = {"GroupId": fixture.group, "MemberId": member_id, "MemberEpoch": -1} | epochs.QUIET[
            fixture.api
        ]
        run.ask(f"{who} leaves", fixture.api, who, **gone)
    describe(run, "at last", fixture)


SHARED = "groups-of-sharers"


def sharing(run: ScenarioRun) -> EpochGroupFixture:
    """A member of a share group; records are accepted, released, rejected and held."""
    topic_id = run.topic(SHARED, 1)
    fixture = EpochGroupFixture(run.group, api=SHARE)
    enter(run, fixture, "anna", SubscribedTopicNames=[SHARED])
    run.until(
        "anna is assigned", SHARE, lambda answer: bool((answer["Assignment"] or {}).get("TopicPartitions")), "anna",
        **epochs.beat(fixture, "anna", SubscribedTopicNames=[SHARED]),
    )  # fmt: skip
    batches = [
        {"FirstOffset": first, "LastOffset": last, "AcknowledgeTypes": [kind]}
        for first, last, kind in ((0, 1, ACCEPT), (2, 2, RELEASE), (3, 3, REJECT), (5, 5, ACCEPT))
    ]
    with run.side.connect("anna") as connection:
        session = Session(run, fixture, topic_id, connection)
        session.fetch()  # from here on there is a start
        records = record_batch([b"%d" % n for n in range(8)], time.time_ns() // 1_000_000)
        data = {"Name": SHARED, "PartitionData": [{"Index": 0, "Records": records}]}
        run.ask("write", "Produce", version=8, Acks=-1, TimeoutMs=9_000, TopicData=[data])
        acquired = session.fetch_some()
        assert acquired == [(0, 7, 1)], acquired
        session.acknowledge(batches)
    return epochs.share_epochs(run, fixture, "anna")


ACCEPT, RELEASE, REJECT = 1, 2, 3


@dataclass
class Session:
    """A share session, which belongs to one connection."""

    run: ScenarioRun
    fixture: EpochGroupFixture
    topic_id: bytes
    connection: Connection
    epoch: int = 0

    def _ask(self, api: str, **values: Any) -> Values:
        who = {
            "GroupId": self.fixture.group, "MemberId": self.fixture.id("anna"), "ShareSessionEpoch": self.epoch,
        }  # fmt: skip
        answer = self.connection.ask(api, self.run.version(api), who | values)
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
            (fetched["FirstOffset"], fetched["LastOffset"], fetched["DeliveryCount"])
            for topic in answer["Responses"]
            for partition in topic["Partitions"]
            for fetched in partition["AcquiredRecords"]
        ]

    def fetch_some(self) -> list[tuple[int, int, int]]:
        """The same, until there are some."""
        for _ in range(20):
            if records := self.fetch():
                return records
        return []

    def acknowledge(self, batches: list[Values]) -> None:
        """Acknowledge records."""
        partition = {"PartitionIndex": 0, "AcknowledgementBatches": batches}
        answer = self._ask("ShareAcknowledge", Topics=[{"TopicId": self.topic_id, "Partitions": [partition]}])
        assert answer["Responses"][0]["Partitions"][0]["ErrorCode"] == 0, answer


def sharing_goes_on(run: ScenarioRun, fixture: EpochGroupFixture) -> None:
    """Heartbeats as before; accepted records are not delivered again, others are."""
    groups = [{"GroupId": fixture.group, "Topics": None}]
    run.ask("offsets", "DescribeShareGroupOffsets", Groups=groups)
    describe(run, "found", fixture)
    run.ask("anna beats", SHARE, "anna", **quiet(fixture, "anna"))
    with run.side.connect("anna") as connection:
        acquired = Session(run, fixture, run.topic(SHARED, 1), connection).fetch_some()
        run.note("acquired", [list(batch) for batch in acquired])
    run.ask("offsets then", "DescribeShareGroupOffsets", Groups=groups)
    run.ask("anna leaves", SHARE, "anna", **quiet(fixture, "anna") | {"MemberEpoch": -1})
    describe(run, "at last", fixture)


# --- transactions -----------------------------------------------------------------------------------------------


def prepared(run: ScenarioRun) -> transaction_states.TransactionFixture:
    """An ended transaction; its end marker may be lost."""
    fixture = transaction_states.ongoing_written(run)
    answer = run.ask("end", "EndTxn", **transaction_states.producer(fixture), Committed=True)
    transaction_states.settle(run, fixture, "ended")
    if answer.get("ProducerId", -1) >= 0:
        fixture.producer_id, fixture.epoch, fixture.sequence = (
            answer["ProducerId"],
            answer["ProducerEpoch"],
            0,
        )
    return fixture


def transaction_goes_on(
    run: ScenarioRun, fixture: transaction_states.TransactionFixture, *, commit: bool
) -> None:
    """The producer writes its next record and ends; then it begins again."""
    transactions.look(run, fixture, "found")
    topic_id = run.topic(fixture.topic)
    run.until(
        "write", "Produce",
        lambda answer: answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"] != NOT_LEADER_OR_FOLLOWER,
        **transaction_states.producing(run, fixture, topic_id),
    )  # fmt: skip
    run.ask("end", "EndTxn", **transaction_states.producer(fixture), Committed=commit)
    transactions.look(run, fixture, "then")
    run.until(
        "begin", "InitProducerId", lambda answer: answer["ErrorCode"] != transaction_states.CONCURRENT_TRANSACTIONS,
        version=4, **transaction_states.initializing(fixture),
    )  # fmt: skip
    transactions.look(run, fixture, "at last")


def _transactions() -> tuple[Role, ...]:
    states = (
        ("txn empty", transaction_states.empty), ("txn ongoing", transaction_states.ongoing),
        ("txn written", transaction_states.ongoing_written), ("txn committed", transaction_states.committed),
        ("txn aborted", transaction_states.aborted), ("txn fenced", transaction_states.fenced),
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
