"""Snapshots of a metadata log (KIP-630): an image as records and batches. Pure.

The rule: records have the versions of the image's metadata.version, features first, so that any Kafka of that level can
read them; replayed, they give the same image. Offsets in a snapshot count from 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from barnabas.cluster.kraft.controller.versions import CONTROLLER_REGISTRATION_LEVEL, newest_version
from barnabas.cluster.kraft.image import METADATA_VERSION, QuorumImage
from barnabas.cluster.kraft.quorum import Leadership, control_batch, encode_kraft_version, encode_voters
from barnabas.cluster.kraft.value_records import (
    broker_record,
    controller_record,
    partition_record,
    token_record,
)
from barnabas.records.building import encode_batch
from barnabas.records.control import ControlType
from barnabas.records.record import Record
from barnabas.wire.generated.data import snapshot_footer_record, snapshot_header_record
from barnabas.wire.generated.metadata_records.access_control_entry import AccessControlEntryRecord
from barnabas.wire.generated.metadata_records.client_quota import ClientQuotaRecord
from barnabas.wire.generated.metadata_records.config import ConfigRecord
from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord
from barnabas.wire.generated.metadata_records.producer_ids import ProducerIdsRecord
from barnabas.wire.generated.metadata_records.topic import TopicRecord
from barnabas.wire.generated.metadata_records.user_scram_credential import UserScramCredentialRecord
from barnabas.wire.generated.metadata_records.zk_migration_state import ZkMigrationStateRecord
from barnabas.wire.metadata_records import encode_record

RECORDS_PER_BATCH: Final = 256
"""Records encoded between two checkpoints: a few milliseconds. Kafka's batches have up to 8 MiB."""

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
        yield broker_record(broker, broker_version), broker_version
    if level >= CONTROLLER_REGISTRATION_LEVEL:
        for controller in image.controllers.values():
            yield controller_record(controller), 0
    partition_version = newest_version("PartitionRecord", level)
    for topic in image.topics.values():
        yield TopicRecord(topic.name, topic.id), 0
        for index, partition in image.partitions_of(topic):
            yield partition_record(topic.id, index, partition, partition_version), partition_version
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
        yield token_record(token), 0


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
