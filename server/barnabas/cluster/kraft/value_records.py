"""Records of the metadata log that set a whole value of the image. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barnabas.cluster.kraft.values import Broker, Controller, Endpoint, LevelRange, Partition

if TYPE_CHECKING:
    from barnabas.security.tokens import Token
    from barnabas.wire.generated.metadata_records.delegation_token import DelegationTokenRecord
    from barnabas.wire.generated.metadata_records.partition import PartitionRecord
    from barnabas.wire.generated.metadata_records.register_broker import RegisterBrokerRecord
    from barnabas.wire.generated.metadata_records.register_controller import RegisterControllerRecord


def broker_record(broker: Broker, version: int) -> RegisterBrokerRecord:
    """Return the record of a broker, in a version of the record."""
    from barnabas.wire.generated.metadata_records.register_broker import RegisterBrokerRecord

    record = RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=_endpoints(RegisterBrokerRecord.BrokerEndpoint, broker.endpoints),
        features=_features(RegisterBrokerRecord.BrokerFeature, broker.features),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
    )
    if version >= 2:
        record.is_migrating_zk_broker = broker.is_migrating_zk_broker
    if version >= 3:
        record.log_dirs = list(broker.log_dirs)
    if version >= 4 and broker.cordoned_log_dirs is not None:
        record.cordoned_log_dirs = list(broker.cordoned_log_dirs)
    return record


def controller_record(controller: Controller) -> RegisterControllerRecord:
    """Return the record of a controller."""
    from barnabas.wire.generated.metadata_records.register_controller import RegisterControllerRecord

    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=_endpoints(RegisterControllerRecord.ControllerEndpoint, controller.endpoints),
        features=_features(RegisterControllerRecord.ControllerFeature, controller.features),
    )


def _endpoints(cls: Any, endpoints: Sequence[Endpoint]) -> list[Any]:
    return [cls(*endpoint) for endpoint in endpoints]


def _features(cls: Any, features: Sequence[tuple[str, LevelRange]]) -> list[Any]:
    return [cls(name, *levels) for name, levels in features]


def partition_record(topic_id: bytes, index: int, partition: Partition, version: int) -> PartitionRecord:
    """Return the record of a partition, in a version of the record."""
    from barnabas.wire.generated.metadata_records.partition import PartitionRecord

    record = PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
    if version >= 1:
        record.directories = list(partition.directories)
    if version >= 2:
        record.eligible_leader_replicas = list(partition.elr) or None
        record.last_known_elr = list(partition.last_known_elr) or None
    return record


def token_record(token: Token) -> DelegationTokenRecord:
    """Return the record of a delegation token."""
    from barnabas.wire.generated.metadata_records.delegation_token import DelegationTokenRecord

    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issued_ms,
        max_timestamp=token.expires_max_ms,
        expiration_timestamp=token.expires_ms,
        token_id=token.token_id,
    )
