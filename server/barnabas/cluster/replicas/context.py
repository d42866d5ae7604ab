"""Context that all replicas of a broker share.

The rule: it exists before the first replica, and does not import the modules of replicas: `Any` here is a Replica.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from barnabas.cluster.replicas import ports
from barnabas.config.keeper import Keeper


class ReplicaContext:
    """Context that all replicas of a broker share.

    `storage_failed` is called with every StorageError, and returns the error for the client; `clock_ms` is a monotonic
    time; `live_brokers` are the ids of brokers that may join an ISR. With ZooKeeper as the `keeper`, the controller's
    requests determine new replicas and logs to delete; otherwise the metadata do.
    """

    __slots__ = (
        "alter_partition",
        "broker_id",
        "clock_ms",
        "fetchers",
        "keeper",
        "lag_max_ms",
        "leader_throttle",
        "live_brokers",
        "request_flush",
        "storage_failed",
    )

    def __init__(
        self,
        broker_id: int,
        storage_failed: ports.StorageFailed,
        request_flush: Callable[[Any], None],
        alter_partition: ports.AlterPartition[Any],
        clock_ms: Callable[[], int],
        lag_max_ms: Callable[[], int],
        live_brokers: Callable[[], Container[int]],
        fetchers: ports.Fetchers[Any] | None = None,
        leader_throttle: ports.Throttle[Any] | None = None,
        keeper: Keeper = Keeper.ITSELF,
    ) -> None:
        self.broker_id = broker_id
        self.storage_failed = storage_failed
        self.request_flush = request_flush
        self.alter_partition = alter_partition
        self.clock_ms = clock_ms
        self.lag_max_ms = lag_max_ms
        self.live_brokers = live_brokers
        self.fetchers: ports.Fetchers[Any] = fetchers or ports.NoFetchers()
        self.leader_throttle: ports.Throttle[Any] = leader_throttle or ports.NoThrottle()
        self.keeper = keeper
