"""A whole broker, unchanged, on a host of a simulated world: started, killed, hit by power cuts, restarted.

The rule: a killed broker has no more effects. Its connections break and its addresses are free immediately, and its
tasks, while they are cancelled, write to a disk that is discarded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

import trio

from barnabas.broker.assembly import assembled
from barnabas.config.loading import BrokerConfig
from barnabas.serving.loop_budget import BUDGET_SECONDS, LoopBudget
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.testing.simulation.world import WallClock, World

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.storage_parts import Membership
    from barnabas.cluster.zookeeper.session import ZooKeeper
    from barnabas.config.cluster import ZooKeeperSettings
    from barnabas.testing.simulation.zookeeper import SimulatedSession, SimulatedZooKeeper

PORT = 9092
USED_UP_PROBABILITY = 0.1
SETTINGS = {
    "log.dirs": "/data",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""Defaults of every simulated broker, below its own settings: few internal partitions."""


class BudgetClock:
    """A clock for budgets: time passes by chance, so that in some run long work yields at each of its checkpoints."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._now = 0.0

    def __call__(self) -> float:
        """Return the seconds, now and then a whole budget later."""
        if self._random.random() < USED_UP_PROBABILITY:
            self._now += BUDGET_SECONDS
        return self._now


class SimulatedBroker:
    """A machine with a broker on it.

    Lifecycle: `start` and `kill`, `cut_power`, `lose_disk` or `stop`, any number of times. The disk, its synced
    state, and the wall clock belong to the machine: they outlive the broker.
    """

    def __init__(
        self,
        world: World,
        nursery: trio.Nursery,
        host: str = "broker",
        settings: Mapping[str, str] | None = None,
        join: Callable[[], Membership] | None = None,
        zookeeper: SimulatedZooKeeper | None = None,
    ) -> None:
        """`nursery` runs the broker's tasks; `settings` are added to `SETTINGS`.

        `join` is called at each start, and adds the broker to a cluster; with `zookeeper` it joins by itself.
        """
        self.host = host
        self.clock = WallClock(world.clock)
        self.disk = MemoryDisk()
        self.broker: Broker | None = None
        """The broker while it serves."""
        self.starts = 0
        """Number of times that a broker was started here."""
        self._world = world
        self._nursery = nursery
        self._join = join
        self._zookeeper = zookeeper
        self.session: SimulatedSession | None = None
        """The session with ZooKeeper of the broker that was started last."""
        self._settings = {**SETTINGS, "listeners": f"PLAINTEXT://{host}:{PORT}", **(settings or {})}
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._is_stopping = False

    @property
    def bootstrap(self) -> str:
        """`host:port` of the listener."""
        return f"{self.host}:{PORT}"

    @property
    def has_ended(self) -> bool:
        """True if no broker runs on this machine, also after it has stopped by itself."""
        return self.broker is None or self._ended.is_set()

    async def start(self) -> Broker:
        """Start a broker on the disk's contents, and return it when it serves. Raises StorageError, StartupError."""
        if self._is_stopping:  # the task that asked for it may have been cancelled before
            await self._ended.wait()
            self._is_stopping = False
        self._scope, self._ended = trio.CancelScope(), trio.Event()
        self.starts += 1
        try:
            broker: Broker = await self._nursery.start(self._run, self.disk, self._scope, self._ended)
        except trio.Cancelled:
            self.kill()  # end a partial start
            raise
        self.broker = broker
        return broker

    async def start_and_stop(self, seconds: float) -> None:
        """Start a broker and stop it after a while, as SIGTERM does, whether it serves by then or not."""
        self._scope, self._ended = trio.CancelScope(), trio.Event()
        self.starts += 1
        with trio.move_on_after(seconds):
            self.broker = await self._nursery.start(self._run, self.disk, self._scope, self._ended)
        await self.stop()

    async def _run(
        self,
        disk: MemoryDisk,
        scope: trio.CancelScope,
        ended: trio.Event,
        *,
        task_status: trio.TaskStatus[Broker],
    ) -> None:
        environment = self._world.environment(self.host, disk, self.clock)
        clock = BudgetClock(Random(f"{self._world.seed}/{self.host}/budget"))
        budget = LoopBudget(clock=clock, measures=False)
        try:
            with scope:
                membership = self._join() if self._join is not None else None
                async with (
                    assembled(
                        BrokerConfig(self._settings),
                        environment,
                        budget=budget,
                        membership=membership,
                        connect_zookeeper=self._connect_zookeeper,
                    ) as broker,
                    trio.open_nursery() as nursery,
                ):
                    await nursery.start(broker.serve)
                    task_status.started(broker)
                    await broker.stopping.wait()
        finally:
            ended.set()

    async def _connect_zookeeper(self, settings: ZooKeeperSettings) -> ZooKeeper:  # noqa: ARG002 (as the real one)
        assert self._zookeeper is not None, "zookeeper.connect is set, and there is none in this world"
        self.session = self._zookeeper.session()
        return self.session

    def kill(self) -> None:
        """End the broker immediately, as SIGKILL does: written data survive, synced or not."""
        self._end(self.disk.fork())

    def cut_power(self, random: Random) -> None:
        """Cut the machine's power: unsynced data may be lost or torn."""
        self._end(self.disk.crash(random))

    def lose_disk(self) -> None:
        """End the machine immediately, and replace it by another with an empty disk."""
        self._end(MemoryDisk())

    def _end(self, survivor: MemoryDisk) -> None:
        self.disk, self.broker, self._is_stopping = survivor, None, False
        if self.session is not None:
            self.session.kill()
        self._world.network.crash(self.host)
        self._scope.cancel()

    async def stop(self) -> None:
        """Stop the broker cleanly, as SIGTERM does."""
        if self.broker is not None:
            self.broker.stop()
            self.broker, self._is_stopping = None, True
        await self._ended.wait()


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Discard the broker's log lines for the block: a history of crashes is full of them."""
    logger = logging.getLogger("barnabas")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
