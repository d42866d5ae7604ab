"""The cluster itself: brokers, their log dirs, features, replicas that move, elections, the quorum of controllers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.client.administration.base import Base, Outcome, by_topic, outcome
from barnabas.client.administration.words import PREFERRED, UPGRADE
from barnabas.client.errors import ClientError, check
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.topic_partitions import TopicPartition

_DESCRIBE_CLUSTER, _UPDATE_FEATURES, _ELECT_LEADERS = 60, 57, 43


class BrokerInfo(NamedTuple):
    """A broker as it advertises itself."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class ClusterInfo(NamedTuple):
    """A cluster; a controller of -1 means that none is known."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerInfo, ...]


class ReplicaSize(NamedTuple):
    """A replica in a log dir: its bytes, and how many offsets it lags behind; `is_future`: it moves there."""

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    """A log dir of a broker; -1 bytes if the broker does not report them."""

    broker_id: int
    path: str
    total_bytes: int
    usable_bytes: int
    error: ClientError | None
    replicas: tuple[ReplicaSize, ...]


class Feature(NamedTuple):
    """A feature: the levels that the broker supports, and the finalized one, None if it is not finalized."""

    name: str
    min_level: int
    max_level: int
    finalized_level: int | None


class Reassignment(NamedTuple):
    """Replicas of a partition that are being moved."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class QuorumNode(NamedTuple):
    """A voter or observer of the metadata quorum; times in ms since 1970, -1 if they are not reported."""

    node_id: int
    role: str
    log_end_offset: int
    fetched_at_ms: int
    caught_up_at_ms: int
    addresses: tuple[str, ...] = ()
    """HOST:PORT of its listeners, of a voter where the cluster tells them (Kafka 3.9)."""


