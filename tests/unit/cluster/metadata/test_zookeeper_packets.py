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

from barnabas.cluster.zookeeper import connection as connections
from barnabas.cluster.zookeeper.connection import UnreachableError, ZooKeeperConnection
from barnabas.cluster.zookeeper.requests import MultiRead
from barnabas.cluster.zookeeper.session import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    SessionState,
    SetData,
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
    """A connection whose requests are noted, and answered in the order of `answers`."""

    def __init__(self, **settings: Any) -> None:
        self.connection = ZooKeeperConnection(SETTINGS._replace(**settings), OsThreads())
        self.asked: list[Any] = []
        self.answers: list[Any] = []
        self.connection._requests.submit = self.submit  # type: ignore[method-assign]
        self.connection._begin(0x77)

    def submit(self, request: Any, done: Callable[[Any, BaseException | None], None]) -> None:
        self.asked.append(request)
        if self.answers:
            answer = self.answers.pop(0)
            failed = isinstance(answer, BaseException)
            done(None if failed else answer, answer if failed else None)


@pytest.mark.parametrize(
    ("connection_ms", "servers", "dial_s"),
    [(20_000, 2, 10.0), (20_000, 1, 20.0), (3_000, 3, 1.0), (2_000, 3, 1.0), (9_000, 2, 4.5)],
)
async def test_time_to_connect_is_shared_by_the_servers(
    connection_ms: int, servers: int, dial_s: float
) -> None:
    world = World(connection_timeout_ms=connection_ms, servers=(("h", 1),) * servers)
    assert world.connection._handler._timeout_s == dial_s


async def test_kazoo_is_told_of_servers_session_and_identity() -> None:
    client = World(digest=("u", "p")).connection._client
    assert sorted(client.hosts) == [("::1", 2), ("h", 1)]
    assert client._session_timeout == 6_000
    assert client.auth_data == {("digest", "u:p")}
    assert World().connection._client.auth_data == set()


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


@pytest.mark.parametrize(
    ("ephemeral", "sequence", "flags"),
    [(False, False, 0), (True, False, 1), (False, True, 2), (True, True, 3)],
)
async def test_a_znode_is_made_for_good_for_the_session_or_with_a_number(
    ephemeral: bool, sequence: bool, flags: int
) -> None:
    world = World()
    world.answers = [("/root/a7", ZNODE)]
    assert await world.connection.create("/a", b"x", ephemeral=ephemeral, sequence=sequence) == ("/a7", STAT)
    assert world.asked == [packets.Create2("/root/a", b"x", OPEN_ACL_UNSAFE, flags)]


@pytest.mark.parametrize("exists", [False, True])
async def test_parents_are_made_where_that_is_asked_for(exists: bool) -> None:
    world = World()
    missing = kazoo_errors.NoNodeError()
    made = ("/root/x", ZNODE)
    parents = kazoo_errors.NodeExistsError() if exists else made
    world.answers = [missing, missing, made, parents, ("/root/a/b/c", ZNODE)]
    assert await world.connection.create("/a/b/c", b"x", parents=True) == ("/a/b/c", STAT)
    assert [one.path for one in world.asked] == [
        f"/root{path}" for path in ("/a/b/c", "/a/b", "/a", "/a/b", "/a/b/c")
    ]
    assert [one.data for one in world.asked] == [b"x", b"", b"", b"", b"x"]
    for options in ({"parents": False}, {"parents": True}):
        world.answers = [missing]
        with pytest.raises(NoNodeError):
            await world.connection.create("/a/b" if not options["parents"] else "/a", **options)


async def test_each_question_has_its_packet_and_its_answer() -> None:
    world = World()
    it = world.connection
    world.answers = [
        (b"x", ZNODE), (None, ZNODE), ZNODE, None, ["b", "a"], ZNODE, None, [ZNODE, None, None],
    ]  # fmt: skip
    assert await it.get("/a") == (b"x", STAT)
    assert await it.get("/") == (b"", STAT)
    assert await it.exists("/a") == STAT
    assert await it.exists("/a") is None
    assert await it.children("/a") == ["a", "b"]
    assert await it.set("/a", b"y", 3) == STAT
    await it.delete("/a", 4)
    assert await it.multi([SetData("/a", b"z", 5), Delete("/b", 6), Check("/c", 7)]) == [STAT, None, None]
    assert await it.multi([]) == []
    assert world.asked[:7] == [
        packets.GetData("/root/a", None), packets.GetData("/root", None), packets.Exists("/root/a", None),
        packets.Exists("/root/a", None), packets.GetChildren("/root/a", None), packets.SetData("/root/a", b"y", 3),
        packets.Delete("/root/a", 4),
    ]  # fmt: skip
    assert world.asked[7]._operations == [
        packets.SetData("/root/a", b"z", 5), packets.Delete("/root/b", 6), packets.CheckVersion("/root/c", 7),
    ]  # fmt: skip


