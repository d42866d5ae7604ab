"""One connection over a real socket: turns with others, memory for what has arrived, and for what is not read."""

import socket
import struct
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from barnabas.environment.real import OsThreads
from barnabas.errors import RequestError
from barnabas.network.sockets import PlainTransport
from barnabas.network.wait_set import WaitSets
from barnabas.serving.connection import Connection
from barnabas.serving.context import ConnectionInfo
from barnabas.serving.loop_budget import CROWD, LoopBudget
from barnabas.serving.memory import Held, Memory
from tests.support.broker import broker_to_ask
from tests.support.connection_parts import copied

API_VERSIONS, METADATA = 18, 3
KIB = 1024


def request(key: int, version: int, body: bytes = b"", correlation_id: int = 7) -> bytes:
    content = struct.pack(">hhih", key, version, correlation_id, 3) + b"raw" + body
    return struct.pack(">i", len(content)) + content


@pytest.fixture
async def broker(tmp_path):
    """The parts that connections share, so that a test can put another part in place of one."""
    async with broker_to_ask(tmp_path) as asked:
        yield copied(asked.broker.connections.parts)


@asynccontextmanager
async def connected(broker, wait_sets=None):
    """A served connection, and the client's end of it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    info = ConnectionInfo(1, "PLAINTEXT", "PLAINTEXT", ("127.0.0.1", 9092), ("127.0.0.1", 50_000))
    connection = Connection(broker, PlainTransport(ours, wait_sets=wait_sets), info)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.serve)
        with trio.socket.from_stdlib_socket(theirs) as client:
            yield connection, client
        nursery.cancel_scope.cancel()


async def answer(client) -> bytes:
    async def exactly(size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = await client.recv(size - len(data))
            assert part, "the broker has closed"
            data += part
        return data

    (size,) = struct.unpack(">i", await exactly(4))
    return await exactly(size)


async def test_active_connection_waits_among_others_in_a_crowd(broker) -> None:
    wait_sets, budget = WaitSets(), LoopBudget(clock=lambda: 0.0)
    broker.budget = budget
    with budget:
        async with connected(broker, wait_sets) as (_, client):
            for number, waiting in enumerate(((1, 0), (0, 0), (0, 1))):
                if number == 2:
                    async with trio.open_nursery() as nursery:
                        for _ in range(CROWD + 1):
                            nursery.start_soon(partial(budget.admit, is_active=True))
                assert budget.is_crowded == (number == 2)
                await client.send(request(API_VERSIONS, 0, correlation_id=number))
                assert struct.unpack_from(">i", await answer(client)) == (number,)
                await wait_all_tasks_blocked()
                assert (len(wait_sets.inactive), len(wait_sets.active)) == waiting


async def test_connection_with_quick_requests_is_expected_to_be_active(broker) -> None:
    """The connection waits in the wait set until then, and there again when it has been idle."""
    wait_sets = WaitSets()

    async with connected(broker, wait_sets) as (connection, client):
        for number, is_expected in enumerate((False, True, True)):
            await client.send(request(API_VERSIONS, 0, correlation_id=number))
            assert struct.unpack_from(">i", await answer(client)) == (number,)
            await wait_all_tasks_blocked()
            assert len(wait_sets.inactive) == (not is_expected)
        connection.expect_nothing_soon()
        await wait_all_tasks_blocked()
        assert len(wait_sets.inactive) == 1
        await client.send(request(API_VERSIONS, 0, correlation_id=7))
        assert struct.unpack_from(">i", await answer(client)) == (7,)


async def test_a_request_waits_unread_for_a_turn_with_time_for_it(broker) -> None:
    """A crowd that waits for its turn holds no memory, and each of it is served."""
    broker.budget = LoopBudget(budget_seconds=0.0)
    with broker.budget:
        async with connected(broker) as (_, client):
            for number in range(3):
                data = request(API_VERSIONS, 0, correlation_id=number)
                await client.send(data[:10])
                await wait_all_tasks_blocked()
                await client.send(data[10:])
                assert struct.unpack_from(">i", await answer(client)) == (number,)
    assert broker.memory.small_requests.held == 0


async def seen_by_another(broker, count: int) -> int:
    """Behind how many of `count` requests of one send another task gets its turn."""
    seen = set()

    async def other(info: ConnectionInfo) -> None:
        while True:
            seen.add(info.request and info.request.correlation_id)
            await trio.lowlevel.checkpoint()

    async with connected(broker) as (connection, client), trio.open_nursery() as nursery:
        await client.send(b"".join(request(API_VERSIONS, 0, correlation_id=n) for n in range(count)))
        nursery.start_soon(other, connection.info)
        for n in range(count):
            assert struct.unpack_from(">ih", await answer(client)) == (n, 0)
        nursery.cancel_scope.cancel()
    return len(seen)


async def test_whoever_sends_many_requests_at_once_takes_turns(broker) -> None:
    broker.budget = LoopBudget(budget_seconds=0.0)
    assert await seen_by_another(broker, 100) >= 45  # trio draws the order within a turn


async def test_small_requests_of_one_send_share_a_turn(broker) -> None:
    broker.budget = LoopBudget(budget_seconds=1000.0)
    assert await seen_by_another(broker, 100) <= 3


@pytest.mark.parametrize("claimed", [10 * KIB, 100 << 20])
async def test_half_a_frame_costs_what_has_arrived(broker, claimed) -> None:
    memory = broker.memory.for_request(claimed)
    async with connected(broker) as (_, client):
        await client.send(struct.pack(">i", claimed) + bytes(1000))
        await wait_all_tasks_blocked()
        assert memory.held == 1000
        await client.send(b"x" * 1000)
        await wait_all_tasks_blocked()
        assert memory.held == 2000
    assert memory.held == 0


@pytest.mark.parametrize("pause_after", [1, 3, 4, 17, 5000, 50_000, 70_000, 200_000, 299_000])
async def test_a_request_in_parts_is_answered(broker, pause_after) -> None:
    names = b"".join(struct.pack(">h", 10) + b"topic%05d" % n for n in range(25_000))
    data = request(METADATA, 4, struct.pack(">i", 25_000) + names + b"\0", correlation_id=9)
    assert len(data) > 299_000
    async with connected(broker) as (_, client):

        async def send(part: bytes) -> None:
            while part:
                part = part[await client.send(part) :]

        await send(data[:pause_after])
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, data[pause_after:])
            body = await answer(client)
    assert struct.unpack_from(">i", body) == (9,)
    assert body.count(b"topic0") == 10_000
    assert broker.memory.large_requests.held == 0


async def test_a_request_waits_for_memory_and_small_ones_do_not(broker) -> None:
    broker.memory = Memory(request_bytes_max=1 << 20)
    large, small = broker.memory.large_requests, broker.memory.small_requests
    large.begin(Held(lambda reason: None), 1 << 20)
    small.begin(Held(lambda reason: None), 1 << 20)
    async with connected(broker) as (_, waits), connected(broker) as (_, asks):
        body = struct.pack(">i", 1) + struct.pack(">h", 30_000) + b"x" * 30_000 + b"\0"
        await waits.send(request(METADATA, 4, body))
        await wait_all_tasks_blocked()
        assert small.waiting == 1
        await asks.send(request(API_VERSIONS, 0))
        assert struct.unpack_from(">ih", await answer(asks)) == (7, 0)
        small.discharge(1 << 20)
        assert struct.unpack_from(">i", await answer(waits)) == (7,)


def much_to_answer() -> bytes:
    """A request with an answer larger than what a socket takes."""
    names = b"".join(struct.pack(">h", 6) + b"%06d" % n for n in range(50_000))
    return request(METADATA, 4, struct.pack(">i", 50_000) + names + b"\0")


async def send_and_read_nothing(broker, client) -> int:
    """Ask for much, and return how many bytes are counted as unread."""
    data = much_to_answer()
    while data:
        data = data[await client.send(data) :]
    with trio.fail_after(60):
        while not broker.memory.unsent.has_stuck:
            await trio.sleep(0.001)
    return unread(broker)


def unread(broker) -> int:
    return broker.memory.large_responses.held + broker.memory.unsent.held


async def test_what_is_not_read_is_counted_until_it_is(broker) -> None:
    async with connected(broker) as (_, client):
        held = await send_and_read_nothing(broker, client)
        assert len(await answer(client)) + 4 == held
        await wait_all_tasks_blocked()
        assert unread(broker) == 0
        assert not broker.memory.unsent.has_stuck


async def test_a_reader_that_gives_up_leaves_nothing_behind(broker) -> None:
    async with connected(broker) as (connection, client):
        assert await send_and_read_nothing(broker, client) > 100 * KIB
        connection.scope.cancel()
        await wait_all_tasks_blocked()
        assert unread(broker) == 0
        assert not broker.memory.unsent.has_stuck


async def test_malformed_requests_are_logged_once_by_name(broker, caplog) -> None:
    for n in range(20):
        async with connected(broker) as (_, client):
            await client.send(request(METADATA, 1, struct.pack(">i", 1000), correlation_id=n))
            assert await client.recv(1) == b""
    lines = [record.getMessage() for record in caplog.records if "malformed" in record.getMessage()]
    assert len(lines) == 5
    assert "Metadata v1 (correlation id 3) from client 'raw'" in lines[3]
    assert "127.0.0.1:50000->127.0.0.1:9092#1" in lines[3]


async def test_who_held_the_event_loop_up_is_named(broker, caplog, monkeypatch) -> None:
    class Clock:
        now = 0.0

        def __call__(self) -> float:
            return self.now

    clock = Clock()

    def slow(context, message):
        clock.now += 0.3
        raise RequestError(41, "slow")

    monkeypatch.setitem(broker.begin.args[1].handlers.made, METADATA, slow)
    budget = LoopBudget(clock=clock)
    budget.on_long_turn = broker.stalls.long_turn
    with budget:
        async with connected(broker) as (_, client):
            await client.send(request(METADATA, 1, struct.pack(">i", 0), correlation_id=44))
            await answer(client)
    assert broker.stalls.counts == {"Metadata": 1}
    (line,) = [record.getMessage() for record in caplog.records if "held up" in record.getMessage()]
    assert line.startswith("the event loop was held up for 300 ms in ")
    assert "longest of 300 ms: Metadata v1 (correlation id 44) from client 'raw' on 127.0.0.1:50000->" in line


async def test_long_requests_and_answers_yield_the_event_loop(broker, monkeypatch) -> None:
    """Messages with many entries are decoded and encoded in a thread; those with few are not."""
    in_threads = []
    run = OsThreads.run

    async def noted(self, function, **options):
        # Housekeeping has threads, too; what is compiled has its name in its type.
        in_threads.extend(name for name in ("decoded", "encoded") if name in repr(function))
        return await run(self, function, **options)

    monkeypatch.setattr(OsThreads, "run", noted)
    async with connected(broker) as (_, client):
        names = b"".join(struct.pack(">h", 6) + b"%06d" % n for n in range(900))
        await client.send(request(METADATA, 4, struct.pack(">i", 900) + names + b"\0"))
        await answer(client)
        assert in_threads == []
        data = much_to_answer()
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                part = data
                while part:
                    part = part[await client.send(part) :]

            nursery.start_soon(send)
            assert (await answer(client)).count(b"\0\x06") >= 50_000
        assert in_threads == ["decoded", "encoded"]
    await wait_all_tasks_blocked()
    assert broker.memory.large_responses.held == 0


async def test_too_large_request_is_refused_before_it_is_received(broker, caplog) -> None:
    async with connected(broker) as (_, client):
        await client.send(struct.pack(">ihhi", 50 << 20, METADATA, 1, 5))
        assert await client.recv(1) == b""
    assert "only Produce may take more" in caplog.text


async def test_a_produce_request_to_very_many_partitions_is_refused(broker, caplog) -> None:
    count = 250_000
    body = struct.pack(">hii", 1, 1000, 1) + struct.pack(">h1si", 1, b"t", count) + bytes(8 * count)
    data = request(0, 2, body)
    async with connected(broker) as (_, client):
        with suppress(OSError):
            while data:
                data = data[await client.send(data) :]
            assert await client.recv(1) == b""
    assert "with more than 250,000 entries, which max.request.entries allows" in caplog.text
