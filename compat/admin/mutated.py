"""Requests of every served API, each with one anomaly: a duplicate entry, an undefined number, an empty name, null.

The rule: this module has one valid request of each API, from which `compat/kit/mutation.py` derives the others. Requests
that change state use distinct names, so that responses are independent.
"""

from __future__ import annotations

from typing import Any

from compat.kit.compare import Seen, Step
from compat.kit.mutation import Right, steps_of, variants
from compat.kit.records import record_batch
from compat.kit.wire import Values

TOPIC, GROUP, SHARE_GROUP, PRODUCER_ID = "mutated", "mutated-group", "mutated-share", 4000


def _topic_id(seen: Seen) -> Any:
    return seen["mutated: topic"]["Topics"][0]["TopicId"]


def _topic(name: str, partitions: int = 2) -> Values:
    return {"Name": name, "NumPartitions": partitions, "ReplicationFactor": 1}


def _create(*topics: Values) -> tuple[str, int, Values]:
    return "CreateTopics", 7, {"Topics": list(topics), "timeoutMs": 9000}


def _commit(group: str, *indexes: int) -> tuple[str, int, Values]:
    partitions = [{"PartitionIndex": index, "CommittedOffset": 3 + index} for index in indexes]
    values = {
        "GroupId": group,
        "GenerationIdOrMemberEpoch": -1,
        "Topics": [{"Name": TOPIC, "Partitions": partitions}],
    }
    return "OffsetCommit", 8, values


def _partitions(**more: Any) -> list[Values]:
    return [{"Name": TOPIC, "Partitions": [{"PartitionIndex": 0, **more}]}]


def _produce(name: str) -> Values:
    data = {"Index": 0, "Records": record_batch([b"a", b"b"])}
    return {"Acks": -1, "TimeoutMs": 5000, "TopicData": [{"Name": name, "PartitionData": [data]}]}


def _fetch(_: str) -> Values:
    partition = {"Partition": 0, "CurrentLeaderEpoch": -1, "FetchOffset": 0, "LastFetchedEpoch": -1, "LogStartOffset": -1,
                 "PartitionMaxBytes": 1 << 20}  # fmt: skip
    return {"ReplicaId": -1, "MaxWaitMs": 100, "MinBytes": 0, "MaxBytes": 1 << 20, "SessionEpoch": -1,
            "ForgottenTopicsData": [{"Topic": TOPIC, "Partitions": [1]}],
            "Topics": [{"Topic": TOPIC, "TopicId": _topic_id, "Partitions": [partition]}]}  # fmt: skip


