"""CreateTopics v2-v7 and CreatePartitions v0-v3. Pure.

CreateTopics: v4 accepts -1 for the defaults of partitions and replicas, v5 returns the topic's settings, v7 its id.

The rule: each topic is created or refused on its own; the records of all created topics are one batch. A caller cannot tell
a topic that it may not describe from a missing one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.cluster.kraft.controller.conditions import (
    check_size,
    default_dir,
    effective_config,
    has_directories,
    is_active,
)
from barnabas.cluster.kraft.controller.index import index_of, unified
from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, Handlers, Outcome, Steps
from barnabas.cluster.kraft.controller.placement import has_room, place, usable_brokers
from barnabas.cluster.kraft.controller.settings import check_topic_configs
from barnabas.cluster.kraft.image import TOPIC, QuorumImage
from barnabas.cluster.metadata import topic_decisions
from barnabas.cluster.metadata.described_topic import described_settings
from barnabas.config.broker import DEFAULT_REPLICATION_FACTOR, NUM_PARTITIONS
from barnabas.config.loading import BrokerConfig
from barnabas.errors import RequestError, detached
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.wire.generated.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata_records.config import ConfigRecord
from barnabas.wire.generated.metadata_records.partition import PartitionRecord
from barnabas.wire.generated.metadata_records.topic import TopicRecord
from barnabas.wire.ids import new_uuid

Replicas = tuple[int, ...]

_New = CreateTopicsRequest.CreatableTopic
_Created = CreateTopicsResponse.CreatableTopicResult
_DEFAULT = -1
CONFIGS_SINCE = 5


def create_topics(state: ControllerState, request: CreateTopicsRequest, caller: Caller) -> Steps[Outcome]:
    """Create topics, or only validate the request. Raises POLICY_VIOLATION for too many partitions at once."""
    counts = Counter(topic.name for topic in request.topics)
    refused = _forbidden(counts, caller)
    topics = [topic for topic in request.topics if topic.name not in refused]
    topic_decisions.check_partition_count(sum(_partition_count(state, topic) for topic in topics))
    results: list[_Created] = []
    records: list[Any] = []
    similar: dict[str, str] = {}
    config = effective_config(state)
    for topic in topics:
        try:
            created, topic_records = _create(state, config, topic, similar, caller)
        except RequestError as error:
            refused[topic.name] = detached(error)
            continue
        results.append(created)
        records += topic_records
        yield
    check_size(records)
    results += [
        _Created(name=name, error_code=error.code, error_message=error.message or None)
        for name, error in refused.items()
    ]
    return Outcome(CreateTopicsResponse(topics=results), () if request.validate_only else tuple(records))


def _forbidden(counts: Mapping[str, int], caller: Caller) -> dict[str, RequestError]:
    """Return the errors of topics that are refused without a closer look, by name."""
    refused: dict[str, RequestError] = {}
    may_create_all = caller.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    for name, count in counts.items():
        if count > 1:
            refused[name] = RequestError(ErrorCode.INVALID_REQUEST, f"topic {name!r} is named twice")
        elif name == topic_decisions.CONTROLLERS_TOPIC:
            refused[name] = RequestError(
                ErrorCode.INVALID_REQUEST, f"the name {name} is taken by the controllers"
            )
        elif not may_create_all and not caller.may(Operation.CREATE, ResourceType.TOPIC, name):
            refused[name] = RequestError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"CREATE on TOPIC {name!r} is denied"
            )
    return refused


def _partition_count(state: ControllerState, topic: _New) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return (
        state.config.get(NUM_PARTITIONS) if topic.num_partitions == _DEFAULT else max(topic.num_partitions, 0)
    )


def _create(
    state: ControllerState, config: BrokerConfig, topic: _New, similar: dict[str, str], caller: Caller
) -> tuple[_Created, list[Any]]:
    """Return the result of a new topic, and its records; `similar` has the names of this request's topics, as metrics
    show them.
    """
    name = topic.name
    topic_decisions.check_topic_name(name)
    if name in state.image.topic_ids:
        raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
    why = check_topic_configs(state, {entry.name: entry.value for entry in topic.configs})
    if why is not None:
        raise why
    settings = {entry.name: entry.value or "" for entry in topic.configs}
    replicas, isrs = _replicas(state, topic)
    if "." in name or "_" in name:
        other = index_of(state).similar_topic(name) or similar.setdefault(unified(name), name)
        if other != name:
            raise topic_decisions.mixed_up(name, other)
    caller.charge(name, len(replicas))
    topic_id = new_uuid(state.entropy)
    records = [
        TopicRecord(name=name, topic_id=topic_id),
        *(ConfigRecord(TOPIC, name, setting, text) for setting, text in settings.items()),
        *_new_partitions(state.image, topic_id, 0, replicas, isrs),
    ]
    created = _Created(name=name, topic_id=topic_id, error_message=None)
    if not caller.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        created.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    else:
        created.num_partitions, created.replication_factor = len(replicas), len(replicas[0])
        if caller.version >= CONFIGS_SINCE:
            created.configs = described_settings(config, settings)
    return created, records


# --- replicas -------------------------------------------------------------------------------------------------------


def _replicas(state: ControllerState, topic: _New) -> tuple[list[Replicas], list[Replicas]]:
    """Return replicas and ISR of each partition of a new topic."""
    partitions, factor = topic.num_partitions, topic.replication_factor
    if topic.assignments:
        if partitions != _DEFAULT or factor != _DEFAULT:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, "either counts or replica assignments can be given, not both"
            )
        by_index = {entry.partition_index: tuple(entry.broker_ids) for entry in topic.assignments}
        if len(by_index) < len(topic.assignments):
            raise _bad_assignment("a partition is assigned twice")
        if sorted(by_index) != list(range(len(by_index))):
            raise _bad_assignment("partitions are not numbered from 0 without gaps")
        return _assigned(state.image, [by_index[index] for index in range(len(by_index))], None)
    if factor < _DEFAULT or factor == 0:
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor}: at least 1 is needed"
        )
    if partitions < _DEFAULT or partitions == 0:
        raise RequestError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions: at least 1 is needed")
    if factor == _DEFAULT:
        factor = state.config.get(DEFAULT_REPLICATION_FACTOR)
    return _placed(state, _partition_count(state, topic), factor)


def _placed(state: ControllerState, partitions: int, factor: int) -> tuple[list[Replicas], list[Replicas]]:
    replicas = place(usable_brokers(state.image), partitions, factor, state.entropy)
    isrs = [_in_sync(state.image, chosen) for chosen in replicas]
    if not all(isrs):
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "all brokers for a partition are fenced or shutting down"
        )
    return replicas, isrs


def _assigned(
    image: QuorumImage, assignments: Sequence[Replicas], factor: int | None
) -> tuple[list[Replicas], list[Replicas]]:
    """Return the replicas of a manual assignment, and their ISRs; each partition must have `factor` replicas; None: as
    many as the first.
    """
    isrs = []
    for replicas in assignments:
        check_assignment(image, replicas)
        factor = len(replicas) if factor is None else factor
        if len(replicas) != factor:
            raise _bad_assignment(f"a partition has {len(replicas)} replicas, and others have {factor}")
        isrs.append(_in_sync(image, replicas))
        if not isrs[-1]:
            raise _bad_assignment(f"all of the brokers {_shown(replicas)} are fenced or shutting down")
    return list(assignments), isrs


def check_assignment(image: QuorumImage, replicas: Sequence[int]) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless these are registered brokers, none of them twice.

    As in Kafka 4.4 each of them needs a log dir that is not cordoned, unless its log dirs are unknown.
    """
    if not replicas:
        raise _bad_assignment("a partition has no replicas")
    if len(set(replicas)) < len(replicas):
        raise _bad_assignment(f"a broker has more than one of the replicas {_shown(replicas)}")
    unknown = [broker_id for broker_id in replicas if broker_id not in image.brokers]
    if unknown:
        raise _bad_assignment(f"brokers {_shown(unknown)} are not registered")
    full = [broker_id for broker_id in replicas if not has_room(image.brokers[broker_id])]
    if full:
        raise _bad_assignment(f"brokers {_shown(full)} have cordoned all of their log dirs")


