"""Closes many logs with parallel syncs, as a file system does many for little more than one.

The rule: threads only sync; the thread that owns the logs does all else. Only the logs that are being closed have their
files open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.workers import Workers

SYNCS_CONCURRENT = 16


def close_many(logs: Sequence[PartitionLog], workers: Workers) -> None:
    """Close all logs. Raises StorageError at the first failure, and leaves the following ones open."""
    if len(logs) < SYNCS_CONCURRENT:
        for log in logs:
            log.close()
        return
    with workers.executor(SYNCS_CONCURRENT) as executor:
        for at in range(0, len(logs), SYNCS_CONCURRENT):
            begun = [(log, log.begin_close()) for log in logs[at : at + SYNCS_CONCURRENT]]
            running = [executor.submit(task.run) for _, task in begun if task is not None]
            for sync in running:
                sync.result()
            for log, task in begun:
                log.finish_close(task)
