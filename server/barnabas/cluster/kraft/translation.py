"""Translation of changes of the quorum's image into changes of a broker's image. Pure.

The rule: only keys of the changes are used; values are read from the image after all changes, so that a topic deleted and
created again in one batch, or a partition that changed twice, is published once, in its last state. A broker's image has
each registered broker, either as alive or as fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.cluster.kraft.image import Change as QuorumChange
from barnabas.cluster.kraft.image import QuorumImage
from barnabas.cluster.kraft.transitions import KRAFT_VERSION
from barnabas.cluster.kraft.values import RECOVERING, Acl, Broker, Credential, Partition, Topic
from barnabas.cluster.metadata.changes import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    FeaturesChanged,
    LogDirsRegistered,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import TOPIC, BrokerInfo, Change, ClusterImage, PartitionInfo, TopicInfo
from barnabas.security.acls import AccessControlEntry, AclBinding, PatternType, Permission, ResourcePattern
from barnabas.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from barnabas.security.scram import ScramCredential


class UntranslatableError(Exception):
    """An entry of the quorum's image has a value that this broker does not support."""


class _Transition(NamedTuple):
    """An entry's value before the first and after the last change; None while it is absent."""

    before: Any
    after: Any


def translate(
    before: ClusterImage, changes: Iterable[QuorumChange], after: QuorumImage, *, kraft_version: int = 0
) -> Iterator[Change]:
    """Yield the resulting changes of a broker's image.

    `before` is the broker's image, `after` the quorum's with all `changes`. Deletions come first, then brokers, topics
    with their partitions, settings, and access. Raises UntranslatableError.
    """
    transitions: dict[tuple[str, Any], _Transition] = {}
    for change in changes:
        key = (change.kind, change.key)
        first = transitions.get(key)
        transitions[key] = _Transition(change.before if first is None else first.before, change.after)
    by_kind: dict[str, dict[Any, _Transition]] = {}
    for (kind, key), transition in transitions.items():
        if transition.before != transition.after:
            by_kind.setdefault(kind, {})[key] = transition
    if "feature" in by_kind or (before.features or {}).get(KRAFT_VERSION, 0) != kraft_version:
        yield _features(after, kraft_version)
    deleted = [change.before for change in by_kind.get("topic", {}).values() if change.after is None]
    yield from (TopicDeleted(topic.name) for topic in deleted if before.topic_id(topic.name) == topic.id)
    for broker_id in by_kind.get("broker", ()):
        yield from _broker(before, broker_id, after.brokers.get(broker_id))
    created = [
        change.after for change in by_kind.get("topic", {}).values() if change.before is None and change.after
    ]
    for topic in created:
        infos = tuple(partition_info(partition) for _, partition in after.partitions_of(topic))
        yield TopicCreated(TopicInfo(topic.name, topic.id, infos))
    yield from _partitions(before, by_kind.get("partition", {}), after, {topic.id for topic in created})
    yield from _settings(by_kind.get("setting", {}), after)
    if not _KINDS_OF_ACCESS.isdisjoint(by_kind):
        yield from _access(by_kind, after)


def partition_info(partition: Partition) -> PartitionInfo:
    """Return a partition in the form of a broker's image."""
    return PartitionInfo(
        partition.leader,
        partition.replicas,
        partition.isr,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.adding,
        partition.removing,
        recovering=partition.leader_recovery_state == RECOVERING,
        directories=partition.directories,
        elr=partition.elr,
        last_known_elr=partition.last_known_elr,
    )


def broker_info(broker: Broker) -> BrokerInfo:
    """Return a broker in the form of a broker's image."""
    return BrokerInfo(
        broker.id,
        broker.rack,
        {endpoint.name: (endpoint.host, endpoint.port) for endpoint in broker.endpoints},
        broker.epoch,
        broker.in_controlled_shutdown,
    )


def _features(after: QuorumImage, kraft_version: int) -> FeaturesChanged:
    levels = dict(after.features)
    if kraft_version:
        levels[KRAFT_VERSION] = kraft_version
    return FeaturesChanged(tuple(sorted(levels.items())), after.position.offset)


def _broker(before: ClusterImage, broker_id: int, broker: Broker | None) -> Iterator[Change]:
    if broker is None:
        if broker_id in before.brokers or broker_id in before.fenced:
            yield BrokerUnregistered(broker_id)
    elif broker.fenced:
        if (info := broker_info(broker)) != before.fenced.get(broker_id):
            yield BrokerFenced(info)
    elif (info := broker_info(broker)) != before.brokers.get(broker_id):
        yield BrokerRegistered(info)
    log_dirs = frozenset(broker.log_dirs) if broker is not None else frozenset()
    if log_dirs != before.log_dirs.get(broker_id, frozenset()):
        yield LogDirsRegistered(broker_id, log_dirs)