def _shown(replicas: Sequence[int]) -> str:
    more = " and more" if len(replicas) > topic_decisions.SHOWN_MAX else ""
    return f"{list(replicas[: topic_decisions.SHOWN_MAX])}{more}"


def _bad_assignment(why: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def _in_sync(image: QuorumImage, replicas: Replicas) -> Replicas:
    return tuple(broker_id for broker_id in replicas if is_active(image, broker_id))


def _new_partitions(
    image: QuorumImage, topic_id: bytes, first: int, replicas: Iterable[Replicas], isrs: Iterable[Replicas]
) -> list[PartitionRecord]:
    return [
        PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(chosen),
            isr=list(isr),
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[default_dir(image, broker_id) for broker_id in chosen]
            if has_directories(image)
            else [],
        )
        for index, (chosen, isr) in enumerate(zip(replicas, isrs, strict=True), first)
    ]


# --- growth ---------------------------------------------------------------------------------------------------------


def create_partitions(
    state: ControllerState, request: CreatePartitionsRequest, caller: Caller
) -> Steps[Outcome]:
    """Add partitions to topics, or only validate the request. Raises POLICY_VIOLATION for too many at once."""
    counts = Counter(topic.name for topic in request.topics)
    allowed: set[str] = set()
    growth = 0
    for topic in request.topics:
        if counts[topic.name] == 1 and caller.may(Operation.ALTER, ResourceType.TOPIC, topic.name):
            allowed.add(topic.name)
            growth += _growth(state.image, topic)
        yield
    topic_decisions.check_partition_count(growth)
    results: list[CreatePartitionsResponse.CreatePartitionsTopicResult] = []
    records: list[Any] = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        result = CreatePartitionsResponse.CreatePartitionsTopicResult(name=topic.name)
        try:
            if counts[topic.name] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, "the topic is named twice")
            if topic.name not in allowed:
                raise RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            records += _grow(state, topic, caller)
        except RequestError as error:
            result.error_code, result.error_message = error.code, error.message or None
        results.append(result)
        yield
    check_size(records)
    return Outcome(CreatePartitionsResponse(results=results), () if request.validate_only else tuple(records))


