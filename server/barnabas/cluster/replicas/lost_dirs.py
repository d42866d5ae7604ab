"""Former log dirs of this broker that are missing: a replaced disk, a dir removed from the settings.

The rule: their partitions are offline, not empty. They return with the dir, or their records are given up by an unclean
election, like the last replica of a partition in Apache Kafka.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.changes import LogDirsRegistered, PartitionChanged
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.ids import uuid_text

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.log.manager import LogManager

log = logging.getLogger(__name__)

LOST = bytes(15) + b"\1"
"""Id of a lost log dir of which nothing else is known (reserved by KIP-858)."""


def present_dirs(logs: LogManager) -> frozenset[bytes]:
    """Return the directory ids of the log dirs that work."""
    return frozenset(meta.directory_id for meta in logs.meta.values() if meta.directory_id)


def lost_dirs(logs: LogManager, broker_id: int, image: ClusterImage) -> frozenset[bytes]:
    """Return the directory ids of the broker's former log dirs that are missing or failed."""
    return image.log_dirs.get(broker_id, frozenset()) - present_dirs(logs)


class LostDirs:
    """Remembers in the metadata which log dirs this broker has, and lets partitions begin again that are given up."""

    def __init__(self, broker_id: int, logs: LogManager, replicas: Replicas, metadata: MetadataStore) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._replicas = replicas
        self._metadata = metadata

    def register(self, image: ClusterImage) -> list[Change]:
        """Record the present log dirs; lost ones are dropped once no partition is missing."""
        known_dirs, present = image.log_dirs.get(self._broker_id, frozenset()), present_dirs(self._logs)
        lost = self._replicas.own_logs.lost_dirs
        if lost or self._logs.offline:
            missing = self._offline_partitions(image)
            if missing:
                _tell(lost, missing)
                present |= known_dirs
            else:
                self._replicas.own_logs.lost_dirs = frozenset()
        if present == known_dirs or (len(present) == 1 and not known_dirs):
            return []  # nothing new, or only the dir in which this would be written
        return [LogDirsRegistered(self._broker_id, present)]

    def _offline_partitions(self, image: ClusterImage) -> list[tuple[str, int]]:
        """Return the partitions without a log."""
        return [
            (topic.name, index)
            for topic in image.topics.values()
            for index, info in enumerate(topic.partitions)
            if self._replicas.is_offline(topic.name, index, info)
        ]

    async def begin_again(self, topic: str, index: int) -> bool:
        """Discard the records of a partition with a lost log or log dir: it is restarted empty, in a new leader epoch.

        Returns whether that was possible: not while a log dir is offline, which may have the log. Raises RequestError,
        StorageError.
        """
        is_missing = (topic, index) in self._logs.missing
        if self._logs.offline or not (
            self._replicas.own_logs.lost_dirs or is_missing or self._has_other(topic, index)
        ):
            return False

        def decide(image: ClusterImage) -> list[Change]:
            info = image.topics[topic].partitions[index]
            return [PartitionChanged(topic, index, info.with_sole_leader(self._broker_id))]

        await self._metadata.change(decide)
        log.warning(
            "%s-%d was given up by an unclean election: it had lost its log, and is empty now", topic, index
        )
        await self._metadata.change(self.register)
        return True

    def _has_other(self, topic: str, index: int) -> bool:
        return self._replicas.why_offline(topic, index) is ErrorCode.INCONSISTENT_TOPIC_ID


def _tell(lost: frozenset[bytes], missing: list[tuple[str, int]]) -> None:
    if not lost:
        return  # the offline dir was reported
    ids = ", ".join(uuid_text(directory_id) for directory_id in sorted(lost) if directory_id != LOST)
    named = ", ".join(f"{topic}-{index}" for topic, index in missing[:20])
    log.error(
        "a log dir is lost%s: %d partitions stay offline: %s%s. Start with the dir that has them, or give up what was "
        "in them: kafka-leader-election --election-type unclean",
        f" (directory.id {ids})" if ids else "", len(missing), named, ", ..." if len(missing) > 20 else "",
    )  # fmt: skip
