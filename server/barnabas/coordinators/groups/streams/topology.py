"""Configuration of a topology for the existing topics: its tasks, its internal topics, and problems. Pure.

The rule: a topology is ready when all topics that it reads and writes exist, with suitable numbers of partitions.
Missing internal topics are created; a problem that the broker cannot solve is a status for the application.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records.streams_group_topology import StreamsGroupTopologyValue

NAMES_MAX = 3
"""Largest number of topics that a status names."""

Subtopology = StreamsGroupTopologyValue.Subtopology
TopicInfo = StreamsGroupTopologyValue.TopicInfo


class Status(IntEnum):
    """Statuses in the response to a StreamsGroupHeartbeat, besides the assignment, with Kafka's numbers."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6
    """Since Kafka 4.4; for clients with v1."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A subtopology that is ready: its number of tasks, whether they have state, and its topics."""

    tasks: int
    is_stateful: bool
    source_topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """An internal topic that the broker is to create."""

    name: str
    partitions: int
    replication_factor: int
    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Configured:
    """A topology configured for the present topics; without a problem it is ready.

    `sizes` has the partition counts of all topics.
    """

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[InternalTopic, ...] = ()
    problem: tuple[Status, str] | None = None

    @property
    def is_ready(self) -> bool:
        """True if tasks can be assigned."""
        return self.problem is None


class _MisfitError(Exception):
    """The topics do not fit; has the status and a message for the application."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.problem = (status, text)


def required_topics(topology: StreamsGroupTopologyValue) -> set[str]:
    """Return all topics that the application's tasks read, and those of their stores."""
    names: set[str] = set()
    for part in topology.subtopologies:
        names.update(part.source_topics)
        names.update(topic.name for topic in part.repartition_source_topics)
        names.update(topic.name for topic in part.state_changelog_topics)
    return names


def configure(topology: StreamsGroupTopologyValue, image: ClusterImage) -> Configured:
    """Configure the topology for these topics. Raises STREAMS_INVALID_TOPOLOGY if it can fit no topics."""
    try:
        counts = _counts(topology, image)
        shapes = {part.subtopology_id: _shape(part, counts) for part in topology.subtopologies}
        missing = _missing(topology, counts, image)
    except _MisfitError as misfit:
        return Configured(problem=misfit.problem)
    if missing:
        names = _listed(topic.name for topic in missing)
        problem = (Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
        return Configured(shapes, counts, missing, problem)
    return Configured(shapes, counts)


def _listed(names: Iterable[str]) -> str:
    """Return the first of many names, and the number of the others, as text."""
    ordered = sorted(names)
    more = f" and {len(ordered) - NAMES_MAX} additional topics" if len(ordered) > NAMES_MAX else ""
    return ", ".join(ordered[:NAMES_MAX]) + more


def _counts(topology: StreamsGroupTopologyValue, image: ClusterImage) -> dict[str, int]:
    """Return the present or required partition count of each topic of the topology."""
    topics = image.topics
    counts = {name: len(topics[name].partitions) for name in required_topics(topology) if name in topics}
    sources = {name for part in topology.subtopologies for name in part.source_topics}
    absent = sources - counts.keys()
    if absent:
        raise _MisfitError(Status.MISSING_SOURCE_TOPICS, f"Source topics {_listed(absent)} are missing.")
    decided: dict[str, int] = {}
    flexible: set[str] = set()
    for part in topology.subtopologies:
        for topic in part.repartition_source_topics:
            if topic.partitions:
                decided[topic.name] = topic.partitions
            else:
                flexible.add(topic.name)
    decided = _sized_by_writers(topology, decided, counts)
    for part in topology.subtopologies:
        for group in filter(None, _copartitioned(part)):
            _even_out(group, flexible, decided, counts)
    for part in topology.subtopologies:
        if not _read_by(part):
            raise RequestError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY, f"subtopology {part.subtopology_id} reads nothing"
            )
        tasks = max({**counts, **decided}[name] for name in _read_by(part))
        for topic in part.state_changelog_topics:
            decided[topic.name] = topic.partitions or tasks
    return {**counts, **decided}


def _read_by(part: Subtopology) -> list[str]:
    return [*part.source_topics, *(topic.name for topic in part.repartition_source_topics)]


def _sized_by_writers(
    topology: StreamsGroupTopologyValue, fixed: Mapping[str, int], counts: Mapping[str, int]
) -> dict[str, int]:
    """Set the sizes of repartition topics without a size: that of the largest topic that their writer reads.

    A writer may read other such topics; it is sufficient to know the size of one of its topics. Raises
    STREAMS_INVALID_TOPOLOGY.
    """
    sized = dict(fixed)
    while True:
        waiting, sized_before = False, len(sized)
        for part in topology.subtopologies:
            read = [sized[topic.name] for topic in part.repartition_source_topics if topic.name in sized]
            read += [counts[name] for name in part.source_topics]
            for name in part.repartition_sink_topics:
                if name not in sized and read:
                    sized[name] = max(read)
                waiting = waiting or name not in sized
        if not waiting:
            break
        if len(sized) == sized_before:
            raise RequestError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                "repartition topics are written in a circle: nothing sizes them",
            )
    for part in topology.subtopologies:
        for topic in part.repartition_source_topics:
            if topic.name not in sized:
                raise RequestError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY, f"repartition topic {topic.name} is written by nobody"
                )
    return sized


def _copartitioned(part: Subtopology) -> Iterable[set[str]]:
    for group in part.copartition_groups:
        yield {
            *(part.source_topics[index] for index in group.source_topics),
            *(part.repartition_source_topics[index].name for index in group.repartition_source_topics),
        }


def _even_out(group: set[str], flexible: set[str], decided: dict[str, int], counts: dict[str, int]) -> None:
    """Check that topics to be joined have equally many partitions; those without a size get that number."""
    fixed = {name: decided.get(name, counts.get(name, 0)) for name in group - flexible}
    if len(set(fixed.values())) > 1:
        raise _MisfitError(
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            f"Topics are not co-partitioned: {', '.join(f'{k}={v}' for k, v in sorted(fixed.items()))}",
        )
    followers = group & flexible
    size = next(iter(fixed.values())) if fixed else max(counts.get(name, decided[name]) for name in followers)
    decided.update(dict.fromkeys(followers, size))


def _shape(part: Subtopology, counts: Mapping[str, int]) -> Shape:
    read = _read_by(part)
    tasks = max(counts[name] for name in read)
    return Shape(tasks, bool(part.state_changelog_topics), frozenset(read))


def _missing(
    topology: StreamsGroupTopologyValue, counts: Mapping[str, int], image: ClusterImage
) -> tuple[InternalTopic, ...]:
    missing: dict[str, InternalTopic] = {}
    for part in topology.subtopologies:
        for topic in (*part.repartition_source_topics, *part.state_changelog_topics):
            existing = image.topics.get(topic.name)
            if existing is None:
                settings = tuple((entry.key, entry.value) for entry in topic.topic_configs)
                missing[topic.name] = InternalTopic(
                    topic.name, counts[topic.name], topic.replication_factor, settings
                )
            elif len(existing.partitions) != counts[topic.name]:
                raise _MisfitError(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {topic.name} has different number of partitions: "
                    f"expected {counts[topic.name]}, found {len(existing.partitions)}",
                )
    return tuple(missing.values())
