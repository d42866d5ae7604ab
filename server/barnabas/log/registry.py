"""The logs of this broker, by topic-partition, and their number in each log dir.

The rule: a removed log is closed, and its checkpoint entries are not applied to a new log of its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from barnabas.log.checkpointing import Checkpointer
from barnabas.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog


class LogRegistry:
    """A mapping of topic-partitions to logs; iterates over a copy of the logs."""

    def __init__(self, dirs: Sequence[str], checkpoints: Checkpointer) -> None:
        self._checkpoints = checkpoints
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self.counts = dict.fromkeys(dirs, 0)
        """Number of logs in each log dir."""

    def __len__(self) -> int:
        return len(self._logs)

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._logs

    def __getitem__(self, key: TopicPartition) -> PartitionLog:
        return self._logs[key]

    def get(self, key: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition, None if this broker has none."""
        return self._logs.get(key)

    def in_dir(self, path: str) -> list[PartitionLog]:
        """Return the logs that are in a log dir."""
        return [partition_log for partition_log in self if partition_log.log_dir == path]

    def add(self, partition_log: PartitionLog) -> None:
        """Add a log."""
        self._logs[partition_log.topic, partition_log.partition] = partition_log
        self.counts[partition_log.log_dir] += 1

    def remove(self, partition_log: PartitionLog) -> None:
        """Remove a log that no longer exists."""
        key = (partition_log.topic, partition_log.partition)
        del self._logs[key]
        self.counts[partition_log.log_dir] -= 1
        self._checkpoints.log_removed(partition_log.log_dir, key)
        partition_log.abandon()

    def clear(self) -> None:
        """Remove all logs, which the caller has closed."""
        self._logs.clear()
        self.counts = dict.fromkeys(self.counts, 0)
