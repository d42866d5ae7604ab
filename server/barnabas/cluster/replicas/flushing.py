"""Syncs of partitions by `flush.messages`, while the broker runs.

The rule: a sync runs in a thread, one at a time for a partition. Records appended meanwhile wait for the next sync, all
of them for the same one, so that many producers share the syncs that a disk can do per second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.errors import StorageError

if TYPE_CHECKING:
    from barnabas.cluster.replicas.ports import StorageFailed
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.environment import Threads

SYNCS_CONCURRENT = 8
"""Parallel syncs of different partitions: a file system merges simultaneous ones."""

FULL_RETRY_SECONDS = 1.0


class Flusher:
    """Syncs partitions on request; `run` in a separate task.

    A failed sync takes the partition's log dir offline, which closes the partition and fails its waiters.
    """

    def __init__(self, now_ms: Callable[[], int], storage_failed: StorageFailed, threads: Threads) -> None:
        self._now_ms = now_ms
        self._threads = threads
        self._storage_failed = storage_failed
        self._wanted: dict[Replica, bool] = {}  # partitions in progress, with whether they need another sync
        self._limiter = trio.CapacityLimiter(SYNCS_CONCURRENT)
        self._nursery: trio.Nursery | None = None

    def request(self, partition: Replica) -> None:
        """Sync all that `partition` has now, and call its `flushed` then."""
        is_in_hand = partition in self._wanted
        self._wanted[partition] = True
        if not is_in_hand and self._nursery is not None:
            self._nursery.start_soon(self._flush, partition)

    async def run(self) -> None:
        """Serve requests until cancelled; a sync that has begun is waited for."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                for partition in self._wanted:
                    nursery.start_soon(self._flush, partition)
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def _flush(self, partition: Replica) -> None:
        while self._wanted[partition] and not partition.is_offline:
            self._wanted[partition] = False
            try:
                task = partition.log.begin_flush()
                if task is not None:
                    await self._threads.run(task.run, limiter=self._limiter)
                    task.finish(self._now_ms())
            except StorageError as error:
                self._storage_failed(error)
                if not partition.is_offline:  # the disk is only full: there may be room later
                    self._wanted[partition] = True
                    await trio.sleep(FULL_RETRY_SECONDS)
            else:
                partition.flushed()
        del self._wanted[partition]
