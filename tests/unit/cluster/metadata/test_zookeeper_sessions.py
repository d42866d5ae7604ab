"""Every session with ZooKeeper keeps these promises, and the simulated one keeps some besides."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random

import pytest
import trio
import trio.testing
from kazoo.client import KazooClient

from barnabas.cluster.zookeeper.connection import UnreachableError, connect
from barnabas.cluster.zookeeper.session import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    SessionState,
    SetData,
    ZooKeeper,
)
from barnabas.config.cluster import ZooKeeperSettings
from barnabas.environment.real import OsThreads
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper, ZooKeeperWeather
from compat.kafka import ZooKeeperServer, release

_numbers = count()


@dataclass
class Servers:
    """A source of sessions of one kind, with a way to expire one of them."""

    session: Callable[[], Awaitable[ZooKeeper]]
    expire: Callable[[ZooKeeper], Awaitable[None]]


def simulated() -> Servers:
    server = SimulatedZooKeeper()

    async def session():
        return server.session()

    async def expire(session):
        server.expire(session)

    return Servers(session, expire)


def real(address) -> Servers:
    chroot = f"/sessions-{next(_numbers)}"

    async def session():
        return await connect(settings_for(address, chroot), OsThreads())

    async def expire(session):
        """Continue this session in another client, and end it."""
        same = KazooClient(address, client_id=(session.session_id, session._client.client_id[1]))
        await trio.to_thread.run_sync(same.start)
        await trio.to_thread.run_sync(same.stop)
        same.close()

    return Servers(session, expire)


def settings_for(address, chroot, **changed):
    host, _, port = address.rpartition(":")
    plain = ZooKeeperSettings(
        ((host, int(port)),), chroot, 6000, 20_000, 10, has_acls=False, digest=None, tls=None
    )
    return plain._replace(**changed)


@pytest.fixture(params=["simulated", "real_zookeeper", "own_zookeeper"])
def servers(request):
    return simulated() if request.param == "simulated" else real(request.getfixturevalue(request.param))


class Called:
    """A watch that can be waited for."""

    def __init__(self):
        self.count = 0
        self._event = trio.Event()

    def __call__(self):
        self.count += 1
        self._event.set()

    async def wait(self):
        with trio.fail_after(10):
            await self._event.wait()


async def test_a_znode_is_made_read_changed_and_removed(servers):
    zookeeper = await servers.session()
    path, stat = await zookeeper.create("/a", b"one")
    assert (path, stat.version, stat.ephemeral_owner) == ("/a", 0, 0)
    assert await zookeeper.get("/a") == (b"one", stat)
    changed = await zookeeper.set("/a", b"two", 0)
    assert (changed.version, changed.created) == (1, stat.created)
    assert changed.modified > stat.modified
    assert await zookeeper.exists("/a") == changed
    with pytest.raises(BadVersionError):
        await zookeeper.set("/a", b"three", 0)
    with pytest.raises(BadVersionError):
        await zookeeper.delete("/a", 0)
    await zookeeper.delete("/a", 1)
    assert await zookeeper.exists("/a") is None
    await zookeeper.close()


async def test_what_is_not_there_or_there_already_is_refused(servers):
    zookeeper = await servers.session()
    await zookeeper.create("/a")
    for attempt, error in (
        (partial(zookeeper.create, "/a"), NodeExistsError),
        (partial(zookeeper.create, "/b/c"), NoNodeError),
        (partial(zookeeper.get, "/b"), NoNodeError),
        (partial(zookeeper.set, "/b", b""), NoNodeError),
        (partial(zookeeper.delete, "/b"), NoNodeError),
        (partial(zookeeper.children, "/b"), NoNodeError),
    ):
        with pytest.raises(error):
            await attempt()
    await zookeeper.create("/b/c/d", b"deep", parents=True)
    assert (await zookeeper.get("/b/c"))[0] == b""
    with pytest.raises(NotEmptyError):
        await zookeeper.delete("/b")
    assert await zookeeper.children("/b") == ["c"]
    assert (await zookeeper.exists("/b")).children == 1
    await zookeeper.close()


async def test_many_are_read_at_once(servers):
    zookeeper = await servers.session()
    for number in range(50):
        await zookeeper.create(f"/{number}", b"%d" % number)
    znodes = await zookeeper.get_many([f"/{number}" for number in range(60)])
    assert [None if row is None else row[0] for row in znodes] == [b"%d" % n for n in range(50)] + [None] * 10
    assert await zookeeper.get_many([]) == []
    await zookeeper.close()


async def test_children_of_a_sequence_are_numbered(servers):
    zookeeper = await servers.session()
    await zookeeper.create("/s")
    assert (await zookeeper.create("/s/n_", b"a", sequence=True))[0] == "/s/n_0000000000"
    assert (await zookeeper.create("/s/n_", b"b", sequence=True))[0] == "/s/n_0000000001"
    assert await zookeeper.children("/s") == ["n_0000000000", "n_0000000001"]
    await zookeeper.close()


async def test_all_of_several_operations_are_done_or_none(servers):
    zookeeper = await servers.session()
    await zookeeper.create("/epoch", b"1")
    stats = await zookeeper.multi(
        [
            Check("/epoch", 0),
            Create("/a", b"a"),
            Create("/a/b", b"b"),
            SetData("/epoch", b"2", 0),
            Delete("/a/b"),
        ]
    )
    assert [None if stat is None else stat.version for stat in stats] == [None, 0, 0, 1, None]
    with pytest.raises(BadVersionError) as failed:
        await zookeeper.multi([Create("/c", b""), Delete("/a"), Check("/epoch", 0)])
    assert failed.value.operation_index == 2
    with pytest.raises(NodeExistsError) as failed:
        await zookeeper.multi([SetData("/epoch", b"3"), Create("/a", b"")])
    assert failed.value.operation_index == 1
    assert await zookeeper.children("/a") == []
    assert await zookeeper.exists("/c") is None
    assert (await zookeeper.get("/epoch"))[0] == b"2"
    assert await zookeeper.multi([]) == []
    await zookeeper.close()


async def test_watches_are_called_once(servers):
    zookeeper, other = await servers.session(), await servers.session()
    await zookeeper.create("/a", b"")
    data, created, children, gone = Called(), Called(), Called(), Called()
    await zookeeper.get("/a", data)
    assert await zookeeper.exists("/b", created) is None
    await zookeeper.children("/a", children)
    with pytest.raises(NoNodeError):
        await zookeeper.get("/c", gone)
    await other.set("/a", b"1")
    await data.wait()
    await other.create("/b")
    await created.wait()
    await other.create("/a/child")
    await children.wait()
    await other.set("/a", b"2")
    await other.create("/a/another")
    await other.create("/c")
    await zookeeper.get("/a")
    assert [data.count, created.count, children.count, gone.count] == [1, 1, 1, 0]
    await other.close()
    await zookeeper.close()


async def test_ephemeral_znodes_go_with_their_session(servers):
    zookeeper, other = await servers.session(), await servers.session()
    _, stat = await zookeeper.create("/e", b"", ephemeral=True)
    assert stat.ephemeral_owner == zookeeper.session_id
    gone = Called()
    assert await other.exists("/e", gone) is not None
    await zookeeper.close()
    await gone.wait()
    assert await other.exists("/e") is None
    with pytest.raises(SessionExpiredError):
        await zookeeper.get("/")
    await other.close()


async def test_an_expired_session_is_followed_by_a_new_one(servers):
    zookeeper, other = await servers.session(), await servers.session()
    await zookeeper.create("/e", b"", ephemeral=True)
    states = []
    ended = trio.Event()

    def changed(state):
        states.append(state)
        if state is SessionState.EXPIRED:
            ended.set()

    zookeeper.watch_session(changed)
    watched = Called()
    await zookeeper.exists("/e", watched)
    before = zookeeper.session_id
    await servers.expire(zookeeper)
    with trio.fail_after(30):
        await ended.wait()
        await zookeeper.wait_connected()
    assert zookeeper.session_id != before
    assert zookeeper.state is SessionState.CONNECTED
    assert states[-2:] == [SessionState.EXPIRED, SessionState.CONNECTED]
    await watched.wait()
    assert await other.exists("/e") is None
    await zookeeper.create("/e", b"", ephemeral=True)
    await zookeeper.close()
    await other.close()


async def test_simulated_a_write_whose_answer_is_lost_has_happened():
    server = SimulatedZooKeeper()
    session = server.session()
    watched = Called()
    await session.exists("/a", watched)
    session.lose_next_answer()
    with pytest.raises(ConnectionLostError):
        await session.create("/a")
    await watched.wait()
    await session.wait_connected()
    assert await session.exists("/a")
    session.lose_next_request()
    with pytest.raises(ConnectionLostError):
        await session.create("/b")
    await session.wait_connected()
    assert await session.exists("/b") is None


async def test_simulated_who_stays_away_for_too_long_is_expired(autojump_clock):
    server = SimulatedZooKeeper(weather=ZooKeeperWeather(session_timeout_s=6))
    session, killed, other = server.session(), server.session(), server.session()
    await session.create("/e", ephemeral=True)
    await killed.create("/k", ephemeral=True)
    session.disconnect()
    killed.kill()
    with pytest.raises(ConnectionLostError):
        await session.get("/e")
    await trio.sleep(5)
    assert await other.exists("/e")
    await trio.sleep(2)
    assert await other.exists("/e") is None
    assert await other.exists("/k") is None
    assert session.state is SessionState.DISCONNECTED
    states = []
    session.watch_session(states.append)
    session.connect_soon()
    await session.wait_connected()
    assert states == [SessionState.EXPIRED, SessionState.CONNECTED]


async def test_simulated_without_servers_no_session_ends(autojump_clock):
    server = SimulatedZooKeeper()
    session = server.session()
    await session.create("/e", ephemeral=True)
    server.stop()
    await trio.sleep(100)
    server.start()
    await session.wait_connected()
    assert await session.exists("/e")


async def test_simulated_expired_session_connects_to_new_servers(autojump_clock):
    server = SimulatedZooKeeper()
    session = server.session()
    server.stop()
    server.expire(session)
    await trio.sleep(1)
    assert session.state is SessionState.DISCONNECTED
    server.start()
    with trio.fail_after(1):
        await session.wait_connected()


async def test_simulated_answers_come_in_order_whatever_the_weather(autojump_clock):
    seed = Random().randrange(2**32)
    print("seed", seed)
    weather = ZooKeeperWeather(1, 1, 1, 1, lost_request_probability=0.1, lost_answer_probability=0.1)
    server = SimulatedZooKeeper(Random(seed))
    session = server.session()
    await session.create("/n", b"")
    server.weather = weather
    answers, lost = [], 0

    async def write(number):
        nonlocal lost
        try:
            answers.append((await session.set("/n", b"%d" % number)).version)
        except ConnectionLostError:
            lost += 1

    for _ in range(20):
        await session.wait_connected()
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(write, number)
    assert answers == sorted(answers)
    assert len(answers) + lost == 200


async def test_many_thousands_are_read_in_one_go(any_zookeeper):
    zookeeper = await connect(settings_for(any_zookeeper, "/many"), OsThreads())
    await zookeeper.create("/t", parents=True)
    for first in range(0, 2000, 500):
        await zookeeper.multi([Create(f"/t/{n}", b"%d" % n) for n in range(first, first + 500)])
    paths = [f"/t/{n % 2500}" for n in range(10_000)]
    await zookeeper.get_many(["/"])
    began = trio.current_time()
    znodes = await zookeeper.get_many(paths)
    print(f"10,000 znodes in {trio.current_time() - began:.2f} s")
    assert [row and row[0] for row in znodes[:2500]] == [b"%d" % n for n in range(2000)] + [None] * 500
    zookeeper._has_multi_read = False  # as a server before 3.6
    assert await zookeeper.get_many(paths[1000:2500]) == znodes[1000:2500]
    await zookeeper.close()


async def test_znodes_with_acls_are_changed_by_their_maker_alone(any_zookeeper):
    ours = await connect(
        settings_for(any_zookeeper, "/secure", has_acls=True, digest=("kafka", "secret")), OsThreads()
    )
    nobody = await connect(settings_for(any_zookeeper, "/secure"), OsThreads())
    for path in ("/brokers/topics", "/config/users/alice", "/consumers/g"):
        await ours.create(path, b"x", parents=True)
    assert (await nobody.get("/brokers/topics"))[0] == b"x"
    with pytest.raises(NoAuthError):
        await nobody.set("/brokers/topics", b"y")
    with pytest.raises(NoAuthError):
        await nobody.get("/config/users/alice")
    await nobody.create("/consumers/g/ids")
    await ours.set("/brokers/topics", b"y")
    await ours.close()
    await nobody.close()


async def test_who_cannot_be_reached_is_named():
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1/kafka .* 500 ms .*refused"):
        await connect(settings_for("127.0.0.1:1", "/kafka", connection_timeout_ms=500), OsThreads())


async def test_a_server_that_comes_back_finds_the_same_session(tmp_path, real_zookeeper):
    server = ZooKeeperServer(release("3.9"), tmp_path)
    await trio.to_thread.run_sync(server.start)
    zookeeper = await connect(settings_for(server.address, "", session_timeout_ms=18000), OsThreads())
    await zookeeper.create("/e", b"here", ephemeral=True)
    before = zookeeper.session_id
    watched, states = Called(), []
    await zookeeper.exists("/e", watched)
    zookeeper.watch_session(states.append)
    await trio.to_thread.run_sync(server.kill)
    with trio.fail_after(10):
        while zookeeper.state is SessionState.CONNECTED:
            await trio.sleep(0.01)
    with pytest.raises(ConnectionLostError):
        await zookeeper.get("/e")
    await watched.wait()
    await trio.to_thread.run_sync(server.start)
    with trio.fail_after(30):
        await zookeeper.wait_connected()
    assert states == [SessionState.DISCONNECTED, SessionState.CONNECTED]
    assert zookeeper.session_id == before
    assert (await zookeeper.get("/e"))[0] == b"here"
    await zookeeper.close()
    await trio.to_thread.run_sync(server.stop)