RIGHT = (
    Right("Fetch", (4, 18), _fetch),
    Right("ListOffsets", (1, 11), lambda _: {"ReplicaId": -1, "Topics": _partitions(CurrentLeaderEpoch=-1, Timestamp=-1)}),
    Right("Metadata", (4, 13), lambda _: {"Topics": [{"Name": TOPIC}], "AllowAutoTopicCreation": False}),
    Right(
        "OffsetCommit", (2, 9),
        lambda name: {"GroupId": name, "GenerationIdOrMemberEpoch": -1,
                      "Topics": _partitions(CommittedOffset=5, CommittedLeaderEpoch=-1, CommittedMetadata="m")},
    ),
    Right("OffsetFetch", (1, 7), lambda _: {"GroupId": GROUP, "Topics": [{"Name": TOPIC, "PartitionIndexes": [0]}]}),
    Right(
        "OffsetFetch", (8, 9),
        lambda _: {"Groups": [{"GroupId": GROUP, "MemberId": None, "MemberEpoch": -1,
                               "Topics": [{"Name": TOPIC, "PartitionIndexes": [0]}]}]},
    ),
    Right("FindCoordinator", (1, 3), lambda _: {"Key": GROUP, "KeyType": 0}),
    Right("FindCoordinator", (4, 6), lambda _: {"KeyType": 0, "CoordinatorKeys": [GROUP]}),
    Right("LeaveGroup", (3, 5), lambda _: {"GroupId": GROUP, "Members": [{"MemberId": "nobody", "GroupInstanceId": None}]}),
    Right(
        "SyncGroup", (0, 5),
        lambda _: {"GroupId": GROUP, "GenerationId": 1, "MemberId": "nobody",
                   "Assignments": [{"MemberId": "nobody", "Assignment": b"a"}]},
    ),
    Right("Heartbeat", (0, 4), lambda _: {"GroupId": GROUP, "GenerationId": 1, "MemberId": "nobody"}),
    Right("DescribeGroups", (0, 6), lambda _: {"Groups": [GROUP]}),
    Right("ListGroups", (3, 5), lambda _: {"StatesFilter": ["Nonsense"], "TypesFilter": ["classic"]}),
    Right(
        "CreateTopics", (2, 7),
        lambda name: {"timeoutMs": 9000, "validateOnly": True, "Topics": [
            {"Name": name, "NumPartitions": -1, "ReplicationFactor": -1,
             "Configs": [{"Name": "retention.ms", "Value": "1"}],
             "Assignments": [{"PartitionIndex": 0, "BrokerIds": [1]}]}]},
    ),
    Right("DeleteTopics", (1, 5), lambda name: {"TopicNames": [name], "TimeoutMs": 9000},
          lambda name: [_create(_topic(name))]),
    Right("DeleteTopics", (6, 6), lambda name: {"Topics": [{"Name": name}], "TimeoutMs": 9000},
          lambda name: [_create(_topic(name))]),
    Right(
        "DeleteRecords", (0, 2),
        lambda _: {"TimeoutMs": 9000, "Topics": [{"Name": TOPIC, "Partitions": [{"PartitionIndex": 0, "Offset": 0}]}]},
    ),
    Right("InitProducerId", (0, 5), lambda _: {"TransactionalId": None, "TransactionTimeoutMs": 60_000}),
    Right(
        "OffsetForLeaderEpoch", (2, 4),
        lambda _: {"ReplicaId": -1, "Topics": [
            {"Topic": TOPIC, "Partitions": [{"Partition": 0, "CurrentLeaderEpoch": -1, "LeaderEpoch": 0}]}]},
    ),
    Right(
        "AddPartitionsToTxn", (0, 3),
        lambda name: {"V3AndBelowTransactionalId": name, "V3AndBelowProducerId": PRODUCER_ID,
                      "V3AndBelowTopics": [{"Name": TOPIC, "Partitions": [0]}]},
    ),
    Right(
        "AddPartitionsToTxn", (4, 5),
        lambda name: {"Transactions": [{"TransactionalId": name, "ProducerId": PRODUCER_ID, "VerifyOnly": True,
                                        "Topics": [{"Name": TOPIC, "Partitions": [0]}]}]},
        skip=("Transactions",),
    ),
    Right("AddOffsetsToTxn", (0, 4), lambda name: {"TransactionalId": name, "ProducerId": PRODUCER_ID, "GroupId": GROUP}),
    Right("EndTxn", (0, 5), lambda name: {"TransactionalId": name, "ProducerId": PRODUCER_ID}),
    Right(
        "WriteTxnMarkers", (1, 2),
        lambda _: {"Markers": [{"ProducerId": PRODUCER_ID, "ProducerEpoch": 0, "CoordinatorEpoch": 0,
                                "TransactionResult": False, "Topics": [{"Name": TOPIC, "PartitionIndexes": [1]}]}]},
        skip=("Topics", "PartitionIndexes"),
    ),
    Right(
        "TxnOffsetCommit", (0, 5),
        lambda name: {"TransactionalId": name, "GroupId": GROUP, "ProducerId": PRODUCER_ID, "GenerationIdOrMemberEpoch": -1,
                      "Topics": _partitions(CommittedOffset=5)},
    ),
    Right(
        "TxnOffsetCommit", (6, 6),
        lambda name: {"TransactionalId": name, "GroupId": GROUP, "ProducerId": PRODUCER_ID, "GenerationIdOrMemberEpoch": -1,
                      "Topics": [{"TopicId": _topic_id, "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 5}]}]},
    ),
    Right("DescribeConfigs", (1, 4), lambda _: {"Resources": [
        {"ResourceType": 2, "ResourceName": TOPIC, "ConfigurationKeys": ["retention.ms"]}]}),
    Right("AlterConfigs", (0, 2), lambda _: {"ValidateOnly": True, "Resources": [
        {"ResourceType": 2, "ResourceName": TOPIC, "Configs": [{"Name": "retention.ms", "Value": "604800000"}]}]},
        skip=("Resources",)),
    Right("IncrementalAlterConfigs", (0, 1), lambda _: {"ValidateOnly": True, "Resources": [
        {"ResourceType": 2, "ResourceName": TOPIC,
         "Configs": [{"Name": "retention.ms", "ConfigOperation": 0, "Value": "604800000"}]}]}),
    Right("AlterReplicaLogDirs", (1, 2), lambda _: {"Dirs": [
        {"Path": "/nowhere", "Topics": [{"Name": TOPIC, "Partitions": [0]}]}]}),
    Right("DescribeLogDirs", (1, 4), lambda _: {"Topics": [{"Topic": TOPIC, "Partitions": [0]}]}, skip=("Topics",)),
    Right("CreatePartitions", (0, 3), lambda _: {"TimeoutMs": 9000, "ValidateOnly": True, "Topics": [
        {"Name": TOPIC, "Count": 3, "Assignments": [{"BrokerIds": [1]}]}]}),
    Right("DeleteGroups", (0, 3), lambda name: {"GroupsNames": [name]}, lambda name: [_commit(name, 0)]),
    Right("ElectLeaders", (0, 2), lambda _: {"ElectionType": 0, "TimeoutMs": 9000, "TopicPartitions": [
        {"Topic": TOPIC, "Partitions": [0]}]}),
    Right("AlterPartitionReassignments", (0, 1), lambda _: {"TimeoutMs": 9000, "Topics": [
        {"Name": TOPIC, "Partitions": [{"PartitionIndex": 0, "Replicas": [1]}]}]}),
    Right("ListPartitionReassignments", (0, 0), lambda _: {"TimeoutMs": 9000, "Topics": [
        {"Name": TOPIC, "PartitionIndexes": [0]}]}),
    Right("OffsetDelete", (0, 0), lambda name: {"GroupId": name, "Topics": [
        {"Name": TOPIC, "Partitions": [{"PartitionIndex": 0}]}]}, lambda name: [_commit(name, 0, 1)]),
    Right("DescribeClientQuotas", (0, 1), lambda _: {"Components": [
        {"EntityType": "user", "MatchType": 0, "Match": "nobody"}]}),
    Right("AlterClientQuotas", (0, 1), lambda _: {"ValidateOnly": True, "Entries": [
        {"Entity": [{"EntityType": "user", "EntityName": "nobody"}],
         "Ops": [{"Key": "producer_byte_rate", "Value": 5.0, "Remove": False}]}]}),
    Right("DescribeUserScramCredentials", (0, 0), lambda _: {"Users": [{"Name": "nobody"}]}),
    Right("AlterUserScramCredentials", (0, 0), lambda _: {"Deletions": [{"Name": "nobody", "Mechanism": 1}]}),
    Right("UpdateFeatures", (0, 2), lambda _: {"timeoutMs": 9000, "ValidateOnly": True, "FeatureUpdates": [
        {"Feature": "transaction.version", "MaxVersionLevel": 2, "UpgradeType": 1}]}),
    Right("DescribeCluster", (0, 2), lambda _: {"EndpointType": 1}),
    Right("DescribeProducers", (0, 0), lambda _: {"Topics": [{"Name": TOPIC, "PartitionIndexes": [0]}]}),
    Right("DescribeTransactions", (0, 0), lambda _: {"TransactionalIds": ["nobody"]}),
    Right("ListTransactions", (0, 2), lambda _: {"StateFilters": ["Ongoing"], "ProducerIdFilters": [1 << 40],
                                                 "TransactionalIdPattern": "a.*"}),
    Right("ConsumerGroupDescribe", (0, 1), lambda _: {"GroupIds": [GROUP]}),
    Right("ListConfigResources", (0, 1), lambda _: {"ResourceTypes": [16]}),
    Right("DescribeTopicPartitions", (0, 0), lambda _: {"Topics": [{"Name": TOPIC}], "ResponsePartitionLimit": 10}),
    Right("ShareGroupDescribe", (1, 1), lambda _: {"GroupIds": [GROUP]}),
    Right("StreamsGroupDescribe", (0, 1), lambda _: {"GroupIds": [GROUP]}),
    Right("DescribeShareGroupOffsets", (0, 1), lambda _: {"Groups": [
        {"GroupId": SHARE_GROUP, "Topics": [{"TopicName": TOPIC, "Partitions": [0]}]}]}),
    Right("AlterShareGroupOffsets", (0, 0), lambda _: {"GroupId": SHARE_GROUP, "Topics": [
        {"TopicName": TOPIC, "Partitions": [{"PartitionIndex": 0, "StartOffset": 0}]}]}),
    Right("DeleteShareGroupOffsets", (0, 0), lambda name: {"GroupId": name, "Topics": [{"TopicName": TOPIC}]}),
    Right("DescribeAcls", (1, 3), lambda _: {
        "ResourceTypeFilter": 1, "PatternTypeFilter": 1, "Operation": 1, "PermissionType": 1}),
    Right("Produce", (3, 12), _produce, skip=("Acks", "Records"), has_topics=True),
)  # fmt: skip


def _topics() -> list[Values]:
    return [
        _topic(f"{right.api.lower()}-{version}-{number}")
        for right in RIGHT
        if right.has_topics
        for version in range(right.versions[0], right.versions[1] + 1)
        for number, _ in enumerate(variants(right, version))
    ]


def steps() -> list[Step]:
    """Return all steps."""
    names = [f"mutated-{number}" for number in range(32)]
    query = {"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": -1}
    first = [
        Step("before mutated: made", *_create(_topic(TOPIC), *_topics())),
        Step(
            "mutated: topic", "Metadata", 12, {"Topics": [{"Name": TOPIC}], "AllowAutoTopicCreation": False}
        ),
        *(
            Step(
                f"mutated: coordinators of type {kind}",
                "FindCoordinator",
                4,
                {"KeyType": kind, "CoordinatorKeys": [GROUP]},
            )
            for kind in (0, 1)
        ),
        # These are asked until both sides answer alike: then there is a leader, and coordinators have read their topics.
        Step(
            "mutated: led",
            "ListOffsets",
            7,
            {"ReplicaId": -1, "Topics": [{"Name": TOPIC, "Partitions": [query]}]},
        ),
        Step("mutated: groups", "DescribeGroups", 5, {"Groups": names}),
        Step("mutated: transactions", "DescribeTransactions", 0, {"TransactionalIds": names}),
        # Kafka asks its controller for the first block of ids, and has the producer come again.
        Step(
            "mutated InitProducerId v4 of the first",
            "InitProducerId",
            4,
            {"TransactionalId": None, "TransactionTimeoutMs": 60_000},
            settles=True,
        ),
        Step("mutated: filled", "Produce", 9, _produce(TOPIC)),
        Step("mutated: committed", *_commit(GROUP, 0)),
    ]
    return [*first, *(step for right in RIGHT for step in steps_of(right))]
