"""Bytes that are moved within the kernel arrive, however the ends read and write; pipes are kept for the next ones."""

from __future__ import annotations

import os

import pytest
import trio.testing

from barnabas.tools.tap import splicing
from barnabas.tools.tap.splicing import SPARE_PIPES_MAX, Pipes

pytestmark = pytest.mark.skipif(not hasattr(os, "splice"), reason="the system cannot do it")


@pytest.fixture
def opened(monkeypatch):
    """The pipes that were opened."""
    result: list[tuple[int, int]] = []
    usual = splicing._opened

    def one() -> tuple[int, int]:
        result.append(usual())
        return result[-1]

    monkeypatch.setattr(splicing, "_opened", one)
    return result


async def moved(pipes: Pipes, data: bytes, count: int) -> tuple[int, bytes]:
    """Move bytes from one pair of sockets to another."""
    client, source = trio.socket.socketpair()
    sink, reader = trio.socket.socketpair()
    with client, source, sink, reader:
        await client.send(data)
        client.shutdown(1)
        number = await pipes.forward(source, sink, count)
        sink.shutdown(1)
        received = b""
        while part := await reader.recv(1 << 16):
            received += part
    return number, received


def is_open(pipe: tuple[int, int]) -> bool:
    try:
        os.fstat(pipe[0])
        os.fstat(pipe[1])
    except OSError:
        return False
    return True


async def test_some_pipes_are_kept_and_no_more(opened):
    pipes = Pipes()
    async with trio.open_nursery() as nursery:
        sockets = []
        for _ in range(SPARE_PIPES_MAX + 2):
            client, source = trio.socket.socketpair()
            sink, reader = trio.socket.socketpair()
            sockets += [client, source, sink, reader]
            nursery.start_soon(pipes.forward, source, sink, 1)
        await trio.testing.wait_all_tasks_blocked()
        for client in sockets[::4]:
            await client.send(b"x")
    for socket in sockets:
        socket.close()
    assert len(opened) == SPARE_PIPES_MAX + 2
    assert sum(map(is_open, opened)) == SPARE_PIPES_MAX
    pipes.close()
    assert not any(map(is_open, opened))
