"""Decisions of the controller about topics. Pure: an image and a request in, changes out.

The rule: a refused request raises the RequestError that its client must see, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from barnabas.cluster.metadata import assignment
from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import (
    TOPIC,
    Change,
    ClusterImage,
    PartitionInfo,
    TopicInfo,
)
from barnabas.config import topic as topic_settings
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError
from barnabas.errors import RequestError
from barnabas.log.format.names import why_no_topic
from barnabas.wire.generated.errors import ErrorCode

CONTROLLERS_TOPIC = "__cluster_metadata"
PARTITIONS_PER_REQUEST_MAX = 10_000
"""Kafka's MAX_PARTITIONS_PER_BATCH."""
SHOWN_MAX = 20
"""Largest number of replicas named in a message."""


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for a name that no topic can have."""
    why = why_no_topic(name)
    if why:
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)


def mixed_up(name: str, other: str) -> RequestError:
    """Return the error for a topic with metrics of the same name as those of another topic."""
    return RequestError(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"topic {name!r} would be mixed up with {other!r} where '.' and '_' count as one",
    )


def check_partition_count(count: int) -> None:
    """Raise POLICY_VIOLATION if one request has more new partitions than Apache Kafka allows."""
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION,
            f"{count} partitions: at most {PARTITIONS_PER_REQUEST_MAX} in one request",
        )


def check_settings(
    settings: Mapping[str, str], config: BrokerConfig, before: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Raise INVALID_CONFIG for a topic setting that does not exist or cannot have its value.

    `before` are the topic's own settings until now.
    """
    rows = topic_settings.settings_of(config.release)
    for name, text in settings.items():
        row = rows.get(name)
        if row is None:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"unknown topic setting {name!r}")
        try:
            row.parse(text)
        except SettingError as error:
            raise RequestError(ErrorCode.INVALID_CONFIG, str(error)) from error
    values = config.topic_values(settings)
    is_tiered = values["remote.storage.enable"] or "remote.storage.enable" in before
    if is_tiered or topic_settings.switches_off(values):
        from barnabas.config.tiered import check_topic  # not needed by a broker without tiered storage

        try:
            check_topic(values, before, config)
        except SettingError as error:
            raise RequestError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        raise RequestError(ErrorCode.INVALID_CONFIG, "min.compaction.lag.ms is above max.compaction.lag.ms")


def create_topic(
    image: ClusterImage,
    config: BrokerConfig,
    name: str,
    topic_id: bytes,
    partitions: int,
    replication_factor: int,
    *,
    assignments: Mapping[int, Sequence[int]] | None = None,
    settings: Mapping[str, str] | None = None,
) -> list[Change]:
    """Decide on a new topic; counts must be positive unless `assignments` gives the replicas by partition.

    Where its replicas begin is drawn from its id, which is random.

    Raises RequestError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, POLICY_VIOLATION.
    """
    check_topic_name(name)
    if name == CONTROLLERS_TOPIC:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"the name {name} is taken by Kafka's controllers")
    if name in image.topics:
        raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
    other = image.similar_topic(name)
    if other is not None:
        raise mixed_up(name, other)
    if settings:
        check_settings(settings, config)
    if assignments:
        replicas = _checked_assignments(image, assignments, first=0)
    else:
        _check_replication_factor(image, replication_factor)
        if partitions <= 0:
            raise RequestError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions: at least 1 is needed")
        check_partition_count(partitions)
        replicas = assign_replicas(
            image,
            partitions,
            replication_factor,
            start=int.from_bytes(topic_id[:4], "big"),
            shift=int.from_bytes(topic_id[4:8], "big"),
        )
    infos = _new_partitions(replicas)
    changes: list[Change] = [TopicCreated(TopicInfo(name, topic_id, infos))]
    if settings:
        changes.append(ConfigChanged(TOPIC, name, tuple(sorted(settings.items()))))
    return changes


def assign_replicas(
    image: ClusterImage, partitions: int, replication_factor: int, *, start: int, shift: int, first: int = 0
) -> list[tuple[int, ...]]:
    """Spread replicas over brokers and racks, see `cluster.metadata.assignment`.

    Raises INVALID_REPLICATION_FACTOR; INVALID_REPLICA_ASSIGNMENT if only some brokers have a rack.
    """
    _check_replication_factor(image, replication_factor)
    racks = {broker.id: broker.rack for broker in image.brokers.values()}
    try:
        return assignment.assign(racks, partitions, replication_factor, start=start, shift=shift, first=first)
    except assignment.RacksMissingError as error:
        raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, str(error)) from error


