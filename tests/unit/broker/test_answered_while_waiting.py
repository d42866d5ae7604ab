"""Requests that are answered while the task of their connection waits among others: it wakes for what is left to it."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import barnabas.broker.connection
from barnabas import apis
from barnabas.broker.begun import Begun
from barnabas.broker.connection import UNCOUNTED_BYTES_MAX, Connection
from barnabas.coordination.waiting import WaitedFor, Waiter
from barnabas.errors import PeerError
from barnabas.network.lobby import Lobbies
from barnabas.network.sockets import PlainTransport
from barnabas.requests.context import ConnectionInfo, RequestContext, Shared
from barnabas.requests.log_limit import LogLimit
from barnabas.requests.memory import Memory
from barnabas.security.authorizer import AllowEverything
from tests.support.connection_parts import connection_parts

FRAME = b"request"
HEARTBEAT = 12


@pytest.fixture(autouse=True)
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no request count as one that follows an answer at once, for whose next one the task would look."""
    monkeypatch.setattr(barnabas.broker.connection, "AT_ONCE_SECONDS", 0.0)


class Steps(trio.abc.Instrument):
    """Counts the steps of one task."""

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = None
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task is self.task


class Answer:
    """An answer that announces itself when the test has it come."""

    def __init__(self) -> None:
        self.waiter = Waiter()
        self.waiting = {1: self.waiter}
        self.later: WaitedFor[bytes] = WaitedFor(self.waiting, 1, self.waiter, lambda outcome: outcome)

    def come(self) -> None:
        self.waiter.answer(b"announced")


class Pipeline:
    """Answers each frame with itself, at once, or as the test wants it."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.results: list[Any] = []
        self.transport: Any = None

    def begin(
        self, connection: ConnectionInfo, transport: Any, frame: memoryview
    ) -> bool | Awaitable[bool] | Begun:
        self.frames.append(bytes(frame))
        self.transport = transport
        result = self.results.pop(0) if self.results else True
        if isinstance(result, Exception):
            raise result
        if isinstance(result, Answer):
            shared = Shared(Memory(), LogLimit(), AllowEverything())
            context = RequestContext(shared, connection, HEARTBEAT, 0, 1, None, 0)
            begun = Begun(self, apis.BY_KEY[HEARTBEAT], context, transport, None, 0, 0.0, None)
            begun.response = result.later
            return begun
        if result is True:
            assert transport.send_now(framed(bytes(frame))) == len(frame) + 4
        return result  # type: ignore[no-any-return]

    def end(self, begun: Begun) -> bool:
        answer = framed(begun.response.take())
        assert begun.transport.send_now(answer) == len(answer)
        return True

    async def finish(self, begun: Begun) -> bool:
        assert await begun.response.rest() == b"announced"
        await begun.transport.send([framed(b"awaited")])
        return True


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


class Client:
    """The other end, and what shows what has happened at this one."""

    def __init__(self, theirs: Any, connection: Connection, pipeline: Pipeline, steps: Steps) -> None:
        self.theirs = theirs
        self.connection = connection
        self.pipeline = pipeline
        self.steps = steps

    async def send(self, *contents: bytes) -> None:
        await self.theirs.send(b"".join(framed(content) for content in contents))
        await wait_all_tasks_blocked()

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", await self.theirs.recv(4))
        data: bytes = await self.theirs.recv(size)
        assert len(data) == size
        return data


@asynccontextmanager
async def waiting() -> AsyncIterator[Client]:
    """A connection that has had a request answered, and waits where the next one needs not wake its task."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    info = ConnectionInfo(1, "PLAINTEXT", "PLAINTEXT", ("127.0.0.1", 9092), ("127.0.0.1", 50_000))
    pipeline, steps = Pipeline(), Steps()
    parts = connection_parts(pipeline=pipeline)
    connection = Connection(parts, PlainTransport(ours, lobbies=Lobbies()), info)

    async def serve() -> None:
        steps.task = trio.lowlevel.current_task()
        await connection.serve()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        with trio.socket.from_stdlib_socket(theirs) as client:
            found = Client(client, connection, pipeline, steps)
            await found.send(b"first")
            assert await found.receive() == b"first"
            trio.lowlevel.add_instrument(steps)
            yield found
            trio.lowlevel.remove_instrument(steps)
        nursery.cancel_scope.cancel()
    assert not connection.answering


async def test_the_task_sleeps_while_requests_are_answered() -> None:
    async with waiting() as client:
        for number in range(5):
            await client.send(b"%d" % number)
            assert await client.receive() == b"%d" % number
        assert client.steps.count == 0
        assert client.pipeline.frames == [b"first", b"0", b"1", b"2", b"3", b"4"]


