"""Notifications below a znode: all is read once in each connection, then what is notified of; old ones are removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio

from barnabas.cluster.zookeeper import notifications
from barnabas.cluster.zookeeper.notifications import LIFETIME_MS, Notifications
from barnabas.cluster.zookeeper.session import NoAuthError, SessionState
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper


class World:
    """A follower of /n, whose znodes begin with `p_`, and what it has read."""

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


async def test_what_was_there_is_not_read_by_name_and_what_comes_is_once(autojump_clock: Any) -> None:
    async def act(world: World) -> None:
        assert world.read == ["all"]
        for names in (["p_0000000008"], ["p_0000000009", "p_0000000010"]):
            for name in names:
                await world.admin.create(f"/n/{name}")
            await trio.sleep(0.1)
        await world.admin.create("/n/p_0000000003")  # older than what is known
        await world.admin.create("/n/p_x")
        await world.admin.create("/n/q_0000000099")
        await world.admin.create("/n/0000000099")
        await trio.sleep(0.1)

    world = await within(act, "p_0000000005", "p_0000000007", "other")
    read = [name for names in world.read[1:] for name in names]
    assert read == ["p_0000000008", "p_0000000009", "p_0000000010"]


async def test_the_znode_is_made_if_need_be(autojump_clock: Any) -> None:
    async def act(world: World) -> None:
        assert "/n" in world.zookeeper.dump()
        await world.admin.create("/n/p_0000000000")
        await trio.sleep(0.1)

    assert (await within(act)).read == ["all", ["p_0000000000"]]


async def test_after_a_break_all_is_read_again(autojump_clock: Any) -> None:
    async def act(world: World) -> None:
        for ending in ("break", "expiry"):
            world.read.clear()
            if ending == "break":
                world.session.disconnect()
                await trio.sleep(1)
                assert world.read == []
                world.session.connect_soon()
            else:
                world.zookeeper.expire(world.session)
            await trio.sleep(1)
            assert world.read == ["all"]
            await world.admin.create("/n/p_", sequence=True)
            await trio.sleep(1)
            assert len(world.read) == 2

    await within(act)


async def test_a_connection_that_is_only_said_to_be_there_again_is_no_break(autojump_clock: Any) -> None:
    async def act(world: World) -> None:
        world.read.clear()
        for number in (1, 2):
            world.follower._session_is(SessionState.CONNECTED)
            await world.admin.create(f"/n/p_000000000{number}")
            await trio.sleep(0.1)

    assert (await within(act)).read == [["p_0000000001"], ["p_0000000002"]]


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


@pytest.mark.parametrize(("age_ms", "is_removed"), [(LIFETIME_MS, False), (LIFETIME_MS + 1, True)])
async def test_old_notifications_are_removed(age_ms: int, is_removed: bool, autojump_clock: Any) -> None:
    async def act(world: World) -> None:
        _, stat = await world.admin.get("/n/p_0000000001")
        world.now_ms = stat.created_ms + age_ms
        await world.admin.create("/n/p_0000000002")
        await trio.sleep(0.1)
        assert ("/n/p_0000000001" not in world.below()) is is_removed

    await within(act, "p_0000000001")


async def test_it_ends_with_the_session(autojump_clock: Any) -> None:
    world = World()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.follower.run)
        await trio.sleep(0.1)
        with trio.fail_after(1):
            await world.session.close()
            world.session.disconnect()
            await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert world.read == ["all"]
