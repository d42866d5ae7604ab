"""Snapshots of a metadata log (KIP-630): an image as records and batches, when one is due, and which ones go. Pure.

The rule: records are in the versions that the image's metadata.version has, the features first, so that any Kafka of that
level can read them; what was read again is the same image. Offsets in a snapshot count from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from barnabas.cluster.kraft.controller.versions import CONTROLLER_REGISTRATION_LEVEL, newest_version
from barnabas.cluster.kraft.decisions import SnapshotId
from barnabas.cluster.kraft.image import METADATA_VERSION, QuorumImage
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.values import Broker, Controller, Endpoint, LevelRange, Partition, Voter
from barnabas.records.building import encode_batch
from barnabas.records.control import ControlType, encode_key
from barnabas.records.record import Record
from barnabas.wire.generated.data import (
    kraft_version_record,
    snapshot_footer_record,
    snapshot_header_record,
    voters_record,
)
from barnabas.wire.generated.metadata_records.access_control_entry import AccessControlEntryRecord
from barnabas.wire.generated.metadata_records.client_quota import ClientQuotaRecord
from barnabas.wire.generated.metadata_records.config import ConfigRecord
from barnabas.wire.generated.metadata_records.delegation_token import DelegationTokenRecord
from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord
from barnabas.wire.generated.metadata_records.partition import PartitionRecord
from barnabas.wire.generated.metadata_records.producer_ids import ProducerIdsRecord
from barnabas.wire.generated.metadata_records.register_broker import RegisterBrokerRecord
from barnabas.wire.generated.metadata_records.register_controller import RegisterControllerRecord
from barnabas.wire.generated.metadata_records.topic import TopicRecord
from barnabas.wire.generated.metadata_records.user_scram_credential import UserScramCredentialRecord
from barnabas.wire.generated.metadata_records.zk_migration_state import ZkMigrationStateRecord
from barnabas.wire.metadata_records import encode_record

RECORDS_PER_BATCH: Final = 256
"""Records that are encoded between two checkpoints: a few milliseconds. Kafka's batches have up to 8 MiB."""

# --- an image as records --------------------------------------------------------------------------------------------


def image_records(image: QuorumImage) -> Iterator[tuple[Any, int]]:
    """Yield the records, with their versions, that lead to an image."""
    level = image.metadata_version
    if level:
        yield FeatureLevelRecord(METADATA_VERSION, level), 0
    for name, feature_level in image.features.items():
        if name != METADATA_VERSION:
            yield FeatureLevelRecord(name, feature_level), 0
    broker_version = newest_version("RegisterBrokerRecord", level)
    for broker in image.brokers.values():
        yield _broker(broker, broker_version), broker_version
    if level >= CONTROLLER_REGISTRATION_LEVEL:
        for controller in image.controllers.values():
            yield _controller(controller), 0
    partition_version = newest_version("PartitionRecord", level)
    for topic in image.topics.values():
        yield TopicRecord(topic.name, topic.id), 0
        for index, partition in image.partitions_of(topic):
            yield _partition(topic.id, index, partition, partition_version), partition_version
    for (resource_type, resource), values in image.settings.items():
        for name, value in values.items():
            yield ConfigRecord(resource_type, resource, name, value), 0
    for entity, limits in image.quotas.items():
        for name, limit in limits.items():
            parts = [ClientQuotaRecord.EntityData(kind, part) for kind, part in entity]
            yield ClientQuotaRecord(parts, name, limit), 0
    if image.producer_ids is not None:
        yield ProducerIdsRecord(-1, -1, image.producer_ids), 0
    yield from _access(image)
    if image.zk_migration is not None:
        yield ZkMigrationStateRecord(image.zk_migration), 0


def _access(image: QuorumImage) -> Iterator[tuple[Any, int]]:
    for acl_id, acl in image.acls.items():
        yield AccessControlEntryRecord(acl_id, *acl), 0
    for (name, mechanism), credential in image.users.items():
        yield (
            UserScramCredentialRecord(
                name,
                mechanism,
                credential.salt,
                credential.stored_key,
                credential.server_key,
                credential.iterations,
            ),
            0,
        )
    for token in image.tokens.values():
        yield (
            DelegationTokenRecord(
                owner=token.owner,
                requester=token.requester,
                renewers=list(token.renewers),
                issue_timestamp=token.issued_ms,
                max_timestamp=token.expires_max_ms,
                expiration_timestamp=token.expires_ms,
                token_id=token.token_id,
            ),
            0,
        )


def _broker(broker: Broker, version: int) -> RegisterBrokerRecord:
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


def _controller(controller: Controller) -> RegisterControllerRecord:
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


