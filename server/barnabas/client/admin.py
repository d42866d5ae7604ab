"""Administration of any Kafka: topics, groups, settings, access, brokers, transactions.

    async with open_client("localhost:9092") as client:
        admin = Admin(client)
        await admin.create_topics([NewTopic("events", partitions=3)])

The rule: as in `administration`, an outcome for each requested item.
"""

from __future__ import annotations

from barnabas.client.administration.access import Access, Acl, Principal, Quota, Token
from barnabas.client.administration.base import Outcome
from barnabas.client.administration.cluster import (
    BrokerInfo,
    Cluster,
    ClusterInfo,
    Feature,
    LogDir,
    QuorumNode,
    Reassignment,
    ReplicaSize,
)
from barnabas.client.administration.configs import ConfigChange, ConfigEntry, Configs, Resource
from barnabas.client.administration.groups import GroupInfo, GroupMember, Groups, ListedGroup
from barnabas.client.administration.offsets import CommittedOffset, Offsets
from barnabas.client.administration.topics import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NewTopic,
    OffsetAt,
    PartitionInfo,
    TopicInfo,
    Topics,
    partitions_of,
)
from barnabas.client.administration.transactions import (
    ListedTransaction,
    ProducerState,
    TransactionInfo,
    Transactions,
)

__all__ = [
    "EARLIEST", "LATEST", "MAX_TIMESTAMP", "Acl", "Admin", "BrokerInfo", "ClusterInfo", "CommittedOffset", "ConfigChange",
    "ConfigEntry", "Feature", "GroupInfo", "GroupMember", "ListedGroup", "ListedTransaction", "LogDir", "NewTopic",
    "OffsetAt", "Outcome", "PartitionInfo", "Principal", "ProducerState", "QuorumNode", "Quota", "Reassignment",
    "ReplicaSize", "Resource", "Token", "TopicInfo", "TransactionInfo", "partitions_of",
]  # fmt: skip


class Admin(Topics, Groups, Offsets, Configs, Access, Cluster, Transactions):
    """All calls, on a client that its user opens and closes."""