def _check_replication_factor(image: ClusterImage, replication_factor: int) -> None:
    count = len(image.brokers)
    if not 0 < replication_factor <= count:
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor}: from 1 to {count} is possible with {count} brokers",
        )


def _checked_assignments(
    image: ClusterImage, assignments: Mapping[int, Sequence[int]], *, first: int
) -> list[tuple[int, ...]]:
    if sorted(assignments) != list(range(first, first + len(assignments))):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partitions are not numbered from {first} without gaps"
        )
    width = len(next(iter(assignments.values())))
    for index, replicas in assignments.items():
        if len(replicas) != width or not _are_brokers(image, replicas):
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {index} cannot have the replicas {_shown(replicas)}",
            )
    return [tuple(assignments[index]) for index in sorted(assignments)]


def _are_brokers(image: ClusterImage, replicas: Sequence[int]) -> bool:
    """Return whether these can be a partition's replicas: at least one, each a broker, without repetition."""
    if not 0 < len(replicas) <= len(image.brokers):
        return False
    return len(set(replicas)) == len(replicas) and all(broker in image.brokers for broker in replicas)


def _shown(replicas: Sequence[int]) -> str:
    return f"{list(replicas[:SHOWN_MAX])}{' and more' if len(replicas) > SHOWN_MAX else ''}"


def delete_topic(image: ClusterImage, name: str, topic_id: bytes) -> list[Change]:
    """Decide on a topic's end. Raises UNKNOWN_TOPIC_OR_PARTITION, also if another topic has the name by now."""
    if name not in image.topics or image.topics[name].id != topic_id:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return [TopicDeleted(name)]


def add_partitions(
    image: ClusterImage,
    name: str,
    total: int,
    assignments: Sequence[Sequence[int]] | None = None,
    *,
    count_max: int = PARTITIONS_PER_REQUEST_MAX,
) -> list[Change]:
    """Decide on a topic's growth to `total` partitions, by at most `count_max`.

    Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT,
    REASSIGNMENT_IN_PROGRESS.
    """
    topic = image.topics.get(name)
    if topic is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    now = len(topic.partitions)
    if total <= now:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS, f"topic {name!r} has {now} partitions; {total} are not more"
        )
    if any(partition.adding or partition.removing for partition in topic.partitions):
        raise RequestError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, f"partitions of topic {name!r} are being reassigned"
        )
    if total - now > count_max:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS, f"at most {PARTITIONS_PER_REQUEST_MAX} can be added at once"
        )
    if assignments is not None:
        if len(assignments) != total - now:
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{total - now} partitions are added, {len(assignments)} have replicas assigned",
            )
        replicas = _checked_assignments(
            image, {now + n: item for n, item in enumerate(assignments)}, first=now
        )
    else:
        width = len(topic.partitions[0].replicas)
        # As in Apache Kafka, the new ones continue from where the first replica of the first partition is.
        leader = topic.partitions[0].replicas[0]
        start = sum(broker_id < leader for broker_id in image.brokers) % (len(image.brokers) or 1)
        replicas = assign_replicas(image, total - now, width, start=start, shift=start, first=now)
    return [PartitionsAdded(name, _new_partitions(replicas))]


def _new_partitions(replicas: Sequence[tuple[int, ...]]) -> tuple[PartitionInfo, ...]:
    """Return partitions with these replicas; those with equal replicas share one PartitionInfo."""
    infos = {chosen: PartitionInfo(chosen[0], chosen, chosen) for chosen in set(replicas)}
    return tuple([infos[chosen] for chosen in replicas])


def check_reassignment(
    image: ClusterImage, name: str, index: int, replicas: Sequence[int] | None, *, keeps_factor: bool
) -> None:
    """Check that a partition has these replicas, the only possible ones here; None cancels a move.

    Raises UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
    """
    topic = image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
    if replicas is None:
        raise RequestError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name}-{index} is not being moved")
    if not _are_brokers(image, replicas):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{name}-{index} cannot have the replicas {_shown(replicas)}; "
            f"there are the brokers {sorted(image.brokers)}",
        )
    now = topic.partitions[index].replicas
    if keeps_factor and len(replicas) != len(now):
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{name}-{index} has {len(now)} replicas; {len(replicas)} are asked for, and their number may not change",
        )
