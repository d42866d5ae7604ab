"""Messages that wait to be sent to a client: after the disk has them, in order; with many of them, reading stops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.tools.zkserver.server import UNSENT_BYTES_MAX, _Connection


class Stream:
    """Takes what is sent when it may."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.may_send = trio.Event()
        self.may_send.set()

    async def send_all(self, data: bytes) -> None:
        await self.may_send.wait()
        self.sent.append(data)


@pytest.fixture
def server():
    return SimpleNamespace(core=SimpleNamespace(zxid=5), written_zxid=5)


@pytest.fixture
def connection(server):
    return _Connection(server, Stream())  # type: ignore[arg-type]


async def run(connection: _Connection, steps: Any) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.send_forever)
        await trio.testing.wait_all_tasks_blocked()
        await steps()
        nursery.cancel_scope.cancel()


async def test_messages_have_their_length_and_wait_for_the_disk(server, connection):
    async def steps() -> None:
        connection.send(b"a")
        server.core.zxid = 6
        connection.send_raw(b"b")
        connection.send(b"cc")
        await trio.testing.wait_all_tasks_blocked()
        assert connection.stream.sent == [b"\0\0\0\1a"]
        assert (connection.sent, connection.unsent_bytes) == (1, 7)
        server.written_zxid = 6
        await trio.testing.wait_all_tasks_blocked()
        assert len(connection.stream.sent) == 1, "nobody has told it"
        connection.wake()
        await trio.testing.wait_all_tasks_blocked()
        assert connection.stream.sent == [b"\0\0\0\1a", b"b\0\0\0\2cc"]
        assert (connection.sent, connection.unsent_bytes) == (3, 0)

    await run(connection, steps)


@pytest.mark.parametrize(("size", "is_over"), [(UNSENT_BYTES_MAX, False), (UNSENT_BYTES_MAX + 1, True)])
async def test_who_does_not_read_is_disconnected(connection, size, is_over):
    connection.send_raw(b"x")
    connection.send_raw(bytes(size - 1))
    assert connection.scope.cancel_called is is_over


async def test_a_connection_ends_when_all_is_sent(server, connection):
    server.written_zxid = 4
    connection.send(b"last")

    async def steps() -> None:
        connection.end()
        await trio.testing.wait_all_tasks_blocked()
        assert connection.is_ending
        assert not connection.scope.cancel_called
        server.written_zxid = 5
        connection.wake()
        await trio.testing.wait_all_tasks_blocked()
        assert connection.stream.sent == [b"\0\0\0\4last"]
        assert connection.scope.cancel_called

    await run(connection, steps)
