"""For each API and version a request that is right in form and changes nothing: THE table of the probe and of frame cases.

The rule: read-only requests are sent unchanged. Others name objects that cannot exist (a topic, a group, a producer), or
have content that every broker must refuse, or an empty list. APIs between brokers are not used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from barnabas.records.building import encode_batch
from barnabas.records.legacy import encode_message_set
from barnabas.records.record import Record
from barnabas.tools.probing.messages import Values, make
from barnabas.wire import registry

NOBODY = "nobody"
RESOURCE_TOPIC, RESOURCE_BROKER = 2, 4
TIMESTAMP_MS = 1_700_000_000_000


class Effect(Enum):
    """Effect of a request of the table."""

    READS = "reads"
    REFUSED = "refused before any effect"


@dataclass(frozen=True, slots=True)
class Names:
    """Names for requests: a topic, a group and a transactional id that do not exist, and existing ones."""

    topic: str
    group: str
    transactional_id: str
    topic_id: bytes = field(default=bytes(range(16)))
    node_id: int = 0
    has_offsets_topic: bool = False
    has_transactions_topic: bool = False
    has_shares_topic: bool = False
    """True, as the two above, if the coordinator's internal topic is there, or may be made."""


Builder = Callable[[Names, int], Values]


@dataclass(frozen=True, slots=True)
class Harmless:
    """A row: the API, the effect of the request, and its content for a version."""

    name: str
    effect: Effect
    values: Builder
    ends_connection: bool = False
    """True if the connection cannot be used for anything else afterwards."""

    def request(self, names: Names, version: int) -> Any:
        """Return the request in a version."""
        return make(self.name, version, self.values(names, version))


def records_of(
    version: int, *values: bytes, timestamp_ms: int = TIMESTAMP_MS, key: bytes | None = b"k"
) -> bytes:
    """Return records in the format that Produce of this version carries: magic 0, 1 or 2."""
    records = [
        Record(offset, timestamp_ms if version >= 2 else -1, key, value)
        for offset, value in enumerate(values)
    ]
    return encode_message_set(records, magic=version // 2) if version < 3 else encode_batch(records)


def _produce(names: Names, version: int) -> Values:
    partition = {"index": 0, "records": records_of(version, b"v")}
    return {
        "acks": 1,
        "timeout_ms": 1000,
        "topic_data": [{"name": names.topic, "topic_id": names.topic_id, "partition_data": [partition]}],
    }


def _fetch(names: Names, _: int) -> Values:
    partition = {"partition": 0, "partition_max_bytes": 1 << 20}
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [{"topic": names.topic, "topic_id": names.topic_id, "partitions": [partition]}],
    }


def _metadata(names: Names, version: int) -> Values:
    # Before v4 a request cannot say that it must not make the topic.
    return {
        "topics": [{"name": names.topic}] if version >= 4 else [],
        "allow_auto_topic_creation": version < 4,
    }


def _offset_commit(names: Names, version: int) -> Values:
    # Before v1 a commit names no member, and would be taken.
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    topic = {"name": names.topic, "topic_id": names.topic_id, "partitions": [partition]}
    member = {"generation_id_or_member_epoch": 1, "member_id": NOBODY} if version >= 1 else {}
    return {"group_id": names.group, **member, "topics": [topic] if version >= 1 else []}


def _offset_fetch(names: Names, version: int) -> Values:
    if version >= 8:
        return {"groups": [{"group_id": names.group, "topics": None}]}
    return {"group_id": names.group, "topics": None if version >= 2 else []}


def _find_coordinator(names: Names, version: int) -> Values:
    # A broker without the topic of offsets would make it; a type of coordinator that there is not is refused.
    key_type = 0 if names.has_offsets_topic or version == 0 else 99
    if version >= 4:
        return {"key_type": key_type, "coordinator_keys": [names.group]}
    return {"key_type": key_type, "key": names.group}


def _leave_group(names: Names, version: int) -> Values:
    if version >= 3:
        return {"group_id": names.group, "members": [{"member_id": NOBODY}]}
    return {"group_id": names.group, "member_id": NOBODY}


def _delete_topics(names: Names, version: int) -> Values:
    named = {"topics": [{"name": names.topic}]} if version >= 6 else {"topic_names": [names.topic]}
    return {**named, "timeout_ms": 1000}