def _partition(topic_id: bytes, index: int, partition: Partition, version: int) -> PartitionRecord:
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


# --- records as batches ---------------------------------------------------------------------------------------------


def snapshot_batches(
    image: QuorumImage, leadership: Leadership, *, now_ms: int, records_per_batch: int = RECORDS_PER_BATCH
) -> Iterator[bytes]:
    """Yield the batches of the snapshot of an image, from its header to its footer.

    `leadership` has the voters at the image's position. Each batch takes a few milliseconds.
    """
    epoch = image.position.epoch
    header = snapshot_header_record.SnapshotHeaderRecord(
        last_contained_log_timestamp=image.position.timestamp_ms
    )
    controls = [(ControlType.SNAPSHOT_HEADER, snapshot_header_record.CODEC.encode_bytes(header, 0))]
    if leadership.kraft_version:
        controls.append((ControlType.KRAFT_VERSION, encode_kraft_version(leadership.kraft_version)))
        if leadership.voters:
            controls.append((ControlType.KRAFT_VOTERS, encode_voters(leadership.voters)))
    yield control_batch(controls, 0, epoch, now_ms)
    offset = len(controls)
    records: list[Record] = []
    for message, version in image_records(image):
        records.append(Record(offset, now_ms, None, encode_record(message, version)))
        offset += 1
        if len(records) == records_per_batch:
            yield encode_batch(records, leader_epoch=epoch)
            records = []
    if records:
        yield encode_batch(records, leader_epoch=epoch)
    footer = snapshot_footer_record.CODEC.encode_bytes(snapshot_footer_record.SnapshotFooterRecord(), 0)
    yield control_batch([(ControlType.SNAPSHOT_FOOTER, footer)], offset, epoch, now_ms)


def control_batch(
    controls: Sequence[tuple[ControlType, bytes]], offset: int, epoch: int, now_ms: int
) -> bytes:
    """Encode control records as a batch."""
    records = [
        Record(offset + index, now_ms, encode_key(control_type), value)
        for index, (control_type, value) in enumerate(controls)
    ]
    return encode_batch(records, control=True, leader_epoch=epoch)


def encode_kraft_version(level: int) -> bytes:
    """Encode the control record of a level of kraft.version."""
    return kraft_version_record.CODEC.encode_bytes(
        kraft_version_record.KRaftVersionRecord(kraft_version=level), 0
    )


def encode_voters(voters: Iterable[Voter]) -> bytes:
    """Encode the control record of the voters."""
    record = voters_record.VotersRecord(voters=[_voter(voter) for voter in voters])
    return voters_record.CODEC.encode_bytes(record, 0)


def _voter(voter: Voter) -> voters_record.VotersRecord.Voter:
    return voters_record.VotersRecord.Voter(
        voter.id,
        voter.directory_id,
        [voters_record.VotersRecord.Endpoint(*endpoint) for endpoint in voter.endpoints],
        voters_record.VotersRecord.KRaftVersionFeature(*voter.kraft_versions),
    )


# --- when, and which ------------------------------------------------------------------------------------------------


class SnapshotTimer:
    """Decides when a snapshot is due: after so many bytes of records, or so many ms; 0 ms for bytes alone."""

    def __init__(self, bytes_max: int, interval_ms: int, now_ms: int) -> None:
        self._bytes_max = bytes_max
        self._interval_ms = interval_ms
        self.reset(0, now_ms)

    def reset(self, bytes_applied: int, now_ms: int) -> None:
        """Begin to count: a snapshot was made or loaded, with so many bytes applied in all."""
        self._bytes_at, self._begun_ms = bytes_applied, now_ms

    def is_due(self, bytes_applied: int, now_ms: int) -> bool:
        """Say whether a snapshot should be made of what was applied just now."""
        if bytes_applied - self._bytes_at >= self._bytes_max:
            return True
        is_late = 0 < self._interval_ms <= now_ms - self._begun_ms
        return is_late and bytes_applied > self._bytes_at


class StoredSnapshot(NamedTuple):
    """A snapshot on the disk: its size in bytes, and the time of the last record in it."""

    id: SnapshotId
    size: int
    last_ms: int


def is_oldest_beyond(
    snapshots: Sequence[StoredSnapshot], log_bytes: int, *, bytes_max: int, age_ms_max: int, now_ms: int
) -> bool:
    """Say whether the first of the snapshots, the oldest, is to go, and the log before the second; -1 is no limit.

    The newest stays in any case.
    """
    if len(snapshots) < 2:
        return False
    total = log_bytes + sum(snapshot.size for snapshot in snapshots)
    return 0 <= bytes_max < total or 0 <= age_ms_max < now_ms - snapshots[0].last_ms
