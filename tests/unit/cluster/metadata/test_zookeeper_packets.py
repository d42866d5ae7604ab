"""A connection to ZooKeeper without a server: what it asks for, with which ACLs, and what breaks of the connection do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from kazoo import exceptions as kazoo_errors
from kazoo.protocol import serialization as packets
from kazoo.protocol.states import KazooState, KeeperState, ZnodeStat
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from barnabas.cluster.zookeeper.connection import ZooKeeperConnection
from barnabas.cluster.zookeeper.requests import MultiRead
from barnabas.cluster.zookeeper.session import (
    ConnectionLostError,
    Create,
    SessionExpiredError,
    SessionState,
    Stat,
    ZooKeeperError,
)
from barnabas.config.cluster import ZooKeeperSettings
from barnabas.environment.real import OsThreads

SETTINGS = ZooKeeperSettings(
    (("h", 1), ("::1", 2)), "/root", 6_000, 20_000, 10, has_acls=False, digest=None, tls=None
)
ZNODE = ZnodeStat(11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21)
STAT = Stat(15, 11, 12, 18, 20, 13)


class World:
    """A connection with requests that are noted, and answered in the order of `answers`."""

    def __init__(self, **settings: Any) -> None:
        self.connection = ZooKeeperConnection(SETTINGS._replace(**settings), OsThreads())
        self.asked: list[Any] = []
        self.answers: list[Any] = []
        self.connection._requests.submit = self.submit  # type: ignore[method-assign]
        self.connection.begin_session(0x77)

    def submit(self, request: Any, done: Callable[[Any, BaseException | None], None]) -> None:
        self.asked.append(request)
        if self.answers:
            answer = self.answers.pop(0)
            failed = isinstance(answer, BaseException)
            done(None if failed else answer, answer if failed else None)


PLAIN, SECRET, FREE = "/brokers/topics/t", "/config/users/u", "/consumers/g"


@pytest.mark.parametrize(
    ("has_acls", "path", "acl"),
    [
        (False, PLAIN, OPEN_ACL_UNSAFE), (False, SECRET, OPEN_ACL_UNSAFE), (True, FREE, OPEN_ACL_UNSAFE),
        (True, PLAIN, CREATOR_ALL_ACL + READ_ACL_UNSAFE), (True, SECRET, CREATOR_ALL_ACL),
    ],
)  # fmt: skip
async def test_znodes_are_open_readable_or_secret(has_acls: bool, path: str, acl: Any) -> None:
    world = World(has_acls=has_acls)
    world.answers = [(f"/root{path}", ZNODE), [ZNODE]]
    await world.connection.create(path, b"x")
    await world.connection.multi([Create(path, b"x")])
    assert world.asked[0] == packets.Create2(f"/root{path}", b"x", acl, 0)
    assert world.asked[1]._operations == [packets.Create2(f"/root{path}", b"x", acl, 0)]


async def test_servers_without_multi_read_get_single_reads() -> None:
    world = World()
    world.answers = [
        kazoo_errors.UnimplementedError(),
        (b"1", ZNODE),
        kazoo_errors.NoNodeError(),
        (None, ZNODE),
    ]
    assert await world.connection.get_many(["/a", "/b", "/c"]) == [(b"1", STAT), None, (b"", STAT)]
    assert [type(packet) for packet in world.asked] == [MultiRead, *[packets.GetData] * 3]
    world.asked.clear()
    world.answers = [(b"1", ZNODE)]
    await world.connection.get_many(["/a"])
    assert [type(packet) for packet in world.asked] == [packets.GetData]


async def test_another_error_of_many_is_raised() -> None:
    world = World()
    world.answers = [kazoo_errors.NoAuthError()] * 2
    for _ in range(2):
        with pytest.raises(ZooKeeperError):
            await world.connection.get_many(["/a"])
    assert [type(request) for request in world.asked] == [MultiRead] * 2


# --- breaks -------------------------------------------------------------------------------------------------------


async def test_lost_connection_fails_waiting_and_later_requests() -> None:
    world = World()
    heard: list[SessionState] = []
    world.connection.watch_session(heard.append)
    failures: list[type[Exception]] = []

    async def ask() -> None:
        try:
            await world.connection.get("/a")
        except ZooKeeperError as error:
            failures.append(type(error))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        world.connection.end_session(SessionState.DISCONNECTED)
    await ask()
    world.connection.begin_session(0x78)
    assert (world.connection.session_id, world.connection.state) == (0x78, SessionState.CONNECTED)
    world.connection.end_session(SessionState.EXPIRED)
    await ask()
    assert failures == [ConnectionLostError] * 3
    assert len(world.asked) == 1
    assert heard == [SessionState.DISCONNECTED, SessionState.CONNECTED, SessionState.EXPIRED]
    await world.connection.close()
    await ask()
    assert failures[3:] == [SessionExpiredError]
    world.connection.begin_session(0x79)
    world.connection.end_session(SessionState.DISCONNECTED)
    assert world.connection.session_id == 0x78, "after its end nothing changes"


@pytest.mark.parametrize(
    ("state", "keeper", "expected"),
    [
        (KazooState.CONNECTED, KeeperState.CONNECTED, SessionState.CONNECTED),
        (KazooState.SUSPENDED, KeeperState.CONNECTING, SessionState.DISCONNECTED),
        (KazooState.LOST, KeeperState.EXPIRED_SESSION, SessionState.EXPIRED),
        (KazooState.LOST, KeeperState.AUTH_FAILED, SessionState.EXPIRED),
    ],
)
@pytest.mark.parametrize("has_logged_in", [True, False])
async def test_kazoo_session_events_arrive_in_the_event_loop(
    state: str, keeper: str, expected: SessionState, has_logged_in: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    heard: list[SessionState] = []
    world.connection.watch_session(heard.append)
    world.connection._client._state = keeper
    world.connection._has_logged_in = has_logged_in
    await trio.to_thread.run_sync(world.connection._kazoo_changed, state)
    await trio.testing.wait_all_tasks_blocked()
    waits = state == KazooState.CONNECTED and not has_logged_in
    assert heard == ([] if waits else [expected])
    assert ("has refused zookeeper.digest" in caplog.text) is (keeper == KeeperState.AUTH_FAILED)
    if state == KazooState.SUSPENDED:
        assert world.connection._has_logged_in, "without SASL there is no login"
