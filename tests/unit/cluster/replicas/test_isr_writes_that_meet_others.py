"""ISRs that a leader writes into ZooKeeper itself: writes that meet others, and when the controller is notified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

from barnabas.cluster.metadata.image import PartitionInfo
from barnabas.cluster.replicas import isr_writing
from barnabas.cluster.replicas.isr_writing import WrittenIsrs
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.session import BadVersionError, NoNodeError
from barnabas.serving.loop_budget import LoopBudget
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper
from tests.support.replicas import Node

PATH = znodes.state_path("t", 0)
STATE = znodes.PartitionState(1, 5, (1,), 3)


class Meddling:
    """A session beside which another one does something just before its next write of a state."""

    def __init__(self, session: Any) -> None:
        self.inner = session
        self.acts: list[Callable[[], Any]] = []
        self.sets = 0
        self.creates: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def set(self, *args: Any) -> Any:
        self.sets += 1
        if self.acts:
            await self.acts.pop(0)()
        return await self.inner.set(*args)

    async def create(self, *args: Any, **named: Any) -> Any:
        self.creates.append(trio.current_time())
        return await self.inner.create(*args, **named)


class World:
    """Broker 1 leads t-0 in leader epoch 5; its znode has that state, in version 1."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.zookeeper = SimulatedZooKeeper()
        self.admin = self.zookeeper.session()
        self.session = Meddling(self.zookeeper.session())
        self.nursery = nursery

    async def start(self) -> None:
        await self.admin.create(PATH, b"", parents=True)
        await self.admin.set(PATH, znodes.encode_state(STATE))
        await self.admin.create(znodes.ISR_CHANGES, parents=True)
        self.node = Node(1)
        await self.node.create(PartitionInfo(1, (1, 2, 3), (1,), 5, 1))
        self.begun = trio.current_time()
        self.isrs = WrittenIsrs(1, self.session, LoopBudget())  # type: ignore[arg-type]
        self.nursery.start_soon(self.isrs.run)

    def join(self, follower: int) -> None:
        """A follower has caught up, and the leader proposes it."""
        self.node.replica.follower_fetched(follower, 0, log_start_offset=0)
        self.isrs.propose(*self.node.proposals[-1])

    async def written(self, **fields: Any) -> None:
        """Another broker writes the state."""
        await self.admin.set(PATH, znodes.encode_state(replace(STATE, **fields)))

    def state(self) -> znodes.PartitionState:
        return znodes.decode_state("t", 0, self.zookeeper.dump()[PATH])


async def within(act: Callable[[World], Any]) -> World:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.start()
        await act(world)
        nursery.cancel_scope.cancel()
    return world


@pytest.mark.parametrize(
    ("meanwhile", "in_sync", "sets"),
    [
        (
            {"isr": (1, 3)},
            {1, 3},
            1,
        ),  # within an epoch only the leader writes: it was an earlier write of ours
        ({"leader_epoch": 6}, {1}, 1),
        ({"leader": 2}, {1}, 1),
        (None, {1}, 1),
    ],
)
async def test_what_is_written_meanwhile_is_read_and_decides(
    meanwhile: dict[str, Any] | None, in_sync: set[int], sets: int, autojump_clock: Any
) -> None:
    async def act(world: World) -> None:
        async def meddle() -> None:
            if meanwhile is None:
                await world.admin.delete(PATH)
            else:
                await world.written(**meanwhile)

        world.session.acts = [meddle]
        world.join(2)
        await trio.sleep(5)
        assert world.node.replica.in_sync_replicas == in_sync
        assert world.session.sets == sets
        changed = await world.admin.children(znodes.ISR_CHANGES)
        assert changed == []

    world = await within(act)
    if meanwhile is not None:
        assert world.state() == replace(STATE, **meanwhile)


async def test_a_state_that_cannot_be_read_stays_as_it_is(autojump_clock: Any, caplog: Any) -> None:
    async def act(world: World) -> None:
        await world.admin.set(PATH, b"{")
        world.join(2)
        await trio.sleep(20)
        assert world.session.sets == 0

    world = await within(act)
    assert world.zookeeper.dump()[PATH] == b"{"
    assert caplog.text.count("cannot be changed") == 1


@pytest.mark.parametrize("error", [BadVersionError, NoNodeError])
async def test_write_errors_other_than_conflicts_are_retried(
    error: type[Exception], autojump_clock: Any
) -> None:
    async def act(world: World) -> None:
        original = world.session.inner.get_many
        times: list[float] = []

        async def fails(paths: Any) -> Any:
            times.append(trio.current_time() - world.begun)
            if len(times) == 1:
                raise error("no")
            return await original(paths)

        world.session.get_many = fails  # type: ignore[method-assign]
        world.join(2)
        await trio.sleep(5)
        assert times == [0, isr_writing.RETRY_SECONDS]
        assert world.node.replica.in_sync_replicas == {1, 2}

    await within(act)


# --- notifications ------------------------------------------------------------------------------------------------


async def test_failed_notification_is_retried_with_later_changes(autojump_clock: Any) -> None:
    async def act(world: World) -> None:
        world.isrs._changed = {("t", 0): None}
        world.zookeeper.refuses_writes = True
        await trio.sleep_until(world.begun + 9)
        world.zookeeper.refuses_writes = False
        world.isrs._changed["u", 1] = None
        await trio.sleep_until(world.begun + 30)
        [name] = await world.admin.children(znodes.ISR_CHANGES)
        data, _ = await world.admin.get(f"{znodes.ISR_CHANGES}/{name}")
        assert znodes.decode_isr_change(name, data) == [("t", 0), ("u", 1)]
        assert [at - world.begun for at in world.session.creates] == [7.5, 10.0]

    await within(act)


async def test_with_a_session_that_is_closed_nothing_is_tried_again(autojump_clock: Any) -> None:
    async def act(world: World) -> None:
        await world.session.inner.close()
        assert world.session.is_closed
        world.join(2)
        await trio.sleep(30)
        assert world.isrs._waiting == {}

    await within(act)
