"""A partition as Metadata and DescribeTopicPartitions describe it to one client.

The rule: a leader that the client cannot reach is not returned. LEADER_NOT_AVAILABLE if the partition has no leader, or the
leader is not alive or has no log; LISTENER_NOT_FOUND if it is alive without the listener that the client uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.cluster.metadata.endpoints import advertised_nodes
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.serving.context import ConnectionInfo

NO_LEADER = -1


class DescribedPartition(Protocol):
    """Fields of a partition's description that both APIs share."""

    error_code: int
    leader_id: int
    offline_replicas: list[int]


T = TypeVar("T", bound=DescribedPartition)


class PartitionDescriber:
    """Describes partitions of one image to one client."""

    def __init__(
        self,
        image: ClusterImage,
        connection: ConnectionInfo,
        *,
        replicas: Replicas,
        broker_id: int,
        names_listeners: bool = True,
        reachable_only: bool = False,
    ) -> None:
        """`names_listeners`: the client supports LISTENER_NOT_FOUND (Metadata v6).

        `reachable_only`: replicas that it cannot reach are omitted, with REPLICA_NOT_AVAILABLE (Metadata v0).
        """
        self.nodes = advertised_nodes(image, connection)
        """The brokers that the client can reach."""
        self._image = image
        self._reachable = frozenset(node.id for node in self.nodes)
        self._replicas = replicas
        self._broker_id = broker_id
        self._no_listener = (
            ErrorCode.LISTENER_NOT_FOUND if names_listeners else ErrorCode.LEADER_NOT_AVAILABLE
        )
        self._reachable_only = reachable_only

    def describe(self, topic: str, index: int, info: PartitionInfo, make: Callable[..., T]) -> T:
        """Return the result of `make` for a partition's description."""
        described = make(
            partition_index=index,
            leader_id=info.leader,
            leader_epoch=info.leader_epoch,
            replica_nodes=self._shown(info.replicas),
            isr_nodes=self._shown(info.isr),
            offline_replicas=list(self._image.offline_replicas(info)),
        )
        if self._replicas.is_offline(topic, index, info):
            described.error_code = ErrorCode.LEADER_NOT_AVAILABLE
            if self._broker_id not in described.offline_replicas:
                described.offline_replicas.append(self._broker_id)
        elif info.leader not in self._reachable:
            is_alive = info.leader in self._image.brokers
            described.error_code = self._no_listener if is_alive else ErrorCode.LEADER_NOT_AVAILABLE
        else:
            if self._reachable_only and not self._reachable.issuperset((*info.replicas, *info.isr)):
                described.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
            return described
        described.leader_id = NO_LEADER
        return described

    def _shown(self, broker_ids: Iterable[int]) -> list[int]:
        if self._reachable_only:
            return [broker_id for broker_id in broker_ids if broker_id in self._reachable]
        return list(broker_ids)
