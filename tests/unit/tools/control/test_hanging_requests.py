"""Requests of the control API that do not end: they go after seconds, and give way before that."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from barnabas.config.loading import BrokerConfig
from barnabas.network.http import HEAD_SECONDS_MAX
from barnabas.tools.control import http, server
from barnabas.tools.control.host import Host
from barnabas.tools.control.recorder import Recorder

GET = b"GET /v1/broker HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[int]:
    """A broker with its control API; gives the port."""
    config = BrokerConfig({"log.dirs": str(directory / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"})
    host = Host(config, recorder=Recorder())
    sockets = server.bind("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        await nursery.start(host.run)
        await nursery.start(server.serve, host, sockets)
        yield sockets[0].getsockname()[1]
        host.stop()
        nursery.cancel_scope.cancel()


async def ask(stream: trio.SocketStream) -> bool:
    """Ask for the broker; says whether it has answered."""
    await stream.send_all(GET)
    answer = b""
    while not answer.endswith(b"}\n"):
        part = await stream.receive_some()
        if not part:
            return False
        answer += part
    return bool(json.loads(answer.partition(b"\r\n\r\n")[2])["ready"])


async def is_closed(stream: trio.SocketStream) -> bool:
    """Wait for the end of a connection, on which nothing comes."""
    try:
        return await stream.receive_some() == b""
    except trio.BrokenResourceError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET /v1/bro", POST], ids=["nothing", "half a head", "half a body"])
async def test_newcomers_push_out_who_has_been_idle_for_longest(tmp_path: Path, sent: bytes) -> None:
    async with serving(tmp_path) as port, AsyncExitStack() as streams:
        hanging = []
        for _ in range(server.CONNECTIONS_MAX + 50):
            hanging.append(await streams.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port)))
            await hanging[-1].send_all(sent)
        with trio.fail_after(10):
            assert await is_closed(hanging[0])
            async with await trio.open_tcp_stream("127.0.0.1", port) as newcomer:
                assert await ask(newcomer)


@pytest.mark.parametrize("sent", [b"GET /v1/bro", POST], ids=["half a head", "half a body"])
async def test_a_request_that_does_not_go_on_ends(tmp_path: Path, sent: bytes, mock_clock: MockClock) -> None:
    async with serving(tmp_path) as port, await trio.open_tcp_stream("127.0.0.1", port) as used:
        assert await ask(used)  # what answers is imported by now
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(sent)
            await wait_all_tasks_blocked(0.05)
            mock_clock.jump(HEAD_SECONDS_MAX)
            with trio.fail_after(10):
                assert await is_closed(stream)
        assert await ask(used)  # one that has been answered may be idle for longer
        await wait_all_tasks_blocked(0.05)
        mock_clock.jump(http.ControlService.idle_seconds_max)
        assert await is_closed(used)
