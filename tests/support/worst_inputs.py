"""The worst requests of each API, for a broker with much content: the input of `loop_turns`.

The rule: each served API has a row here. A row generates the requests, independently of their implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from barnabas.serving.release import KAFKA_4
from codegen.model import Field
from compat.hostile.attack import fetch_values, produce_values
from compat.hostile.batches import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    bomb,
    many_small,
    message,
    nested,
    one_record,
    zero_deltas,
)
from compat.hostile.messages import Path, arrays, filled, frame, plausible
from compat.kit.wire import Values
from tests.support.effort import EFFORT

ELEMENTS = 2_000 * min(EFFORT, 50)
"""Elements in the widest array of a request."""
RECORDS = 10_000 * min(EFFORT, 100)
"""Records in a small batch."""
BOMB_BYTES = 20_000_000 * min(EFFORT, 6)
PIPELINED = 5
TOPICS_MADE = 50 * min(EFFORT, 10)

TIME = "time"
DEEP = "deep"
"""A topic with many small batches with falling timestamps, in its only partition."""
WIDE = "wide"
"""A topic with many partitions."""


@dataclass
class State:
    """The content of the broker: names to use in requests."""

    topics: int
    """`topic-0` and so on, with one partition and some batches each."""
    partitions: int
    """Partitions of the topic `wide`."""
    batches: int
    """Batches in the topic `deep`."""
    groups: int
    """`group-0` and so on, with a committed offset each; `group-0` has one for every topic."""
    transactional_ids: int
    now_ms: int
    topic_ids: list[bytes] = field(default_factory=list)
    producer: tuple[int, int] = (-1, -1)
    """Id and epoch of the producer of the transactional id `wide`."""

    def known(self, api: str, field: Field, index: int) -> Any:
        """Return the value of a field: an existing name if the schema has the kind of entity."""
        if field.type.name == "uuid" and "Topic" in field.name and self.topic_ids:
            return self.topic_ids[index % len(self.topic_ids)]
        if field.entity_type == "topicName":
            return f"topic-{index % self.topics}"
        if field.entity_type == "groupId":
            return f"group-{index % self.groups}"
        if field.entity_type == "transactionalId":
            return f"transaction-{index % self.transactional_ids}"
        if field.entity_type == "brokerId" and api != "Fetch":
            return 0
        if field.name in (
            "Partitions",
            "PartitionIndex",
            "Partition",
            "PartitionIndexes",
            "PartitionId",
            "Index",
        ):
            return 0
        return plausible(api, field, index)


@dataclass(frozen=True)
class Case:
    """Bytes for one connection; `answers` is the number of responses, 0 if it may be closed or wait."""

    label: str
    data: bytes
    answers: int = 1
    succeeds: tuple[int, int] | None = None
    """API key and version of responses that must not have an error, as the API would do little work otherwise."""


Cases = Iterator[Case]
Row = Callable[[State], Cases]
ROWS: dict[str, Row] = {}


def row(*names: str) -> Callable[[Row], Row]:
    """Make a function the row of some APIs; a second row of an API adds to its first."""

    def add(cases: Row) -> Row:
        for name in names:
            before = ROWS.get(name)
            if before is None:
                ROWS[name] = cases
            else:
                ROWS[name] = lambda state, before=before: (
                    case for rows in (before, cases) for case in rows(state)
                )
        return cases

    return add


def case(
    api: str,
    version: int,
    values: Values,
    label: str = "",
    count: int = 1,
    answers: int | None = None,
    *,
    succeeds: bool = False,
) -> Case:
    """Return a case with the same request `count` times."""
    times = f", {count} in one send" if count > 1 else ""
    expected = count if answers is None else answers
    key = next(row.key for row in KAFKA_4.apis.values() if row.name == api)
    data = frame(api, version, values) * count
    return Case(f"{api} v{version} {label}{times}", data, expected, (key, version) if succeeds else None)


def versions(api: str) -> list[int]:
    """Return the newest served version; with more effort also the oldest."""
    served = next(row for row in KAFKA_4.apis.values() if row.name == api)
    return sorted({served.max_version, served.min_version if EFFORT > 1 else served.max_version})


def widest(api: str) -> Row:
    """Return a row with very many elements in each array of the API's requests, with existing names."""

    def cases(state: State) -> Cases:
        for version in versions(api):
            for path in arrays(api, version):
                yield wide_case(state, api, version, path, ELEMENTS)
            if not any(arrays(api, version)):
                yield case(api, version, filled(api, version, state.known), "as plain as it is", PIPELINED)

    return cases


