"""What a broker does by the clock: retention, removal of files, forced writes, checkpoints.

The rule: decisions are made in the event loop, where nothing else changes a log, one log at a time with checkpoints in
between; slow disk work goes to a thread. A log dir that fails here goes offline; the broker goes on with the others.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import trio

from barnabas.config import broker as settings
from barnabas.errors import StorageError

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.log.cleaner.cleaner import LogCleaner
    from barnabas.log.cleaner.cleaning import CleaningTask

log = logging.getLogger(__name__)

REMOVE_INTERVAL_SECONDS = 5.0
FLUSH_INTERVAL_SECONDS = 1.0
PRESENCE_INTERVAL_SECONDS = 1.0
"""How long a log dir that was removed may go unnoticed; a single partition's directory: until the next checkpoints."""
SEGMENTS_AT_ONCE = 20
"""So many segments are renamed, with four files each, before others may run."""


async def keep_house(broker: Broker) -> None:
    """Run all periodic work until cancelled."""
    config = broker.config
    retention_seconds = config.get(settings.LOG_RETENTION_CHECK_INTERVAL_MS) / 1000
    checkpoint_seconds = config.get(settings.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS) / 1000

    async def checkpoints() -> None:
        await write_checkpoints(broker)
        await find_missing(broker, also_logs=True)

    async def presence() -> None:
        await find_missing(broker, also_logs=False)
        if (
            broker.logs.checkpoints.is_outdated
        ):  # before another log is made under the name of one that is gone
            await write_checkpoints(broker)

    async def offsets() -> None:
        await broker.groups.expire_offsets()

    async def transactional_ids() -> None:
        await broker.transactions.expire_ids()

    ids_seconds = config.get(settings.TRANSACTION_REMOVE_EXPIRED_INTERVAL_MS) / 1000
    offsets_seconds = config.get(settings.OFFSETS_RETENTION_CHECK_INTERVAL_MS) / 1000
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_every, broker, offsets_seconds, offsets)
        nursery.start_soon(_every, broker, ids_seconds, transactional_ids)
        nursery.start_soon(_every, broker, retention_seconds, partial(apply_retention, broker))
        nursery.start_soon(_every, broker, REMOVE_INTERVAL_SECONDS, partial(remove_due, broker))
        nursery.start_soon(_every, broker, FLUSH_INTERVAL_SECONDS, partial(flush_due, broker))
        nursery.start_soon(_every, broker, PRESENCE_INTERVAL_SECONDS, presence)
        nursery.start_soon(_every, broker, max(checkpoint_seconds, 1.0), checkpoints)
        if config.get(settings.LOG_CLEANER_ENABLE):
            nursery.start_soon(clean_forever, broker)


async def apply_retention(broker: Broker) -> None:
    """Drop the old segments of all logs, and forget expired producers."""
    for partition_log in broker.logs:
        partition_log.producers.expire(broker.now_ms())
        try:
            while partition_log.apply_retention(broker.now_ms(), SEGMENTS_AT_ONCE) == SEGMENTS_AT_ONCE:
                await broker.budget.checkpoint()
        except StorageError as error:
            broker.storage_failed(error)
        await broker.budget.checkpoint()


async def remove_due(broker: Broker) -> None:
    """Remove the files and directories whose time has come. Raises StorageError."""
    task = broker.logs.begin_removal(broker.now_ms())
    if task is not None:
        await trio.to_thread.run_sync(task.run)
        task.finish()


async def flush_due(broker: Broker) -> None:
    """Force the logs to the medium whose flush is due, one after the other."""
    for partition_log in broker.logs:
        if partition_log.is_flush_due(broker.now_ms()):
            try:
                task = partition_log.begin_flush()
                if task is not None:
                    await trio.to_thread.run_sync(task.run)
                    task.finish(broker.now_ms())
            except StorageError as error:
                broker.storage_failed(error)
        await broker.budget.checkpoint()


async def write_checkpoints(broker: Broker) -> None:
    """Write recovery points, log starts and high watermarks of all logs. Raises StorageError."""
    plan = broker.logs.begin_checkpoints()
    for partition_log in broker.logs:
        plan.add(partition_log)
        await broker.budget.checkpoint()
    await trio.to_thread.run_sync(broker.logs.checkpoints.write, plan)
    broker.logs.checkpoints.written(plan)


async def find_missing(broker: Broker, *, also_logs: bool) -> None:
    """Take offline what somebody has removed from under the broker: whole log dirs, and `also_logs` in them."""
    found = await trio.to_thread.run_sync(partial(broker.logs.find_missing, also_logs=also_logs))
    for error in found:
        broker.storage_failed(error)
        await broker.budget.checkpoint()


async def clean_forever(broker: Broker) -> None:
    """Have so many tasks compact logs as there are to be (log.cleaner.threads), which may change at any time."""
    config = broker.config

    def seconds() -> float:
        return max(config.get(settings.LOG_CLEANER_BACKOFF_MS) / 1000, 1.0)

    await trio.sleep(seconds())
    from barnabas.log.cleaner.cleaner import LogCleaner  # not on the way of a quick start
    from barnabas.log.rate_limit import RateLimit

    limit = RateLimit(config.get(settings.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND))
    cleaner = LogCleaner(lambda: broker.logs, throttle=lambda size: limit.use(size, is_thread_cancelled))

    async def clean(number: int) -> None:
        if number < config.get(settings.LOG_CLEANER_THREADS):
            limit.bytes_per_second = config.get(settings.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND)
            await clean_logs(broker, cleaner)

    async with trio.open_nursery() as nursery:
        for number in count():
            while number >= config.get(settings.LOG_CLEANER_THREADS):
                await trio.sleep(seconds())
            nursery.start_soon(_every, broker, seconds, partial(clean, number))


def is_thread_cancelled() -> bool:
    """False, for a thread that may go on. Raises trio.Cancelled otherwise."""
    trio.from_thread.check_cancelled()
    return False


async def clean_logs(broker: Broker, cleaner: LogCleaner) -> None:
    """Compact one log after the other, until none is dirty; others may do the same beside. Raises StorageError."""
    config = broker.config
    tasks = max(config.get(settings.LOG_CLEANER_THREADS), 1)
    cleaner.dedupe_bytes = config.get(settings.LOG_CLEANER_DEDUPE_BUFFER_SIZE) // tasks
    cleaner.load_factor = config.get(settings.LOG_CLEANER_IO_BUFFER_LOAD_FACTOR)
    while (task := await _next_cleaning(broker, cleaner)) is not None:
        try:
            await trio.to_thread.run_sync(task.run)
        except BaseException as error:
            cleaner.failed(task, error)
        else:
            cleaner.done(task, broker.now_ms())
        broker.cleaner = cleaner


async def _next_cleaning(broker: Broker, cleaner: LogCleaner) -> CleaningTask | None:
    due = []
    for partition_log in broker.logs:
        try:
            found = cleaner.due_range(partition_log, broker.now_ms())
        except StorageError as error:
            broker.storage_failed(error)
        else:
            if found is not None:
                due.append((partition_log, found))
        await broker.budget.checkpoint()
    return cleaner.take(due, broker.now_ms())


async def _every(
    broker: Broker, interval: float | Callable[[], float], work: Callable[[], Awaitable[None]]
) -> None:
    while True:
        seconds = interval if isinstance(interval, float) else interval()
        await trio.sleep(min(seconds, 1e9))
        try:
            await work()
        except StorageError as error:
            broker.storage_failed(error)
        except Exception:
            log.exception("periodic work failed; it is tried again in %s s", seconds)