async def test_of_operations_together_the_one_that_failed_is_named() -> None:
    world = World()
    rolled = kazoo_errors.RolledBackError()
    world.answers = [[rolled, kazoo_errors.BadVersionError(), kazoo_errors.RuntimeInconsistency()]]
    operations = [Check("/a", 1), Check("/b", 2), Check("/c", 3)]
    with pytest.raises(BadVersionError, match="/b") as caught:
        await world.connection.multi(operations)
    assert caught.value.operation_index == 1  # type: ignore[attr-defined]


async def test_many_are_read_some_with_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READS_TOGETHER", 2)
    world = World()
    world.answers = [[(b"1", STAT), None], [(b"3", STAT)]]
    assert await world.connection.get_many(["/a", "/b", "/c"]) == [(b"1", STAT), None, (b"3", STAT)]
    assert [one._paths for one in world.asked] == [["/root/a", "/root/b"], ["/root/c"]]
    world.asked.clear()
    assert await world.connection.get_many([]) == []
    assert world.asked == []


async def test_servers_that_read_one_at_a_time_are_asked_so_from_then_on() -> None:
    world = World()
    world.answers = [
        kazoo_errors.UnimplementedError(),
        (b"1", ZNODE),
        kazoo_errors.NoNodeError(),
        (None, ZNODE),
    ]
    assert await world.connection.get_many(["/a", "/b", "/c"]) == [(b"1", STAT), None, (b"", STAT)]
    assert [type(one) for one in world.asked] == [MultiRead, *[packets.GetData] * 3]
    world.asked.clear()
    world.answers = [(b"1", ZNODE)]
    await world.connection.get_many(["/a"])
    assert [type(one) for one in world.asked] == [packets.GetData]


async def test_another_error_of_many_is_raised() -> None:
    world = World()
    world.answers = [kazoo_errors.NoAuthError()]
    with pytest.raises(ZooKeeperError):
        await world.connection.get_many(["/a"])
    assert world.connection._has_multi_read


# --- breaks -------------------------------------------------------------------------------------------------------


async def test_with_a_break_whoever_waits_hears_of_it_and_who_asks_later_too() -> None:
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
        world.connection._end(SessionState.DISCONNECTED)
    await ask()
    world.connection._begin(0x78)
    assert (world.connection.session_id, world.connection.state) == (0x78, SessionState.CONNECTED)
    world.connection._end(SessionState.EXPIRED)
    await ask()
    assert failures == [ConnectionLostError] * 3
    assert len(world.asked) == 1
    assert heard == [SessionState.DISCONNECTED, SessionState.CONNECTED, SessionState.EXPIRED]
    await world.connection.close()
    await ask()
    assert failures[3:] == [SessionExpiredError]
    world.connection._begin(0x79)
    world.connection._end(SessionState.DISCONNECTED)
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
async def test_what_kazoo_says_of_the_session_is_heard_in_the_event_loop(
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


async def test_the_chroot_is_made_part_by_part_before_anything_else() -> None:
    world = World(chroot="/a/b")
    world.connection._client.start_async = lambda: None
    world.answers = [kazoo_errors.NodeExistsError(), ("/a/b", ZNODE)]
    await world.connection.connect()
    assert [one.path for one in world.asked] == ["/a", "/a/b"]
    flat = World(chroot="")
    flat.connection._client.start_async = lambda: None
    await flat.connection.connect()
    assert flat.asked == []
    flat.answers = [(b"", ZNODE), (b"", ZNODE)]
    await flat.connection.get("/")
    await flat.connection.get("/a")
    assert [one.path for one in flat.asked] == ["/", "/a"]


@pytest.mark.parametrize("failure", ["", "h:1: refused"])
async def test_servers_that_cannot_be_reached_in_time_are_named(failure: str, autojump_clock: Any) -> None:
    world = World(connection_timeout_ms=3_000)
    world.connection._state = SessionState.DISCONNECTED
    world.connection._connected = trio.Event()
    world.connection._client.start_async = lambda: None
    world.connection._handler.last_failure = failure
    begun = trio.current_time()
    with pytest.raises(UnreachableError) as caught:
        await world.connection.connect()
    assert trio.current_time() - begun == pytest.approx(3)
    assert "ZooKeeper at h:1,[::1]:2/root could not be reached within 3000 ms" in str(caught.value)
    assert str(caught.value).endswith(f": {failure}") is bool(failure)
    assert world.connection.is_closed


async def test_a_znode_that_is_there_already_is_said_to_be() -> None:
    world = World()
    world.answers = [kazoo_errors.NodeExistsError()]
    with pytest.raises(NodeExistsError, match="/a"):
        await world.connection.create("/a")