def wide_case(state: State, api: str, version: int, path: Path, count: int) -> Case:
    """Return one request with `count` elements in one array."""
    values = filled(api, version, state.known, wide=path, count=count)
    return case(api, version, values, f"{count:,} in {'.'.join(path)}", answers=0 if api in MAY_WAIT else 1)


MAY_WAIT = frozenset({"JoinGroup", "SyncGroup", "ShareFetch"})
# fmt: off
GENERIC = [
    "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup",
    "DescribeGroups", "SaslHandshake", "ApiVersions", "DeleteRecords", "InitProducerId",
    "OffsetForLeaderEpoch", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "WriteTxnMarkers",
    "TxnOffsetCommit", "DescribeAcls", "CreateAcls", "DeleteAcls", "DescribeConfigs", "AlterConfigs",
    "AlterReplicaLogDirs", "SaslAuthenticate", "CreatePartitions", "DeleteGroups",
    "IncrementalAlterConfigs", "AlterPartitionReassignments", "OffsetDelete", "DescribeCluster",
    "DescribeProducers", "DescribeTransactions", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe",
    "GetTelemetrySubscriptions", "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch",
    "ShareAcknowledge", "InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState",
    "DeleteShareGroupState", "ReadShareGroupStateSummary", "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets", "DeleteShareGroupOffsets", "StreamsGroupHeartbeat", "StreamsGroupDescribe",
    "StreamsGroupTopologyDescriptionUpdate",
    "UpdateFeatures", "DescribeClientQuotas", "AlterClientQuotas", "DescribeUserScramCredentials",
    "AlterUserScramCredentials", "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken",
    "DescribeDelegationToken",
]
# fmt: on
"""APIs for which the longest request is the worst."""
for _name in GENERIC:
    row(_name)(widest(_name))


