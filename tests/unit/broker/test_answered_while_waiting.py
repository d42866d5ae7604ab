"""Requests that are answered while the task of their connection waits among others: it wakes for what is left to it."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from barnabas.coordinators.runtime.waiting import FutureReply, Waiter
from barnabas.environment.real import real_environment
from barnabas.network.sockets import PlainTransport
from barnabas.network.wait_set import WaitSets
from barnabas.security.authorizer import AllowEverything
from barnabas.serving import apis
from barnabas.serving.connection import Connection
from barnabas.serving.context import ConnectionInfo, ContextParts
from barnabas.serving.deferred import Deferred
from barnabas.serving.encoding import CodecWorker
from barnabas.serving.log_limit import LogLimit
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.memory import Memory
from barnabas.serving.pacing import UNCOUNTED_BYTES_MAX, BusyPoll
from barnabas.serving.release import KAFKA_4
from barnabas.serving.request import Request
from barnabas.serving.request_parts import RequestParts
from barnabas.serving.stages import STAGES
from barnabas.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.headers import decode_response, encode_request
from tests.support.connection_parts import connection_parts

HEARTBEAT, VERSION = 12, 0
ANNOUNCED, LATER = 27, 25
"""Error codes with which some answers say how they came."""


class Steps(trio.abc.Instrument):
    """Counts the steps of one task."""

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = None
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task is self.task


class Answer:
    """An answer that calls back when the test has it come."""

    def __init__(self) -> None:
        self.waiter = Waiter()
        self.waiting = {1: self.waiter}
        self.future: FutureReply[Any] = FutureReply(self.waiting, 1, self.waiter, lambda outcome: outcome)

    def come(self) -> None:
        self.waiter.answer(HeartbeatResponse(error_code=ANNOUNCED))


class Handler:
    """Answers each Heartbeat at once, or as the test wants it."""

    def __init__(self) -> None:
        self.groups: list[str] = []
        self.results: list[Any] = []
        self.contexts: list[Any] = []

    def handle(self, context: Any, request: HeartbeatRequest) -> Any:
        self.groups.append(request.group_id)
        self.contexts.append(context)
        result = self.results.pop(0) if self.results else None
        if isinstance(result, Answer):
            return result.future
        if result is False:
            context.close_after_response = True
        return Deferred(result) if callable(result) else HeartbeatResponse()


def request_parts_of(handler: Handler, clock_ms: Any) -> RequestParts:
    environment = real_environment()
    nothing: Any = SimpleNamespace()
    handlers: Any = SimpleNamespace(made={HEARTBEAT: handler.handle}, check=lambda *_: None)
    return RequestParts(
        apis.BY_KEY, handlers, ContextParts(Memory(), LogLimit(), AllowEverything()),
        CodecWorker(environment.threads, 1_000), budget=LoopBudget(), failures=nothing, release=KAFKA_4,
        clock_ms=clock_ms, now_s=environment.monotonic,
    )  # fmt: skip


class Client:
    """The other end, and what shows what has happened at this one."""

    def __init__(self, theirs: Any, connection: Connection, handler: Handler, steps: Steps) -> None:
        self.theirs = theirs
        self.connection = connection
        self.handler = handler
        self.steps = steps
        self.clock: list[Any] = [lambda: 0]
        self.sent: list[str] = []

    def framed(self, group: str) -> bytes:
        """Return a Heartbeat of this group; its answer has the number of the request."""
        self.sent.append(group)
        chunks = encode_request(HEARTBEAT, VERSION, len(self.sent) - 1, "c", HeartbeatRequest(group_id=group))
        return b"".join(map(bytes, chunks))

    async def send(self, *groups: str) -> None:
        await self.theirs.send(b"".join(map(self.framed, groups)))
        await wait_all_tasks_blocked()

    async def receive(self) -> str:
        """Return the group that is answered; with a code, how that came."""
        (size,) = struct.unpack(">i", await self.theirs.recv(4))
        data: bytes = await self.theirs.recv(size)
        assert len(data) == size
        number, response = decode_response(data, HEARTBEAT, VERSION)
        how = {0: "", ANNOUNCED: " announced", LATER: " later"}[response.error_code]
        return self.sent[number] + how


@asynccontextmanager
async def waiting(busy_poll_within_s: float = 0.0) -> AsyncIterator[Client]:
    """A connection that has had a request answered, and waits where the next one needs not wake its task.

    A request that comes so soon after an answer has the task look for the next one.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    info = ConnectionInfo(1, "PLAINTEXT", "PLAINTEXT", ("127.0.0.1", 9092), ("127.0.0.1", 50_000))
    handler, steps = Handler(), Steps()
    clock: list[Any] = [lambda: 0]
    parts = connection_parts(
        begin=partial(Request, STAGES, request_parts_of(handler, lambda: clock[0]())),
        busy_poll=BusyPoll(busy_poll_within_s),
    )
    connection = Connection(parts, PlainTransport(ours, wait_sets=WaitSets()), info)

    async def serve() -> None:
        steps.task = trio.lowlevel.current_task()
        await connection.serve()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        with trio.socket.from_stdlib_socket(theirs) as client:
            peer = Client(client, connection, handler, steps)
            peer.clock = clock
            await peer.send("first")
            assert await peer.receive() == "first"
            trio.lowlevel.add_instrument(steps)
            yield peer
            trio.lowlevel.remove_instrument(steps)
        nursery.cancel_scope.cancel()
    assert not connection.answering


