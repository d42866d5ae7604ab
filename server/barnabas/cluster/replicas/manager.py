"""The replicas of this broker, which follow the metadata.

The rule: only the metadata image decides on the role of a replica, by the tables of `replication.roles`; long work is
done in slices before the image is published.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.cluster.metadata.image import NO_TOPIC_ID, PartitionInfo
from barnabas.cluster.replicas.own_logs import OwnLogs
from barnabas.cluster.replication.roles import Role, Step, is_stale, steps, target_role
from barnabas.config.keeper import Keeper
from barnabas.environment.lazy import import_modules
from barnabas.errors import RequestError, StorageError
from barnabas.log.creating import Creation, Wanted
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import ClusterImage, Delta, TopicInfo
    from barnabas.cluster.replicas.context import ReplicaContext
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.environment import Threads
    from barnabas.log.config import LogConfig
    from barnabas.log.manager import LogManager
    from barnabas.log.partition_log import PartitionLog
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.wire.topic_partitions import TopicPartition

log = logging.getLogger(__name__)

LOGS_PER_BATCH: Final = 64
"""Logs created or deleted in one piece, in a thread; a broker that stops waits for one piece at most."""


class Replicas:
    """All replicas of this broker, kept in step with the metadata image.

    Replicas without a log are offline: only the image has them.
    """

    def __init__(
        self, logs: LogManager, context: ReplicaContext, budget: LoopBudget, threads: Threads
    ) -> None:
        """Know of no image yet."""
        self._broker_id = context.broker_id
        self._context = context
        self._logs = logs
        self._budget = budget
        self._threads = threads
        self._prepared: list[tuple[Replica, PartitionInfo]] = []
        self.own_logs = OwnLogs(logs, context)
        self._has_imported = False
        self._replicas: dict[tuple[str, int], Replica] = {}
        # partitions that other brokers have replicas of, too
        self._replicated: dict[tuple[str, int], Replica] = {}
        self._image: ClusterImage | None = None
        self._told_new: set[tuple[str, int]] = set()
        self.on_log_replaced: Callable[[str, int], None] = lambda _topic, _index: None
        """Called when the log of a partition is in another log dir."""

    def __iter__(self) -> Iterator[Replica]:
        return iter(tuple(self._replicas.values()))

    def __len__(self) -> int:
        return len(self._replicas)

    def replicated(self) -> tuple[Replica, ...]:
        """Return the replicas of partitions that other brokers have replicas of too."""
        return tuple(self._replicated.values())

    def leader(self, topic: str, index: int, current_leader_epoch: int = -1) -> Replica:
        """Return a partition's replica, if this broker leads it in the epoch that the client believes in.

        `current_leader_epoch` is -1 when the client does not check (KIP-320). Raises RequestError with
        UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH or
        UNKNOWN_LEADER_EPOCH.
        """
        replica = self._replicas.get((topic, index))
        if replica is None:
            raise RequestError(*self._why_not(topic, index))
        if current_leader_epoch != -1:
            replica.check_leader_epoch(current_leader_epoch)
        if replica.closed:
            raise RequestError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._broker_id} follows the leader of {topic}-{index}",
            )
        return replica

    def find(self, topic: str, index: int) -> Replica | None:
        """Return a partition's replica, in any role; None if this broker has none."""
        return self._replicas.get((topic, index))

    def is_served(self, partition_log: PartitionLog) -> bool:
        """Return whether a log is that of a replica."""
        replica = self._replicas.get((partition_log.topic, partition_log.partition))
        return replica is not None and replica.log is partition_log

    def local(self, topic: str, index: int, current_leader_epoch: int = -1) -> Replica:
        """Return a partition's replica, be it leader or follower. Raises RequestError as `leader` does."""
        replica = self._replicas.get((topic, index))
        if replica is None:
            raise RequestError(*self._why_not(topic, index))
        replica.check_leader_epoch(current_leader_epoch)
        return replica

    def role(self, topic: str, index: int) -> Role:
        """Return the role of this broker for a partition."""
        replica = self._replicas.get((topic, index))
        if replica is not None:
            return replica.role
        info = self._info(topic, index)
        return target_role(info, self._broker_id, is_log_available=False)

    def current_leader(self, topic: str, index: int) -> tuple[int, int]:
        """Return the leader of a partition and its leader epoch, as this broker knows them; -1 for none."""
        info = self._info(topic, index)
        return (info.leader, info.leader_epoch) if info is not None else (-1, -1)

    def is_offline(self, topic: str, index: int, info: PartitionInfo) -> bool:
        """Return whether this broker should lead a partition and cannot, since its log is not there."""
        return info.leader == self._broker_id and (topic, index) not in self._replicas

    def _info(self, topic: str, index: int) -> PartitionInfo | None:
        return self._image.partition(topic, index) if self._image else None

    def _why_not(self, topic: str, index: int) -> tuple[ErrorCode, str]:
        info = self._info(topic, index)
        if info is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}"
        if target_role(info, self._broker_id) is not Role.NONE:
            return (
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the log of {topic}-{index} is offline; see the broker's log",
            )
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self._broker_id} has no replica of {topic}-{index}"

    async def prepare(self, delta: Delta, config_for: Callable[[str], LogConfig], now_ms: int) -> None:
        """Create the logs of the replicas that are new in `delta`, with the settings of `config_for`.

        Other tasks run in between; `publish` sets the roles of the replicas. A log that existed before and is missing is
        not created again, nor while it may be in an offline or lost log dir: its partition is offline too, until an unclean
        election discards its records. If the old image is empty, all partitions of the new one may have existed before.
        """
        is_start = not delta.old.version
        if delta.topics and not self._has_imported:
            await self._threads.run(_import_logs)
            self._has_imported = True
        new: list[tuple[Wanted, PartitionInfo]] = []
        for name in delta.topics:
            topic, before = delta.new.topics.get(name), delta.old.topics.get(name)
            if topic is None:
                continue  # `clean_up` deletes its logs
            if delta.replaced(name):
                await self._let_go(name, delta, now_ms)
                before = None
            infos_before = before.partitions if before is not None else ()
            if before is not None and before.id == NO_TOPIC_ID != topic.id:
                await self._take_topic_id(topic)
            config = config_for(name)
            for index, info in enumerate(topic.partitions):
                if (
                    target_role(info, self._broker_id) is not Role.NONE
                    and (name, index) not in self._replicas
                ):
                    info_before = infos_before[index] if index < len(infos_before) else None
                    begins = self._begins((name, index), info, info_before, is_start=is_start)
                    is_new = not is_start and target_role(info_before, self._broker_id) is Role.NONE
                    own_log = self.own_logs.find(topic, index, info, begins=begins)
                    if own_log is not None:
                        self._add(own_log, info)
                    elif self.own_logs.may_be_made(topic, index, info, begins=begins, is_new=is_new):
                        topic_id = topic.id if topic.id != NO_TOPIC_ID else None
                        new.append((Wanted(name, index, topic_id, config), info))
                await self._budget.checkpoint()
                if len(new) == LOGS_PER_BATCH:
                    await self._make(new, now_ms)
                    new = []
        if new:
            await self._make(new, now_ms)

    def _add(self, partition_log: PartitionLog, info: PartitionInfo) -> None:
        """Prepare a replica for `publish`; it is not served before."""
        from barnabas.cluster.replicas.replica import Replica  # `prepare` has imported it in a thread

        replica = Replica(partition_log.topic, partition_log.partition, partition_log, self._context)
        if target_role(info, self._broker_id) is Role.LEADER:
            self._take_role(replica, None, info)
        self._prepared.append((replica, info))

    async def _make(self, new: Sequence[tuple[Wanted, PartitionInfo]], now_ms: int) -> None:
        """Create the logs of these replicas, in a thread; if that fails the partition is offline."""
        new_logs = [log for log, _ in new]
        if self._logs.are_misleading(new_logs):
            await self._write_checkpoints()
        creation: Creation | None = None
        try_again = False
        try:
            creation = self._logs.begin_creation(new_logs, now_ms)
        except StorageError as error:
            self._storage_failed(error)
            try_again = error.log_dir not in self._logs.online and bool(self._logs.online)
        if creation is None:
            if try_again:
                await self._make(new, now_ms)
            return
        await self._threads.run(creation.run)
        again: list[tuple[Wanted, PartitionInfo]] = []
        for (new_log, info), created in zip(new, creation.logs, strict=True):
            try:
                self._add(self._logs.finish_creation(created, now_ms), info)
            except StorageError as error:
                self._storage_failed(error)
                if error.log_dir not in self._logs.online:  # otherwise the same would happen again
                    again.append((new_log, info))
            await self._budget.checkpoint()
        if again and self._logs.online:
            await self._make(again, now_ms)

    async def _write_checkpoints(self) -> None:
        plan = self._logs.begin_checkpoints()
        for partition_log in self._logs:
            plan.add(partition_log)
            await self._budget.checkpoint()
        checkpoints = self._logs.checkpoints
        try:
            await self._threads.run(lambda: checkpoints.write(plan))
        except StorageError as error:
            self._storage_failed(error)
        else:
            checkpoints.written(plan)

    async def _take_topic_id(self, topic: TopicInfo) -> None:
        """Store the id of a topic that had none before in its logs."""
        for index in range(len(topic.partitions)):
            replica = self._replicas.get((topic.name, index))
            if replica is not None and replica.log.topic_id is None:
                try:
                    replica.log.save_topic_id(topic.id)
                except StorageError as error:
                    self._storage_failed(error)
            await self._budget.checkpoint()

    def begin_empty(self, topic: str, index: int) -> None:
        """Allow a replica in the next image to begin with an empty log, even while log dirs are offline.

        With ZooKeeper the controller marks new replicas; all others may have been here before.
        """
        self._told_new.add((topic, index))

    def _begins(
        self, key: tuple[str, int], info: PartitionInfo, info_before: PartitionInfo | None, *, is_start: bool
    ) -> bool:
        """Return whether a replica may begin with an empty log: its former records are not needed, or given up."""
        if self._context.keeper is Keeper.ZOOKEEPER:
            return key in self._told_new
        if self._context.keeper is Keeper.QUORUM:
            return True  # the image has the topic's id, and `may_be_made` checks the log dirs
        if is_start:
            return False
        if target_role(info_before, self._broker_id) is Role.NONE:
            return True
        assert info_before is not None
        return info.leader == self._broker_id and info.leader_epoch > info_before.leader_epoch

    def publish(self, delta: Delta) -> None:
        """Set the role of each replica by the new image: of those that `prepare` has created, and of existing ones."""
        self._image = delta.new
        for replica, info in self._prepared:
            key = replica.topic, replica.index
            if self._logs.get(*key) is not replica.log:
                continue  # its log dir has failed meanwhile
            self._replicas[key] = replica
            if replica.role is Role.LEADER:
                self._note_replicas(replica, info)
            else:
                self._follow(replica, None, info)
        self._prepared.clear()
        self._told_new.clear()
        for name in delta.topics:
            topic, before = delta.new.topics.get(name), delta.old.topics.get(name)
            if topic is not None and before is not None and not delta.replaced(name):
                for index, info_before in enumerate(before.partitions):
                    info = topic.partitions[index]
                    existing = self._replicas.get((name, index)) if info is not info_before else None
                    if existing is not None and existing.role is not Role.OFFLINE:
                        self._follow(existing, info_before, info)

    def _follow(self, replica: Replica, info_before: PartitionInfo | None, info: PartitionInfo) -> None:
        """Set the role of a replica by `info`, step by step."""
        if info_before is not None and is_stale(info_before, info):
            log.error(
                "%s-%d: metadata that are older than what is known are left out", replica.topic, replica.index
            )
            return
        self._note_replicas(replica, info)
        self._take_role(replica, info_before, info)

    def _take_role(self, replica: Replica, info_before: PartitionInfo | None, info: PartitionInfo) -> None:
        for step in steps(replica.role, target_role(info, self._broker_id), info_before, info):
            match step:
                case Step.BEGIN_EPOCH:
                    replica.lead(info)
                case Step.UPDATE_ISR:
                    replica.update_isr(info)
                case Step.START_FETCHING:
                    replica.follow(info)
                    self._context.fetchers.start(replica)
                case Step.STOP_FETCHING:
                    self._context.fetchers.stop(replica)
                case Step.CLOSE_WAITERS:
                    replica.close_waiters()
                case Step.DELETE_LOG:  # the log itself goes with `clean_up`
                    self._close(replica.topic, replica.index)
                case Step.OPEN_LOG:  # done by `prepare`
                    pass

    def _note_replicas(self, replica: Replica, info: PartitionInfo) -> None:
        """Keep in mind which replicas other brokers have too."""
        if len(info.replicas) > 1:
            self._replicated[replica.topic, replica.index] = replica
        else:
            self._replicated.pop((replica.topic, replica.index), None)

    async def clean_up(self, delta: Delta, now_ms: int) -> None:
        """Close the replicas of topics that were deleted, or are elsewhere now; other tasks run in between.

        With ZooKeeper their logs stay until `delete_logs`: the controller decides about them.
        """
        for name in delta.topics:
            topic, before = delta.new.topics.get(name), delta.old.topics.get(name)
            if topic is None:
                await self._let_go(name, delta, now_ms)
            elif before is not None and not delta.replaced(name):
                gone = []
                for index, info_before in enumerate(before.partitions):
                    if self._is_no_replica_now(info_before, topic.partitions[index]):
                        gone.append((name, index))
                    await self._budget.checkpoint()
                if self._context.keeper is Keeper.ZOOKEEPER:
                    await self._stop(gone)
                else:
                    await self.delete_logs(gone, now_ms)

    def _is_no_replica_now(self, info_before: PartitionInfo, info: PartitionInfo) -> bool:
        return (
            info_before is not info
            and target_role(info, self._broker_id) is Role.NONE
            and target_role(info_before, self._broker_id) is not Role.NONE
        )

    async def _let_go(self, name: str, delta: Delta, now_ms: int) -> None:
        """Close the replicas of a topic that was deleted, or has another id; delete its logs unless a controller does."""
        topic = delta.old.topics.get(name)
        if topic is None:
            return
        keys = [(name, index) for index in range(len(topic.partitions))]
        if self._context.keeper is Keeper.ZOOKEEPER:
            await self._stop(keys)
        else:
            await self.delete_logs(keys, now_ms, topic.id)

    async def _stop(self, keys: Sequence[TopicPartition]) -> None:
        """Stop replicas, and keep their logs."""
        for key in keys:
            self._close(*key)
            await self._budget.checkpoint()

    async def delete_logs(
        self, keys: Sequence[TopicPartition], now_ms: int, topic_id: bytes = NO_TOPIC_ID
    ) -> dict[TopicPartition, ErrorCode]:
        """Stop replicas, and delete their logs, some at a time; returns the errors of those that failed.

        Logs are deleted on request only. Logs of another topic than that with this id, or with an id known to be
        deleted, are set aside.
        """
        errors: dict[TopicPartition, ErrorCode] = {}
        for at in range(0, len(keys), LOGS_PER_BATCH):
            some = keys[at : at + LOGS_PER_BATCH]
            for key in some:
                self._close(*key)
            self.own_logs.keep_others(some, topic_id)
            logs = [self._logs.get(*key) for key in some]
            deletion = self._logs.begin_deletion(some, now_ms)
            await self._threads.run(deletion.run)
            try:
                deletion.finish()
            except StorageError as error:
                self._storage_failed(error)
                for key, partition_log in zip(some, logs, strict=True):
                    if partition_log is not None and partition_log.log_dir == error.log_dir:
                        errors[key] = ErrorCode.KAFKA_STORAGE_ERROR
            await self._budget.checkpoint()
        return errors

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of a topic, None if unknown; if the image lacks it, that of a log in sync counts."""
        topic = self._image.topics.get(name) if self._image is not None else None
        if topic is None or topic.id != NO_TOPIC_ID:
            return topic.id if topic is not None else None
        for index, info in enumerate(topic.partitions):
            replica = self._replicas.get((name, index)) if self._broker_id in info.isr else None
            if replica is not None and replica.log.topic_id is not None:
                return replica.log.topic_id
        return None

    def why_offline(self, name: str, index: int) -> ErrorCode:
        """Return the error of a replica without a log."""
        topic = self._image.topics.get(name) if self._image is not None else None
        if topic is not None and self.own_logs.has_other(topic, index):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _close(self, name: str, index: int, why: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        replica = self._replicas.pop((name, index), None)
        self._replicated.pop((name, index), None)
        if replica is not None:
            self._context.fetchers.stop(replica)
            replica.close(why)

    def _storage_failed(self, error: StorageError) -> None:
        self._context.storage_failed(error)

    def replace_log(self, partition_log: PartitionLog) -> None:
        """Resume a replica with a log that was moved."""
        replica = self._replicas.get((partition_log.topic, partition_log.partition))
        if replica is not None:
            replica.replace_log(partition_log)
        self.on_log_replaced(partition_log.topic, partition_log.partition)

    def lose(self, logs: Iterable[PartitionLog]) -> None:
        """Take replicas on a failed disk offline: they answer KAFKA_STORAGE_ERROR afterwards."""
        logs = tuple(logs)
        self.own_logs.note_lost(logs)
        for partition_log in logs:
            self._close(partition_log.topic, partition_log.partition, ErrorCode.KAFKA_STORAGE_ERROR)

    async def reconfigure(self, topics: Iterable[str], config_for: Callable[[str], LogConfig]) -> None:
        """Pass the changed settings of these topics to their logs. Other tasks run in between."""
        for name in topics:
            info = self._image.topics.get(name) if self._image is not None else None
            config = config_for(name)
            for index in range(len(info.partitions) if info else 0):
                replica = self._replicas.get((name, index))
                if replica is not None:
                    replica.log.config = config
            await self._budget.checkpoint()


def _import_logs() -> None:
    """Import the modules for the first partition of a broker: it takes some 20 ms."""
    import_modules(
        "barnabas.log.recovery.loading", "barnabas.log.partition_log", "barnabas.cluster.replicas.replica"
    )
