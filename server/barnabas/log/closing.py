"""Closing many logs: their syncs side by side, since a file system does many of them for little more than one.

The rule: threads only sync. All else is done by the one that owns the logs, and no more logs have their files held open
for it than are closed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.workers import Workers

SYNCS_CONCURRENT = 16


def close_many(logs: Sequence[PartitionLog], workers: Workers) -> None:
    """Close all of them. Raises StorageError at the first that cannot be; what follows it is left open."""
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
