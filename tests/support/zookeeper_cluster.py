"""Several whole brokers on a simulated ZooKeeper; one of them is the controller, with the same code as in production."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from barnabas.client import Client
from barnabas.cluster.metadata.image import PartitionInfo
from barnabas.cluster.zookeeper import znodes
from barnabas.errors import RequestError
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.testing.simulation.broker import SimulatedBroker
from barnabas.testing.simulation.world import World
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper, ZooKeeperWeather
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from tests.support.replicating import client_of, log_bytes

SESSION_S = 6.0
SETTINGS = {
    "zookeeper.connect": "zookeeper:2181",
    "replica.lag.time.max.ms": "5000",
    "replica.fetch.wait.max.ms": "200",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "controlled.shutdown.retry.backoff.ms": "200",
    "auto.leader.rebalance.enable": "false",
}


class ZooKeeperCluster:
    """Brokers by id on hosts `broker-<id>`. Made by `clustered`."""

    def __init__(self, world: World, nursery: trio.Nursery) -> None:
        self.world = world
        self.zookeeper = SimulatedZooKeeper(weather=ZooKeeperWeather(session_timeout_s=SESSION_S))
        self.machines: dict[int, SimulatedBroker] = {}
        self.nursery = nursery
        self.settings = SETTINGS

    async def start(self, *broker_ids: int, **settings: str) -> None:
        """Start brokers on their disks; returns when each is in its own metadata."""
        async with trio.open_nursery() as starting:
            for broker_id in broker_ids:
                if broker_id not in self.machines:
                    more = {name.replace("_", "."): value for name, value in settings.items()}
                    self.machines[broker_id] = SimulatedBroker(
                        self.world,
                        self.nursery,
                        f"broker-{broker_id}",
                        {**SETTINGS, "broker.id": str(broker_id), **more},
                        zookeeper=self.zookeeper,
                    )
                starting.start_soon(self.machines[broker_id].start)

    async def start_on(self, disk: MemoryDisk, broker_id: int) -> None:
        """Start a broker on a disk of another one."""
        machine = SimulatedBroker(
            self.world,
            self.nursery,
            f"moved-{broker_id}",
            {**SETTINGS, "broker.id": str(broker_id)},
            zookeeper=self.zookeeper,
        )
        machine.disk = disk
        await machine.start()

    @property
    def controller_id(self) -> int:
        """Return the id of the controller in the znode, -1 for none."""
        data = self.zookeeper.dump().get(znodes.CONTROLLER)
        return znodes.decode_controller(data).broker_id if data else -1

    def live(self) -> set[int]:
        """Return the ids of the registered brokers."""
        prefix = f"{znodes.BROKER_IDS}/"
        return {int(path.removeprefix(prefix)) for path in self.zookeeper.dump() if path.startswith(prefix)}

    def known(self, broker_id: int, topic: str = "t", index: int = 0) -> PartitionInfo | None:
        """Return a broker's view of a partition, None if it is not in its metadata."""
        broker = self.machines[broker_id].broker
        info = broker.services.metadata.image.topics.get(topic) if broker is not None else None
        return info.partitions[index] if info is not None and index < len(info.partitions) else None

    def leader(self, topic: str = "t", index: int = 0) -> int:
        """Return the leader of a partition in the znode, -1 for none."""
        data = self.zookeeper.dump().get(znodes.state_path(topic, index))
        return znodes.decode_state(topic, index, data).leader if data else -1

    def isr(self, topic: str = "t", index: int = 0) -> set[int]:
        """Return the in-sync replicas of a partition in the znode."""
        data = self.zookeeper.dump().get(znodes.state_path(topic, index))
        return set(znodes.decode_state(topic, index, data).isr) if data else set()

    async def until(self, condition: Any, seconds: float = 60.0) -> float:
        """Wait until a condition holds; returns how long it took (s). Raises AssertionError after `seconds`."""
        begun = trio.current_time()
        with trio.move_on_after(seconds) as scope:
            while not condition():
                await trio.sleep(0.005)
        assert not scope.cancelled_caught, "it never came to that"
        return trio.current_time() - begun

    async def until_equal(self, topic: str = "t", index: int = 0) -> bytes:
        """Wait until the in-sync replicas have equal, fully committed logs; returns their bytes."""

        def logs() -> list[Any]:
            brokers = [self.machines[id_].broker for id_ in sorted(self.isr(topic, index))]
            own = []
            for broker in brokers:
                try:
                    own.append(broker.services.replicas.local(topic, index).log if broker else None)
                except RequestError:
                    own.append(None)
            return own

        def is_equal() -> bool:
            all_logs = logs()
            if not all_logs or None in all_logs:
                return False
            ends = {(log.log_end_offset, log.high_watermark) for log in all_logs}
            return len(ends) == 1 and all(end == high for end, high in ends)

        await self.until(is_equal)
        first, *others = [log_bytes(log) for log in logs()]
        assert all(other == first for other in others)
        return first

    @asynccontextmanager
    async def client(self, **settings: Any) -> AsyncIterator[Client]:
        """Yield a client on a separate host, with all brokers as bootstrap servers."""
        async with client_of(self.world, self.machines.values(), **settings) as client:
            yield client

    async def create(self, client: Client, name: str = "t", partitions: int = 1, factor: int = 3) -> None:
        """Create a topic, and wait until all of its replicas are in sync."""
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=factor
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        response = await client.ask_controller(
            request, error_of=lambda response: max(topic.error_code for topic in response.topics)
        )
        assert [topic.error_code for topic in response.topics] == [0]
        await self.until(lambda: all(len(self.isr(name, n)) == factor for n in range(partitions)))


@asynccontextmanager
async def clustered(world: World, *broker_ids: int, **settings: str) -> AsyncIterator[ZooKeeperCluster]:
    """Yield a cluster of these brokers, which ends with the block."""
    async with trio.open_nursery() as nursery:
        cluster = ZooKeeperCluster(world, nursery)
        await cluster.start(*broker_ids, **settings)
        yield cluster
        nursery.cancel_scope.cancel()
