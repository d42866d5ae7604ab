"""Translation of a controller's requests into changes of the image. Pure.

The rule: LeaderAndIsr and UpdateMetadata have the same state of a partition, and either may arrive first: a state is
applied unless its (leader epoch, partition epoch) is older than the present one, and missing fields stay unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.cluster.metadata.changes import (
    BrokerRegistered,
    BrokerUnregistered,
    ControllerChanged,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import (
    NO_TOPIC_ID,
    BrokerInfo,
    Change,
    ClusterImage,
    PartitionInfo,
    TopicInfo,
)
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.stop_replica import StopReplicaRequest
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest
from barnabas.wire.topic_partitions import TopicPartition

LEADER_DURING_DELETE = -2
"""The leader of every partition of a topic that is being deleted."""
EPOCH_DURING_DELETE = -2
NO_EPOCH = -1
UNKNOWN = PartitionInfo(leader=-1, replicas=(), isr=(), leader_epoch=-1, partition_epoch=-1)
"""A partition that was not heard of yet, though one with a larger number was."""
INDEX_MAX = 200_000
"""The largest number of a partition that is believed: each smaller one takes memory too."""
LISTENERS_BY_PROTOCOL = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Names of listeners where they are not told (UpdateMetadata before v3): those of their protocols."""


@dataclass(slots=True)
class Learned:
    """Results of a request: changes of the image, and errors of single partitions."""

    changes: list[Change] = field(default_factory=list)
    errors: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    new: list[TopicPartition] = field(default_factory=list)
    """Replicas that begin with an empty log."""
    unnamed: list[str] = field(default_factory=list)
    """Topics without an id in the request."""
    deleted: list[tuple[TopicPartition, bytes]] = field(default_factory=list)
    """Partitions of topics that are being deleted, with the topic's id."""


@dataclass(slots=True)
class _Topic:
    """Topic of a request, with the states of its partitions."""

    name: str
    id: bytes
    states: Sequence[Any]


def of_leader_and_isr(image: ClusterImage, request: LeaderAndIsrRequest, broker_id: int) -> Learned:
    """Translate LeaderAndIsr: states of partitions with a replica on this broker.

    The errors: UNKNOWN_TOPIC_OR_PARTITION if it has none, STALE_CONTROLLER_EPOCH for an older leader epoch,
    INCONSISTENT_TOPIC_ID if another topic has the name here and was not deleted; new replicas imply a deletion.
    """
    learned = Learned(_controller(image, request.controller_id, request.controller_epoch))
    for topic in _topics(request):
        topic_before = image.topics.get(topic.name)
        if topic.id == NO_TOPIC_ID:
            learned.unnamed.append(topic.name)
        elif _is_another(topic_before, topic.id) and any(state.is_new for state in topic.states):
            topic_before = None
        infos: dict[int, PartitionInfo] = {}
        for state in topic.states:
            key = (topic.name, state.partition_index)
            before = _partition(topic_before, state.partition_index)
            error = _refusal(topic_before, topic.id, before, state, broker_id)
            if error is not None:
                learned.errors[key] = error
            elif not _is_older(state.leader_epoch, state.partition_epoch, before):
                if state.is_new:
                    learned.new.append(key)
                infos[state.partition_index] = PartitionInfo(
                    state.leader,
                    tuple(state.replicas),
                    tuple(state.isr),
                    state.leader_epoch,
                    state.partition_epoch,
                    tuple(state.adding_replicas),
                    tuple(state.removing_replicas),
                    before.offline if before is not None else (),
                )
        learned.changes += _of_topic(topic_before, topic.name, topic.id, infos)
    return learned


def _refusal(
    topic_before: TopicInfo | None, topic_id: bytes, before: PartitionInfo | None, state: Any, broker_id: int
) -> ErrorCode | None:
    if _is_another(topic_before, topic_id):
        return ErrorCode.INCONSISTENT_TOPIC_ID
    if broker_id not in state.replicas:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if before is not None and state.leader_epoch < before.leader_epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    return None