def _add_partitions(names: Names, version: int) -> Values:
    topics = [{"name": names.topic, "partitions": [0]}]
    if version >= 4:
        transaction = {"transactional_id": names.transactional_id, "producer_id": 1, "topics": topics}
        return {"transactions": [transaction]}
    return {
        "v3_and_below_transactional_id": names.transactional_id,
        "v3_and_below_producer_id": 1,
        "v3_and_below_topics": topics,
    }


def _producer(names: Names) -> dict[str, Any]:
    return {"transactional_id": names.transactional_id, "producer_id": 1, "producer_epoch": 0}


_ANY_ACL = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip


def _describe_acls(_: Names, version: int) -> Values:
    return _ANY_ACL if version >= 1 else {**_ANY_ACL, "pattern_type_filter": 3}


def _altered_topic(names: Names, _: int) -> Values:
    resource = {"resource_type": RESOURCE_TOPIC, "resource_name": names.topic, "configs": []}
    return {"resources": [resource], "validate_only": True}


def _topic_partitions(names: Names, **more: Any) -> dict[str, Any]:
    return {"topics": [{"name": names.topic, "partitions": [more]}]}


_CANNOT_BE = "no such name"
"""The name of a topic that no broker makes: it has spaces."""
_LARGEST = 2**31 - 1
READS, REFUSED = Effect.READS, Effect.REFUSED