@row("Produce")
def produce(state: State) -> Cases:
    """Many partitions, many records in few bytes, decompression bombs, wrapper messages."""
    many = [(index, one_record(b"x")) for index in range(state.partitions)]
    yield case("Produce", 7, produce_values(WIDE, many), f"{len(many):,} partitions")
    yield case(
        "Produce", 7, produce_values(DEEP, [(0, zero_deltas(RECORDS))]), f"{RECORDS:,} zero deltas in gzip"
    )
    yield case(
        "Produce", 7, produce_values(WIDE, [(n, zero_deltas(RECORDS // 10)) for n in range(20)]), "20 of them"
    )
    for magic, version in ((0, 1), (1, 2), (2, 7)):
        for codec in (GZIP, SNAPPY, LZ4, ZSTD):
            if (magic < 2 and codec == ZSTD) or (magic == 0 and codec == LZ4):
                continue
            label = f"format v{magic}, codec {codec}"
            data = many_small(magic, codec, RECORDS)
            yield case("Produce", version, produce_values(WIDE, [(0, data)]), f"{RECORDS:,} records, {label}")
            data = bomb(magic, codec, BOMB_BYTES // (10 if codec == SNAPPY else 1))
            yield case("Produce", version, produce_values(WIDE, [(0, data)]), f"bomb, {label}")
    yield case("Produce", 2, produce_values(WIDE, [(0, nested(1, 50))]), "50 wrappers")
    flat = message(1, b"") * (RECORDS // 10)
    yield case("Produce", 2, produce_values(WIDE, [(0, flat)]), "a message set without a wrapper")
    yield case("Produce", 7, produce_values(WIDE, [(0, one_record(b"x"))]), "small", 500)


@row("Fetch")
def fetch(state: State) -> Cases:
    """All partitions; old versions, for which compressed and long logs must be converted."""
    for version in (0, 3, 11):
        yield case(
            "Fetch", version, fetch_values(WIDE, range(state.partitions), 1_000_000), "every partition"
        )
        yield case("Fetch", version, fetch_values(DEEP, [0], 50_000_000), f"{state.batches:,} batches")
    yield case("Fetch", 0, fetch_values(DEEP, [0], 1_000_000), "small batches", 5)
    for version in versions("Fetch"):
        for path in arrays("Fetch", version):
            yield wide_case(state, "Fetch", version, path, ELEMENTS)


@row("ListOffsets")
def list_offsets(state: State) -> Cases:
    """By timestamps over batches with falling timestamps; every partition."""
    part = {"PartitionIndex": 0, "Timestamp": state.now_ms}
    values: Values = {"ReplicaId": -1, "Topics": [{"Name": DEEP, "Partitions": [part]}]}
    yield case("ListOffsets", 1, values, "by time", 200)
    yield case(
        "ListOffsets",
        7,
        values | {"Topics": [{"Name": DEEP, "Partitions": [part | {"Timestamp": -3}]}]},
        "max",
        50,
    )
    every = [{"PartitionIndex": index, "Timestamp": -1} for index in range(state.partitions)]
    yield case(
        "ListOffsets",
        1,
        {"ReplicaId": -1, "Topics": [{"Name": WIDE, "Partitions": every}]},
        "every partition",
    )
    yield from widest("ListOffsets")(state)


@row("Metadata")
def metadata(state: State) -> Cases:
    """Every topic, several times; names of topics to create."""
    for version in versions("Metadata"):
        yield case(
            "Metadata", version, {"Topics": None} if version else {"Topics": []}, "every topic", PIPELINED
        )
    names = [{"Name": f"made-{n}"} for n in range(TOPICS_MADE)]
    yield case("Metadata", 4, {"Topics": names, "AllowAutoTopicCreation": True}, "new names")
    yield case("Metadata", 4, {"Topics": [{"Name": WIDE}] * 1_000}, "the widest topic a thousand times")
    yield from widest("Metadata")(state)


def everything(api: str, values: Values) -> Row:
    """Return a row of pipelined requests for all entities, and of requests with very many elements in each array."""

    def cases(state: State) -> Cases:
        for version in versions(api):
            yield case(api, version, values, "everything", PIPELINED)
        yield from widest(api)(state)

    return cases


row("ListGroups")(everything("ListGroups", {}))
row("ListTransactions")(everything("ListTransactions", {"StateFilters": [], "ProducerIdFilters": []}))
row("ListConfigResources")(everything("ListConfigResources", {}))
row("ListPartitionReassignments")(everything("ListPartitionReassignments", {"Topics": None}))
row("ElectLeaders")(everything("ElectLeaders", {"TopicPartitions": None}))


@row("DescribeLogDirs")
def describe_log_dirs(state: State) -> Cases:
    """Every partition of the broker, pipelined."""
    for version in versions("DescribeLogDirs"):
        yield case("DescribeLogDirs", version, {"Topics": None}, "all", 10)
    yield from widest("DescribeLogDirs")(state)


@row("DescribeTopicPartitions")
def describe_topic_partitions(state: State) -> Cases:
    """Every topic."""
    yield case(
        "DescribeTopicPartitions", 0, {"Topics": [], "ResponsePartitionLimit": 2_000_000}, "all", PIPELINED
    )
    yield from widest("DescribeTopicPartitions")(state)


@row("CreateTopics")
def create_topics(state: State) -> Cases:
    """Many partitions, many topics, the same name many times, many settings."""
    wide = {"Name": "very-wide", "NumPartitions": TOPICS_MADE * 5, "ReplicationFactor": 1}
    yield case("CreateTopics", 4, {"Topics": [wide], "timeoutMs": 60_000}, "many partitions")
    many = [{"Name": f"many-{n}", "NumPartitions": 1, "ReplicationFactor": 1} for n in range(TOPICS_MADE)]
    yield case("CreateTopics", 4, {"Topics": many, "timeoutMs": 60_000}, "many topics")
    yield from widest("CreateTopics")(state)


@row("DeleteTopics")
def delete_topics(state: State) -> Cases:
    """Names that do not exist, and many that do; none that other rows use."""
    for version in versions("DeleteTopics"):
        fill = plausible
        for path in arrays("DeleteTopics", version):
            values = filled("DeleteTopics", version, fill, wide=path, count=ELEMENTS)
            yield case("DeleteTopics", version, values, f"{ELEMENTS:,} unknown names")
    yield case(
        "DeleteTopics",
        3,
        {"TopicNames": [f"many-{n}" for n in range(TOPICS_MADE)], "TimeoutMs": 60_000},
        "many topics",
    )
    yield case("DeleteTopics", 3, {"TopicNames": ["very-wide"], "TimeoutMs": 60_000}, "many partitions")


@row("OffsetFetch")
def offset_fetch(state: State) -> Cases:
    """All offsets of the group with the most offsets, pipelined, and many times in one request."""
    yield case("OffsetFetch", 2, {"GroupId": "group-0", "Topics": None}, "every offset", PIPELINED)
    yield case(
        "OffsetFetch", 8, {"Groups": [{"GroupId": "group-0", "Topics": None}] * 100}, "of a group 100 times"
    )


def every_topic(state: State) -> list[str]:
    """Return the names of all topics with one partition."""
    return [f"topic-{n}" for n in range(state.topics)]


@row("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
def transaction(state: State) -> Cases:
    """A transaction over every partition, with an offset for every topic; each API drives all of it."""
    names = every_topic(state)
    producer_id, epoch = state.producer
    producer = {"ProducerId": producer_id, "ProducerEpoch": epoch}
    topics = [{"Name": name, "Partitions": [0]} for name in names]
    topics.append({"Name": WIDE, "Partitions": list(range(state.partitions))})
    add = {
        "V3AndBelowTransactionalId": WIDE,
        "V3AndBelowProducerId": producer_id,
        "V3AndBelowProducerEpoch": epoch,
        "V3AndBelowTopics": topics,
    }
    yield case("AddPartitionsToTxn", 3, add, "every partition", succeeds=True)
    group = {"TransactionalId": WIDE, "GroupId": "group-1", **producer}
    yield case("AddOffsetsToTxn", 3, group, "one more", PIPELINED, succeeds=True)
    yield case("DescribeTransactions", 0, {"TransactionalIds": [WIDE] * 3}, "described", succeeds=True)
    offset = [{"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": ""}]
    commit = group | {"Topics": [{"Name": name, "Partitions": offset} for name in names]}
    yield case("TxnOffsetCommit", 2, commit, "every topic", succeeds=True)
    end = {"TransactionalId": WIDE, "Committed": True, **producer}
    yield case("EndTxn", 3, end, "of every partition", succeeds=True)


def subscribed(api: str, version: int, values: Values, describe: str) -> Row:
    """Return a row in which a member of a group subscribes to every topic, and the group is described."""

    def cases(state: State) -> Cases:
        joining = values | {
            "GroupId": f"{api}-wide",
            "MemberId": "member",
            "MemberEpoch": 0,
            "SubscribedTopicNames": every_topic(state),
        }
        for number in range(4):
            label = f"join number {number} of {state.topics:,} topics"
            yield case(api, version, joining, label, succeeds=True)
        group = {"GroupIds": [f"{api}-wide"]}
        label = f"a group of {state.topics:,} topics"
        yield case(describe, version, group, label, PIPELINED, succeeds=True)
        yield case(api, version, joining | {"MemberEpoch": -1}, "leave", succeeds=True)

    return cases


for _heartbeat, _describe, _values in (
    ("ShareGroupHeartbeat", "ShareGroupDescribe", {}),
    (
        "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe",
        {"RebalanceTimeoutMs": 60_000, "TopicPartitions": []},
    ),
):
    row(_heartbeat, _describe)(subscribed(_heartbeat, 1, _values, _describe))


EXPRESSIONS = {
    "every topic": ".*",
    "no topic": "(none|of|these)*",
    "a program as large as it may be": "((.?){10}){90}x",
    "a program that is too large": "[\\pL]{1000}",
}


@row("ConsumerGroupHeartbeat")
def expressions(state: State) -> Cases:
    """Members that subscribe to a regular expression, stay after a topic was created, and change the expression."""
    for number, (label, expression) in enumerate(EXPRESSIONS.items()):
        stays = {"GroupId": f"expression-{number}", "MemberId": "member", "MemberEpoch": 2}
        joins = stays | {"MemberEpoch": 0, "RebalanceTimeoutMs": 60_000, "TopicPartitions": []}
        yield case("ConsumerGroupHeartbeat", 1, joins | {"SubscribedTopicRegex": expression}, label)
        topic = {"Name": f"topic-for-{number}", "NumPartitions": 1, "ReplicationFactor": 1}
        yield case("CreateTopics", 4, {"Topics": [topic], "timeoutMs": 60_000}, "one more", succeeds=True)
        yield case("ConsumerGroupHeartbeat", 1, stays, f"{label}, and one more")
        yield case(
            "ConsumerGroupHeartbeat", 1, stays | {"SubscribedTopicRegex": expression + "?"}, f"{label}?"
        )


@row("DescribeConfigs")
def describe_configs(state: State) -> Cases:
    """Every setting of very many topics."""
    every = [
        {"ResourceType": 2, "ResourceName": f"topic-{n}", "ConfigurationKeys": None}
        for n in range(state.topics)
    ]
    yield case("DescribeConfigs", 4, {"Resources": every}, "every setting of every topic")
    broker = {"ResourceType": 4, "ResourceName": "", "ConfigurationKeys": None}
    yield case(
        "DescribeConfigs", 4, {"Resources": [broker], "IncludeSynonyms": True}, "of the broker", PIPELINED
    )


@row("PushTelemetry")
def push_telemetry(state: State) -> Cases:
    """A decompression bomb, after a request for a subscription, which creates the client instance."""
    import gzip

    who = bytes(15) + b"\1"
    yield Case("subscribe", frame("GetTelemetrySubscriptions", 0, {"ClientInstanceId": who}), 1)
    for label, kind, data in (
        ("bomb", 1, gzip.compress(bytes(BOMB_BYTES), 9)),
        ("1 MB of garbage", 0, b"\x0a" * 1_000_000),
    ):
        values = {"ClientInstanceId": who, "SubscriptionId": 0, "CompressionType": kind, "Metrics": data}
        yield case("PushTelemetry", 0, values, label)