def of_update_metadata(
    image: ClusterImage, request: UpdateMetadataRequest, broker_id: int, broker_epoch: int
) -> Learned:
    """Translate UpdateMetadata: the controller, the live brokers, and states of partitions of all brokers.

    `broker_id` and `broker_epoch` are those of this broker; other epochs are unknown. A topic with a new id replaces the
    present one of that name; only a leader of -2 reports a deletion.
    """
    deleted: list[tuple[TopicPartition, bytes]] = []
    changes = _controller(image, request.controller_id, request.controller_epoch)
    changes += _of_brokers(image, request.live_brokers, broker_id, broker_epoch)
    for topic in _topics(request):
        topic_before = image.topics.get(topic.name)
        if any(state.leader == LEADER_DURING_DELETE for state in topic.states):
            deleted += [((topic.name, state.partition_index), topic.id) for state in topic.states]
            if topic_before is not None and not _is_another(topic_before, topic.id):
                changes.append(TopicDeleted(topic.name))
            continue
        if _is_another(topic_before, topic.id):
            topic_before = None
        infos: dict[int, PartitionInfo] = {}
        for state in topic.states:
            before = _partition(topic_before, state.partition_index)
            if _is_older(state.leader_epoch, state.zk_version, before):
                continue
            replicas = tuple(state.replicas)
            is_same_move = before is not None and before.replicas == replicas
            infos[state.partition_index] = PartitionInfo(
                state.leader,
                replicas,
                tuple(state.isr),
                state.leader_epoch,
                state.zk_version,
                before.adding if before is not None and is_same_move else (),
                before.removing if before is not None and is_same_move else (),
                tuple(state.offline_replicas),
            )
        changes += _of_topic(topic_before, topic.name, topic.id, infos)
    return Learned(changes, deleted=deleted)


@dataclass(frozen=True, slots=True)
class StoppedReplica:
    """A replica that is to stop, and perhaps to be deleted."""

    key: TopicPartition
    leader_epoch: int
    """-1 where the request does not have it, -2 while the topic is being deleted."""
    deletes: bool


def stopped_replicas(request: StopReplicaRequest) -> Iterator[StoppedReplica]:
    """The replicas that StopReplica names, in any version."""
    for item in request.ungrouped_partitions:
        yield StoppedReplica((item.topic_name, item.partition_index), NO_EPOCH, request.delete_partitions)
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield StoppedReplica((topic.name, index), NO_EPOCH, request.delete_partitions)
    for state in request.topic_states:
        for part in state.partition_states:
            yield StoppedReplica(
                (state.topic_name, part.partition_index), part.leader_epoch, part.delete_partition
            )


def of_stop_replica(image: ClusterImage, request: StopReplicaRequest, broker_id: int) -> Learned:
    """Translate StopReplica: the replicas that this broker must no longer have.

    A replica that only stops changes nothing: it may fetch while the broker lives, and the leader is informed by other
    requests. The error: FENCED_LEADER_EPOCH for an older leader epoch.
    """
    learned = Learned(_controller(image, request.controller_id, request.controller_epoch))
    for stopped in stopped_replicas(request):
        name, index = stopped.key
        info = _partition(image.topics.get(name), index)
        if info is None or broker_id not in info.replicas:
            continue
        if stopped.leader_epoch >= 0 and stopped.leader_epoch < info.leader_epoch:
            learned.errors[stopped.key] = ErrorCode.FENCED_LEADER_EPOCH
        elif stopped.deletes:
            remaining = tuple(other for other in info.replicas if other != broker_id)
            gone = info._replace(
                leader=-1 if info.leader == broker_id else info.leader,
                replicas=remaining,
                isr=tuple(other for other in info.isr if other != broker_id),
            )
            learned.changes.append(PartitionChanged(name, index, gone))
    return learned


# --- parts ------------------------------------------------------------------------------------------------------


def _controller(image: ClusterImage, controller_id: int, epoch: int) -> list[Change]:
    if (image.controller_id, image.controller_epoch) == (controller_id, epoch):
        return []
    return [ControllerChanged(controller_id, epoch)]


