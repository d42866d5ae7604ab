"""The partitions that this broker holds, and who waits for what on them.

The rule: every change of a partition's end or high watermark goes through `Partition`, which wakes exactly the
waiters that the change concerns. Nobody polls a log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import trio

from barnabas.errors import RequestError, StorageError
from barnabas.log.format.properties import is_damaged_copy
from barnabas.records.validate import Origin
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.image import ClusterImage, Delta, PartitionInfo, TopicInfo
    from barnabas.log.config import LogConfig
    from barnabas.log.manager import LogManager
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.results import AppendResult
    from barnabas.loop_budget import LoopBudget
    from barnabas.records.steps import Steps
    from barnabas.records.validate import ValidatedBatches

log = logging.getLogger(__name__)

ACKS_ALL = -1


StorageFailed = Callable[[StorageError], RequestError]
RequestFlush = Callable[["Partition"], None]


class Watcher(Protocol):
    """Something that waits for a partition to grow."""

    def partition_advanced(self, partition: Partition) -> None:
        """The high watermark or the last stable offset has moved, or the partition is no longer led here."""


class Partition:
    """A log that this broker leads, with its leader epoch and its waiters.

    Lifecycle: made when the cluster image names this broker as the leader, closed when it no longer does or the
    topic is deleted; closing wakes every waiter, who then meet the error that a new request would meet.
    """

    __slots__ = (
        "_committed",
        "_flushed",
        "_request_flush",
        "_storage_failed",
        "_watchers",
        "_why_closed",
        "appended_bytes",
        "appended_records",
        "closed",
        "in_sync_count",
        "index",
        "leader_epoch",
        "log",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        partition_log: PartitionLog,
        info: PartitionInfo,
        storage_failed: StorageFailed,
        request_flush: RequestFlush,
    ) -> None:
        self.topic = topic
        self.index = index
        self.log = partition_log
        self.leader_epoch = info.leader_epoch
        self.in_sync_count = len(info.isr)
        self.closed = False
        self.appended_bytes = 0
        self.appended_records = 0
        self._why_closed = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._storage_failed = storage_failed
        self._request_flush = request_flush
        self._watchers: set[Watcher] = set()
        self._committed: list[tuple[int, trio.Event]] = []
        self._flushed: list[tuple[int, trio.Event]] = []

    def validation(
        self, records: memoryview, *, acks: int, api_version: int, now_ms: int
    ) -> Steps[ValidatedBatches]:
        """Return the steps that validate a producer's records, for `append`.

        Raises NOT_ENOUGH_REPLICAS; the steps raise RequestError with Kafka's code for the records.
        """
        self._check_replicas(acks)
        return self.log.validation(records, now_ms=now_ms, api_version=api_version)

    def append(self, valid: ValidatedBatches, *, acks: int, api_version: int, now_ms: int) -> AppendResult:
        """Append a producer's validated records as the leader.

        Raises RequestError with Kafka's code when the producer's state or the in-sync replicas do not allow it, or the
        partition was closed since it was looked up; KAFKA_STORAGE_ERROR when the disk fails or is full.
        """
        if self.closed:
            raise RequestError(self._why_closed)
        self._check_replicas(acks)
        try:
            result = self.log.append_valid(
                valid, leader_epoch=self.leader_epoch, now_ms=now_ms, api_version=api_version
            )
        except StorageError as error:
            raise self._storage_failed(error) from error
        self.appended(result)
        return result

    def _check_replicas(self, acks: int) -> None:
        if acks == ACKS_ALL and self.in_sync_count < self.log.config.min_insync_replicas:
            raise RequestError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.in_sync_count} replicas of {self.topic}-{self.index} are in sync, "
                f"min.insync.replicas is {self.log.config.min_insync_replicas}",
            )

    def append_own(self, records: bytearray, *, now_ms: int) -> AppendResult:
        """Append what this broker's own coordinators have written. Raises RequestError, StorageError."""
        try:
            result = self.log.append_as_leader(
                records, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=Origin.COORDINATOR
            )
        except StorageError as error:
            self._storage_failed(error)
            raise
        self.appended(result)
        return result

    def appended(self, result: AppendResult) -> None:
        """Something was appended by whatever way: move the high watermark as far as replicas and medium allow."""
        self.appended_bytes += result.size
        self.appended_records += result.record_count
        if self.log.wants_flush:
            self._request_flush(self)
        elif self.in_sync_count <= 1:
            self.log.advance_high_watermark(self.log.log_end_offset)
            self._advanced()

    def flushed(self) -> None:
        """A flush that was asked for is done: what it has synced may be acknowledged."""
        recovery_point = self.log.recovery_point
        _wake(self._flushed, recovery_point)
        if self.in_sync_count <= 1:
            self.log.advance_high_watermark(recovery_point)
            self._advanced()

    async def wait_flushed(self, end_offset: int) -> None:
        """Wait for the flush that `flush.messages` asks for before the records up to `end_offset` are acknowledged.

        Returns at once where it asks for none. Raises RequestError as `wait_committed` does.
        """
        if self.log.wants_flush:
            await self._wait(self._flushed, end_offset, lambda: self.log.recovery_point)

    async def wait_committed(self, end_offset: int) -> None:
        """Wait until the high watermark has reached `end_offset` (the offset after the last record waited for).

        Raises RequestError when the partition closes meanwhile: NOT_LEADER_OR_FOLLOWER, or KAFKA_STORAGE_ERROR if
        its disk has failed.
        """
        await self._wait(self._committed, end_offset, lambda: self.log.high_watermark)

    async def _wait(
        self, waiters: list[tuple[int, trio.Event]], end_offset: int, reached: Callable[[], int]
    ) -> None:
        while reached() < end_offset:
            if self.closed:
                raise RequestError(self._why_closed)
            entry = (end_offset, trio.Event())
            waiters.append(entry)
            try:
                await entry[1].wait()
            finally:
                waiters.remove(entry)

    def subscribe(self, watcher: Watcher) -> None:
        """Tell `watcher` of every advance until it unsubscribes."""
        self._watchers.add(watcher)

    def unsubscribe(self, watcher: Watcher) -> None:
        """Stop telling `watcher`."""
        self._watchers.discard(watcher)

    def close(self, why: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """No longer led here: wake everybody, and tell those who wait why."""
        self.closed = True
        self._why_closed = why
        for _, event in (*self._committed, *self._flushed):
            event.set()
        self._advanced()

    def _advanced(self) -> None:
        if self._committed:
            _wake(self._committed, self.log.high_watermark)
        if self._watchers:
            for watcher in tuple(self._watchers):
                watcher.partition_advanced(self)


def _wake(waiters: Iterable[tuple[int, trio.Event]], reached: int) -> None:
    for end_offset, event in waiters:
        if end_offset <= reached:
            event.set()


class Partitions:
    """All partitions led by this broker, kept in step with the cluster image."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        storage_failed: StorageFailed,
        request_flush: RequestFlush,
        budget: LoopBudget,
    ) -> None:
        """`storage_failed` is told of every disk that fails; it returns what the client must see.

        `lost_dirs` are the directory ids of log dirs that this broker has had, and that are not there now.
        """
        self._broker_id = broker_id
        self._logs = logs
        self._storage_failed = storage_failed
        self._request_flush = request_flush
        self._budget = budget
        self._prepared: list[tuple[PartitionLog, PartitionInfo]] = []
        self.lost_dirs: frozenset[bytes] = frozenset()
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._image: ClusterImage | None = None

    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    def leader(self, topic: str, index: int, current_leader_epoch: int = -1) -> Partition:
        """The partition, if this broker leads it in the epoch that the client believes in.

        `current_leader_epoch` is -1 when the client does not check (KIP-320). Raises RequestError with
        UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH or
        UNKNOWN_LEADER_EPOCH.
        """
        partition = self._partitions.get((topic, index))
        if partition is None:
            raise RequestError(*self._why_not(topic, index))
        if current_leader_epoch >= 0 and current_leader_epoch != partition.leader_epoch:
            if current_leader_epoch < partition.leader_epoch:
                raise RequestError(ErrorCode.FENCED_LEADER_EPOCH)
            raise RequestError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        return partition

    def is_offline(self, topic: str, index: int, info: PartitionInfo) -> bool:
        """Whether this broker should lead a partition and cannot, since its log is not there."""
        return info.leader == self._broker_id and (topic, index) not in self._partitions

    def _why_not(self, topic: str, index: int) -> tuple[ErrorCode, str]:
        info = self._image.topics.get(topic) if self._image else None
        if info is None or not 0 <= index < len(info.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}"
        if info.partitions[index].leader == self._broker_id:
            return (
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the log of {topic}-{index} is offline; see the broker's log",
            )
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self._broker_id} does not lead {topic}-{index}"

    async def prepare(self, delta: Delta, config_for: Callable[[str], LogConfig], now_ms: int) -> None:
        """Make the logs of the partitions that are new in `delta`, for which `config_for` has the settings.

        Others run in between; the partitions are led from `publish` on. A log that was there before and is missing is
        not made again as long as a log dir is offline or lost, in which it may be: its partition is offline too, until
        an election gives up what it had. When the old image is empty, all of the new one may have been there before.
        """
        is_start = not delta.old.version
        for name in delta.topics:
            topic, before = delta.new.topics.get(name), delta.old.topics.get(name)
            if delta.replaced(name):
                await self._delete(name, delta, now_ms)
                before = None
            if topic is None:
                continue
            known = before.partitions if before is not None else ()
            config = config_for(name)
            for index, info in enumerate(topic.partitions):
                if info.leader == self._broker_id and (name, index) not in self._partitions:
                    begins = index >= len(known) or info.leader_epoch > known[index].leader_epoch
                    made = self._find_or_make(topic, index, config, now_ms, is_new=begins and not is_start)
                    if made is not None:
                        self._prepared.append((made, info))
                await self._budget.checkpoint()

    def publish(self, delta: Delta) -> None:
        """Lead what `prepare` has made, and no longer what another broker leads now."""
        self._image = delta.new
        for partition_log, info in self._prepared:
            name, index = partition_log.topic, partition_log.partition
            if self._logs.get(name, index) is partition_log:  # its log dir may have failed meanwhile
                partition = Partition(
                    name, index, partition_log, info, self._storage_failed, self._request_flush
                )
                self._partitions[name, index] = partition
                if partition.in_sync_count <= 1:
                    partition_log.advance_high_watermark(partition_log.log_end_offset)
        self._prepared.clear()
        for name in delta.topics:
            topic, before = delta.new.topics.get(name), delta.old.topics.get(name)
            if topic is not None and before is not None and not delta.replaced(name):
                for index, known in enumerate(before.partitions):
                    info = topic.partitions[index]
                    if info is not known:
                        self._follow(name, index, info)

    def _follow(self, name: str, index: int, info: PartitionInfo) -> None:
        partition = self._partitions.get((name, index))
        if info.leader != self._broker_id:
            self._close(name, index)
        elif partition is not None:
            partition.leader_epoch = info.leader_epoch
            partition.in_sync_count = len(info.isr)

    async def clean_up(self, delta: Delta, now_ms: int) -> None:
        """Delete the logs of the topics that are gone; others run in between."""
        for name in delta.topics:
            if name not in delta.new.topics:
                await self._delete(name, delta, now_ms)

    async def _delete(self, name: str, delta: Delta, now_ms: int) -> None:
        topic = delta.old.topics.get(name)
        for index in range(len(topic.partitions) if topic else 0):
            self._close(name, index)
            try:
                self._logs.delete(name, index, now_ms)
            except StorageError as error:
                self._storage_failed(error)
            await self._budget.checkpoint()

    def _find_or_make(
        self, topic: TopicInfo, index: int, config: LogConfig, now_ms: int, *, is_new: bool
    ) -> PartitionLog | None:
        """The log of a partition; None while it is offline."""
        name = topic.name
        partition_log = self._logs.get(name, index)
        if partition_log is not None and partition_log.topic_id != topic.id:
            if partition_log.topic_id is None or is_damaged_copy(partition_log.topic_id, topic.id):
                self._restore_topic_id(partition_log, topic.id)
            else:
                partition_log = None
                is_new = True
                self.set_aside(name, index)
        if partition_log is not None:
            return partition_log
        is_missing = (name, index) in self._logs.missing
        if (self._logs.offline or self.lost_dirs or is_missing) and not is_new:
            if not self.lost_dirs and not is_missing:  # otherwise all of them are told at once
                log.error("%s-%d is not in any log dir that works: it stays offline", name, index)
            return None
        return self._create(topic, index, config, now_ms)

    def _restore_topic_id(self, partition_log: PartitionLog, topic_id: bytes) -> None:
        """Keep a log whose `partition.metadata` is missing or damaged: its directory's name says whose it is."""
        try:
            partition_log.save_topic_id(topic_id)
        except StorageError as error:
            self._storage_failed(error)  # the log is as good as before, and the next start tries again
        else:
            log.warning(
                "%s: partition.metadata was missing or damaged, and was written again", partition_log.dir
            )

    def set_aside(self, name: str, index: int) -> None:
        """Set a log aside that is of a deleted topic; its directory stays, under another name."""
        try:
            path = self._logs.set_aside(name, index)
        except StorageError as error:
            self._storage_failed(error)
        else:
            log.error("%s-%d was of a topic that was deleted; it is kept as %s", name, index, path)

    def _create(self, topic: TopicInfo, index: int, config: LogConfig, now_ms: int) -> PartitionLog | None:
        """Make a log, in the next log dir if one fails; None if all did: the partition is offline then."""
        while True:
            try:
                return self._logs.create(topic.name, index, topic.id, config, now_ms=now_ms)
            except StorageError as error:
                self._storage_failed(error)
                if error.is_full or error.log_dir in self._logs.online:  # the same would happen again
                    return None
                if not self._logs.online:
                    return None

    def _close(self, name: str, index: int, why: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        partition = self._partitions.pop((name, index), None)
        if partition is not None:
            partition.close(why)

    def replace_log(self, partition_log: PartitionLog) -> None:
        """A partition's log has been moved: it goes on with this one."""
        partition = self._partitions.get((partition_log.topic, partition_log.partition))
        if partition is not None:
            partition.log = partition_log
            self._request_flush(partition)  # whoever waits for the old one's flush waits for this one's now

    def lose(self, logs: Iterable[PartitionLog]) -> None:
        """These logs' disk has failed: their partitions answer KAFKA_STORAGE_ERROR from now on."""
        for partition_log in logs:
            self._close(partition_log.topic, partition_log.partition, ErrorCode.KAFKA_STORAGE_ERROR)

    async def reconfigure(self, topics: Iterable[str], config_for: Callable[[str], LogConfig]) -> None:
        """These topics' settings have changed: hand the new ones to their logs. Others run in between."""
        for name in topics:
            info = self._image.topics.get(name) if self._image is not None else None
            config = config_for(name)
            for index in range(len(info.partitions) if info else 0):
                partition = self._partitions.get((name, index))
                if partition is not None:
                    partition.log.config = config
            await self._budget.checkpoint()
