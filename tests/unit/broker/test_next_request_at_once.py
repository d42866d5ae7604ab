"""A connection that was just answered reads its next request without a turn of the event loop, if no task waits for one.

Clients are threads with blocking sockets: one in the event loop could not run while a connection looks for its request.
"""

import itertools
import socket
import struct
import threading
import time
from contextlib import asynccontextmanager

import pytest
import trio

from barnabas.serving.loop_budget import AT_ONCE_SECONDS, LoopBudget
from barnabas.serving.pacing import BUSY_POLL, BusyPoll
from tests.support.broker import broker_to_ask
from tests.support.connected import TIMEOUT_S, Serving, connected
from tests.support.connection_parts import copied

PRODUCE, API_VERSIONS = 0, 18
REQUEST = struct.pack(">ihhih", 13, API_VERSIONS, 0, 7, 3) + b"raw"


class Turns(trio.abc.Instrument):
    def __init__(self):
        self.number = 0

    def after_io_wait(self, timeout):
        self.number += 1


class Seen:
    """A transport, of which a test sees how its next request is waited for; it says each look's outcome."""

    def __init__(self, is_found=None):
        self.is_found = is_found
        self.looks, self.waits = [], []
        self.received, self.in_vain = 0, []

    def __call__(self, transport):
        self.transport = transport
        return self

    def __getattr__(self, name):
        return getattr(self.transport, name)

    async def wait_readable(self, **how):
        self.waits.append(how)
        await self.transport.wait_readable(**how)

    def is_only_readable(self, seconds):
        self.looks.append(seconds)
        return self.transport.is_only_readable(seconds) if self.is_found is None else self.is_found

    def receive_now(self, view):
        count = self.transport.receive_now(view)
        if count is None:
            self.in_vain.append(self.received)
        self.received += count or 0
        return count


@asynccontextmanager
async def broker_with(tmp_path, busy_poll, at_once_s=AT_ONCE_SECONDS):
    budget = LoopBudget(at_once_seconds=at_once_s)
    async with broker_to_ask(tmp_path, budget=budget) as asked:
        yield Serving.of(copied(asked.broker.connections.parts, busy_poll=busy_poll))


PATIENT = BusyPoll(within_s=TIMEOUT_S, for_s=TIMEOUT_S)
"""Look for as long as it takes: so that nothing depends on how fast this machine is."""


@pytest.fixture
async def broker(tmp_path):
    async with broker_with(tmp_path, BUSY_POLL) as serving:
        yield serving


@pytest.fixture
async def eager(tmp_path):
    async with broker_with(tmp_path, BusyPoll(within_s=TIMEOUT_S)) as serving:
        yield serving


@pytest.fixture
async def patient(tmp_path):
    async with broker_with(tmp_path, PATIENT, TIMEOUT_S) as serving:
        yield serving


def ask(client, count=1):
    """One request after the other; returns how many were answered before the broker closed."""
    for number in range(count):
        try:
            client.sendall(REQUEST)
            head = client.recv(4, socket.MSG_WAITALL)
        except OSError:
            return number
        if not head:
            return number
        assert client.recv(*struct.unpack(">i", head), socket.MSG_WAITALL)[:4] == struct.pack(">i", 7)
    return count