def _topics(request: LeaderAndIsrRequest | UpdateMetadataRequest) -> Iterator[_Topic]:
    """The partitions of a request by topic, also where it names the topic of each. Raises INVALID_REQUEST."""
    ungrouped: dict[str, list[Any]] = {}
    for state in request.ungrouped_partition_states:
        ungrouped.setdefault(state.topic_name, []).append(state)
    topics = [_Topic(item.topic_name, item.topic_id, item.partition_states) for item in request.topic_states]
    topics += [_Topic(name, NO_TOPIC_ID, states) for name, states in ungrouped.items()]
    for topic in topics:
        for state in topic.states:
            if not 0 <= state.partition_index <= INDEX_MAX:
                raise RequestError(
                    ErrorCode.INVALID_REQUEST, f"{topic.name}-{state.partition_index} is not a partition"
                )
        yield topic


def _partition(topic: TopicInfo | None, index: int) -> PartitionInfo | None:
    return topic.partitions[index] if topic is not None and index < len(topic.partitions) else None


def _is_another(topic_before: TopicInfo | None, topic_id: bytes) -> bool:
    """Return whether the known topic of a name has an id other than this."""
    return (
        topic_before is not None
        and topic_before.id != topic_id
        and NO_TOPIC_ID not in (topic_before.id, topic_id)
    )


def _is_older(leader_epoch: int, partition_epoch: int, partition_before: PartitionInfo | None) -> bool:
    return partition_before is not None and (leader_epoch, partition_epoch) < (
        partition_before.leader_epoch,
        partition_before.partition_epoch,
    )


def _of_topic(
    topic_before: TopicInfo | None, name: str, topic_id: bytes, infos: Mapping[int, PartitionInfo]
) -> Iterable[Change]:
    """The changes that bring these partitions into the image."""
    if not infos:
        return
    count = 1 + max(infos)
    if topic_before is None:
        yield TopicCreated(
            TopicInfo(name, topic_id, tuple([infos.get(index, UNKNOWN) for index in range(count)]))
        )
        return
    if topic_id not in (NO_TOPIC_ID, topic_before.id):
        # The same topic: controllers before 2.8 told no ids (KIP-516).
        topic_before = topic_before._replace(id=topic_id)
        yield TopicCreated(topic_before)
    before = len(topic_before.partitions)
    for index, info in infos.items():
        if index < before and topic_before.partitions[index] != info:
            yield PartitionChanged(name, index, info)
    if count > before:
        yield PartitionsAdded(name, tuple([infos.get(index, UNKNOWN) for index in range(before, count)]))


def _of_brokers(
    image: ClusterImage,
    live: Sequence[UpdateMetadataRequest.UpdateMetadataBroker],
    broker_id: int,
    broker_epoch: int,
) -> list[Change]:
    """Return the changes of brokers: new, changed and removed ones. A request without brokers has no changes."""
    if not live:
        return []
    changes: list[Change] = []
    for live_broker in live:
        broker = BrokerInfo(
            live_broker.id,
            live_broker.rack or None,
            _endpoints(live_broker),
            broker_epoch if live_broker.id == broker_id else -1,
        )
        if image.brokers.get(live_broker.id) != broker:
            changes.append(BrokerRegistered(broker))
    living = {live_broker.id for live_broker in live}
    changes += [BrokerUnregistered(broker) for broker in image.brokers if broker not in living]
    return changes


def _endpoints(live_broker: UpdateMetadataRequest.UpdateMetadataBroker) -> dict[str, tuple[str, int]]:
    if not live_broker.endpoints:
        return {LISTENERS_BY_PROTOCOL[0]: (live_broker.v0_host, live_broker.v0_port)}
    return {
        (item.listener or _protocol_name(item.security_protocol)).upper(): (item.host, item.port)
        for item in live_broker.endpoints
    }


def _protocol_name(number: int) -> str:
    return LISTENERS_BY_PROTOCOL[number] if 0 <= number < len(LISTENERS_BY_PROTOCOL) else f"PROTOCOL_{number}"