def _growth(image: QuorumImage, request: CreatePartitionsRequest.CreatePartitionsTopic) -> int:
    """Return how many partitions a topic would get, 0 if there is no such topic, or it has as many."""
    topic = image.topic(request.name)
    return max(0, request.count - image.partition_counts.get(topic.id, 0)) if topic is not None else 0


def _grow(
    state: ControllerState, request: CreatePartitionsRequest.CreatePartitionsTopic, caller: Caller
) -> list[PartitionRecord]:
    image = state.image
    topic = image.topic(request.name)
    if topic is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {request.name!r}")
    now = image.partition_counts.get(topic.id, 0)
    added = request.count - now
    if added <= 0:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {now} partitions; {request.count} are not more",
        )
    if request.assignments is not None and len(request.assignments) != added:
        raise _bad_assignment(
            f"{added} partitions are added, {len(request.assignments)} have replicas assigned"
        )
    caller.charge(topic.name, added)
    factor = len(image.partitions[topic.id, 0].replicas)
    if request.assignments is not None:
        assignments = [tuple(entry.broker_ids) for entry in request.assignments]
        replicas, isrs = _assigned(image, assignments, factor)
    else:
        replicas, isrs = _placed(state, added, factor)
    return _new_partitions(image, topic.id, now, replicas, isrs)


HANDLERS: Handlers = {19: create_topics, 37: create_partitions}
