"""Periodic work of a broker: retention, removal of files, forced writes, checkpoints.

The rule: decisions are made in the event loop, where nothing else changes a log, one log at a time with checkpoints in
between; slow disk work goes to a thread. A log dir that fails here goes offline; the broker continues with the others.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import trio

from barnabas.config import broker as settings
from barnabas.environment.lazy import import_modules
from barnabas.errors import StorageError

if TYPE_CHECKING:
    from barnabas.cluster.replicas.failures import LogDirFailures
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.environment import Environment
    from barnabas.log.cleaner.cleaner import LogCleaner
    from barnabas.log.cleaner.cleaning import CleaningTask
    from barnabas.log.manager import LogManager
    from barnabas.log.partition_log import PartitionLog
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

REMOVE_INTERVAL_SECONDS = 5.0
FLUSH_INTERVAL_SECONDS = 1.0
PRESENCE_INTERVAL_SECONDS = 1.0
"""Longest time until a removed log dir is noticed; a single partition's directory: at the next checkpoints."""
LOOKED_PER_TURN = 500
"""Logs visited before other tasks may run, if none of them has work."""
SEGMENTS_PER_TURN = 8
"""Segments renamed, with four files each, before other tasks may run: on ext4 that takes some 10 ms."""


class Housekeeping:
    """All periodic work. Lifecycle: `run` in a task, until cancelled."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        failures: LogDirFailures,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        budget: LoopBudget,
        environment: Environment,
        *,
        is_served: Callable[[PartitionLog], bool],
    ) -> None:
        """`is_served`: whether a log belongs to a replica: other logs are not changed."""
        self._config = config
        self._logs = logs
        self._failures = failures
        self._groups = groups
        self._transactions = transactions
        self._budget = budget
        self._is_served = is_served
        self._now_ms = environment.wall_clock_ms
        self._threads = environment.threads
        self._workers = environment.workers
        self.cleaner: LogCleaner | None = None
        """There once it has looked for something to clean."""

    async def run(self) -> None:
        """Run all periodic work, each kind at its interval."""
        get = self._config.get
        retention_seconds = get(settings.LOG_RETENTION_CHECK_INTERVAL_MS) / 1000
        checkpoint_seconds = get(settings.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS) / 1000
        ids_seconds = get(settings.TRANSACTION_REMOVE_EXPIRED_INTERVAL_MS) / 1000
        offsets_seconds = get(settings.OFFSETS_RETENTION_CHECK_INTERVAL_MS) / 1000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._every, offsets_seconds, self._groups.expire_offsets)
            nursery.start_soon(self._every, ids_seconds, self._transactions.expire_ids)
            nursery.start_soon(self._every, retention_seconds, self.apply_retention)
            nursery.start_soon(self._every, REMOVE_INTERVAL_SECONDS, self.remove_due)
            nursery.start_soon(self._every, FLUSH_INTERVAL_SECONDS, self.flush_due)
            nursery.start_soon(self._every, PRESENCE_INTERVAL_SECONDS, self.look_for_dirs)
            nursery.start_soon(self._every, max(checkpoint_seconds, 1.0), self._checkpoint)
            if get(settings.LOG_CLEANER_ENABLE):
                nursery.start_soon(self.clean_forever)

    async def _checkpoint(self) -> None:
        await self.write_checkpoints()
        await self.find_missing(also_logs=True)

    async def look_for_dirs(self) -> None:
        """Detect missing log dirs and logs, and write the checkpoints of new logs."""
        await self.find_missing(also_logs=False)
        # before another log is created under the name of a deleted one, and soon after a log is created
        if self._logs.checkpoints.is_outdated:
            await self.write_checkpoints()

    async def apply_retention(self) -> None:
        """Delete the old segments of the replicas' logs, and remove expired producers.

        The settings of a log without a replica are unknown: its topic is not in the metadata yet, or has another id.
        """
        for partition_log in self._logs:
            if not self._is_served(partition_log):
                continue
            partition_log.producers.expire(self._now_ms())
            try:
                while partition_log.apply_retention(self._now_ms(), SEGMENTS_PER_TURN) == SEGMENTS_PER_TURN:
                    await self._budget.checkpoint()
            except StorageError as error:
                self._failures.failed(error)
            await self._budget.checkpoint()

    async def remove_due(self) -> None:
        """Remove the files and directories that are due. Raises StorageError."""
        task = self._logs.begin_removal(self._now_ms())
        if task is not None:
            await self._threads.run(lambda: task.run(self._threads.check_cancelled))
            task.finish()

    async def flush_due(self) -> None:
        """Flush the logs that are due, one after the other."""
        for number, partition_log in enumerate(self._logs, 1):
            if partition_log.is_flushed:  # as most of very many logs are, each second
                if number % LOOKED_PER_TURN == 0:
                    await self._budget.checkpoint()
                continue
            try:
                task = partition_log.begin_due_flush(self._now_ms())
                if task is not None:
                    await self._threads.run(task.run)
                    task.finish(self._now_ms())
            except StorageError as error:
                self._failures.failed(error)
            await self._budget.checkpoint()

    async def write_checkpoints(self) -> None:
        """Write recovery points, log starts and high watermarks of all logs. Raises StorageError."""
        checkpoints = self._logs.checkpoints
        plan = self._logs.begin_checkpoints()
        for partition_log in self._logs:
            plan.add(partition_log)
            await self._budget.checkpoint()
        await self._threads.run(lambda: checkpoints.write(plan))
        checkpoints.written(plan)

    async def find_missing(self, *, also_logs: bool) -> None:
        """Take log dirs, and with `also_logs` logs, offline if their files were removed from under the broker."""
        errors = await self._threads.run(lambda: self._logs.find_missing(also_logs=also_logs))
        for error in errors:
            self._failures.failed(error)
            await self._budget.checkpoint()

    # --- compaction -----------------------------------------------------------------------------------------

    async def clean_forever(self) -> None:
        """Run as many compaction tasks as log.cleaner.threads, which may change at any time."""
        get = self._config.get

        def seconds() -> float:
            return max(get(settings.LOG_CLEANER_BACKOFF_MS) / 1000, 1.0)

        await trio.sleep(seconds())
        await self._threads.run(_import_cleaner)
        from barnabas.log.cleaner.cleaner import LogCleaner  # not needed by a quick start
        from barnabas.log.rate_limit import RateLimit

        limit = RateLimit(get(settings.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND), self._workers)
        self.cleaner = LogCleaner(
            lambda: self._logs, throttle=lambda size: limit.use(size, self._is_thread_cancelled)
        )

        async def clean(cleaner: LogCleaner, number: int) -> None:
            if number < get(settings.LOG_CLEANER_THREADS):
                limit.bytes_per_second = get(settings.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND)
                await self.clean_logs(cleaner)

        async with trio.open_nursery() as nursery:
            for number in count():
                while number >= get(settings.LOG_CLEANER_THREADS):
                    await trio.sleep(seconds())
                nursery.start_soon(self._every, seconds, partial(clean, self.cleaner, number))

    def _is_thread_cancelled(self) -> bool:
        """Return False, for a thread that may continue. Raises trio.Cancelled otherwise."""
        self._threads.check_cancelled()
        return False

    async def clean_logs(self, cleaner: LogCleaner) -> None:
        """Compact one log after the other, until none is dirty; several tasks may run concurrently. Raises StorageError."""
        tasks = max(self._config.get(settings.LOG_CLEANER_THREADS), 1)
        cleaner.dedupe_bytes = self._config.get(settings.LOG_CLEANER_DEDUPE_BUFFER_SIZE) // tasks
        cleaner.load_factor = self._config.get(settings.LOG_CLEANER_IO_BUFFER_LOAD_FACTOR)
        while (task := await self._next_cleaning(cleaner)) is not None:
            try:
                await self._threads.run(task.run)
            except BaseException as error:
                cleaner.failed(task, error)
            else:
                with trio.CancelScope(shield=True):
                    for _ in cleaner.done_steps(task, self._now_ms()):
                        await self._budget.checkpoint()

    async def _next_cleaning(self, cleaner: LogCleaner) -> CleaningTask | None:
        due = []
        for partition_log in filter(self._is_served, self._logs):
            try:
                cleanable = cleaner.due_range(partition_log, self._now_ms())
            except StorageError as error:
                self._failures.failed(error)
            else:
                if cleanable is not None:
                    due.append((partition_log, cleanable))
            await self._budget.checkpoint()
        return cleaner.take(due, self._now_ms())

    async def _every(
        self, interval: float | Callable[[], float], work: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            seconds = interval if isinstance(interval, float) else interval()
            await trio.sleep(min(seconds, 1e9))
            try:
                await work()
            except StorageError as error:
                self._failures.failed(error)
            except Exception:
                log.exception("periodic work failed; retrying in %s s", seconds)


def _import_cleaner() -> None:
    import_modules("barnabas.log.rate_limit", "barnabas.log.cleaner.cleaner")
