"""Connections between nodes of one process: what a cut holds back, and what arrives after it."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.tools.control.links import LinkedNetwork, Links


class Net:
    """A network of which each connection is one pair of streams in memory."""

    def __init__(self) -> None:
        self.accepted: list[trio.StapledStream[Any, Any]] = []

    async def dial(self, host: str, port: int) -> trio.abc.Stream:
        own, other = trio.testing.memory_stream_pair()
        self.accepted.append(other)
        return own


class World:
    """Nodes 1 and 2 with ports of the same number; node 1 dials."""

    def __init__(self) -> None:
        self.links, self.net = Links(), Net()
        self.links.add(1, [1])
        self.links.add(2, [2])
        self.network = LinkedNetwork(self.net, self.links, 1)  # type: ignore[arg-type]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("isolated", [1, 2])
async def test_cut_holds_back_what_is_sent_and_received(autojump_clock, world, isolated):
    stream = await world.network.dial("h", 2)
    (other,) = world.net.accepted
    world.links.isolate(isolated)
    await other.send_all(b"to node 1")
    with trio.move_on_after(10) as receiving:
        await stream.receive_some(100)
    with trio.move_on_after(10) as sending:
        await stream.send_all(b"to node 2")
    assert receiving.cancelled_caught
    assert sending.cancelled_caught
    world.links.rejoin(isolated)
    assert await stream.receive_some(2) == b"to"
    assert await stream.receive_some() == b" node 1", "nothing is lost"
    await stream.send_all(b"later")
    assert await other.receive_some() == b"later"


async def test_connecting_waits_until_nodes_reach_each_other(autojump_clock, world):
    world.links.isolate(2)
    with trio.move_on_after(10) as dialling:
        await world.network.dial("h", 2)
    assert dialling.cancelled_caught
    assert world.net.accepted == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.network.dial, "h", 2)
        await trio.testing.wait_all_tasks_blocked()
        world.links.rejoin(2)
    assert len(world.net.accepted) == 1


@pytest.mark.parametrize("port", [1, 3], ids=["itself", "another server"])
async def test_cut_is_between_nodes_alone(world, port):
    world.links.isolate(1)
    stream = await world.network.dial("h", port)
    await stream.send_all(b"sent")
    assert await world.net.accepted[0].receive_some() == b"sent"


async def test_end_of_a_connection_arrives_after_the_cut(autojump_clock, world):
    stream = await world.network.dial("h", 2)
    world.links.isolate(2)
    await world.net.accepted[0].aclose()
    with trio.move_on_after(1) as receiving:
        await stream.receive_some()
    assert receiving.cancelled_caught
    world.links.rejoin(2)
    assert await stream.receive_some() == b""
    await stream.aclose()
