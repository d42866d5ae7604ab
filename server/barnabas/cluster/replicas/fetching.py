"""Fetchers for the followers of this broker: one task for each leader and each of its `num.replica.fetchers`.

The rule: a fetcher changes a log only in the leader epoch for which it was started; answers that arrive in a later epoch
have no effect. A partition with an error pauses alone, and does not delay others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.metadata.image import BROKER
from barnabas.cluster.replicas.fetcher import Fetcher
from barnabas.cluster.replicas.remote_leader import RemoteLeader
from barnabas.cluster.replication.fetchers import fetcher_of
from barnabas.config import broker as settings

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import Delta
    from barnabas.cluster.replicas.fetcher_parts import FetcherParts
    from barnabas.cluster.replicas.ports import TierStarts
    from barnabas.cluster.replicas.replica import Replica

log = logging.getLogger(__name__)

FetcherKey = tuple[int, int]
"""The leader's broker id, and the number of the fetcher."""


class ReplicaFetchers:
    """Implements `ports.Fetchers` with connections to leaders. Lifecycle: `run` in a task.

    Also a `cluster.metadata.store.Subscriber`: partitions are spread again when `num.replica.fetchers` changes.
    """

    def __init__(self, broker_id: int, parts: FetcherParts, own_epoch: Callable[[], int]) -> None:
        """`own_epoch` is the epoch of this broker's registration."""
        self._broker_id = broker_id
        self._parts = parts
        self._own_epoch = own_epoch
        self._fetchers: dict[FetcherKey, Fetcher] = {}
        self._homes: dict[Replica, Fetcher] = {}
        self._count = self._count_set()
        self._nursery: trio.Nursery | None = None

    def _count_set(self) -> int:
        return self._parts.config.get(settings.NUM_REPLICA_FETCHERS)

    def use_tiers(self, tiers: TierStarts) -> None:
        """Restart logs after the records in tiered storage when leaders require it."""
        self._parts.tiers = tiers

    def start(self, replica: Replica) -> None:
        """Begin to fetch from the leader of a replica, if it has one."""
        self.stop(replica)
        if replica.leader_id < 0 or replica.leader_id == self._broker_id:
            return
        key = replica.leader_id, fetcher_of(replica.topic, replica.index, self._count)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = self._make(*key)
            self._spawn(key)
        fetcher.add(replica)
        self._homes[replica] = fetcher

    def stop(self, replica: Replica) -> None:
        """Stop fetching for a replica."""
        fetcher = self._homes.pop(replica, None)
        if fetcher is not None:
            fetcher.remove(replica)

    def _make(self, leader_id: int, number: int) -> Fetcher:
        leader = RemoteLeader(
            self._broker_id,
            leader_id,
            f"fetcher-{number}",
            self._parts.peers,
            self._parts.config,
            self._own_epoch,
            self._parts.budget,
        )
        return Fetcher(leader, self._parts)

    # --- tasks ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run fetchers until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for key in self._fetchers:
                self._spawn(key)
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def _spawn(self, key: FetcherKey) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self._run_fetcher, key)

    async def _run_fetcher(self, key: FetcherKey) -> None:
        fetcher = self._fetchers[key]
        while not fetcher.is_empty:
            await fetcher.run()
        del self._fetchers[key]
        fetcher.close()

    # --- following the image --------------------------------------------------------------------------------

    async def prepare(self, delta: Delta) -> None:
        """Do nothing."""

    def publish(self, delta: Delta) -> None:
        """Spread partitions again over another number of fetchers."""
        if all(kind != BROKER for kind, _ in delta.configs) or self._count == self._count_set():
            return
        self._count = self._count_set()
        log.info("%d fetchers for each leader from now on", self._count)
        for replica in tuple(self._homes):
            self.start(replica)

    async def clean_up(self, delta: Delta) -> None:
        """Do nothing."""
