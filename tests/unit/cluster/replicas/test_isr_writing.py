"""In-sync replicas that the leader writes into ZooKeeper itself, as before Kafka 2.7: on a simulated ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import trio
import trio.testing

from barnabas.cluster.metadata.image import PartitionInfo
from barnabas.cluster.replicas.isr_writing import WrittenIsrs
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.znodes import PartitionState
from barnabas.serving.loop_budget import LoopBudget
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper
from tests.support.replicas import Node

PATH = znodes.state_path("t", 0)
STATE = PartitionState(1, 5, (1,), 3)


class World:
    """Broker 1 leads t-0 in leader epoch 5, brokers 2 and 3 follow; its znode has that state."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.zookeeper = SimulatedZooKeeper()
        self.session = self.zookeeper.session()
        self.nursery = nursery

    async def start(self) -> None:
        await self.session.create(PATH, znodes.encode_state(STATE), parents=True)
        await self.session.create(znodes.ISR_CHANGES, parents=True)
        self.node = Node(1)
        _, stat = await self.session.get(PATH)
        await self.node.create(PartitionInfo(1, (1, 2, 3), (1,), 5, stat.version))
        self.isrs = WrittenIsrs(1, self.session, LoopBudget())
        self.nursery.start_soon(self.isrs.run)

    def join(self, follower: int) -> None:
        """A follower has caught up, and the leader proposes it."""
        self.node.replica.follower_fetched(follower, 0, log_start_offset=0)
        self.isrs.propose(*self.node.proposals[-1])

    async def state(self) -> tuple[PartitionState, int]:
        data, stat = await self.zookeeper.session().get(PATH)
        return znodes.decode_state("t", 0, data), stat.version

    async def notifications(self) -> list[Any]:
        session = self.zookeeper.session()
        names = await session.children(znodes.ISR_CHANGES)
        return [
            znodes.decode_isr_change(name, (await session.get(f"{znodes.ISR_CHANGES}/{name}"))[0])
            for name in names
        ]


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        running = World(nursery)
        await running.start()
        yield running
        nursery.cancel_scope.cancel()


async def test_a_follower_joins_and_the_controller_hears_of_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with world() as w:
        w.join(2)
        await trio.sleep(1)
        assert w.node.replica.in_sync_replicas == {1, 2}
        state, version = await w.state()
        assert state == replace(STATE, isr=(1, 2))  # the epoch of the controller that made it leader stays
        assert await w.notifications() == []  # it waits for more
        w.join(3)
        await trio.sleep(1)
        assert (await w.state()) == (replace(STATE, isr=(1, 2, 3)), version + 1)
        await trio.sleep(10)
        assert await w.notifications() == [[("t", 0)]]


async def test_a_write_whose_answer_is_lost_has_happened_once(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as w:
        w.session.lose_next_answer()
        w.join(2)
        await trio.sleep(30)
        assert w.node.replica.in_sync_replicas == {1, 2}
        _, version = await w.state()
        w.session.lose_next_request()
        w.join(3)
        await trio.sleep(30)
        assert w.node.replica.in_sync_replicas == {1, 2, 3}
        assert (await w.state())[1] == version + 1


async def test_a_leader_that_was_replaced_writes_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as w:
        newer = replace(STATE, leader=2, leader_epoch=6, isr=(2, 3))
        await w.zookeeper.session().set(PATH, znodes.encode_state(newer))
        w.join(2)
        await trio.sleep(30)
        assert (await w.state())[0] == newer
        assert w.node.replica.in_sync_replicas == {1}
        assert await w.notifications() == []


async def test_it_goes_on_after_the_session_and_a_lost_topic(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as w:
        w.zookeeper.expire(w.session)
        w.join(2)
        await trio.sleep(30)
        assert w.node.replica.in_sync_replicas == {1, 2}
        await w.zookeeper.session().delete(PATH)
        w.join(3)
        await trio.sleep(30)
        assert w.node.replica.in_sync_replicas == {1, 2}
