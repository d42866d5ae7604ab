"""Values of a mirror: options, coordinates of records, the part of a round that a task does.

The rule: plain values, so that they travel to executors and back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from barnabas_pipeline.errors import EXIT_INCOMPLETE, DataLossError, MissingOffsets, PipelineError
from barnabas_pipeline.jobs.choices import Choice
from barnabas_pipeline.jobs.sites import Cluster
from barnabas_pipeline.log.model import Bounds, LogOptions

HEADER = "barnabas-mirror-source"
"""Header of mirrored records, repeated for each cluster that a record was mirrored from, the newest last."""
GROUP_PREFIX = "barnabas-mirror."
"""Prefix of the group in the target with the positions of the mirror of a source cluster."""
OFFSETS_PER_ROUND_MAX = 2_000_000
FAIL, RECORD = "fail", "record"


class Coordinates(NamedTuple):
    """Place of a record in a source: the value of its header."""

    cluster_id: str
    topic_id: str
    partition: int
    offset: int

    def encode(self) -> bytes:
        """Return the value of the header."""
        return "/".join(map(str, self)).encode()


def parse_coordinates(value: bytes | str | None) -> Coordinates | None:
    """Parse a header's value; None if it is not a mirror's."""
    try:
        text = value.decode() if isinstance(value, bytes) else value or ""
        cluster_id, topic_id, partition, offset = text.split("/")
        return Coordinates(cluster_id, topic_id, int(partition), int(offset))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """Options of a mirror; `rename` has {source} and {topic}."""

    sources: tuple[Cluster, ...]
    target: Cluster
    choice: Choice
    rename: str = "{topic}"
    creates_topics: bool = True
    replication_factor: int = -1
    syncs_configs: bool = False
    groups: str = ""
    moves_groups_back: bool = False
    shares_topics: bool = False
    """True if the target's topics may have records of other producers, too."""
    on_data_loss: str = FAIL
    offsets_per_round_max: int = OFFSETS_PER_ROUND_MAX


class Place(NamedTuple):
    """Partition of a source, and the target's topic; the partition there has the same number."""

    cluster_id: str
    topic_id: str
    partition: int
    target: str
    target_id: str

    def position(self, offset: int) -> str:
        """Return the metadata of a committed position."""
        return f"{self.cluster_id}/{self.topic_id}/{self.partition}/{offset}/{self.target_id}"

    def parse_position(self, text: str) -> Coordinates | None:
        """Parse this metadata; None if it is of another topic of the target, or not a mirror's."""
        rest, _, target_id = text.rpartition("/")
        return parse_coordinates(rest) if target_id == self.target_id else None


@dataclass(frozen=True, slots=True)
class Part:
    """Range of one partition that a task copies: up to the end of `bound`."""

    place: Place
    source: LogOptions
    target: LogOptions
    bound: Bounds
    target_cluster_id: str
    start: int = 0
    """Position read by the driver; the task reads it again."""
    shares_topics: bool = False
    on_data_loss: str = FAIL

    def up_to(self, end: int) -> Part:
        """Return the part with another end."""
        return replace(self, bound=self.bound._replace(end=end))

    @property
    def group(self) -> str:
        """The group of positions."""
        return GROUP_PREFIX + self.place.cluster_id

    @property
    def transactional_id(self) -> str:
        """The transactional id, the same in each mirror of this partition: of two mirrors the later fences the earlier."""
        place = self.place
        return f"{GROUP_PREFIX}{place.cluster_id}/{place.topic_id or self.source.topic}/{place.partition}/{place.target}"

    def __str__(self) -> str:
        return f"{self.source.topic}-{self.place.partition}"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a part, a topic or a cluster; the others continue."""

    where: str
    exit_code: int
    text: str

    @classmethod
    def of(cls, where: str, error: Exception) -> Failure:
        """Return the failure for an error."""
        code = error.exit_code if isinstance(error, PipelineError) else EXIT_INCOMPLETE
        return cls(where, code, str(error))


@dataclass(slots=True)
class PartResult:
    """Result of a part; `position` is the next offset of the source, None if unknown."""

    place: Place
    position: int | None = None
    mirrored: int = 0
    looped: int = 0
    control: int = 0
    transactions: int = 0
    lost: str = ""
    failure: Failure | None = None


@dataclass(slots=True)
class MirrorSummary:
    """Figures of one run, or of one round of it."""

    rounds: int = 0
    mirrored: int = 0
    skipped_loops: int = 0
    skipped_control: int = 0
    transactions: int = 0
    topics: int = 0
    partitions: int = 0
    created_topics: int = 0
    added_partitions: int = 0
    changed_settings: int = 0
    groups_committed: int = 0
    groups_waiting: int = 0
    groups_live: int = 0
    groups_kept: int = 0
    behind: int = 0
    lost: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add_part(self, result: PartResult) -> None:
        """Add the counts of a task."""
        self.mirrored += result.mirrored
        self.skipped_loops += result.looped
        self.skipped_control += result.control
        self.transactions += result.transactions
        if result.lost:
            self.lost.append(result.lost)


def check_position(place: Place, topic: str, position: int, bound: Bounds) -> None:
    """Check that the source still has the next offset. Raises DataLossError."""
    if position < bound.start:
        missing = MissingOffsets(place.partition, position, bound.start)
        raise DataLossError(f"retention has overtaken the mirror of {topic}", [missing])
    if position > bound.high_watermark:
        missing = MissingOffsets(place.partition, bound.high_watermark, position)
        raise DataLossError(f"{topic} has become shorter than what was mirrored of it", [missing])


def check_identity(place: Place, topic: str, coordinates: Coordinates) -> None:
    """Check that a position is of this incarnation of the topic. Raises DataLossError."""
    if (coordinates.cluster_id, coordinates.topic_id) == (place.cluster_id, place.topic_id):
        return
    raise DataLossError(
        f"{place.target}-{place.partition} mirrors {coordinates.topic_id} of cluster {coordinates.cluster_id}, not {topic} "
        f"{place.topic_id} of {place.cluster_id}",
        [MissingOffsets(place.partition, coordinates.offset, None)],
    )
