"""The cleaner of a broker: repeatedly picks the dirtiest log.

The rule: it has no thread of its own. The caller asks for the next task, runs that in a thread, and hands it back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import zip_longest

from barnabas.errors import StorageError
from barnabas.log.cleaner.cleaning import CleaningAbortedError, CleaningTask, CleaningTotals, Source, Throttle
from barnabas.log.cleaner.filter import LastRecord
from barnabas.log.cleaner.planner import (
    CleanableRange,
    SegmentFacts,
    cleanable_range,
    dirtiest,
    first_dirty_offset,
)
from barnabas.log.format import names
from barnabas.log.partition_log import PartitionLog
from barnabas.records.errors import RecordsError
from barnabas.records.steps import Steps, run

log = logging.getLogger(__name__)

DEDUPE_BYTES = 128 << 20  # log.cleaner.dedupe.buffer.size
LOAD_FACTOR = 0.9  # log.cleaner.io.buffer.load.factor


class LogCleaner:
    """Decides which log is cleaned next; skips logs that are being cleaned, and damaged ones."""

    def __init__(
        self,
        logs: Callable[[], Iterable[PartitionLog]],
        *,
        dedupe_bytes: int = DEDUPE_BYTES,
        load_factor: float = LOAD_FACTOR,
        throttle: Throttle | None = None,
    ) -> None:
        self.dedupe_bytes = dedupe_bytes
        self.load_factor = load_factor
        self.throttle = throttle
        self.uncleanable: set[PartitionLog] = set()
        self.totals = CleaningTotals()
        self._logs = logs
        # By directory: a new log with the name of one in progress must not write to the same files.
        self._in_work: dict[str, CleaningTask] = {}

    def clean(self, now_ms: int) -> bool:
        """Clean the dirtiest log in this thread; returns whether there was one. Raises StorageError."""
        task = self.next_task(now_ms)
        if task is None:
            return False
        try:
            task.run()
        except Exception as error:
            self.failed(task, error)
            return True
        self.done(task, now_ms)
        return True

    def next_task(self, now_ms: int) -> CleaningTask | None:
        """Return a cleaning to `run` in a thread and then pass to `done` or `failed`; None if none is due.

        Raises StorageError.
        """
        ranges = ((partition_log, self.due_range(partition_log, now_ms)) for partition_log in self._logs())
        return self.take([(partition_log, due) for partition_log, due in ranges if due is not None], now_ms)

    def due_range(self, partition_log: PartitionLog, now_ms: int) -> CleanableRange | None:
        """Return the cleanable range of a log, None if no cleaning is due. Raises StorageError."""
        if (
            not partition_log.config.is_compacted
            or partition_log.is_closed
            or partition_log.dir in self._in_work
            or partition_log in self.uncleanable
        ):
            return None
        try:
            cleanable = self.measure(partition_log, now_ms)
        except OSError as error:
            raise StorageError(partition_log.log_dir, error) from error
        except RecordsError as error:
            self._give_up(partition_log, error)
            return None
        return cleanable if cleanable.is_due(partition_log.config.min_cleanable_dirty_ratio) else None

    def take(self, due: list[tuple[PartitionLog, CleanableRange]], now_ms: int) -> CleaningTask | None:
        """Begin to clean the dirtiest of these logs, if that is still due. Raises StorageError."""
        self.uncleanable = {
            partition_log for partition_log in self.uncleanable if not partition_log.is_closed
        }
        while (
            best := dirtiest((n, cleanable_range) for n, (_, cleanable_range) in enumerate(due))
        ) is not None:
            partition_log, _ = due.pop(best)
            cleanable = self.due_range(partition_log, now_ms)
            if cleanable is None:
                continue  # the log has changed since it was measured
            try:
                task = self._make_task(partition_log, cleanable, now_ms)
            except OSError as error:
                raise StorageError(partition_log.log_dir, error) from error
            except RecordsError as error:
                self._give_up(partition_log, error)
                continue
            self._in_work[partition_log.dir] = task
            return task
        return None

    def _give_up(self, partition_log: PartitionLog, error: RecordsError) -> None:
        log.error("%s is damaged and will not be cleaned: %s", partition_log.name, error.message)
        self.uncleanable.add(partition_log)

    def measure(self, partition_log: PartitionLog, now_ms: int) -> CleanableRange:
        """Measure the dirtiness of a log. Raises OSError."""
        config = partition_log.config
        dirty_offset = first_dirty_offset(
            partition_log.clean_offset, partition_log.log_start_offset, partition_log.log_end_offset
        )
        wants_first = config.max_compaction_lag_ms < (1 << 62)
        facts = []
        for segment, following in zip_longest(partition_log.segments, partition_log.segments[1:]):
            is_dirty = following is not None and following.base_offset > dirty_offset
            facts.append(
                SegmentFacts(
                    segment.base_offset,
                    segment.size,
                    largest_timestamp=segment.largest_timestamp if config.min_compaction_lag_ms > 0 else -1,
                    first_timestamp=segment.load_first_timestamp() if wants_first and is_dirty else -1,
                )
            )
        return cleanable_range(
            facts,
            dirty_offset=dirty_offset,
            last_stable_offset=partition_log.last_stable_offset,
            recovery_point=partition_log.recovery_point,
            now_ms=now_ms,
            min_lag_ms=config.min_compaction_lag_ms,
            max_lag_ms=config.max_compaction_lag_ms,
        )

    def _make_task(self, partition_log: PartitionLog, cleanable: CleanableRange, now_ms: int) -> CleaningTask:
        sources = []
        for segment in partition_log.segments[:-1]:
            if segment.base_offset >= cleanable.end_offset:
                break
            segment.write_indexes()
            facts = SegmentFacts(
                segment.base_offset,
                segment.size,
                len(segment.offset_index.entries),
                len(segment.time_index.entries),
            )
            path = segment.path(names.LOG)
            sources.append(Source(facts, segment, path, partition_log.disk.stat(path).modified_ms))
        start = sources[0].facts.base_offset
        last_records = {
            producer.producer_id: LastRecord(producer.last_offset, producer.producer_epoch)
            for producer in partition_log.producers.active()
        }
        return CleaningTask(
            partition_log,
            cleanable,
            sources,
            partition_log.aborted_transactions(start, cleanable.end_offset),
            last_records,
            now_ms,
            self.dedupe_bytes,
            self.load_factor,
            self.throttle,
            partition_log.generation,
        )

    def done(self, task: CleaningTask, now_ms: int) -> bool:
        """Swap in the segments that a task has written, all at once; returns whether that was possible.

        Raises StorageError.
        """
        return run(self.done_steps(task, now_ms))

    def done_steps(self, task: CleaningTask, now_ms: int) -> Steps[bool]:
        """Do the same in steps. Run all once begun: only the next start finishes a half-done swap."""
        try:
            is_swapped = yield from task.finish_steps(now_ms)
        finally:
            self._in_work.pop(task.partition_log.dir, None)
        if is_swapped:
            self.totals.add(task.stats)
        return is_swapped

    def failed(self, task: CleaningTask, error: BaseException) -> None:
        """Undo a task after its `run` raised `error`.

        Raises StorageError for a disk failure; raises other errors only for bugs.
        """
        self._in_work.pop(task.partition_log.dir, None)
        task.discard()
        if isinstance(error, CleaningAbortedError):
            log.info("%s", error)
        elif isinstance(error, OSError) and task.partition_log.is_closed:
            log.info("the cleaning of %s ended with the log: %s", task.partition_log.name, error)
        elif isinstance(error, RecordsError):
            self._give_up(task.partition_log, error)
        elif isinstance(error, OSError):
            raise StorageError(task.partition_log.log_dir, error) from error
        else:
            raise error

    def cancel(self, partition_log: PartitionLog | None = None) -> None:
        """Ask the cleaning of a log, or all cleanings, to stop soon."""
        for task in self._in_work.values():
            if partition_log is None or task.partition_log is partition_log:
                task.cancel()
