"""Metadata of the topics that a producer or a consumer works with, kept up to date by one task.

The rule: a task that detects outdated metadata calls `need`; all others read the cache and wait for changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import trio

from barnabas.client.client import Client
from barnabas.client.errors import AuthenticationError, ClientError, ClosedError, ResponseError, copy_of
from barnabas.wire.generated.errors import ErrorCode


class PartitionInfo(NamedTuple):
    """Newest metadata of a partition."""

    leader: int
    """The broker that leads it; -1 if there is none."""
    epoch: int
    """The leader epoch; -1 if unknown."""
    replicas: tuple[int, ...]


class TopicInfo(NamedTuple):
    """Newest metadata of a topic."""

    id: bytes
    partitions: dict[int, PartitionInfo]
    is_internal: bool


class TopicWatch:
    """Metadata of some topics, or of all. The owner runs `run` as a task."""

    def __init__(self, client: Client, *, creates_topics: bool = False) -> None:
        self.client = client
        self.infos: dict[str, TopicInfo] = {}
        self.errors: dict[str, int] = {}
        """Error codes of the requested topics that were not found."""
        self.failure: ClientError | None = None
        """Why the newest attempt failed altogether."""
        self.version = 0
        """Grows with each response."""
        self._creates_topics = creates_topics
        self.names: set[str] = set()
        self.has_all = False
        self.refresh_due = trio.Event()
        self._changed = trio.Event()

    def watch(self, names: Iterable[str], *, everything: bool = False) -> None:
        """Set the topics to watch; missing metadata is requested."""
        names = set(names)
        unknown = not names <= self.infos.keys() or (everything and not self.has_all)
        self.names, self.has_all = names, everything
        if unknown:
            self.need()

    def add(self, name: str) -> None:
        """Watch another topic."""
        if name not in self.names:
            self.watch(self.names | {name}, everything=self.has_all)

    def need(self) -> None:
        """Request metadata soon."""
        self.refresh_due.set()

    def announce(self) -> None:
        """Resume the tasks that wait for a change."""
        self._changed.set()
        self._changed = trio.Event()

    async def changed(self) -> None:
        """Wait for the next response, or failure."""
        await self._changed.wait()

    def leader(self, topic: str, partition: int) -> int:
        """Return the leader of a partition; -1 if none is known, and then request it."""
        info = self.infos.get(topic)
        partition_info = None if info is None else info.partitions.get(partition)
        if partition_info is None or partition_info.leader < 0:
            self.need()
            return -1
        return partition_info.leader

    async def topic(self, name: str) -> TopicInfo:
        """Wait for a topic's metadata and return it. Raises ClientError if the broker refuses it."""
        self.add(name)
        while (info := self.infos.get(name)) is None:
            self.need()
            await self.changed()
            if isinstance(self.failure, AuthenticationError | ClosedError):
                raise copy_of(self.failure)
            if (code := self.errors.get(name, 0)) and not _may_pass(code):
                raise ResponseError(code, f"asking for topic {name!r}")
        return info

    async def run(self) -> None:
        """Ask for metadata when it is needed, and when it is old; never more often than `retry_backoff_ms`."""
        settings = self.client.settings
        pause_s = base_s = settings.retry_backoff_ms / 1000
        asked = False
        while True:
            age_s = settings.metadata_max_age_ms / 1000 if asked else math.inf
            with trio.move_on_after(age_s):
                await self.refresh_due.wait()
            self.refresh_due = trio.Event()
            asked = True
            is_good = await self.refresh()
            self.announce()
            await trio.sleep(pause_s)
            pause_s = base_s if is_good else min(pause_s * 2, settings.retry_backoff_max_ms / 1000)

    async def refresh(self) -> bool:
        """Refresh the metadata; returns whether that succeeded. A retriable error schedules the next refresh."""
        try:
            await self._ask()
            self.failure = None
        except ClientError as error:
            self.failure = error
            if not isinstance(error, AuthenticationError | ClosedError):  # those wait for the next request
                self.need()
            return False
        if any(_may_pass(code) for code in self.errors.values()):
            self.need()
            return False
        return True

    async def _ask(self) -> None:
        names = None if self.has_all else sorted(self.names)
        response = await self.client.metadata(names, create=self._creates_topics)
        self.errors = {}
        infos = {}
        for topic in response.topics:
            if not topic.name:
                continue
            if topic.error_code:
                self.errors[topic.name] = topic.error_code
            metadata = self.client.known(topic.name)
            if metadata is not None and not topic.error_code:
                infos[topic.name] = TopicInfo(
                    metadata.topic_id,
                    {
                        partition.partition_index: PartitionInfo(
                            partition.leader_id, partition.leader_epoch, tuple(partition.replica_nodes)
                        )
                        for partition in metadata.partitions
                    },
                    metadata.is_internal,
                )
            elif topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.name in self.infos:
                infos[topic.name] = self.infos[topic.name]
        self.infos = infos
        self.version += 1


def _may_pass(code: int) -> bool:
    return code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REPLICATION_FACTOR,  # too few brokers yet, for a topic to be created
    )
