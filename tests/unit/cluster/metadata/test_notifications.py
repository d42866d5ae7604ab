"""Notifications below a znode: all is read once in each connection, then what is notified of; old ones are removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import trio

from barnabas.cluster.zookeeper import notifications
from barnabas.cluster.zookeeper.notifications import Notifications
from barnabas.cluster.zookeeper.session import NoAuthError
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper


class World:
    """A follower of /n, with znodes that begin with `p_`, and what it has read."""

    def __init__(self) -> None:
        self.zookeeper = SimulatedZooKeeper()
        self.session = self.zookeeper.session()
        self.admin = self.zookeeper.session()
        self.now_ms = 0
        self.read: list[Any] = []
        self.failures: list[Exception] = []
        self.follower = Notifications(
            self.session, "/n", "p_", lambda: self.now_ms, read_all=self.read_all, read_named=self.read_named,
            what="things",
        )  # fmt: skip

    async def read_all(self) -> None:
        if self.failures:
            raise self.failures.pop()
        self.read.append("all")

    async def read_named(self, names: Sequence[str]) -> None:
        self.read.append(sorted(names))

    def below(self) -> list[str]:
        return [path for path in self.zookeeper.dump() if path.startswith("/n/")]


async def within(act: Callable[[World], Any], *names: str) -> World:
    async with trio.open_nursery() as nursery:
        world = World()
        for name in names:
            await world.admin.create(f"/n/{name}", parents=True)
        nursery.start_soon(world.follower.run)
        await trio.sleep(0.1)
        await act(world)
        nursery.cancel_scope.cancel()
    return world


async def test_what_cannot_be_read_is_tried_again_after_a_while(autojump_clock: Any) -> None:
    async def act(world: World) -> None:
        world.read.clear()
        world.failures = [NoAuthError("no"), NoAuthError("no")]
        world.session.disconnect()
        world.session.connect_soon()
        await trio.sleep(1.5 * notifications.RETRY_SECONDS)
        assert world.read == []
        await trio.sleep(notifications.RETRY_SECONDS)
        assert world.read == ["all"]

    await within(act)
