"""Queries of clusters by the driver of a load or a mirror: topics, their bounds, committed offsets.

The rule: one request for all topics, and one for each broker; answers are not kept for another round.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

from barnabas.client import AuthenticationError, ClientError, ClientSettings
from barnabas.client.admin import EARLIEST, LATEST, Admin, CommittedOffset, OffsetAt
from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import ResponseError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataResponse
from barnabas.wire.ids import uuid_text
from barnabas.wire.topic_partitions import TopicPartition
from barnabas_pipeline.errors import IncompleteError, NoTopicError, UsageError
from barnabas_pipeline.log.model import READ_COMMITTED, Bounds, LogOptions, TopicIdentity
from barnabas_pipeline.log.transports import open_log

CLIENT_ID = "barnabas-mirror"
BACKOFF_MAX_MS = 6_400

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster: its addresses and, in a mirror, its name in the names of topics."""

    name: str = ""
    bootstrap: str = ""
    client: tuple[tuple[str, str], ...] = ()
    log_dirs: tuple[str, ...] = ()
    """Log dirs to read without a broker, instead of addresses."""
    isolation: str = READ_COMMITTED

    def log(self, topic: str) -> LogOptions:
        """Return the options to read a topic of the cluster."""
        transport = "disk" if self.log_dirs else "wire"
        return LogOptions(topic, transport, self.bootstrap, self.log_dirs, self.isolation, self.client)

    def __str__(self) -> str:
        return self.name or self.bootstrap or self.log_dirs[0]


class Topic(NamedTuple):
    """A topic of a cluster; `epochs` of leaders are -1 where unknown, `leaderless` are partitions without a leader."""

    name: str
    topic_id: str
    partitions: int
    is_internal: bool
    epochs: tuple[int, ...] = ()
    leaderless: frozenset[int] = frozenset()


class Source(Protocol):
    """A cluster to load or mirror from; `close` it when done."""

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        ...

    def topics(self) -> dict[str, Topic]:
        """Return all topics by name. Raises IncompleteError."""
        ...

    def bounds(self, topics: Iterable[Topic]) -> dict[TopicPartition, Bounds | ClientError]:
        """Return the bounds of all partitions of topics."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class Site:
    """A cluster with brokers: a source, or the target."""

    def __init__(self, cluster: Cluster, *, client_id: str = CLIENT_ID) -> None:
        """Create the clients, without a request yet. Raises UsageError for invalid settings."""
        self.cluster = cluster
        try:
            settings = ClientSettings.of(dict(cluster.client), client_id=client_id)
            self._client = BlockingClient(
                cluster.bootstrap, replace(settings, retry_backoff_max_ms=BACKOFF_MAX_MS)
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
        self._cluster_id = ""

    def ask(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Run a request of the admin client. Raises UsageError, IncompleteError."""
        try:
            return self._client.run(lambda client: work(Admin(client)))
        except AuthenticationError as error:
            raise UsageError(f"{self.cluster}: {error}") from None
        except ClientError as error:
            raise IncompleteError(f"{self.cluster}: {error}") from None

    def cluster_id(self) -> str:
        """Return the cluster's id by the newest metadata."""
        return self._cluster_id

    def topics(self) -> dict[str, Topic]:
        """Return all topics by one Metadata request."""

        async def ask(admin: Admin) -> MetadataResponse:
            return await admin.client.retrying(lambda: admin.client.metadata(None))

        response = self.ask(ask)
        self._cluster_id = response.cluster_id or ""
        return {topic.name: _topic(topic) for topic in response.topics if topic.name and not topic.error_code}

    def bounds(self, topics: Iterable[Topic]) -> dict[TopicPartition, Bounds | ClientError]:
        """Return the bounds by ListOffsets at the leaders."""
        epochs: dict[TopicPartition, int] = {}
        bounds: dict[TopicPartition, Bounds | ClientError] = {}
        for topic in topics:
            for number in range(topic.partitions):
                if number in topic.leaderless:
                    bounds[topic.name, number] = ClientError(f"{topic.name}-{number} has no leader")
                else:
                    epochs[topic.name, number] = topic.epochs[number] if topic.epochs else -1
        starts = self._offsets(epochs, EARLIEST, bounds)
        ends = None
        if self.cluster.isolation == READ_COMMITTED:
            ends = self._offsets(starts, LATEST, bounds, is_committed=True)
        highs = self._offsets(starts if ends is None else ends, LATEST, bounds)
        for place, high in highs.items():
            end = high if ends is None else ends[place]
            bounds[place] = Bounds(starts[place], max(starts[place], end), high, epochs[place])
        return bounds

    def _offsets(
        self,
        places: Iterable[TopicPartition],
        time: int,
        failed: dict[TopicPartition, Bounds | ClientError],
        *,
        is_committed: bool = False,
    ) -> dict[TopicPartition, int]:
        """Return offsets of partitions; errors of partitions are added to `failed`."""
        times = dict.fromkeys(places, time)
        offsets = self.ask(lambda admin: admin.offsets(times, is_committed=is_committed)) if times else {}
        failed |= {place: offset for place, offset in offsets.items() if isinstance(offset, ClientError)}
        return {place: offset.offset for place, offset in offsets.items() if isinstance(offset, OffsetAt)}

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Return a group's committed offsets; empty for a missing group. Raises IncompleteError."""
        committed = self.ask(lambda admin: admin.committed([group]))[group]
        if isinstance(committed, ResponseError) and committed.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        if isinstance(committed, ClientError):
            raise IncompleteError(f"{self.cluster}: {committed}")
        return {place: offset for place, offset in committed.items() if isinstance(offset, CommittedOffset)}

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


