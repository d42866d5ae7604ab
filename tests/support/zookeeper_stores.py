"""Stores of several brokers on one simulated ZooKeeper."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import trio
import trio.testing

from barnabas.cluster.metadata.changes import TopicCreated
from barnabas.cluster.metadata.image import PartitionInfo, TopicInfo
from barnabas.cluster.zookeeper.store import ZooKeeperStore
from barnabas.cluster.zookeeper.znodes import BrokerRegistration, Endpoint
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper
from tests.support.standin_controller import StandInController


def registration(port: int, rack: str | None = None) -> BrokerRegistration:
    return BrokerRegistration((Endpoint("PLAINTEXT", "h", port),), rack)


def topic(name: str, partitions: int = 1, topic_id: bytes = b"") -> TopicCreated:
    info = PartitionInfo(1, (1,), (1,))
    return TopicCreated(TopicInfo(name, (topic_id or name.encode()).ljust(16), (info,) * partitions))


class Cluster:
    """Stores of several brokers, each with a stand-in for the controller's requests."""

    def __init__(self, server: SimulatedZooKeeper | None = None) -> None:
        self.server = server or SimulatedZooKeeper()
        self.sessions = []

    @asynccontextmanager
    async def store(self, broker_id: int = 1, *, has_controller: bool = True, **options: bool):
        session = self.server.session()
        self.sessions.append(session)
        store = ZooKeeperStore(
            session, broker_id, lambda: 1_700_000_000_000 + int(trio.current_time() * 1000), **options
        )
        await store.open("c")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.run)
            await store.register(registration(9000 + broker_id))
            if has_controller:
                standin = StandInController(self.server.session(), store)
                nursery.start_soon(standin.run)
                await standin.has_sent_all()
            yield store
            await store.close()
            nursery.cancel_scope.cancel()

    def znode(self, path: str) -> dict:
        return json.loads(self.server.dump()[path])


async def settled(count: int = 1) -> None:
    for _ in range(count):
        await trio.testing.wait_all_tasks_blocked(0.01)
