"""Deletion of all remote segments of a partition: of a deleted topic, or after tiered storage is disabled (KIP-950).

The rule: the deletion of a topic's segments is recorded before the first segment is deleted, so that a restart resumes it.
The broker that led the partition deletes; if its marks are not renewed for some time, another broker that reads them takes
over.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

import trio

from barnabas.cluster.metadata.image import TOPIC
from barnabas.config.topic import has_tiered_storage
from barnabas.errors import StorageError
from barnabas.tiered.segment import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.cluster.metadata.image import ClusterImage, Delta, PartitionInfo
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.failures import LogDirFailures
    from barnabas.cluster.tiering.metadata import Mark, RemoteMetadata
    from barnabas.cluster.tiering.tasks import SegmentTasks
    from barnabas.environment import Environment

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.5
RETRY_SECONDS_MAX: Final = 30.0
RENEW_SECONDS: Final = 120.0
"""Age after which a mark is written again with the next attempt."""
TAKE_OVER_SECONDS: Final = 300.0
"""Age after which another broker's mark is taken over: by the first live broker after once this time, by the next after
twice.
"""


class Deletions:
    """Deletions of all segments of partitions. Lifecycle: `run` in a task, until cancelled."""

    def __init__(
        self,
        metadata: RemoteMetadata,
        tasks: SegmentTasks,
        store: MetadataStore,
        failures: LogDirFailures,
        environment: Environment,
        broker_id: int,
    ) -> None:
        self._metadata = metadata
        self._tasks = tasks
        self._store = store
        self._failures = failures
        self._environment = environment
        self._broker_id = broker_id
        self._keys: dict[TopicIdPartition, None] = {}
        self._has_work = trio.Event()
        metadata.on_mark = self._wake

    def _wake(self) -> None:
        self._has_work.set()

    def __contains__(self, key: TopicIdPartition) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[TopicIdPartition]:
        return iter(tuple(self._keys))

    def add(self, keys: Iterable[TopicIdPartition]) -> None:
        """Schedule the deletion of all segments of these partitions."""
        for key in keys:
            self._keys[key] = None
            self._metadata.follow(key)
        if self._keys:
            self._has_work.set()

    async def run(self) -> None:
        """Delete until cancelled."""
        wait_s = RETRY_SECONDS
        while True:
            self.take_over()
            for key in tuple(self._keys):
                try:
                    await self._delete(key)
                except StorageError as error:
                    self._failures.failed(error)
                except Exception as error:
                    log.warning(
                        "remote segments of %s-%d are still to be deleted: %s",
                        key.topic,
                        key.partition,
                        error,
                    )
            wait_s = min(2 * wait_s, RETRY_SECONDS_MAX) if self._keys else RETRY_SECONDS
            with trio.move_on_after(wait_s if self._keys else RETRY_SECONDS_MAX):
                await self._has_work.wait()
            self._has_work = trio.Event()

    def take_over(self) -> None:
        """Resume deletions of deleted topics that this broker has begun, or that another broker has not continued."""
        now_s = self._environment.monotonic()
        rank = sorted(self._store.image.brokers).index(self._broker_id) if self._is_live else 0
        for key, mark in self._metadata.deleting.items():
            if key in self._keys or self._store.image.topic_name(key.topic_id.bytes) is not None:
                continue
            is_stale = now_s - mark.read_at > TAKE_OVER_SECONDS * (1 + rank)
            if mark.record.broker_id == self._broker_id or is_stale:
                self.add([key])

    @property
    def _is_live(self) -> bool:
        return self._broker_id in self._store.image.brokers

    def _is_own(self, mark: Mark | None) -> bool:
        return (
            mark is not None
            and mark.record.broker_id == self._broker_id
            and self._environment.monotonic() - mark.read_at < RENEW_SECONDS
        )

    async def _delete(self, key: TopicIdPartition) -> None:
        """Mark and delete all segments; segments in use are deleted later. Raises RequestError, StorageError."""
        await self._metadata.catch_up(key)
        segments = self._metadata.of(key)
        mark = self._metadata.deleting.get(key)
        is_topic_gone = self._store.image.topic_name(key.topic_id.bytes) is None
        if is_topic_gone and len(segments) and not self._is_own(mark):
            await self._metadata.mark_deletion(key)
        for segment in segments.segments():
            await self._tasks.delete_unused(segment)
        if not len(segments):
            self._keys.pop(key, None)
            if is_topic_gone:
                self._metadata.forget(key)


def deleted_partitions(
    delta: Delta, broker_id: int, stored: Collection[TopicIdPartition]
) -> list[TopicIdPartition]:
    """Return the partitions of deleted topics of which this broker deletes the segments.

    That is the leader, as in Kafka; if it is not alive, the first live replica, else the first live broker.

    Args:
        delta: the change of the image.
        broker_id: this broker.
        stored: partitions with known segments, also of topics without tiered storage by now.

    """
    keys: list[TopicIdPartition] = []
    names = {*delta.deleted, *(name for name in delta.topics if delta.replaced(name))}
    for name in names:
        topic = delta.old.topics.get(name)
        if topic is None:
            continue
        was_tiered = has_tiered_storage(delta.old.settings_of(TOPIC, name))
        for index, info in enumerate(topic.partitions):
            key = TopicIdPartition(name, index, UUID(bytes=topic.id))
            if (was_tiered or key in stored) and _deleter(info, delta.new) == broker_id:
                keys.append(key)
    return keys


def _deleter(info: PartitionInfo, image: ClusterImage) -> int:
    live = image.brokers
    for broker in (info.leader, *info.replicas):
        if broker in live:
            return broker
    return min(live, default=-1)
