"""Znodes as values of the controller's core. Pure."""

from __future__ import annotations

from barnabas.cluster.controller.state import Broker, Endpoint, PartitionState
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.session import Stat
from barnabas.wire.topic_partitions import TopicPartition

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


def broker_of(broker_id: int, data: bytes, stat: Stat) -> Broker:
    """Return a registered broker; its epoch is the zxid that created the znode. Raises ZnodeError."""
    registration = znodes.decode_broker(broker_id, data)
    endpoints = tuple(
        Endpoint(
            endpoint.listener, endpoint.host, endpoint.port, SECURITY_PROTOCOLS.get(endpoint.protocol, 0)
        )
        for endpoint in registration.endpoints
    )
    return Broker(broker_id, stat.created, endpoints, registration.rack)


def state_of(partition: TopicPartition, data: bytes, stat: Stat) -> PartitionState:
    """Return the state of a partition, with the version of its znode. Raises ZnodeError."""
    partition_state = znodes.decode_state(*partition, data)
    return PartitionState(
        partition_state.leader,
        partition_state.isr,
        partition_state.leader_epoch,
        partition_state.controller_epoch,
        stat.version,
        partition_state.is_recovering,
        stat.modified,
    )


def encoded_state(state: PartitionState) -> bytes:
    """Write the state of a partition."""
    return znodes.encode_state(
        znodes.PartitionState(
            state.leader, state.leader_epoch, state.isr, state.controller_epoch, state.recovering
        )
    )