class DiskSite:
    """Named topics in log dirs, without a broker."""

    def __init__(self, cluster: Cluster, names: Iterable[str]) -> None:
        self.cluster = cluster
        self._names = tuple(names)
        self._identities: dict[str, TopicIdentity] = {}

    def cluster_id(self) -> str:
        """Return the cluster's id by the log dirs."""
        return next((identity.cluster_id for identity in self._identities.values()), "")

    def topics(self) -> dict[str, Topic]:
        """Return the named topics that exist."""
        topics = {}
        for name in self._names:
            try:
                log = open_log(self.cluster.log(name))
            except NoTopicError:
                continue
            try:
                identity = self._identities[name] = log.identity()
                count = max(log.bounds(), default=-1) + 1
            finally:
                log.close()
            topics[name] = Topic(name, identity.topic_id, count, is_internal=False)
        return topics

    def bounds(self, topics: Iterable[Topic]) -> dict[TopicPartition, Bounds | ClientError]:
        """Return the bounds by the files."""
        bounds: dict[TopicPartition, Bounds | ClientError] = {}
        for topic in topics:
            log = open_log(self.cluster.log(topic.name))
            try:
                bounds |= {(topic.name, number): bounds for number, bounds in log.bounds().items()}
            finally:
                log.close()
        return bounds

    def close(self) -> None:
        """Do nothing: no connection is open."""


def open_source(cluster: Cluster, names: Iterable[str], *, client_id: str = CLIENT_ID) -> Source:
    """Open a source; in log dirs it has only the topics `names`. Raises UsageError."""
    return DiskSite(cluster, names) if cluster.log_dirs else Site(cluster, client_id=client_id)


def _topic(info: MetadataResponse.MetadataResponseTopic) -> Topic:
    parts = sorted(info.partitions, key=lambda partition: partition.partition_index)
    return Topic(
        info.name or "",
        uuid_text(bytes(info.topic_id)) if any(info.topic_id) else "",
        len(parts),
        info.is_internal,
        tuple(part.leader_epoch for part in parts),
        frozenset(part.partition_index for part in parts if part.leader_id < 0),
    )
