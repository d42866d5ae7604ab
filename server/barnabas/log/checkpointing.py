"""Writes the checkpoints of all log dirs without blocking the thread that owns the logs.

The rule: a `CheckpointPlan` is begun and filled by the thread that owns the logs, `Checkpointer.write` may be called in
any thread. An older plan never overwrites a newer one, and a checkpoint entry of a deleted log is never applied to a new
log of that name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from barnabas.errors import StorageError
from barnabas.log import logdir
from barnabas.log.disk import Disk
from barnabas.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog


MISSING = 1
"""Recovery point of a log that had records and is gone: if the log comes back, none of its records is trusted."""


class Offsets(NamedTuple):
    """Offsets for the next checkpoint files of one log dir, by partition."""

    recovery_points: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    clean_offsets: dict[TopicPartition, int]

    def add(self, partition_log: PartitionLog) -> None:
        """Add the present offsets of a log."""
        key = (partition_log.topic, partition_log.partition)
        self.recovery_points[key] = partition_log.recovery_point
        self.high_watermarks[key] = partition_log.high_watermark
        if partition_log.log_start_offset > partition_log.segments[0].base_offset or partition_log.is_tiered:
            self.log_starts[key] = partition_log.log_start_offset
        if partition_log.clean_offset is not None:
            self.clean_offsets[key] = partition_log.clean_offset


class CheckpointPlan(NamedTuple):
    """Offsets to be written, by log dir; a later plan has a higher number."""

    number: int
    dirs: dict[str, Offsets]

    def add(self, partition_log: PartitionLog) -> None:
        """Add a log, unless it was closed or deleted."""
        offsets = self.dirs.get(partition_log.log_dir)
        if offsets is not None and not partition_log.is_closed:
            offsets.add(partition_log)


class Checkpointer:
    """Writes plans, and knows which deleted logs may still have entries in the files."""

    def __init__(
        self, disk: Disk, check_in_place: Callable[[str], None], missing: Mapping[TopicPartition, str]
    ) -> None:
        """`check_in_place` raises StorageError for a log dir that was replaced since it was opened.

        `missing` are logs without their segments, with their former directories: they are remembered across restarts.
        """
        self._missing = missing
        self._disk = disk
        self._check_in_place = check_in_place
        self._number = 0
        self._writing = Lock()
        self._written: dict[str, int] = {}  # log dir -> number of the plan on disk
        self._removed: dict[
            str, dict[TopicPartition, int]
        ] = {}  # which logs went, after which plan was begun
        self._added: dict[str, int] = {}  # the same of the last log that was made in a log dir

    def begin(self, paths: Iterable[str]) -> CheckpointPlan:
        """Begin a plan for these log dirs; the caller then adds all logs in them."""
        self._number += 1
        plan = CheckpointPlan(self._number, {path: Offsets({}, {}, {}, {}) for path in paths})
        for key, directory in self._missing.items():
            offsets = plan.dirs.get(directory.rpartition("/")[0])
            if offsets is not None:
                offsets.recovery_points[key] = MISSING
        return plan

    def write(self, plan: CheckpointPlan) -> None:
        """Write all files of a plan, each synced. Raises StorageError for the first log dir that fails."""
        failure: StorageError | None = None
        for path, offsets in plan.dirs.items():
            try:
                with self._writing:
                    if self._written.get(path, 0) < plan.number:
                        self._check_in_place(path)
                        self._write(path, offsets)
                        self._written[path] = plan.number
            except StorageError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _write(self, path: str, offsets: Offsets) -> None:
        try:
            logdir.write_checkpoints(
                self._disk,
                path,
                logdir.Checkpoints(
                    offsets.recovery_points,
                    offsets.log_starts,
                    offsets.high_watermarks,
                    offsets.clean_offsets,
                ),
            )
        except OSError as error:
            raise StorageError(path, error) from error

    def written(self, plan: CheckpointPlan) -> None:
        """Note, in the thread that owns the logs, that a plan has been written."""
        for path in plan.dirs:
            removed = self._removed.get(path, {})
            for key in [key for key, number in removed.items() if number < plan.number]:
                del removed[key]
            if self._added.get(path, plan.number) < plan.number:
                del self._added[path]

    def log_added(self, path: str) -> None:
        """Note a new log in a log dir, which the files do not list yet: if the log vanishes now, no start misses it."""
        self._added[path] = self._number

    def log_removed(self, path: str, key: TopicPartition) -> None:
        """Note that a log is no longer in that log dir; the checkpoint files may still have entries for it."""
        self._removed.setdefault(path, {})[key] = self._number

    def forget(self, path: str) -> None:
        """Stop writing to a log dir that is offline.

        A plan that was begun before may lack logs of it: its log starts and high watermarks would be lost.
        """
        self._removed.pop(path, None)
        self._added.pop(path, None)
        self._written[path] = sys.maxsize

    def may_mislead(self, path: str, key: TopicPartition) -> bool:
        """Return whether the checkpoint files may have entries of a former log with the name of a new one."""
        return key in self._removed.get(path, {})

    @property
    def is_outdated(self) -> bool:
        """Return whether the files may have entries of removed logs, or lack some logs."""
        return bool(self._added) or any(self._removed.values())
