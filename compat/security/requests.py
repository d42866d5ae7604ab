"""One request of every API, about resources with given names, in the fields of all its versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compat.kit.wire import ZERO_UUID, Values

GROUP_TYPE, TOPIC_TYPE = 32, 2
MEMBER = "b" * 22
FUTURE_DIR = "/nowhere"


@dataclass(frozen=True)
class Names:
    """Names in a request; `records` is a batch for Produce, `batch` whether it is transactional."""

    topic: str = "t"
    topic_id: bytes = ZERO_UUID
    group: str = "g"
    transactional_id: str = "x"
    new_topic: str = "new"
    records: bytes = b""
    is_transactional: bool = False
    producer: tuple[int, int] = (0, 0)


def _partition(index: int = 0, **more: object) -> Values:
    return {"PartitionIndex": index, **more}


def _commit(names: Names) -> Values:
    return {
        "GroupId": names.group,
        "Topics": [
            {
                "Name": names.topic,
                "TopicId": names.topic_id,
                "Partitions": [_partition(CommittedOffset=7, CommittedMetadata="m")],
            }
        ],
    }


def _producer(names: Names) -> Values:
    return {"ProducerId": names.producer[0], "ProducerEpoch": names.producer[1]}


def _epoch_group(names: Names) -> Values:
    return {"GroupIds": [names.group], "IncludeAuthorizedOperations": True}


def _states(names: Names, **more: object) -> Values:
    return {
        "GroupId": names.group,
        "Topics": [{"TopicId": names.topic_id, "Partitions": [{"Partition": 0, **more}]}],
    }


def _resources(names: Names, **more: object) -> Values:
    return {
        "Resources": [
            {"ResourceType": kind, "ResourceName": name, **more}
            for kind, name in ((TOPIC_TYPE, names.topic), (4, ""), (GROUP_TYPE, names.group))
            if kind != GROUP_TYPE or name
        ]
    }


def _altered(names: Names, **more: int) -> Values:
    values = _resources(names)
    for resource, (name, value) in zip(
        values["Resources"],
        (("retention.ms", "1000"), ("log.cleaner.threads", "1"), ("consumer.session.timeout.ms", "50000")),
        strict=True,
    ):
        resource["Configs"] = [{"Name": name, "Value": value, **more}]
    return values


def _of_share_session(names: Names, epoch: int, **more: int) -> Values:
    return {
        "GroupId": names.group,
        "MemberId": MEMBER,
        "ShareSessionEpoch": epoch,
        **more,
        "Topics": [{"TopicId": names.topic_id, "Partitions": [_partition(AcknowledgementBatches=[])]}],
    }


REQUESTS: dict[str, Callable[[Names], Values]] = {
    "CreateDelegationToken": lambda _: {
        "OwnerPrincipalType": "User",
        "OwnerPrincipalName": "another",
        "Renewers": [{"PrincipalType": "User", "PrincipalName": "b"}],
        "MaxLifetimeMs": -1,
    },
    "DescribeDelegationToken": lambda _: {"Owners": None},
    "DescribeUserScramCredentials": lambda _: {"Users": [{"Name": "nobody"}, {"Name": "somebody"}]},
    "AlterUserScramCredentials": lambda _: {
        "Deletions": [],
        "Upsertions": [
            {
                "Name": "u",
                "Mechanism": 1,
                "Iterations": 4096,
                "Salt": b"salt",
                "SaltedPassword": b"salted",
            }
        ],
    },
    "DescribeClientQuotas": lambda _: {"Components": [], "Strict": False},
    "AlterClientQuotas": lambda _: {
        "Entries": [
            {
                "Entity": [{"EntityType": "user", "EntityName": "u"}],
                "Ops": [{"Key": "producer_byte_rate", "Value": 1e9, "Remove": False}],
            }
        ],
        "ValidateOnly": False,
    },
    "Produce": lambda n: {
        "TransactionalId": n.transactional_id if n.is_transactional else None,
        "Acks": -1,
        "TimeoutMs": 5000,
        "TopicData": [
            {"Name": n.topic, "TopicId": n.topic_id, "PartitionData": [{"Index": 0, "Records": n.records}]}
        ],
    },
    "Fetch": lambda n: {
        "MaxBytes": 1 << 20,
        "Topics": [
            {
                "Topic": n.topic,
                "TopicId": n.topic_id,
                "Partitions": [{"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20}],
            }
        ],
    },
    "ListOffsets": lambda n: {
        "ReplicaId": -1,
        "Topics": [{"Name": n.topic, "Partitions": [_partition(Timestamp=-1, MaxNumOffsets=9)]}],
    },
    "Metadata": lambda n: {
        "Topics": [{"Name": n.topic}],
        "IncludeTopicAuthorizedOperations": True,
        "IncludeClusterAuthorizedOperations": True,
    },
    "OffsetCommit": lambda n: {**_commit(n), "GenerationIdOrMemberEpoch": -1},
    "OffsetFetch": lambda n: {
        "GroupId": n.group,
        "Topics": [{"Name": n.topic, "PartitionIndexes": [0]}],
        "Groups": [
            {
                "GroupId": n.group,
                "Topics": [{"Name": n.topic, "TopicId": n.topic_id, "PartitionIndexes": [0]}],
            }
        ],
    },
    "FindCoordinator": lambda n: {"Key": n.group, "KeyType": 0, "CoordinatorKeys": [n.group]},
    "JoinGroup": lambda n: {
        "GroupId": n.group,
        "SessionTimeoutMs": 10_000,
        "RebalanceTimeoutMs": 10_000,
        "ProtocolType": "consumer",
        "Protocols": [{"Name": "range", "Metadata": b""}],
    },
    "Heartbeat": lambda n: {"GroupId": n.group, "GenerationId": 1, "MemberId": "m"},
    "LeaveGroup": lambda n: {"GroupId": n.group, "MemberId": "m", "Members": [{"MemberId": "m"}]},
    "SyncGroup": lambda n: {
        "GroupId": n.group,
        "GenerationId": 1,
        "MemberId": "m",
        "ProtocolType": "consumer",
        "ProtocolName": "range",
    },
    "DescribeGroups": lambda n: {"Groups": [n.group], "IncludeAuthorizedOperations": True},
    "ListGroups": lambda _: {},
    "CreateTopics": lambda n: {
        "Topics": [{"Name": n.new_topic, "NumPartitions": 1, "ReplicationFactor": 1}],
        "timeoutMs": 5000,
    },
    "DeleteTopics": lambda n: {"Topics": [{"Name": n.topic}], "TopicNames": [n.topic], "TimeoutMs": 5000},
    "DeleteRecords": lambda n: {
        "Topics": [{"Name": n.topic, "Partitions": [_partition(Offset=1)]}],
        "TimeoutMs": 5000,
    },
    "InitProducerId": lambda n: {
        "TransactionalId": n.transactional_id if n.is_transactional else None,
        "TransactionTimeoutMs": 60_000,
    },
    "OffsetForLeaderEpoch": lambda n: {
        "ReplicaId": -1,
        "Topics": [{"Topic": n.topic, "Partitions": [{"Partition": 0, "LeaderEpoch": 0}]}],
    },
    "AddPartitionsToTxn": lambda n: {
        "Transactions": [
            {
                "TransactionalId": n.transactional_id,
                **_producer(n),
                "Topics": [{"Name": n.topic, "Partitions": [0]}],
            }
        ],
        "V3AndBelowTransactionalId": n.transactional_id,
        "V3AndBelowProducerId": n.producer[0],
        "V3AndBelowProducerEpoch": n.producer[1],
        "V3AndBelowTopics": [{"Name": n.topic, "Partitions": [0]}],
    },
    "AddOffsetsToTxn": lambda n: {"TransactionalId": n.transactional_id, **_producer(n), "GroupId": n.group},
    "EndTxn": lambda n: {"TransactionalId": n.transactional_id, **_producer(n), "Committed": True},
    "WriteTxnMarkers": lambda n: {
        "Markers": [
            {
                **_producer(n),
                "TransactionResult": True,
                "Topics": [{"Name": n.topic, "PartitionIndexes": [0]}],
            }
        ]
    },
    "TxnOffsetCommit": lambda n: {**_commit(n), "TransactionalId": n.transactional_id, **_producer(n)},
    "DescribeAcls": lambda _: {
        "ResourceTypeFilter": 1,
        "PatternTypeFilter": 1,
        "Operation": 1,
        "PermissionType": 1,
    },
    "CreateAcls": lambda n: {
        "Creations": [
            {
                "ResourceType": 2,
                "ResourceName": n.topic,
                "Principal": "User:b",
                "Host": "*",
                "Operation": 3,
                "PermissionType": 3,
            }
        ]
    },
    "DeleteAcls": lambda _: {
        "Filters": [{"ResourceTypeFilter": 1, "PatternTypeFilter": 1, "Operation": 1, "PermissionType": 1}]
    },
    "DescribeConfigs": lambda n: _resources(n, ConfigurationKeys=["retention.ms"]),
    "AlterConfigs": _altered,
    "AlterReplicaLogDirs": lambda n: {
        "Dirs": [{"Path": FUTURE_DIR, "Topics": [{"Name": n.topic, "Partitions": [0]}]}]
    },
    "DescribeLogDirs": lambda _: {"Topics": None},
    "CreatePartitions": lambda n: {"Topics": [{"Name": n.topic, "Count": 5}], "TimeoutMs": 5000},
    "DeleteGroups": lambda n: {"GroupsNames": [n.group]},
    "ElectLeaders": lambda n: {
        "TopicPartitions": [{"Topic": n.topic, "Partitions": [0]}],
        "TimeoutMs": 5000,
    },
    "IncrementalAlterConfigs": lambda n: _altered(n, ConfigOperation=0),
    "AlterPartitionReassignments": lambda n: {
        "TimeoutMs": 5000,
        "Topics": [{"Name": n.topic, "Partitions": [_partition(Replicas=[1])]}],
    },
    "ListPartitionReassignments": lambda n: {
        "TimeoutMs": 5000,
        "Topics": [{"Name": n.topic, "PartitionIndexes": [0]}],
    },
    "OffsetDelete": lambda n: {
        "GroupId": n.group,
        "Topics": [{"Name": n.topic, "Partitions": [_partition()]}],
    },
    "UpdateFeatures": lambda _: {
        "timeoutMs": 5000,
        "FeatureUpdates": [{"Feature": "transaction.version", "MaxVersionLevel": 1, "UpgradeType": 2}],
    },
    "DescribeCluster": lambda _: {"IncludeClusterAuthorizedOperations": True, "EndpointType": 1},
    "DescribeProducers": lambda n: {"Topics": [{"Name": n.topic, "PartitionIndexes": [0]}]},
    "DescribeTransactions": lambda n: {"TransactionalIds": [n.transactional_id]},
    "ListTransactions": lambda _: {},
    "ConsumerGroupHeartbeat": lambda n: {
        "GroupId": n.group,
        "MemberId": MEMBER,
        "MemberEpoch": 0,
        "RebalanceTimeoutMs": 10_000,
        "SubscribedTopicNames": [n.topic],
        "TopicPartitions": [],
    },
    "ConsumerGroupDescribe": _epoch_group,
    "ListConfigResources": lambda _: {},
    "DescribeTopicPartitions": lambda n: {"Topics": [{"Name": n.topic}], "ResponsePartitionLimit": 100},
    "ShareGroupHeartbeat": lambda n: {
        "GroupId": n.group,
        "MemberId": MEMBER,
        "MemberEpoch": 0,
        "SubscribedTopicNames": [n.topic],
    },
    "ShareGroupDescribe": _epoch_group,
    "ShareFetch": lambda n: _of_share_session(n, 0, MaxBytes=1 << 20, MaxRecords=10, BatchSize=10),
    "ShareAcknowledge": lambda n: _of_share_session(n, 1),
    "InitializeShareGroupState": lambda n: _states(n, StateEpoch=1, StartOffset=0),
    "ReadShareGroupState": lambda n: _states(n, LeaderEpoch=0),
    "WriteShareGroupState": lambda n: _states(n, StateEpoch=1, LeaderEpoch=0, StartOffset=0),
    "DeleteShareGroupState": lambda n: _states(n),
    "ReadShareGroupStateSummary": lambda n: _states(n, LeaderEpoch=0),
    "StreamsGroupHeartbeat": lambda n: {
        "GroupId": n.group,
        "MemberId": MEMBER,
        "MemberEpoch": 0,
        "RebalanceTimeoutMs": 10_000,
        "ProcessId": "p",
        "ClientTags": [],
        "TaskOffsets": None,
        "ActiveTasks": [],
        "StandbyTasks": [],
        "WarmupTasks": [],
        "Topology": {
            "Epoch": 0,
            "Subtopologies": [
                {
                    "SubtopologyId": "s",
                    "SourceTopics": [n.topic],
                    "StateChangelogTopics": [{"Name": f"{n.new_topic}-changelog", "ReplicationFactor": 1}],
                }
            ],
        },
    },
    "StreamsGroupDescribe": _epoch_group,
    "StreamsGroupTopologyDescriptionUpdate": lambda n: {"GroupId": n.group, "MemberId": "m"},
    "DescribeShareGroupOffsets": lambda n: {
        "Groups": [{"GroupId": n.group, "Topics": [{"TopicName": n.topic, "Partitions": [0]}]}]
    },
    "AlterShareGroupOffsets": lambda n: {
        "GroupId": n.group,
        "Topics": [{"TopicName": n.topic, "Partitions": [_partition(StartOffset=0)]}],
    },
    "DeleteShareGroupOffsets": lambda n: {"GroupId": n.group, "Topics": [{"TopicName": n.topic}]},
}
