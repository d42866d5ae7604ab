"""A topic as the pipeline sees it: an identity, bounds, and ranges of offsets.

The rule: an offset means nothing without the topic id and the cluster id it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from barnabas.records.batch import BatchHeader

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"


class TopicIdentity(NamedTuple):
    """Identity of an incarnation of a topic in a cluster; ids are in Kafka's base64, "" for brokers without such ids."""

    cluster_id: str
    topic: str
    topic_id: str


class Bounds(NamedTuple):
    """Offsets of a partition that can be read: [start, end), `end` being high watermark or last stable offset."""

    start: int
    end: int
    high_watermark: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets [start, end) of a partition; `len` returns their number."""

    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


class RawBatch(NamedTuple):
    """A sound batch or a legacy message with offsets of the range; `aborted`: its transaction was aborted."""

    data: bytes | memoryview
    header: BatchHeader
    aborted: bool


class CorruptSpan(NamedTuple):
    """Offsets [start, end) of bytes that are not a batch, or of a misplaced batch: some of the bytes, and a reason code."""

    start: int
    end: int
    reason: str
    detail: str
    data: bytes


@dataclass(slots=True)
class RangeCounts:
    """Counts of a range's offsets by outcome; after a complete read the five add up to the length of the range."""

    records: int = 0
    corrupt: int = 0
    control: int = 0
    aborted: int = 0
    compacted: int = 0
    bytes_read: int = 0
    batches: int = 0
    digest: int = 0  # digest of the batches, see `digest`

    @property
    def span(self) -> int:
        """Number of offsets that were accounted for."""
        return self.records + self.corrupt + self.control + self.aborted + self.compacted


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Options for reaching a topic; made of plain values only, so that it travels to executors."""

    topic: str
    transport: str = "wire"
    bootstrap: str = ""
    log_dirs: tuple[str, ...] = ()
    isolation: str = READ_COMMITTED
    client: tuple[tuple[str, str], ...] = field(default=())
    fetch_bytes_max: int = 8 << 20

    @property
    def client_settings(self) -> dict[str, str]:
        """Kafka client settings: `security.protocol`, `sasl.mechanism`, ..."""
        return dict(self.client)


class Log(Protocol):
    """A topic that can be read; `close` it when done."""

    def identity(self) -> TopicIdentity:
        """Return the topic's present identity. Raises UsageError if no topic has that name."""
        ...

    def bounds(self) -> dict[int, Bounds]:
        """Return the bounds of each partition."""
        ...

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset with a timestamp of at least `timestamp_ms`; None if all timestamps are smaller."""
        ...

    def cut_points(self, offset_range: OffsetRange, bytes_max: int) -> list[int]:
        """Return offsets inside of the range, batch boundaries about `bytes_max` apart."""
        ...

    def size(self, offset_range: OffsetRange) -> int | None:
        """Return the approximate size of a range in bytes of batches; None if the transport does not report it."""
        ...

    def read(self, offset_range: OffsetRange) -> Iterator[RawBatch | CorruptSpan]:
        """Yield batches and damaged spans of a range, as `order.Order` does.

        Raises DataLossError if its start was deleted.
        """
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...