def _partitions(
    before: ClusterImage,
    changed: Mapping[tuple[bytes, int], _Transition],
    after: QuorumImage,
    created: set[bytes],
) -> Iterator[Change]:
    """Yield changes of partitions of existing topics; a topic's new partitions are one change."""
    added: dict[str, list[int]] = {}
    for (topic_id, index), transition in changed.items():
        topic: Topic | None = after.topics.get(topic_id)
        if topic is None or topic_id in created or transition.after is None:
            continue
        if index < len(before.topics[topic.name].partitions):
            yield PartitionChanged(topic.name, index, partition_info(transition.after))
        else:
            added.setdefault(topic.name, []).append(index)
    for name, indexes in added.items():
        topic_id = after.topic_ids[name]
        infos = tuple(partition_info(after.partitions[topic_id, index]) for index in sorted(indexes))
        yield PartitionsAdded(name, infos)


def _settings(changed: Iterable[tuple[int, str, str]], after: QuorumImage) -> Iterator[Change]:
    for resource in dict.fromkeys((kind, name) for kind, name, _ in changed):
        kind, name = resource
        if kind == TOPIC and name not in after.topic_ids:
            continue  # removed with the topic
        yield ConfigChanged(kind, name, tuple(sorted(after.settings.get(resource, {}).items())))


_KINDS_OF_ACCESS = frozenset(["quota", "acl", "user", "token"])


def _access(by_kind: Mapping[str, Mapping[Any, _Transition]], after: QuorumImage) -> Iterator[Change]:
    from barnabas.cluster.metadata.access_changes import (  # not needed by a broker without them
        AclAdded,
        AclRemoved,
        ClientQuotaChanged,
        DelegationTokenChanged,
        DelegationTokenRemoved,
        ScramCredentialChanged,
    )
    from barnabas.security.scram import BY_TYPE
    from barnabas.serving.quotas.entities import entity_of

    for entity in dict.fromkeys(key[0] for key in by_kind.get("quota", ())):
        yield ClientQuotaChanged(entity_of(entity), tuple(after.quotas.get(entity, {}).items()))
    acls = by_kind.get("acl", {}).values()
    yield from (AclRemoved(binding(change.before)) for change in acls if change.before is not None)
    yield from (AclAdded(binding(change.after)) for change in acls if change.after is not None)
    for (user, number), transition in by_kind.get("user", {}).items():
        mechanism = BY_TYPE.get(number)
        if mechanism is None:
            raise UntranslatableError(f"SCRAM mechanism {number} is unknown")
        yield ScramCredentialChanged(user, mechanism.name, _credential(transition.after))
    for token_id, transition in by_kind.get("token", {}).items():
        yield (
            DelegationTokenRemoved(token_id)
            if transition.after is None
            else DelegationTokenChanged(transition.after)
        )


def _credential(credential: Credential | None) -> ScramCredential | None:
    from barnabas.security.scram import ScramCredential

    if credential is None:
        return None
    return ScramCredential(
        credential.salt, credential.stored_key, credential.server_key, credential.iterations
    )


def binding(acl: Acl) -> AclBinding:
    """Return an ACL in the form of the authorizer. Raises UntranslatableError."""
    try:
        pattern = ResourcePattern(
            ResourceType(acl.resource_type), PatternType(acl.pattern_type), acl.resource_name
        )
        entry = AccessControlEntry(
            acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission)
        )
    except ValueError as error:
        raise UntranslatableError(f"an ACL has a number that is unknown: {error}") from None
    return AclBinding(pattern, entry)


def acl_of(acl: AclBinding) -> Acl:
    """Return an ACL as plain numbers, as in records: the inverse of `binding`."""
    (kind, pattern_type, name), (principal, host, operation, permission) = acl
    return Acl(int(kind), name, int(pattern_type), principal, host, int(operation), int(permission))


def access_changes(image: QuorumImage) -> Iterator[Change]:
    """Yield the changes that create the quotas, ACLs, users and tokens of an image. Raises UntranslatableError."""
    by_kind: dict[str, dict[Any, _Transition]] = {}
    for kind, key, value in image.entries():
        if kind in _KINDS_OF_ACCESS:
            by_kind.setdefault(kind, {})[key] = _Transition(None, value)
    yield from _access(by_kind, image)