class Cluster(Base):
    """Calls that concern brokers and replicas."""

    async def describe_cluster(self, *, fenced: bool = False) -> ClusterInfo:
        """Return the brokers, with `fenced` also the fenced ones. Raises ClientError."""
        connection = await self.client.any_connection()
        if _DESCRIBE_CLUSTER not in connection.versions:
            metadata = await self.client.ask(MetadataRequest(topics=[]), version_max=12)
            brokers = [
                BrokerInfo(broker.node_id, broker.host, broker.port, broker.rack, False)
                for broker in metadata.brokers
            ]
            return ClusterInfo(metadata.cluster_id or "", metadata.controller_id, tuple(_sorted(brokers)))
        from barnabas.wire.generated.describe_cluster import DescribeClusterRequest

        request = DescribeClusterRequest()
        version = connection.version_of(_DESCRIBE_CLUSTER)
        request.include_fenced_brokers = fenced and version >= 2
        response = await connection.ask(request, version=version)
        check(response.error_code, "describing the cluster", response.error_message)
        brokers = [
            BrokerInfo(broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced)
            for broker in response.brokers
        ]
        return ClusterInfo(response.cluster_id, response.controller_id, tuple(_sorted(brokers)))

    async def log_dirs(self, brokers: Iterable[int] | None = None) -> dict[int, list[LogDir] | ClientError]:
        """Return the log dirs of brokers."""
        from barnabas.wire.generated.describe_log_dirs import DescribeLogDirsRequest

        answers = await self._ask_brokers(DescribeLogDirsRequest(None), brokers)
        log_dirs: dict[int, list[LogDir] | ClientError] = {}
        for broker, answer in answers.items():
            if isinstance(answer, ClientError):
                log_dirs[broker] = answer
                continue
            error = outcome(answer.error_code, f"asking broker {broker} for its log dirs")
            log_dirs[broker] = error or [log_dir_of(broker, result) for result in answer.results]
        return log_dirs

    async def move_replicas(
        self, broker: int, dirs: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, Outcome]:
        """Move replicas of a broker to other log dirs of that broker."""
        from barnabas.wire.generated.alter_replica_log_dirs import AlterReplicaLogDirsRequest as Request

        request = Request()
        for path in sorted(set(dirs.values())):
            topics = by_topic(partition for partition, where in dirs.items() if where == path)
            request.dirs.append(
                Request.AlterReplicaLogDir(
                    path,
                    [Request.AlterReplicaLogDirTopic(topic, numbers) for topic, numbers in topics.items()],
                )
            )
        response = await self.client.ask_broker(broker, request)
        return {
            (topic.topic_name, partition.partition_index): outcome(
                partition.error_code, f"moving a replica on broker {broker}"
            )
            for topic in response.results
            for partition in topic.partitions
        }

    async def features(self, broker: int | None = None) -> list[Feature]:
        """Return the features of a broker and their finalized levels. Raises ClientError."""
        from barnabas.wire.generated.api_versions import ApiVersionsRequest

        connection = await (self.client.any_connection() if broker is None else self.client.broker(broker))
        settings = self.client.settings
        request = ApiVersionsRequest(settings.software_name, settings.software_version)
        response = await connection.ask(request, version_max=4)
        check(response.error_code, "asking for features")
        finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
        supported = {
            feature.name: (feature.min_version, feature.max_version)
            for feature in response.supported_features
        }
        return [
            Feature(name, *supported.get(name, (-1, -1)), finalized.get(name))
            for name in sorted({*supported, *finalized})
        ]

    async def update_features(
        self, levels: Mapping[str, int], *, kind: int = UPGRADE, only_check: bool = False
    ) -> dict[str, Outcome]:
        """Finalize levels of features; 0 disables a feature."""
        from barnabas.wire.generated.update_features import UpdateFeaturesRequest as Request

        version = await self._version(_UPDATE_FEATURES)
        request = Request(self._timeout_ms)
        for name, level in levels.items():
            update = Request.FeatureUpdateKey(name, level)
            if version:
                update.upgrade_type = kind
            else:
                update.allow_downgrade = kind != UPGRADE
            request.feature_updates.append(update)
        request.validate_only = only_check and version >= 1
        response = await self.client.ask_controller(request, version=version)
        if response.error_code or not response.results:  # since v2 there is one error for all
            check(response.error_code, "updating features", response.error_message)
            return dict.fromkeys(levels)
        return {
            result.feature: outcome(
                result.error_code, f"updating feature {result.feature!r}", result.error_message
            )
            for result in response.results
        }

    # --- replicas -------------------------------------------------------------------------------------------

    async def reassign(
        self, replicas: Mapping[TopicPartition, Iterable[int] | None]
    ) -> dict[TopicPartition, Outcome]:
        """Begin to move partitions to other brokers; None cancels a reassignment."""
        from barnabas.wire.generated.alter_partition_reassignments import (
            AlterPartitionReassignmentsRequest as Request,
        )

        request = Request(self._timeout_ms)
        for topic, numbers in by_topic(replicas).items():
            partitions = []
            for number in numbers:
                target = replicas[topic, number]
                partitions.append(
                    Request.ReassignablePartition(number, None if target is None else list(target))
                )
            request.topics.append(Request.ReassignableTopic(topic, partitions))
        response = await self.client.ask_controller(request)
        check(response.error_code, "reassigning partitions", response.error_message)
        return {
            (topic.name, partition.partition_index): outcome(
                partition.error_code,
                f"reassigning {topic.name}-{partition.partition_index}",
                partition.error_message,
            )
            for topic in response.responses
            for partition in topic.partitions
        }

    async def reassignments(self) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments that are in progress. Raises ClientError."""
        from barnabas.wire.generated.list_partition_reassignments import ListPartitionReassignmentsRequest

        response = await self.client.ask_controller(ListPartitionReassignmentsRequest(self._timeout_ms, None))
        check(response.error_code, "listing reassignments", response.error_message)
        return {
            (topic.name, partition.partition_index): Reassignment(
                tuple(partition.replicas),
                tuple(partition.adding_replicas),
                tuple(partition.removing_replicas),
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, *, kind: int = PREFERRED
    ) -> dict[TopicPartition, Outcome]:
        """Elect leaders of partitions, of all without a list; ELECTION_NOT_NEEDED is no error."""
        from barnabas.wire.generated.elect_leaders import ElectLeadersRequest as Request

        version = await self._version(_ELECT_LEADERS)
        request = Request(kind if version else 0, None, self._timeout_ms)
        if partitions is not None:
            topics = by_topic(partitions)
            request.topic_partitions = [
                Request.TopicPartitions(topic, numbers) for topic, numbers in topics.items()
            ]
        response = await self.client.ask_controller(request, version=version)
        check(response.error_code, "electing leaders")
        return {
            (topic.topic, partition.partition_id): outcome(
                0 if partition.error_code == ErrorCode.ELECTION_NOT_NEEDED else partition.error_code,
                f"electing a leader of {topic.topic}-{partition.partition_id}",
                partition.error_message,
            )
            for topic in response.replica_election_results
            for partition in topic.partition_result
        }

    async def unregister_broker(self, broker: int) -> None:
        """Remove the registration of a stopped broker from a cluster in KRaft mode. Raises ClientError."""
        from barnabas.wire.generated.unregister_broker import UnregisterBrokerRequest

        response = await self.client.ask_controller(UnregisterBrokerRequest(broker))
        check(response.error_code, f"unregistering broker {broker}", response.error_message)

    async def quorum(self) -> tuple[int, int, list[QuorumNode]]:
        """Return leader, epoch and nodes of the metadata quorum. Raises ClientError."""
        from barnabas.wire.generated.describe_quorum import DescribeQuorumRequest as Request

        topic = Request.TopicData("__cluster_metadata", [Request.PartitionData(0)])
        response = await self.client.ask(Request([topic]))
        check(response.error_code, "describing the quorum", response.error_message)
        partition = response.topics[0].partitions[0]
        check(partition.error_code, "describing the quorum", partition.error_message)
        listeners = {node.node_id: node.listeners for node in response.nodes}
        nodes = [_node(replica, "voter", listeners) for replica in partition.current_voters]
        nodes += [_node(replica, "observer", listeners) for replica in partition.observers]
        return partition.leader_id, partition.leader_epoch, nodes


def _sorted(brokers: Iterable[BrokerInfo]) -> list[BrokerInfo]:
    return sorted(brokers, key=lambda broker: broker.broker_id)


def log_dir_of(broker: int, result: Any) -> LogDir:
    """Return a log dir of a broker, from a DescribeLogDirs response."""
    replicas = tuple(
        ReplicaSize(
            topic.name,
            partition.partition_index,
            partition.partition_size,
            partition.offset_lag,
            partition.is_future_key,
        )
        for topic in sorted(result.topics, key=lambda topic: topic.name)
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    )
    error = outcome(result.error_code, f"log dir {result.log_dir} of broker {broker}")
    return LogDir(broker, result.log_dir, result.total_bytes, result.usable_bytes, error, replicas)


def _node(replica: Any, role: str, listeners: Mapping[int, Iterable[Any]]) -> QuorumNode:
    return QuorumNode(
        replica.replica_id,
        role,
        replica.log_end_offset,
        replica.last_fetch_timestamp,
        replica.last_caught_up_timestamp,
        tuple(f"{listener.host}:{listener.port}" for listener in listeners.get(replica.replica_id, ())),
    )
