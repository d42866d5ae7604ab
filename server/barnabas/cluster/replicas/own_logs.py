"""Ownership of the logs on the disk: a replica's own or another topic's, and whether an empty one may be created.

The rule: a log belongs to the topic with its id, and no log is removed on a mere sign that its topic was deleted. A log
that has another id, or is missing, keeps its partition offline, unless the log is not needed: the replica is new, an
election has discarded its records, or another broker leads and this one is not in sync. Then a log of another topic is
set aside, under a name that nothing removes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.image import NO_TOPIC_ID, PartitionInfo
from barnabas.config.keeper import Keeper
from barnabas.errors import StorageError
from barnabas.log.format.properties import is_damaged_copy
from barnabas.wire.ids import uuid_text

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import ClusterImage, TopicInfo
    from barnabas.cluster.replicas.context import ReplicaContext
    from barnabas.log.manager import LogManager
    from barnabas.log.partition_log import PartitionLog
    from barnabas.wire.topic_partitions import TopicPartition

log = logging.getLogger(__name__)


class OwnLogs:
    """Finds the logs of this broker's replicas."""

    def __init__(self, logs: LogManager, context: ReplicaContext) -> None:
        self._logs = logs
        self._context = context
        self.lost_dirs: frozenset[bytes] = frozenset()
        """The directory ids of log dirs that this broker has had, and that are not there now."""
        self._lost: dict[TopicPartition, bytes] = {}
        """Logs that went offline with their log dir since the start, with the ids of their topics."""
        self._told: set[tuple[TopicPartition, bytes]] = set()
        """Partitions without a log of their own that were named in the broker's log, with their topic ids."""
        self._deleted: dict[TopicPartition, bytes] = {}
        """Partitions with a log here of topics that are being deleted, with the topics' ids."""

    def find(self, topic: TopicInfo, index: int, info: PartitionInfo, *, begins: bool) -> PartitionLog | None:
        """Return the log of a replica, if it is here. `begins` allows to set aside a log with another topic id."""
        partition_log = self._logs.get(topic.name, index)
        if partition_log is None or topic.id in (NO_TOPIC_ID, partition_log.topic_id):
            return partition_log
        if not is_another(partition_log, topic.id):
            self._restore_topic_id(partition_log, topic.id)
            return partition_log
        if begins or self._does_without(info):
            self.set_aside(partition_log, f"topic {topic.name} has the id {uuid_text(topic.id)} now")
        else:
            self._refuse(partition_log, topic)
        return None

    def has_other(self, topic: TopicInfo, index: int) -> bool:
        """Return whether the log that is here under a partition's name has another topic id."""
        partition_log = self._logs.get(topic.name, index)
        return partition_log is not None and is_another(partition_log, topic.id)

    def may_be_made(
        self, topic: TopicInfo, index: int, info: PartitionInfo, *, begins: bool, is_new: bool
    ) -> bool:
        """Return whether a log that `find` has not found may be created; otherwise the partition stays offline.

        `is_new`: this broker had no replica of the partition in the image before.
        """
        key = (topic.name, index)
        if self._logs.get(*key) is not None:
            return False
        if self._context.keeper is Keeper.QUORUM:
            return self._may_be_made_where_assigned(topic, index, info, is_new=is_new)
        if begins:
            return True
        is_missing = key in self._logs.missing
        if not (self._logs.offline or self.lost_dirs or is_missing):
            return True
        if is_missing:
            return self._may_replace_missing(key, topic.id, info)
        if not self.lost_dirs:  # otherwise all of them are reported together
            log.error("%s-%d is not in any log dir that works: it stays offline", *key)
        return False

    def _may_be_made_where_assigned(
        self, topic: TopicInfo, index: int, info: PartitionInfo, *, is_new: bool
    ) -> bool:
        """Return whether a replica's log may be created, by its log dir in the image of a quorum (KIP-858).

        In a dir that is missing, or went offline, the replica may have a log with records: an empty one in its place
        could lead. A log in a present dir was removed by hand if the checkpoints know of it.
        """
        from barnabas.cluster.kraft.values import (  # not needed by a broker that is alone
            MIGRATING,
            UNASSIGNED,
        )

        key = (topic.name, index)
        if self._lost.get(key) == topic.id:
            return False
        if key in self._logs.missing:
            return self._may_replace_missing(key, topic.id, info)
        replicas, me = info.replicas, self._context.broker_id
        assigned = info.directories[replicas.index(me)] if info.directories else MIGRATING
        present = {meta.directory_id for meta in self._logs.meta.values()}
        if assigned == UNASSIGNED or assigned in present:
            return True
        if assigned == MIGRATING and (is_new or not self._logs.offline):  # a cluster without ids of log dirs
            return True
        if not self._logs.offline and self._does_without(info):
            log.warning(
                "%s-%d: its log dir %s is not here any more; it is copied again from broker %d",
                *key, uuid_text(assigned), info.leader,
            )  # fmt: skip
            return True
        if (key, topic.id) not in self._told:
            self._told.add((key, topic.id))
            log.error(
                "%s-%d stays offline: its log is in log dir %s, which is offline or not among log.dirs, and no empty log "
                "takes its place. Start with the dir that has it; or give up what was in it: make an empty directory "
                "%s-%d in a log dir that works, and start the broker again",
                *key, uuid_text(assigned), *key,
            )  # fmt: skip
        return False

    def _may_replace_missing(self, key: TopicPartition, topic_id: bytes, info: PartitionInfo) -> bool:
        """Return whether a log may be created in place of one that was removed by hand; reports it to the operator."""
        if not self._does_without(info):
            self._tell_missing(key, topic_id)
            return False
        log.error(
            "%s-%d: its log is gone from %s; it is copied again from broker %d",
            *key, self._logs.missing[key], info.leader,
        )  # fmt: skip
        return True

    def _does_without(self, info: PartitionInfo) -> bool:
        """Return whether another broker leads a partition and this one is not in sync: committed records are elsewhere."""
        me = self._context.broker_id
        return info.leader >= 0 and info.leader != me and me not in info.isr

    def _restore_topic_id(self, partition_log: PartitionLog, topic_id: bytes) -> None:
        """Keep a log with a missing or damaged `partition.metadata`: the name of its directory shows its topic."""
        was_damaged = partition_log.topic_id is not None or self._context.keeper is Keeper.ITSELF
        try:
            partition_log.save_topic_id(topic_id)
        except StorageError as error:
            self._context.storage_failed(
                error
            )  # the log is as good as before, and the next start tries again
        else:
            log.log(
                logging.WARNING if was_damaged else logging.INFO,
                "%s: partition.metadata was missing or damaged, and was written again", partition_log.dir,
            )  # fmt: skip

    # --- logs of other topics -------------------------------------------------------------------------------

    def set_aside_strays(self, image: ClusterImage) -> None:
        """Set aside the logs that have no replica of this broker, before any is served; the image is complete.

        Their topics were deleted, or replicas moved, while the broker was away. As in Apache Kafka nothing is removed
        then: a log is deleted when its deletion is followed, not because it is missing from an image.
        """
        for partition_log in tuple(self._logs):
            name, index = partition_log.topic, partition_log.partition
            topic, info = image.topics.get(name), image.partition(name, index)
            if topic is None:
                self.set_aside(partition_log, "the cluster has no such topic")
            elif info is None or self._context.broker_id not in info.replicas:
                self.set_aside(partition_log, "the partition has no replica on this broker any more")
        for key in tuple(self._logs.missing):
            info = image.partition(*key)
            if info is None or self._context.broker_id not in info.replicas:
                del self._logs.missing[key]

    def note_lost(self, logs: Iterable[PartitionLog]) -> None:
        """Remember the logs that went offline with their log dir: until a restart none is created in their place."""
        for partition_log in logs:
            if partition_log.topic_id is not None:
                self._lost[partition_log.topic, partition_log.partition] = partition_log.topic_id

    def set_aside(self, partition_log: PartitionLog, why: str) -> None:
        """Stop using a log of another topic; its directory is kept, under another name."""
        topic, index, topic_id = partition_log.topic, partition_log.partition, partition_log.topic_id
        directory = partition_log.dir
        try:
            path = self._logs.set_aside(topic, index)
        except StorageError as error:
            self._context.storage_failed(error)
        else:
            log.error(
                "%s-%d had the log of a topic with the id %s, but %s: it is kept as %s, and nothing removes it. To bring "
                "it back, stop the broker, rename it to %s, and %s",
                topic, index, uuid_text(topic_id) if topic_id is not None else "(unknown)", why, path, directory,
                self._how(topic, topic_id, directory),
            )  # fmt: skip

    def _refuse(self, partition_log: PartitionLog, topic: TopicInfo) -> None:
        assert partition_log.topic_id is not None
        key = (topic.name, partition_log.partition)
        if (key, topic.id) in self._told:
            return
        self._told.add((key, topic.id))
        log.error(
            "%s-%d is offline: topic %s has the id %s, its log in %s has the id %s, and the topic was not deleted. The "
            "log stays as it is. If it is the topic's, %s. If the topic was made anew, %s",
            *key, topic.name, uuid_text(topic.id), partition_log.dir, uuid_text(partition_log.topic_id),
            self._how(topic.name, partition_log.topic_id, partition_log.dir), self._how_to_give_up(partition_log.dir),
        )  # fmt: skip

    def _how(self, topic: str, topic_id: bytes | None, directory: str) -> str:
        if self._context.keeper is Keeper.QUORUM:
            return (
                f"make a topic {topic} with a replica of the partition here, remove {directory}/partition.metadata, and "
                "start the broker: the topic's id is written again"
            )
        if self._context.keeper is Keeper.ITSELF or topic_id is None:
            return f"remove {directory}/partition.metadata, and start the broker: the topic's id is written again"
        return (
            f'write "topic_id":"{uuid_text(topic_id)}" into the znode /brokers/topics/{topic}, and have another controller '
            "elected (delete the znode /controller)"
        )

    def _how_to_give_up(self, directory: str) -> str:
        if self._context.keeper is Keeper.ITSELF:
            return "begin with an empty log: kafka-leader-election --election-type unclean"
        return f"move {directory} away, make an empty directory of its name, and start the broker again"

    def _tell_missing(self, key: TopicPartition, topic_id: bytes) -> None:
        if (key, topic_id) not in self._told:
            self._told.add((key, topic_id))
            directory = self._logs.missing[key]
            log.error(
                "%s-%d is offline: its log is gone from %s. Put it back, and start the broker again; or give up what was "
                "in it, and %s",
                *key, directory, self._how_to_give_up(directory),
            )  # fmt: skip

    # --- deletions ------------------------------------------------------------------------------------------

    def note_deletions(self, partitions: Iterable[tuple[TopicPartition, bytes]]) -> None:
        """Remember which topics the controller deletes: StopReplica names them without their ids."""
        for key, topic_id in partitions:
            if topic_id != NO_TOPIC_ID and self._logs.get(*key) is not None:
                self._deleted[key] = topic_id

    def keep_others(self, keys: Collection[TopicPartition], topic_id: bytes = NO_TOPIC_ID) -> None:
        """Set aside logs of another topic than the present one, before a topic's logs are deleted."""
        for key in keys:
            self._lost.pop(key, None)
            deleted = self._deleted.pop(key, topic_id)
            partition_log = self._logs.get(*key)
            if partition_log is not None and is_another(partition_log, deleted):
                self.set_aside(
                    partition_log, f"what was deleted is topic {key[0]} with the id {uuid_text(deleted)}"
                )


def is_another(partition_log: PartitionLog, topic_id: bytes) -> bool:
    """Return whether a log has the id of another topic; a damaged copy of the same id does not count."""
    log_topic_id = partition_log.topic_id
    return (
        log_topic_id is not None
        and NO_TOPIC_ID != topic_id != log_topic_id
        and not is_damaged_copy(log_topic_id, topic_id)
    )