def send_each(client, requests):
    """Send each request when the one before it is answered in full, and say that nothing more will come."""
    for pieces in requests:
        for piece in pieces:
            client.sendall(piece)
        (size,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
        assert len(client.recv(size, socket.MSG_WAITALL)) == size
    client.shutdown(socket.SHUT_WR)


def ask_and_leave(client, count):
    """Ask, and say that nothing more will come: a patient connection would look for it, and nothing else would run."""
    answered = ask(client, count)
    client.shutdown(socket.SHUT_WR)
    return answered


async def test_requests_that_follow_each_other_take_no_turns(patient):
    turns = Turns()
    async with connected(patient) as (_, client):
        trio.lowlevel.add_instrument(turns)
        assert await trio.to_thread.run_sync(ask_and_leave, client, 1000) == 1000
    trio.lowlevel.remove_instrument(turns)
    assert turns.number < 100


async def test_an_old_turn_ends_without_a_wait_for_the_next_request(tmp_path):
    """Another turn begins at once if nothing else can run, and the connection looks again."""
    seen, turns = Seen(), Turns()

    def ask_slowly(client):
        for _ in range(60):
            time.sleep(0.002)
            ask(client)
        client.shutdown(socket.SHUT_WR)

    async with (
        broker_with(tmp_path, PATIENT, at_once_s=0.002) as serving,
        connected(serving, over=seen) as (_, client),
    ):
        trio.lowlevel.add_instrument(turns)
        await trio.to_thread.run_sync(ask_slowly, client)
    trio.lowlevel.remove_instrument(turns)
    assert len(seen.waits) < 10
    assert turns.number >= 50


async def test_next_request_is_polled_shortly_after_a_large_one(patient):
    """Its client takes long to make the next one, and may need the core on which the broker would look."""
    seen = Seen(is_found=True)  # or so it seems: it looks again until there is something
    large = REQUEST[4:12] + struct.pack(">h", 5_000) + b"x" * 5_000
    large = struct.pack(">i", len(large)) + large

    async with connected(patient, over=seen) as (_, client):
        requests = [[request] for request in (REQUEST, REQUEST, large, large, large, REQUEST)]
        await trio.to_thread.run_sync(send_each, client, requests)
    looks = [seconds for seconds, _ in itertools.groupby(seen.looks)]
    assert looks == [TIMEOUT_S, BUSY_POLL.after_large_s, TIMEOUT_S]


async def test_nothing_is_read_ahead_after_a_very_large_request(tmp_path):
    """Its first read has filled the buffer, and so has more than one request of a client that sends many."""
    records = bytes(100_000)
    body = struct.pack(">hhiih", -1, 1, 1_000, 1, 6) + b"absent" + struct.pack(">iii", 1, 0, len(records))
    very_large = struct.pack(">hhih", PRODUCE, 7, 7, 3) + b"raw" + body + records
    very_large = struct.pack(">i", len(very_large)) + very_large
    seen = Seen()
    async with (
        broker_with(tmp_path, PATIENT._replace(after_large_s=TIMEOUT_S), TIMEOUT_S) as serving,
        connected(serving, over=seen) as (_, client),
    ):
        await trio.to_thread.run_sync(send_each, client, [[very_large]] * 60)
    assert seen.received == 60 * len(very_large)
    assert 0 not in [received % len(very_large) for received in seen.in_vain]


async def test_the_rest_of_a_request_is_waited_for(patient):
    async with connected(patient) as (_, client):
        in_pieces = [REQUEST[:2], REQUEST[2:9], REQUEST[9:]]
        await trio.to_thread.run_sync(send_each, client, [in_pieces] * 20)


async def test_timers_and_tasks_run_beside_a_client_that_never_pauses(broker):
    """A turn ends half a millisecond after it began, however fast the requests come."""
    ticks = 0
    over = threading.Event()

    def never_pause(client):
        while not over.is_set():
            ask(client)

    async with connected(broker) as (_, client), trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, never_pause, client)
        for _ in range(50):
            await trio.sleep(0.001)
            ticks += 1
        for _ in range(50):
            await trio.lowlevel.checkpoint()
            ticks += 1
        over.set()
    assert ticks == 100


@pytest.mark.parametrize("how", ["drained", "cancelled"])
async def test_a_client_that_never_pauses_does_not_keep_its_connection(broker, how):
    async with connected(broker) as (connection, client), trio.open_nursery() as nursery:
        answered = []

        async def ask_on():
            answered.append(await trio.to_thread.run_sync(ask, client, 1_000_000_000))

        assert await trio.to_thread.run_sync(ask, client) == 1  # the first one waits for its handler
        before = connection.last_active
        nursery.start_soon(ask_on)
        while connection.last_active == before:
            await trio.sleep(0.001)
        if how == "drained":
            connection.stopping = True
        else:
            connection.scope.cancel()
    assert answered[0] > 0


async def test_a_look_in_vain_is_made_more_and_more_rarely(eager):
    seen = Seen(is_found=False)
    async with connected(eager, over=seen) as (_, client):
        await trio.to_thread.run_sync(ask, client, 2000)
    assert len(seen.looks) <= 6 + 2000 // 64  # after 1, 3, 7 ... 31 requests, then after 63 each time


async def test_who_asks_in_turn_with_another_is_not_looked_for(eager):
    """Of a thousand busy connections each would look in vain for once."""
    seen, other_seen = Seen(is_found=False), Seen(is_found=False)

    def ask_in_turn(clients):
        return sum(ask(client) for _ in range(100) for client in clients)

    async with connected(eager, 1, seen) as (_, client), connected(eager, 2, other_seen) as (_, other):
        assert await trio.to_thread.run_sync(ask_in_turn, (client, other)) == 200
        assert not seen.looks + other_seen.looks
        assert await trio.to_thread.run_sync(ask_in_turn, (client,)) == 100
    assert seen.looks
