"""A connection that was just answered reads its next request without a turn of the event loop, if nobody waits for one.

Clients are threads with blocking sockets: one in the event loop could not run while a connection looks for its request.
"""

import socket
import struct
import threading
import time

import pytest
import trio

import barnabas.serving.loop_budget
import barnabas.serving.pacing
from barnabas.network.sockets import PlainTransport
from tests.support.broker import broker_to_ask
from tests.support.connected import TIMEOUT_S, Serving, connected

PRODUCE, API_VERSIONS = 0, 18
REQUEST = struct.pack(">ihhih", 13, API_VERSIONS, 0, 7, 3) + b"raw"


class Turns(trio.abc.Instrument):
    def __init__(self):
        self.number = 0

    def after_io_wait(self, timeout):
        self.number += 1


@pytest.fixture
async def broker(tmp_path):
    async with broker_to_ask(tmp_path) as asked:
        yield Serving.of(asked.broker.connections.parts)


@pytest.fixture
def patient(monkeypatch):
    """Look for as long as it takes: so that nothing depends on how fast this machine is."""
    monkeypatch.setattr(barnabas.serving.pacing, "BUSY_POLL_SECONDS", TIMEOUT_S)
    monkeypatch.setattr(barnabas.serving.pacing, "BUSY_POLL_WITHIN_SECONDS", TIMEOUT_S)
    monkeypatch.setattr(barnabas.serving.loop_budget, "AT_ONCE_SECONDS", TIMEOUT_S)


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


async def test_requests_that_follow_each_other_take_no_turns(broker, patient):
    turns = Turns()
    async with connected(broker) as (_, client):
        trio.lowlevel.add_instrument(turns)
        assert await trio.to_thread.run_sync(ask_and_leave, client, 1000) == 1000
    trio.lowlevel.remove_instrument(turns)
    assert turns.number < 100


async def test_an_old_turn_ends_without_a_wait_for_the_next_request(broker, patient, monkeypatch):
    """Another turn begins at once if nothing else can run, and the connection looks again."""
    waits, turns = [], Turns()
    wait_readable = PlainTransport.wait_readable

    async def counted(self, **how):
        waits.append(how)
        await wait_readable(self, **how)

    def ask_slowly(client):
        for _ in range(60):
            time.sleep(0.002)
            ask(client)
        client.shutdown(socket.SHUT_WR)

    monkeypatch.setattr(PlainTransport, "wait_readable", counted)
    monkeypatch.setattr(barnabas.serving.loop_budget, "AT_ONCE_SECONDS", 0.002)
    async with connected(broker) as (_, client):
        trio.lowlevel.add_instrument(turns)
        await trio.to_thread.run_sync(ask_slowly, client)
    trio.lowlevel.remove_instrument(turns)
    assert len(waits) < 10
    assert turns.number >= 50


async def test_next_request_is_polled_shortly_after_a_large_one(broker, patient, monkeypatch):
    """Its client takes long to make the next one, and may need the core on which the broker would look."""
    looks = []
    large = REQUEST[4:12] + struct.pack(">h", 5_000) + b"x" * 5_000
    large = struct.pack(">i", len(large)) + large

    def looked(self, seconds):
        if looks[-1:] != [seconds]:
            looks.append(seconds)
        return True  # or so it seems: it looks again until there is something

    monkeypatch.setattr(PlainTransport, "is_only_readable", looked)
    async with connected(broker) as (_, client):
        requests = [[request] for request in (REQUEST, REQUEST, large, large, large, REQUEST)]
        await trio.to_thread.run_sync(send_each, client, requests)
    assert looks == [TIMEOUT_S, barnabas.serving.pacing.BUSY_POLL_AFTER_LARGE_SECONDS, TIMEOUT_S]


async def test_nothing_is_read_ahead_after_a_very_large_request(broker, patient, monkeypatch):
    """Its first read has filled the buffer, and so has more than one request of a client that sends many."""
    monkeypatch.setattr(barnabas.serving.pacing, "BUSY_POLL_AFTER_LARGE_SECONDS", TIMEOUT_S)
    records = bytes(100_000)
    body = struct.pack(">hhiih", -1, 1, 1_000, 1, 6) + b"absent" + struct.pack(">iii", 1, 0, len(records))
    very_large = struct.pack(">hhih", PRODUCE, 7, 7, 3) + b"raw" + body + records
    very_large = struct.pack(">i", len(very_large)) + very_large
    receive_now, received, in_vain = PlainTransport.receive_now, [0], []

    def received_now(self, view):
        count = receive_now(self, view)
        if count is None:
            in_vain.append(received[0] % len(very_large))
        received[0] += count or 0
        return count

    monkeypatch.setattr(PlainTransport, "receive_now", received_now)
    async with connected(broker) as (_, client):
        await trio.to_thread.run_sync(send_each, client, [[very_large]] * 60)
    assert received[0] == 60 * len(very_large)
    assert 0 not in in_vain


async def test_the_rest_of_a_request_is_waited_for(broker, patient):
    async with connected(broker) as (_, client):
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


async def test_a_look_in_vain_is_made_more_and_more_rarely(broker, monkeypatch):
    looks = []

    def look(self, seconds):
        looks.append(seconds)
        return False

    monkeypatch.setattr(PlainTransport, "is_only_readable", look)
    monkeypatch.setattr(barnabas.serving.pacing, "BUSY_POLL_WITHIN_SECONDS", TIMEOUT_S)
    async with connected(broker) as (_, client):
        await trio.to_thread.run_sync(ask, client, 2000)
    assert len(looks) <= 6 + 2000 // 64  # after 1, 3, 7 ... 31 requests, then after 63 each time


async def test_who_asks_in_turn_with_another_is_not_looked_for(broker, monkeypatch):
    """Of a thousand busy connections each would look in vain for once."""
    looks = []
    monkeypatch.setattr(PlainTransport, "is_only_readable", lambda _, seconds: bool(looks.append(seconds)))
    monkeypatch.setattr(barnabas.serving.pacing, "BUSY_POLL_WITHIN_SECONDS", TIMEOUT_S)

    def ask_in_turn(clients):
        return sum(ask(client) for _ in range(100) for client in clients)

    async with connected(broker, 1) as (_, one), connected(broker, 2) as (_, other):
        assert await trio.to_thread.run_sync(ask_in_turn, (one, other)) == 200
        assert not looks
        assert await trio.to_thread.run_sync(ask_in_turn, (one,)) == 100
    assert looks
