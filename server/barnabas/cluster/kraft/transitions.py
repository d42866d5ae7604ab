"""Transitions of the image by each metadata record. Pure.

The rule: a record that does not fit the image (a missing partition, a broker of another epoch) or is not in the table is
a MetadataRecordError: a guess would make the image differ from the cluster's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.cluster.kraft.image import Draft
from barnabas.cluster.kraft.values import (
    MIGRATING,
    UNASSIGNED,
    Acl,
    Broker,
    Controller,
    Credential,
    Endpoint,
    LevelRange,
    Partition,
    Topic,
)
from barnabas.security.tokens import Token

KRAFT_VERSION = "kraft.version"
"""The feature of the Raft protocol: control records have its level, and a FeatureLevelRecord of it is ignored."""
UNCHANGED_LEADER = -2


class MetadataRecordError(Exception):
    """A metadata record that cannot be applied; the text names the record and the reason, without values of settings."""


def apply_record(draft: Draft, record: Any) -> None:
    """Apply a record to a draft. Raises MetadataRecordError, and then leaves the draft unchanged."""
    transition = _TRANSITIONS.get(type(record).__name__)
    if transition is None:
        raise MetadataRecordError(f"a {type(record).__name__} has no meaning here")
    transition(draft, record)


# --- nodes ----------------------------------------------------------------------------------------------------------


def _register_broker(draft: Draft, record: Any) -> None:
    cordoned = record.cordoned_log_dirs
    broker = Broker(
        record.broker_id,
        record.broker_epoch,
        record.incarnation_id,
        _endpoints(record.end_points),
        _features(record.features),
        record.rack,
        record.fenced,
        record.in_controlled_shutdown,
        _sorted(record.log_dirs),
        None if cordoned is None else _sorted(cordoned),
        record.is_migrating_zk_broker,
    )
    draft.put("broker", draft.brokers, broker.id, broker)


def _unregister_broker(draft: Draft, record: Any) -> None:
    broker = _broker(draft, record.broker_id, record.broker_epoch)
    draft.put("broker", draft.brokers, broker.id, None)


def _fence_broker(draft: Draft, record: Any) -> None:
    broker = _broker(draft, record.id, record.epoch)
    draft.put("broker", draft.brokers, broker.id, broker._replace(fenced=True))


def _unfence_broker(draft: Draft, record: Any) -> None:
    broker = _broker(draft, record.id, record.epoch)
    draft.put("broker", draft.brokers, broker.id, broker._replace(fenced=False))


def _change_broker(draft: Draft, record: Any) -> None:
    broker = _broker(draft, record.broker_id, record.broker_epoch)
    if record.fenced not in (-1, 0, 1) or record.in_controlled_shutdown not in (0, 1):
        raise MetadataRecordError(f"broker {broker.id} cannot change to such a state")
    if record.fenced:
        broker = broker._replace(fenced=record.fenced == 1)
    if record.in_controlled_shutdown:
        broker = broker._replace(in_controlled_shutdown=True)
    if record.log_dirs:
        broker = broker._replace(log_dirs=_sorted(record.log_dirs))
    if record.cordoned_log_dirs is not None:
        broker = broker._replace(cordoned_log_dirs=_sorted(record.cordoned_log_dirs))
    draft.put("broker", draft.brokers, broker.id, broker)


def _register_controller(draft: Draft, record: Any) -> None:
    controller = Controller(
        record.controller_id,
        record.incarnation_id,
        _endpoints(record.end_points),
        _features(record.features),
        record.zk_migration_ready,
    )
    draft.put("controller", draft.controllers, controller.id, controller)


def _unregister_controller(draft: Draft, record: Any) -> None:
    if record.controller_id not in draft.controllers.now:
        raise MetadataRecordError(f"controller {record.controller_id} is not registered")
    draft.put("controller", draft.controllers, record.controller_id, None)


def _broker(draft: Draft, broker_id: int, epoch: int) -> Broker:
    broker: Broker | None = draft.brokers.now.get(broker_id)
    if broker is None:
        raise MetadataRecordError(f"broker {broker_id} is not registered")
    if broker.epoch != epoch:
        raise MetadataRecordError(f"broker {broker_id} has epoch {broker.epoch}, not {epoch}")
    return broker


def _endpoints(listed: Sequence[Any]) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(endpoint.name, endpoint.host, endpoint.port, endpoint.security_protocol)
        for endpoint in listed
    )


def _features(listed: Sequence[Any]) -> tuple[tuple[str, LevelRange], ...]:
    return tuple(
        sorted(
            (feature.name, LevelRange(feature.min_supported_version, feature.max_supported_version))
            for feature in listed
        )
    )


def _sorted(directories: Sequence[bytes]) -> tuple[bytes, ...]:
    """Sort ids of log dirs as Kafka does: as two signed numbers each."""
    return tuple(sorted(directories, key=_signed))


def _signed(uuid: bytes) -> tuple[int, int]:
    return int.from_bytes(uuid[:8], "big", signed=True), int.from_bytes(uuid[8:], "big", signed=True)


# --- topics ---------------------------------------------------------------------------------------------------------


def _create_topic(draft: Draft, record: Any) -> None:
    if record.topic_id in draft.topics.now:
        raise MetadataRecordError(f"there is a topic with the id of {record.name} already")
    draft.put_topic(Topic(record.name, record.topic_id))


def _remove_topic(draft: Draft, record: Any) -> None:
    draft.remove_topic(_topic(draft, record.topic_id))


def _put_partition(draft: Draft, record: Any) -> None:
    topic = _topic(draft, record.topic_id)
    index = record.partition_id
    if index < 0:
        raise MetadataRecordError(f"{topic.name} cannot have a partition {index}")
    replicas = tuple(record.replicas)
    directories = tuple(record.directories) or (MIGRATING,) * len(replicas)
    if len(directories) != len(replicas):
        raise MetadataRecordError(f"partition {index} of {topic.name} has not as many log dirs as replicas")
    partition = Partition(
        replicas,
        tuple(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        record.leader_recovery_state,
        directories,
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
    )
    draft.put_partition(topic, index, partition)


def _change_partition(draft: Draft, record: Any) -> None:
    topic = _topic(draft, record.topic_id)
    key = (topic.id, record.partition_id)
    before: Partition | None = draft.partitions.now.get(key)
    if before is None:
        raise MetadataRecordError(f"there is no partition {record.partition_id} of {topic.name}")
    try:
        after = changed_partition(before, record)
    except ValueError as error:
        raise MetadataRecordError(f"partition {record.partition_id} of {topic.name} {error}") from None
    draft.put_partition(topic, record.partition_id, after)


def changed_partition(before: Partition, record: Any) -> Partition:
    """Return a partition after a PartitionChangeRecord. Raises ValueError for other log dirs than replicas."""
    replicas, directories = before.replicas, before.directories
    if record.replicas is not None:
        kept = dict(zip(replicas, directories, strict=True))
        replicas = tuple(record.replicas)
        directories = tuple(kept.get(replica, UNASSIGNED) for replica in replicas)
    if record.directories is not None:
        directories = tuple(record.directories)
    if len(directories) != len(replicas):
        raise ValueError("has not as many log dirs as replicas")
    has_leader = record.leader != UNCHANGED_LEADER
    recovery = record.leader_recovery_state
    elr, last_known_elr = record.eligible_leader_replicas, record.last_known_elr
    return Partition(
        replicas,
        before.isr if record.isr is None else tuple(record.isr),
        record.leader if has_leader else before.leader,
        before.leader_epoch + 1 if has_leader else before.leader_epoch,
        before.partition_epoch + 1,
        before.removing if record.removing_replicas is None else tuple(record.removing_replicas),
        before.adding if record.adding_replicas is None else tuple(record.adding_replicas),
        before.leader_recovery_state if recovery == -1 else recovery,
        directories,
        before.elr if elr is None else tuple(elr),
        before.last_known_elr if last_known_elr is None else tuple(last_known_elr),
    )


def _clear_elr(draft: Draft, record: Any) -> None:
    if record.topic_name:
        topic_id = draft.topic_ids.now.get(record.topic_name)
        if topic_id is None:
            raise MetadataRecordError(f"there is no topic {record.topic_name}")
        topics = [draft.topics.now[topic_id]]
    else:
        topics = list(draft.topics.now.values())
    for topic in topics:
        for index in range(draft.partition_counts.now.get(topic.id, 0)):
            before = draft.partitions.now.get((topic.id, index))
            if before is not None and (before.elr or before.last_known_elr):
                after = before._replace(elr=(), last_known_elr=(), partition_epoch=before.partition_epoch + 1)
                draft.put_partition(topic, index, after)


def _topic(draft: Draft, topic_id: bytes) -> Topic:
    topic: Topic | None = draft.topics.now.get(topic_id)
    if topic is None:
        raise MetadataRecordError(f"there is no topic with id {topic_id.hex()}")
    return topic


# --- settings, access, the rest -------------------------------------------------------------------------------------


def _configure(draft: Draft, record: Any) -> None:
    key = (record.resource_type, record.resource_name, record.name)
    draft.put_inner("setting", draft.settings, key, record.value)


def _put_acl(draft: Draft, record: Any) -> None:
    acl = Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )
    draft.put("acl", draft.acls, record.id, acl)


def _remove_acl(draft: Draft, record: Any) -> None:
    if record.id not in draft.acls.now:
        raise MetadataRecordError(f"there is no ACL with id {record.id.hex()}")
    draft.put("acl", draft.acls, record.id, None)


def _put_quota(draft: Draft, record: Any) -> None:
    entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
    value = None if record.remove else record.value
    draft.put_inner("quota", draft.quotas, (entity, record.key), value)


def _put_user(draft: Draft, record: Any) -> None:
    credential = Credential(record.salt, record.stored_key, record.server_key, record.iterations)
    draft.put("user", draft.users, (record.name, record.mechanism), credential)


def _remove_user(draft: Draft, record: Any) -> None:
    draft.put("user", draft.users, (record.name, record.mechanism), None)


def _put_token(draft: Draft, record: Any) -> None:
    token = Token(
        record.token_id,
        record.owner,
        record.requester,
        tuple(record.renewers),
        record.issue_timestamp,
        record.expiration_timestamp,
        record.max_timestamp,
    )
    draft.put("token", draft.tokens, token.token_id, token)


def _remove_token(draft: Draft, record: Any) -> None:
    draft.put("token", draft.tokens, record.token_id, None)


def _set_feature(draft: Draft, record: Any) -> None:
    if record.name != KRAFT_VERSION:
        draft.put("feature", draft.features, record.name, record.feature_level or None)


def _set_producer_ids(draft: Draft, record: Any) -> None:
    draft.put_single("producer_ids", record.next_producer_id)


def _set_zk_migration(draft: Draft, record: Any) -> None:
    draft.put_single("zk_migration", record.zk_migration_state)


def _nothing(draft: Draft, record: Any) -> None:
    pass


_TRANSITIONS: dict[str, Callable[[Draft, Any], None]] = {
    "RegisterBrokerRecord": _register_broker,
    "UnregisterBrokerRecord": _unregister_broker,
    "TopicRecord": _create_topic,
    "PartitionRecord": _put_partition,
    "ConfigRecord": _configure,
    "PartitionChangeRecord": _change_partition,
    "FenceBrokerRecord": _fence_broker,
    "UnfenceBrokerRecord": _unfence_broker,
    "RemoveTopicRecord": _remove_topic,
    "DelegationTokenRecord": _put_token,
    "UserScramCredentialRecord": _put_user,
    "FeatureLevelRecord": _set_feature,
    "ClientQuotaRecord": _put_quota,
    "ProducerIdsRecord": _set_producer_ids,
    "BrokerRegistrationChangeRecord": _change_broker,
    "AccessControlEntryRecord": _put_acl,
    "RemoveAccessControlEntryRecord": _remove_acl,
    "NoOpRecord": _nothing,
    "ZkMigrationStateRecord": _set_zk_migration,
    "RemoveUserScramCredentialRecord": _remove_user,
    "RemoveDelegationTokenRecord": _remove_token,
    "RegisterControllerRecord": _register_controller,
    "ClearElrRecord": _clear_elr,
    "UnregisterControllerRecord": _unregister_controller,
}
"""By class name, so that the module of a record is imported only when such a record comes."""
