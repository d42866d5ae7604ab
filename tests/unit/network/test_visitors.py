"""Visitors: a failure ends one connection alone, and where all places are taken the one longest idle gives way."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import AsyncIterator

import pytest
import trio

from barnabas.network.sockets import BACKLOG, bind_sockets
from barnabas.network.visitors import (
    BACKOFF_SECONDS,
    Address,
    AddressError,
    Site,
    Visitor,
    Visitors,
    bind,
    url_of,
)


def served(nursery: trio.Nursery, visitors: Visitors) -> tuple[str, int]:
    """Let visitors come to an address, which is returned."""
    sockets = bind_sockets("127.0.0.1", 0)
    for sock in sockets:
        sock.listen(BACKLOG)
    nursery.start_soon(visitors.serve, sockets)
    host, port = sockets[0].getsockname()
    return host, port


@pytest.mark.parametrize(
    ("failure", "is_defect"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), False),
        (OSError(errno.ENFILE, os.strerror(errno.ENFILE)), False),
        (OSError(errno.EIO, os.strerror(errno.EIO)), True),
        (ValueError("a defect"), True),
    ],
)
async def test_only_a_defect_is_logged_with_its_traceback(failure, is_defect, caplog, nursery) -> None:
    failures = [failure]

    async def answer(visitor: Visitor) -> None:
        if failures:
            raise failures.pop()
        await visitor.stream.send_all(b"answered")

    host, port = served(nursery, Visitors("a test", 4, answer))
    with caplog.at_level(logging.ERROR, "barnabas.network.visitors"), trio.fail_after(10):
        received = []
        for _ in range(2):
            async with await trio.open_tcp_stream(host, port) as stream:
                received.append(await stream.receive_some())
    assert received == [b"", b"answered"]
    (record,) = caplog.records
    assert record.getMessage() == f"a request for a test failed: {failure}"
    assert bool(record.exc_info) == is_defect


class Guests:
    """Two places: one that says `wait` is being answered until the end, another one is idle after its echo."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._address = served(nursery, Visitors("a test", 2, self._answer))

    async def _answer(self, visitor: Visitor) -> None:
        while data := await visitor.stream.receive_some():
            visitor.moved_s = trio.current_time()
            await visitor.stream.send_all(data)
            if data == b"wait":
                with visitor.waiting():
                    await trio.sleep_forever()

    async def come(self) -> trio.SocketStream:
        """Return the stream of a newcomer."""
        return await trio.open_tcp_stream(*self._address)

    @staticmethod
    async def said(stream: trio.SocketStream, data: bytes) -> bytes:
        """Say something, and return what comes back: nothing where there was no place."""
        try:
            await stream.send_all(data)
            return bytes(await stream.receive_some())
        except trio.BrokenResourceError:
            return b""


@pytest.fixture
async def guests(nursery: trio.Nursery) -> AsyncIterator[Guests]:
    """Visitors of two places."""
    with trio.fail_after(10):
        yield Guests(nursery)
    nursery.cancel_scope.cancel()


async def test_longest_idle_visitor_yields_when_all_places_are_taken(guests: Guests) -> None:
    first, second = await guests.come(), await guests.come()
    for guest in (first, second, first):  # the second has moved before the first has again
        assert await guests.said(guest, b"hello") == b"hello"
    third = await guests.come()
    assert await guests.said(third, b"hello") == b"hello"
    assert await second.receive_some() == b""
    assert await guests.said(first, b"still here") == b"still here"
    for guest in (first, second, third):
        await guest.aclose()


async def test_who_waits_for_an_answer_does_not_give_way(guests: Guests, caplog) -> None:
    first, second = await guests.come(), await guests.come()
    assert await guests.said(first, b"wait") == b"wait"
    assert await guests.said(second, b"hello") == b"hello"
    third = await guests.come()
    assert await guests.said(third, b"wait") == b"wait"
    assert await second.receive_some() == b"", "the first had moved before, but waits"
    with caplog.at_level(logging.WARNING, "barnabas.network.visitors"):
        fourth = await guests.come()
        assert await guests.said(fourth, b"hello") == b""
    assert [record.getMessage() for record in caplog.records] == [
        "refusing a connection for a test: 2 requests are waiting"
    ]
    await first.aclose()
    for guest in (second, third, fourth):
        await guest.aclose()


class Failing:
    """A listening socket with an `accept` that fails as often as it is told to, and then is cancelled."""

    def __init__(self, *failures: int) -> None:
        self.failures = list(failures)
        self.ended = trio.Event()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    async def accept(self) -> tuple[trio.socket.SocketType, object]:
        await trio.lowlevel.checkpoint()
        if not self.failures:
            self.ended.set()
            await trio.sleep_forever()
        number = self.failures.pop(0)
        if number:
            raise OSError(number, os.strerror(number))
        ours, theirs = trio.socket.socketpair()
        theirs.close()
        return ours, ""


async def accepting(sock: Failing) -> None:
    async def answer(_: Visitor) -> None:
        pass

    visitors = Visitors("a test", 1, answer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(visitors._accept, sock, nursery)
        await sock.ended.wait()
        nursery.cancel_scope.cancel()


async def test_nobody_is_admitted_without_descriptors_and_logged_once(autojump_clock, caplog) -> None:
    with caplog.at_level(logging.WARNING, "barnabas.network.visitors"):
        begun = trio.current_time()
        await accepting(Failing(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, 0, 0, errno.ENOMEM, 0))
        assert trio.current_time() - begun == pytest.approx(4 * BACKOFF_SECONDS)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, f"cannot accept connections for a test: [Errno {number}] {os.strerror(number)}; retrying")
        if number
        else (logging.WARNING, "connections for a test are accepted again")
        for number in (errno.EMFILE, 0, errno.ENOMEM, 0)
    ]  # fmt: skip


async def test_visitor_gone_before_admission_costs_no_time(autojump_clock, caplog) -> None:
    with caplog.at_level(logging.INFO, "barnabas.network.visitors"):
        begun = trio.current_time()
        await accepting(Failing(errno.ECONNABORTED, errno.EPROTO, 0))
        assert trio.current_time() == begun
    assert not caplog.records


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:{}"), ("::1", "http://[::1]:{}"), ("", "http://localhost:{}")],
)
def test_the_url_of_a_server_is_one_that_this_machine_reaches(host: str, url: str) -> None:
    sockets = bind(host, 0, "a test", unguarded="" if not host else "other machines reach {}")
    assert url_of(sockets) == url.format(sockets[0].getsockname()[1])
    assert url_of(sockets, "https").startswith("https://")
    for sock in sockets:
        sock.close()


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:{}"), ("::1", "http://[::1]:{}"), ("0.0.0.0", "http://127.0.0.1:{}"),
        ("::", "http://[::1]:{}"),
    ],
)  # fmt: skip
def test_own_process_is_given_a_bound_address_and_no_name(host: str, url: str) -> None:
    site = Site(Address(host, 0), "a test")
    assert site.local_url == url.format(site.port)
    site.close()


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_unguarded_open_address_is_refused_and_released(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
    with pytest.raises(AddressError, match=f"somebody else reaches .*:{port}"):
        bind(host, port, "a test", unguarded="somebody else reaches {}")
    for sock in bind(host, port, "a test"):
        sock.close()