_ROWS = (
    Harmless("Produce", REFUSED, _produce),
    Harmless("Fetch", READS, _fetch),
    Harmless("ListOffsets", READS, lambda n, _: {
        "replica_id": -1, **_topic_partitions(n, partition_index=0, timestamp=-1),
    }),
    Harmless("Metadata", READS, _metadata),
    Harmless("OffsetCommit", REFUSED, _offset_commit),
    Harmless("OffsetFetch", READS, _offset_fetch),
    Harmless("FindCoordinator", READS, _find_coordinator),
    Harmless("JoinGroup", REFUSED, lambda _, __: {
        "group_id": "", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }),
    Harmless("Heartbeat", REFUSED, lambda n, _: {"group_id": n.group, "generation_id": 1, "member_id": NOBODY}),
    Harmless("LeaveGroup", REFUSED, _leave_group),
    Harmless("SyncGroup", REFUSED, lambda n, _: {
        "group_id": n.group, "generation_id": 1, "member_id": NOBODY, "protocol_type": "consumer",
        "protocol_name": "range", "assignments": [{"member_id": NOBODY, "assignment": b""}],
    }),
    Harmless("DescribeGroups", READS, lambda n, _: {"groups": [n.group]}),
    Harmless("ListGroups", READS, lambda _, __: {"states_filter": ["Stable"], "types_filter": ["classic"]}),
    Harmless("SaslHandshake", REFUSED, lambda _, __: {"mechanism": "NO-SUCH-MECHANISM"}, ends_connection=True),
    Harmless("ApiVersions", READS, lambda _, __: {
        "client_software_name": "barnabas", "client_software_version": "1",
    }),
    Harmless("CreateTopics", REFUSED, lambda _, __: {
        "topics": [{
            "name": _CANNOT_BE, "num_partitions": 1, "replication_factor": 1,
            "configs": [{"name": "retention.ms", "value": "1"}],
        }],
        "timeout_ms": 1000, "validate_only": True,
    }),
    Harmless("DeleteTopics", REFUSED, _delete_topics),
    Harmless("DeleteRecords", REFUSED, lambda n, _: {
        "timeout_ms": 1000, **_topic_partitions(n, partition_index=0, offset=0),
    }),
    Harmless("InitProducerId", REFUSED, lambda _, __: {"transactional_id": "", "transaction_timeout_ms": 1000}),
    Harmless("OffsetForLeaderEpoch", READS, lambda n, _: {
        "replica_id": -1, "topics": [{"topic": n.topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}],
    }),
    Harmless("AddPartitionsToTxn", REFUSED, _add_partitions),
    Harmless("AddOffsetsToTxn", REFUSED, lambda n, _: {**_producer(n), "group_id": n.group}),
    Harmless("EndTxn", REFUSED, lambda n, _: _producer(n)),
    Harmless("WriteTxnMarkers", REFUSED, lambda _, __: {"markers": []}),
    Harmless("TxnOffsetCommit", REFUSED, lambda n, _: {
        **_producer(n), "group_id": n.group, "topics": [{
            "name": n.topic, "topic_id": n.topic_id, "partitions": [{"partition_index": 0, "committed_offset": 1}],
        }],
    }),
    Harmless("DescribeAcls", READS, _describe_acls),
    Harmless("CreateAcls", REFUSED, lambda _, __: {"creations": []}),
    Harmless("DeleteAcls", REFUSED, lambda _, __: {"filters": []}),
    Harmless("DescribeConfigs", READS, lambda n, _: {"resources": [{
        "resource_type": RESOURCE_BROKER, "resource_name": str(n.node_id), "configuration_keys": ["message.max.bytes"],
    }]}),
    Harmless("AlterConfigs", REFUSED, _altered_topic),
    Harmless("AlterReplicaLogDirs", REFUSED, lambda _, __: {"dirs": []}),
    Harmless("DescribeLogDirs", READS, lambda n, _: {"topics": [{"topic": n.topic, "partitions": [0]}]}),
    Harmless("SaslAuthenticate", REFUSED, lambda _, __: {"auth_bytes": b"nonsense"}, ends_connection=True),
    Harmless("CreatePartitions", REFUSED, lambda n, _: {
        "topics": [{"name": n.topic, "count": 5, "assignments": None}], "timeout_ms": 1000, "validate_only": True,
    }),
    Harmless("CreateDelegationToken", REFUSED, lambda _, __: {
        "renewers": [{"principal_type": "NoSuchType", "principal_name": NOBODY}], "max_lifetime_ms": 1000,
    }),
    Harmless("RenewDelegationToken", REFUSED, lambda _, __: {"hmac": b"none", "renew_period_ms": 1000}),
    Harmless("ExpireDelegationToken", REFUSED, lambda _, __: {"hmac": b"none", "expiry_time_period_ms": 1000}),
    Harmless("DescribeDelegationToken", READS, lambda _, __: {
        "owners": [{"principal_type": "User", "principal_name": NOBODY}],
    }),
    Harmless("DeleteGroups", REFUSED, lambda n, _: {"groups_names": [n.group]}),
    Harmless("ElectLeaders", REFUSED, lambda n, _: {
        "topic_partitions": [{"topic": n.topic, "partitions": [0]}], "timeout_ms": 1000,
    }),
    Harmless("IncrementalAlterConfigs", REFUSED, _altered_topic),
    Harmless("AlterPartitionReassignments", REFUSED, lambda n, _: {
        "timeout_ms": 1000, **_topic_partitions(n, partition_index=0, replicas=None),
    }),
    Harmless("ListPartitionReassignments", READS, lambda n, _: {
        "timeout_ms": 1000, "topics": [{"name": n.topic, "partition_indexes": [0]}],
    }),
    Harmless("OffsetDelete", REFUSED, lambda n, _: {"group_id": n.group, **_topic_partitions(n, partition_index=0)}),
    Harmless("DescribeClientQuotas", READS, lambda _, __: {
        "components": [{"entity_type": "user", "match_type": 0, "match": NOBODY}],
    }),
    Harmless("AlterClientQuotas", REFUSED, lambda _, __: {"entries": [], "validate_only": True}),
    Harmless("DescribeUserScramCredentials", READS, lambda n, _: {"users": [{"name": n.group}]}),
    Harmless("AlterUserScramCredentials", REFUSED, lambda n, _: {"deletions": [{"name": n.group, "mechanism": 1}]}),
    Harmless("DescribeQuorum", READS, lambda _, __: {
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
    }),
    Harmless("UpdateFeatures", REFUSED, lambda _, __: {
        "timeout_ms": 1000, "validate_only": True,
        "feature_updates": [{"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1}],
    }),
    Harmless("DescribeCluster", READS, lambda _, __: {}),
    Harmless("DescribeProducers", READS, lambda n, _: {"topics": [{"name": n.topic, "partition_indexes": [0]}]}),
    Harmless("UnregisterBroker", REFUSED, lambda _, __: {"broker_id": _LARGEST}),
    Harmless("UnregisterController", REFUSED, lambda _, __: {"controller_id": _LARGEST}),
    Harmless("DescribeTransactions", READS, lambda n, _: {"transactional_ids": [n.transactional_id]}),
    Harmless("ListTransactions", READS, lambda _, __: {"state_filters": ["Ongoing"]}),
    Harmless("ConsumerGroupHeartbeat", REFUSED, lambda _, __: {
        "group_id": "", "member_id": NOBODY, "member_epoch": 1, "topic_partitions": [],
    }),
    Harmless("ConsumerGroupDescribe", READS, lambda n, _: {"group_ids": [n.group]}),
    Harmless("GetTelemetrySubscriptions", READS, lambda _, __: {}),
    Harmless("PushTelemetry", REFUSED, lambda _, __: {"client_instance_id": bytes(16), "metrics": b""}),
    Harmless("ListConfigResources", READS, lambda _, __: {"resource_types": [16]}),
    Harmless("DescribeTopicPartitions", READS, lambda n, _: {
        "topics": [{"name": n.topic}], "response_partition_limit": 10,
    }),
    Harmless("ShareGroupHeartbeat", REFUSED, lambda _, __: {
        "group_id": "", "member_id": NOBODY, "member_epoch": 1, "subscribed_topic_names": [],
    }),
    Harmless("ShareGroupDescribe", READS, lambda n, _: {"group_ids": [n.group]}),
    Harmless("ShareFetch", REFUSED, lambda n, _: {
        "group_id": n.group, "member_id": "", "share_session_epoch": 7, "max_wait_ms": 0, "min_bytes": 0,
        "max_bytes": 1000, "max_records": 1, "batch_size": 1, "topics": [],
    }),
    Harmless("ShareAcknowledge", REFUSED, lambda n, _: {
        "group_id": n.group, "member_id": "", "share_session_epoch": 7, "topics": [],
    }),
    Harmless("AddRaftVoter", REFUSED, lambda _, __: {
        "cluster_id": "another cluster", "timeout_ms": 1000, "voter_id": _LARGEST, "listeners": [],
    }),
    Harmless("RemoveRaftVoter", REFUSED, lambda _, __: {"cluster_id": "another cluster", "voter_id": _LARGEST}),
    Harmless("InitializeShareGroupState", REFUSED, lambda n, _: {"group_id": n.group, "topics": []}),
    Harmless("ReadShareGroupState", READS, lambda n, _: {"group_id": n.group, "topics": []}),
    Harmless("WriteShareGroupState", REFUSED, lambda n, _: {"group_id": n.group, "topics": []}),
    Harmless("DeleteShareGroupState", REFUSED, lambda n, _: {"group_id": n.group, "topics": []}),
    Harmless("ReadShareGroupStateSummary", READS, lambda n, _: {"group_id": n.group, "topics": []}),
    Harmless("StreamsGroupHeartbeat", REFUSED, lambda _, __: {
        "group_id": "", "member_id": NOBODY, "member_epoch": 1, "active_tasks": [], "standby_tasks": [],
        "warmup_tasks": [],
    }),
    Harmless("StreamsGroupDescribe", READS, lambda n, _: {"group_ids": [n.group]}),
    Harmless("DescribeShareGroupOffsets", READS, lambda n, _: {"groups": [{"group_id": n.group, "topics": []}]}),
    Harmless("AlterShareGroupOffsets", REFUSED, lambda n, _: {
        "group_id": n.group,
        "topics": [{"topic_name": n.topic, "partitions": [{"partition_index": 0, "start_offset": 0}]}],
    }),
    Harmless("DeleteShareGroupOffsets", REFUSED, lambda n, _: {
        "group_id": n.group, "topics": [{"topic_name": n.topic}],
    }),
    Harmless("StreamsGroupTopologyDescriptionUpdate", REFUSED, lambda _, __: {"group_id": "", "member_id": NOBODY}),
)  # fmt: skip

BY_KEY: dict[int, Harmless] = {registry.key_of(row.name): row for row in _ROWS}
BETWEEN_BROKERS = frozenset((4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82))
"""Keys of APIs that only brokers and controllers ask each other; a broker may take a stranger for one of them."""