async def test_the_task_sleeps_while_requests_are_answered() -> None:
    async with waiting() as client:
        for number in range(5):
            await client.send(f"{number}")
            assert await client.receive() == f"{number}"
        assert client.steps.count == 0
        assert client.handler.groups == ["first", "0", "1", "2", "3", "4"]


async def test_what_is_more_or_less_than_a_request_is_left_to_the_task() -> None:
    large = "x" * 2 * UNCOUNTED_BYTES_MAX
    async with waiting() as client:
        await client.send("one", "two")
        assert [await client.receive(), await client.receive()] == ["one", "two"]
        frame = client.framed("parts")
        for part in (frame[:2], frame[2:9], frame[9:]):
            await client.theirs.send(part)
            await wait_all_tasks_blocked()
        assert await client.receive() == "parts"
        await client.send(large)
        assert await client.receive() == large
        await client.send("small")
        assert await client.receive() == "small"
        woken = client.steps.count
        assert woken > 0
        await client.send("again")
        assert await client.receive() == "again"
        assert client.steps.count == woken


async def test_a_read_that_fills_the_buffer_is_left_to_the_task() -> None:
    """With TLS more of it may be in OpenSSL, for which the socket does not wake anybody."""
    async with waiting() as client:
        overhead = len(client.framed(""))
        full = "x" * (UNCOUNTED_BYTES_MAX - overhead)
        await client.send(full)
        assert await client.receive() == full
        assert client.steps.count > 0
        await client.send("small")
        assert await client.receive() == "small"


async def test_connection_with_quick_requests_polls_for_the_next() -> None:
    async with waiting(busy_poll_within_s=60.0) as client:
        for _ in range(3):
            await client.send("g")
            assert await client.receive() == "g"
        assert client.steps.count > 0


async def test_what_has_to_be_awaited_is_awaited_by_the_task() -> None:
    async with waiting() as client:
        goes_on = trio.Event()

        async def later() -> HeartbeatResponse:
            assert trio.lowlevel.current_task() is client.steps.task
            await goes_on.wait()
            return HeartbeatResponse(error_code=LATER)

        client.handler.results.append(later)
        await client.send("g")
        assert client.connection.answering
        goes_on.set()
        assert await client.receive() == "g later"


async def test_a_connection_ends_with_an_answer_that_says_so() -> None:
    async with waiting() as client:
        client.handler.results.append(False)
        await client.send("last")
        assert await client.receive() == "last"
        assert await client.theirs.recv(1) == b""


async def test_malformed_request_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with waiting() as client:
        cut = client.framed("g")[4:-1]
        await client.theirs.send(struct.pack(">i", len(cut)) + cut)
        assert await client.theirs.recv(1) == b""
    assert "malformed request: Heartbeat v0 (correlation id 1)" in caplog.text


async def test_a_failure_of_ours_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> int:
        raise ZeroDivisionError

    async with waiting() as client:
        client.clock[0] = broken
        await client.send("g")
        assert await client.theirs.recv(1) == b""
    assert "internal error" in caplog.text


async def test_a_peer_that_resets_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with waiting() as client:
        client.theirs.close()
        await wait_all_tasks_blocked()
        assert client.steps.count > 0
    assert not caplog.text


async def test_an_answer_that_calls_back_is_sent_without_the_task() -> None:
    async with waiting() as client:
        for _ in range(2):
            answer = Answer()
            client.handler.results.append(answer)
            await client.send("g")
            assert client.connection.answering
            answer.come()
            assert not client.connection.answering
            assert await client.receive() == "g announced"
        await client.send("next")
        assert await client.receive() == "next"
        assert client.steps.count == 0


async def test_what_comes_before_the_answer_is_read_after_it() -> None:
    async with waiting() as client:
        answer = Answer()
        client.handler.results.append(answer)
        await client.send("g")
        await client.send("impatient")
        assert client.handler.groups[-1] == "g"
        assert client.steps.count > 0
        answer.come()
        assert [await client.receive(), await client.receive()] == ["g announced", "impatient"]


async def test_an_answer_is_dropped_with_its_connection() -> None:
    answer = Answer()
    async with waiting() as client:
        client.handler.results.append(answer)
        await client.send("g")
        client.connection.scope.cancel()
        await wait_all_tasks_blocked()
        assert not answer.waiting
        assert not client.connection.answering


async def test_stopping_connection_ends_with_the_current_answer() -> None:
    async with waiting() as client:
        answer = Answer()
        client.handler.results.append(answer)
        await client.send("g")
        client.connection.stopping = True
        answer.come()
        assert await client.receive() == "g announced"
        assert await client.theirs.recv(1) == b""


async def test_a_throttled_client_is_not_read_from() -> None:
    async with waiting() as client:
        client.connection.info.muted_ms = 50
        await client.send("g")
        assert await client.receive() == "g"
        before = trio.current_time()
        await client.send("later")
        assert await client.receive() == "later"
        assert trio.current_time() - before > 0.01
