"""Connections that are closed by the broker: how many at a time, and what is counted of them."""

from types import SimpleNamespace

import trio
import trio.testing

from barnabas.config.loading import BrokerConfig
from barnabas.serving.listener import CLOSED_PER_TURN, Connections
from tests.support.brokers import serving
from tests.support.connection_parts import connection_parts

COUNT = 500


class Turns(trio.abc.Instrument):
    """Counts what happens in each turn of the event loop."""

    def __init__(self):
        self.counts = [0]

    def after_io_wait(self, timeout):
        self.counts.append(0)

    def count(self):
        self.counts[-1] += 1


class Idle:
    """A connection that tells when it is closed."""

    def __init__(self, turns, answering=False):
        self.last_active = 0.0
        self.answering = answering
        self.info = "a connection"
        self.scope = SimpleNamespace(cancel=turns.count)
        self.expected_nothing = 0

    def expect_nothing_soon(self):
        self.expected_nothing += 1


async def test_idle_connections_are_closed_some_at_a_time(autojump_clock):
    turns = Turns()
    parts = connection_parts(now_s=lambda: 10_000.0)
    async with trio.open_nursery() as nursery:
        connections = Connections(nursery, parts, SimpleNamespace(), idle_seconds_max=1, count_max=None)
        connections.open_connections.update((Idle(turns), None) for _ in range(COUNT))
        connections.open_connections[Idle(turns, answering=True)] = None
        trio.lowlevel.add_instrument(turns)
        with trio.move_on_after(0.75):
            await connections.close_idle_forever()
        trio.lowlevel.remove_instrument(turns)
    assert sum(turns.counts) == COUNT
    assert max(turns.counts) == CLOSED_PER_TURN


async def test_connections_are_counted_by_their_listener(tmp_path):
    config = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    async with serving(BrokerConfig(config)) as broker:
        streams = [await trio.open_tcp_stream(*broker.listeners[0].addresses[0]) for _ in range(7)]
        while len(broker.connections) < len(streams):
            await trio.testing.wait_all_tasks_blocked()
        assert broker.connections.limits.open_on("PLAINTEXT") == 7
        for stream in streams[:3]:
            await stream.aclose()
        while len(broker.connections) > 4:
            await trio.testing.wait_all_tasks_blocked()
        assert broker.connections.limits.open_on("PLAINTEXT") == 4
        for stream in streams[3:]:
            await stream.aclose()
