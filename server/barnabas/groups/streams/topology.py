"""Fitting a topology to the topics that exist: how many tasks, which internal topics, what is in the way. Pure.

The rule: a topology is ready when all that it reads and writes exists, with numbers of partitions that fit. What the
broker can make itself it is told to make; what it cannot is a status that the application sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from barnabas.cluster.image import ClusterImage
from barnabas.wire.generated.records.streams_group_topology import StreamsGroupTopologyValue

Subtopology = StreamsGroupTopologyValue.Subtopology
TopicInfo = StreamsGroupTopologyValue.TopicInfo


class Status(IntEnum):
    """What a StreamsGroupHeartbeat tells besides the assignment, with Kafka's numbers."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """A subtopology that is ready: its number of tasks, whether they have state, and which topics they read."""

    tasks: int
    is_stateful: bool
    source_topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic that the broker is to make."""

    name: str
    partitions: int
    replication_factor: int
    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Configured:
    """A topology with the topics as they are. Without a problem it is ready."""

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    missing: tuple[InternalTopic, ...] = ()
    problem: tuple[Status, str] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


class _MisfitError(Exception):
    """The topics do not fit; the status and the words for the application."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.problem = (status, text)


def required_topics(topology: StreamsGroupTopologyValue) -> set[str]:
    """All topics that the application's tasks read, and those that they keep their stores in."""
    names: set[str] = set()
    for part in topology.subtopologies:
        names.update(part.source_topics)
        names.update(topic.name for topic in part.repartition_source_topics)
        names.update(topic.name for topic in part.state_changelog_topics)
    return names


def configure(topology: StreamsGroupTopologyValue, image: ClusterImage) -> Configured:
    """What the topology comes to with these topics."""
    try:
        counts = _counts(topology, image)
        shapes = {part.subtopology_id: _shape(part, counts) for part in topology.subtopologies}
        missing = _missing(topology, counts, image)
    except _MisfitError as misfit:
        return Configured(problem=misfit.problem)
    if missing:
        names = ", ".join(topic.name for topic in missing)
        return Configured(
            shapes, missing, (Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
        )
    return Configured(shapes)


def _counts(topology: StreamsGroupTopologyValue, image: ClusterImage) -> dict[str, int]:
    """How many partitions each topic has, or is to have."""
    counts = {name: len(topic.partitions) for name, topic in image.topics.items()}
    sources = {name for part in topology.subtopologies for name in part.source_topics}
    absent = sorted(sources - counts.keys())
    if absent:
        raise _MisfitError(Status.MISSING_SOURCE_TOPICS, f"Source topics {', '.join(absent)} are missing.")
    decided: dict[str, int] = {}
    flexible: set[str] = set()
    for part in topology.subtopologies:
        for topic in part.repartition_source_topics:
            if topic.partitions:
                decided[topic.name] = topic.partitions
            else:
                flexible.add(topic.name)
    decided |= _sized_by_writers(topology, flexible, {**counts, **decided})
    for part in topology.subtopologies:
        for group in _copartitioned(part):
            _even_out(group, flexible, decided, counts)
    for part in topology.subtopologies:
        tasks = max(({**counts, **decided}[name] for name in _read_by(part)), default=0)
        for topic in part.state_changelog_topics:
            decided[topic.name] = topic.partitions or tasks
    return {**counts, **decided}


def _read_by(part: Subtopology) -> list[str]:
    return [*part.source_topics, *(topic.name for topic in part.repartition_source_topics)]


def _sized_by_writers(
    topology: StreamsGroupTopologyValue, flexible: set[str], counts: dict[str, int]
) -> dict[str, int]:
    """Repartition topics without a size of their own are as large as the largest topic that their writers read."""
    sized: dict[str, int] = {}
    while flexible - sized.keys():
        found = {}
        for name in flexible - sized.keys():
            writers = [part for part in topology.subtopologies if name in part.repartition_sink_topics]
            known = {**counts, **sized}
            read = [topic for part in writers for topic in _read_by(part)]
            # A name that exists already is no measure while it is being sized itself.
            if read and all(topic in sized or (topic in known and topic not in flexible) for topic in read):
                found[name] = max(known[topic] for topic in read)
        if not found:
            names = ", ".join(sorted(flexible - sized.keys()))
            raise _MisfitError(
                Status.MISSING_INTERNAL_TOPICS,
                f"The partitions of {names} cannot be told: nothing sizes them.",
            )
        sized |= found
    return sized


def _copartitioned(part: Subtopology) -> Iterable[set[str]]:
    for group in part.copartition_groups:
        yield {
            *(part.source_topics[index] for index in group.source_topics),
            *(part.repartition_source_topics[index].name for index in group.repartition_source_topics),
        }


def _even_out(group: set[str], flexible: set[str], decided: dict[str, int], counts: dict[str, int]) -> None:
    """Topics that are joined must have equally many partitions; those without a size of their own follow."""
    fixed = {name: decided.get(name, counts.get(name, 0)) for name in group - flexible}
    if len(set(fixed.values())) > 1:
        raise _MisfitError(
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            f"Topics are not co-partitioned: {', '.join(f'{k}={v}' for k, v in sorted(fixed.items()))}",
        )
    followers = group & flexible
    size = next(iter(fixed.values())) if fixed else max((decided[name] for name in followers), default=0)
    decided.update(dict.fromkeys(followers, size))


def _shape(part: Subtopology, counts: Mapping[str, int]) -> Shape:
    read = _read_by(part)
    tasks = max((counts[name] for name in read), default=0)
    return Shape(tasks, bool(part.state_changelog_topics), frozenset(read))


def _missing(
    topology: StreamsGroupTopologyValue, counts: Mapping[str, int], image: ClusterImage
) -> tuple[InternalTopic, ...]:
    missing: dict[str, InternalTopic] = {}
    for part in topology.subtopologies:
        for topic in (*part.repartition_source_topics, *part.state_changelog_topics):
            known = image.topics.get(topic.name)
            if known is None:
                settings = tuple((entry.key, entry.value) for entry in topic.topic_configs)
                missing[topic.name] = InternalTopic(
                    topic.name, counts[topic.name], topic.replication_factor, settings
                )
            elif len(known.partitions) != counts[topic.name]:
                raise _MisfitError(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {topic.name} has different number of partitions: "
                    f"expected {counts[topic.name]}, found {len(known.partitions)}",
                )
    return tuple(missing.values())
