"""Bytes that are moved within the kernel arrive, however the ends read and write; pipes are kept for the next ones."""

from __future__ import annotations

import os

import pytest
import trio.testing

from barnabas.tools.tap import splicing
from barnabas.tools.tap.splicing import SPARE_PIPES_MAX, Pipes, SinkError

pytestmark = pytest.mark.skipif(not hasattr(os, "splice"), reason="the system cannot do it")


@pytest.fixture
def opened(monkeypatch):
    """The pipes that were opened."""
    found: list[tuple[int, int]] = []
    usual = splicing._opened

    def one() -> tuple[int, int]:
        found.append(usual())
        return found[-1]

    monkeypatch.setattr(splicing, "_opened", one)
    return found


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


@pytest.mark.parametrize(("count", "number"), [(0, 0), (1, 1), (7, 7), (8, 8), (9, 8)])
async def test_as_many_bytes_are_moved_as_there_are(opened, count, number):
    pipes = Pipes()
    for _ in range(3):
        assert await moved(pipes, b"12345678", count) == (number, b"12345678"[:number])
    assert len(opened) == 1, "it is used again"
    assert is_open(opened[0])
    pipes.close()
    assert not is_open(opened[0])
    assert pipes.is_usable


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
    for one in sockets:
        one.close()
    assert len(opened) == SPARE_PIPES_MAX + 2
    assert sum(map(is_open, opened)) == SPARE_PIPES_MAX
    pipes.close()
    assert not any(map(is_open, opened))


async def test_a_pipe_that_still_holds_bytes_is_not_used_again(opened):
    pipes = Pipes()
    client, source = trio.socket.socketpair()
    sink, reader = trio.socket.socketpair()
    reader.close()
    with client, source, sink:
        await client.send(b"lost")
        with pytest.raises(SinkError):
            await pipes.forward(source, sink, 4)
    assert not is_open(opened[0])
    assert await moved(pipes, b"next", 4) == (4, b"next")
    pipes.close()


async def test_without_pipes_nothing_is_moved(monkeypatch):
    def none() -> tuple[int, int]:
        raise OSError("too many open files")

    monkeypatch.setattr(splicing, "_opened", none)
    pipes = Pipes()
    assert await moved(pipes, b"abc", 3) == (0, b"")
    assert pipes.is_usable
