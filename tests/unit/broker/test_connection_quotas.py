"""Limits of connections: how many, and how fast, of the broker, of a listener and of an address."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.config.loading import BrokerConfig
from barnabas.serving.connection_limits import ConnectionLimits
from barnabas.serving.listener import THROTTLED_MAX, Connections, Listener
from barnabas.serving.log_limit import LogLimit
from barnabas.serving.quotas.entities import QuotaEntity
from tests.support.connection_parts import connection_parts

LISTENERS = {"CLIENTS": "PLAINTEXT", "BROKERS": "PLAINTEXT"}


class Transport:
    """An accepted connection from an address; nothing is ever sent on it."""

    local_address = ("127.0.0.1", 9092)

    def __init__(self, host: str) -> None:
        self.peer_address = (host, 50_000)
        self.closed_at: float | None = None

    def report_to(self, _connection: object) -> None:
        pass

    async def wait_readable(
        self, *, soon: bool = True, is_crowded: bool = False, arrived: object = None
    ) -> None:
        await trio.sleep_forever()

    def wake(self) -> None:
        pass

    def close(self) -> None:
        self.closed_at = trio.current_time()


class Queue:
    """An acceptor: connections that wait to be accepted."""

    def __init__(self) -> None:
        self.waiting: list[Transport] = []
        self.taken: list[float] = []
        self._came = trio.Event()

    def dial(self, host: str = "10.0.0.1", count: int = 1) -> list[Transport]:
        new = [Transport(host) for _ in range(count)]
        self.waiting += new
        self._came.set()
        return new

    async def wait_acceptable(self) -> None:
        if not self.waiting:
            self._came = trio.Event()
            await self._came.wait()

    def accept_now(self) -> Transport | None:
        if not self.waiting:
            return None
        self.taken.append(trio.current_time())
        return self.waiting.pop(0)

    def close(self) -> None:
        pass


class World:
    def __init__(self, nursery: trio.Nursery, settings: dict[str, str]) -> None:
        self.config = BrokerConfig(settings)
        self.limits = ConnectionLimits(self.config, LISTENERS, trio.current_time, LogLimit())
        self.connections = Connections(
            nursery,
            connection_parts(),
            self.limits,
            idle_seconds_max=600,
            count_max=None,  # type: ignore[arg-type]
        )
        self.queues = {name: Queue() for name in LISTENERS}
        for name, queue in self.queues.items():
            listener = Listener(name, "PLAINTEXT", [queue])  # type: ignore[list-item]
            nursery.start_soon(listener.accept_forever, self.connections)
        nursery.start_soon(self.connections.close_excess_forever)
        self.clients, self.brokers = self.queues["CLIENTS"], self.queues["BROKERS"]

    def set(self, **settings: str) -> None:
        self.config.set_dynamic({name.replace("_", "."): text for name, text in settings.items()}, {})
        self.limits.settings_changed()

    def quota(self, ip: str, rate: float) -> None:
        entity = QuotaEntity(ip=ip)
        self.limits.quotas_changed({entity: {"connection_creation_rate": rate}}, [entity])

    async def settle(self) -> None:
        await trio.testing.wait_all_tasks_blocked(0.001)

    def open_on(self, listener: str) -> int:
        return self.limits.open_on(listener)

    def hang_up(self, transport: Transport) -> None:
        for connection in list(self.connections.open_connections):
            if self.transport_of(connection) is transport:
                connection.scope.cancel()

    @staticmethod
    def transport_of(connection: Any) -> Any:
        return connection._transport


@pytest.fixture
def world_of(nursery):
    def make(**settings: str) -> World:
        named = {name.replace("__", ".").replace("_", "."): text for name, text in settings.items()}
        return World(nursery, {"inter.broker.listener.name": "BROKERS", **named})

    return make


async def test_full_broker_accepts_when_a_connection_closes(world_of, autojump_clock):
    world = world_of(max_connections="3")
    first, *_ = world.clients.dial(count=5)
    await world.settle()
    assert world.open_on("CLIENTS") == 3
    assert len(world.clients.waiting) == 1  # one is taken, and waits
    world.hang_up(first)
    await world.settle()
    assert world.open_on("CLIENTS") == 3
    assert len(world.clients.waiting) == 0


async def test_brokers_are_let_in_and_a_client_that_is_idle_goes(world_of, autojump_clock):
    world = world_of(max_connections="3")
    clients = world.clients.dial(count=3)
    await world.settle()
    for age, peer in enumerate(world.connections.open_connections):
        peer.last_active = float(-age)
    oldest = world.transport_of(min(world.connections.open_connections, key=lambda peer: peer.last_active))
    world.brokers.dial()
    await world.settle()
    assert (world.open_on("CLIENTS"), world.open_on("BROKERS")) == (2, 1)
    assert [client for client in clients if client.closed_at is not None] == [oldest]


async def test_a_limit_that_is_lowered_or_raised_has_effect_at_once(world_of, autojump_clock):
    world = world_of()
    world.clients.dial(count=5)
    await world.settle()
    world.set(max_connections="2")
    await world.settle()
    assert world.open_on("CLIENTS") == 2
    world.clients.dial(count=2)
    await world.settle()
    assert world.open_on("CLIENTS") == 2
    world.set(max_connections="4")
    await world.settle()
    assert world.open_on("CLIENTS") == 4


async def test_a_listener_has_a_limit_of_its_own(world_of, autojump_clock):
    world = world_of(listener_name_clients_max_connections="2")
    world.clients.dial(count=3)
    world.brokers.dial(count=3)
    await world.settle()
    assert (world.open_on("CLIENTS"), world.open_on("BROKERS")) == (2, 3)


async def test_what_is_too_much_of_an_address_is_closed_at_once(world_of, autojump_clock):
    world = world_of(max_connections_per_ip="2")
    *_, third = world.clients.dial("10.0.0.1", 3)
    world.clients.dial("10.0.0.2", 2)
    await world.settle()
    assert third.closed_at == 0
    assert world.open_on("CLIENTS") == 4


async def test_connections_beyond_the_rate_of_the_broker_wait(world_of, autojump_clock):
    world = world_of(max_connection_creation_rate="5")
    dialled = world.clients.dial(count=60)
    await world.settle()
    assert world.open_on("CLIENTS") == 50  # as many as ten windows allow
    assert world.limits.delayed["CLIENTS"].count == 1
    await trio.sleep(30)
    await world.settle()
    assert world.open_on("CLIENTS") == 60
    assert not any(peer.closed_at for peer in dialled)
    pauses = [
        after - before for before, after in zip(world.clients.taken, world.clients.taken[1:], strict=False)
    ]
    assert 0 < max(pauses) <= 1.001


async def test_listener_rate_does_not_delay_another_listener(world_of, autojump_clock):
    world = world_of(listener_name_clients_max_connection_creation_rate="1")
    world.clients.dial(count=30)
    world.brokers.dial(count=30)
    await world.settle()
    assert (world.open_on("CLIENTS"), world.open_on("BROKERS")) == (10, 30)


async def test_a_storm_from_one_address_does_not_hold_up_another(world_of, autojump_clock, caplog):
    world = world_of(max_connection_creation_rate="100")
    world.quota("10.0.0.1", 1)
    with caplog.at_level(logging.WARNING):
        storm = world.clients.dial("10.0.0.1", 3000)
        (quiet,) = world.clients.dial("10.0.0.2")
        await world.settle()
    assert "connections from 10.0.0.1 come faster than its quota allows" in caplog.text
    assert quiet.closed_at is None
    assert world.open_on("CLIENTS") == 11  # ten windows of the storm, and the quiet one
    assert sum(peer.closed_at is None for peer in storm) == 10 + THROTTLED_MAX
    await trio.sleep(1.5)
    assert sum(peer.closed_at is None for peer in storm) == 10
    assert world.limits.throttled["CLIENTS"].count == 2990
    assert world.limits.delayed["CLIENTS"].count == 0  # what was not taken counts for nobody


async def test_quotas_of_addresses_have_a_default_and_can_be_removed(world_of, autojump_clock, caplog):
    world = world_of()
    world.quota("", 1)
    world.quota("::ffff:10.0.0.2", 2)
    world.clients.dial("10.0.0.1", 100)
    world.clients.dial("10.0.0.2", 100)
    await world.settle()
    assert world.limits.per_ip == {"10.0.0.1": 10, "10.0.0.2": 20}
    for ip in ("", "::ffff:10.0.0.2", "a.host"):
        world.limits.quotas_changed({}, [QuotaEntity(ip=ip)])
    assert "the quota of ip 'a.host' has no effect" in caplog.text
    world.clients.dial("10.0.0.1", 100)
    await world.settle()
    assert world.limits.per_ip["10.0.0.1"] == 110


async def test_who_waits_to_be_taken_is_closed_when_the_broker_stops(autojump_clock):
    async with trio.open_nursery() as nursery:
        world = World(nursery, {"max.connections": "0"})
        (peer,) = world.clients.dial()
        await world.settle()
        assert peer.closed_at is None
        nursery.cancel_scope.cancel()
    assert peer.closed_at is not None