async def test_what_is_more_or_less_than_a_request_is_left_to_the_task() -> None:
    large = bytes(2 * UNCOUNTED_BYTES_MAX)
    async with waiting() as client:
        await client.send(b"one", b"two")
        assert [await client.receive(), await client.receive()] == [b"one", b"two"]
        for part in (framed(FRAME)[:2], framed(FRAME)[2:9], framed(FRAME)[9:]):
            await client.theirs.send(part)
            await wait_all_tasks_blocked()
        assert await client.receive() == FRAME
        await client.send(large)
        assert await client.receive() == large
        await client.send(FRAME)
        assert await client.receive() == FRAME
        woken = client.steps.count
        assert woken > 0
        await client.send(FRAME)
        assert await client.receive() == FRAME
        assert client.steps.count == woken


async def test_a_read_that_fills_the_buffer_is_left_to_the_task() -> None:
    """With TLS more of it may be in OpenSSL, for which the socket does not wake anybody."""
    full = bytes(UNCOUNTED_BYTES_MAX - 4)
    async with waiting() as client:
        await client.send(full)
        assert await client.receive() == full
        assert client.steps.count > 0
        await client.send(FRAME)
        assert await client.receive() == FRAME


async def test_a_connection_whose_requests_follow_each_other_at_once_looks_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(barnabas.broker.connection, "AT_ONCE_SECONDS", 60.0)
    async with waiting() as client:
        for _ in range(3):
            await client.send(FRAME)
            assert await client.receive() == FRAME
        assert client.steps.count > 0


async def test_what_has_to_be_awaited_is_awaited_by_the_task() -> None:
    async with waiting() as client:
        goes_on = trio.Event()

        async def later() -> bool:
            assert trio.lowlevel.current_task() is client.steps.task
            await goes_on.wait()
            await client.pipeline.transport.send([framed(b"later")])
            return True

        client.pipeline.results.append(later())
        await client.send(FRAME)
        assert client.connection.answering
        goes_on.set()
        assert await client.receive() == b"later"


async def test_a_connection_ends_with_an_answer_that_says_so() -> None:
    async with waiting() as client:
        client.pipeline.results.append(False)
        await client.send(FRAME)
        assert await client.theirs.recv(1) == b""


@pytest.mark.parametrize(
    ("failure", "said"),
    [(PeerError("odd"), "malformed request: odd"), (RuntimeError("ours"), "internal error")],
)
async def test_a_failure_closes_the_connection_as_ever(
    failure: Exception, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with waiting() as client:
        client.pipeline.results.append(failure)
        await client.send(FRAME)
        assert await client.theirs.recv(1) == b""
    assert said in caplog.text


async def test_a_peer_that_resets_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with waiting() as client:
        client.theirs.close()
        await wait_all_tasks_blocked()
        assert client.steps.count > 0
    assert not caplog.text


async def test_an_answer_that_announces_itself_is_sent_without_the_task() -> None:
    async with waiting() as client:
        for _ in range(2):
            answer = Answer()
            client.pipeline.results.append(answer)
            await client.send(FRAME)
            assert client.connection.answering
            answer.come()
            assert not client.connection.answering
            assert await client.receive() == b"announced"
        await client.send(FRAME)
        assert await client.receive() == FRAME
        assert client.steps.count == 0


async def test_what_comes_before_the_answer_is_read_after_it() -> None:
    async with waiting() as client:
        answer = Answer()
        client.pipeline.results.append(answer)
        await client.send(FRAME)
        await client.send(b"impatient")
        assert client.pipeline.frames[-1] == FRAME
        answer.come()
        assert [await client.receive(), await client.receive()] == [b"awaited", b"impatient"]


async def test_an_answer_is_forgotten_with_its_connection() -> None:
    answer = Answer()
    async with waiting() as client:
        client.pipeline.results.append(answer)
        await client.send(FRAME)
        client.connection.scope.cancel()
        await wait_all_tasks_blocked()
        assert not answer.waiting
        assert not client.connection.answering


async def test_a_connection_that_is_to_stop_ends_with_the_answer_in_hand() -> None:
    async with waiting() as client:
        answer = Answer()
        client.pipeline.results.append(answer)
        await client.send(FRAME)
        client.connection.stopping = True
        answer.come()
        assert await client.receive() == b"announced"
        assert await client.theirs.recv(1) == b""


async def test_a_throttled_client_is_not_read_from() -> None:
    async with waiting() as client:
        client.connection.info.muted_ms = 50
        await client.send(FRAME)
        assert await client.receive() == FRAME
        before = trio.current_time()
        await client.send(FRAME)
        assert await client.receive() == FRAME
        assert trio.current_time() - before > 0.01
