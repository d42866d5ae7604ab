"""A plain transport: what it asks of its socket, and tells its watcher how the peer reads."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

import pytest
import trio

from barnabas.network.sockets import PlainTransport, SocketNetwork, _address, _bound
from barnabas.network.wait_set import WaitSets


class Watching:
    """A reader that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def fell_behind(self, size: int) -> None:
        self.told.append(size)

    def took_some(self) -> None:
        self.told.append("some")

    def caught_up(self) -> None:
        self.told.append("caught up")


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Waits for a socket, each of which is over at once."""
    noted: list[str] = []

    async def readable(_: Any) -> None:
        noted.append("readable")

    async def writable(_: Any) -> None:
        noted.append("writable")

    monkeypatch.setattr(trio.lowlevel, "wait_readable", readable)
    monkeypatch.setattr(trio.lowlevel, "wait_writable", writable)
    return noted


def transport(sock: Any, **more: Any) -> tuple[PlainTransport, Watching]:
    plain, watching = PlainTransport(sock, **more), Watching()
    plain.report_to(watching)
    return plain, watching


def test_what_would_block_is_none_and_the_end_is_0() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with ours, theirs:
        plain = PlainTransport(ours)
        view = memoryview(bytearray(4))
        assert plain.receive_now(view) is None
        theirs.sendall(b"abcdef")
        assert plain.receive_now(view) == 4
        assert view == b"abcd"
        assert plain.receive_now(view) == 2
        assert plain.send_now(b"xy") == 2
        while plain.send_now(bytes(4096)):
            pass
        theirs.shutdown(socket.SHUT_WR)
        assert plain.receive_now(view) == 0


@pytest.mark.parametrize(("has_sets", "is_soon"), [(True, True), (True, False), (False, True)])
async def test_a_task_that_waits_is_woken_and_sees_that_it_was_closed(has_sets: bool, is_soon: bool) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    sets = WaitSets()
    plain = PlainTransport(ours, wait_sets=sets if has_sets else None)

    async def wait() -> None:
        await plain.wait_readable(soon=is_soon)

    async def wait_until_closed() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await wait()

    with theirs, trio.fail_after(10):
        for leave, waits in ((plain.wake, wait), (plain.close, wait_until_closed)):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(waits)
                await trio.testing.wait_all_tasks_blocked()
                assert len(sets.inactive) == (has_sets and not is_soon)
                leave()
        assert theirs.recv(1) == b""


def test_one_address_of_ipv6_is_of_ipv6_alone_and_does_not_block() -> None:
    with _bound(socket.AF_INET6, ("::1", 0)) as sock:
        assert sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        assert not sock.getblocking()
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        port = sock.getsockname()[1]
        sock.listen()
        with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
            _bound(socket.AF_INET6, ("::1", port))


async def test_an_acceptor_knows_its_address_and_stops_listening() -> None:
    network = SocketNetwork()
    (acceptor,) = network.bind("127.0.0.1", 0)
    host, port = acceptor.address
    assert (host, port > 0) == ("127.0.0.1", True)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port)).close()
    acceptor.listen()
    assert acceptor.accept_now() is None
    async with await network.dial(host, port):
        with trio.fail_after(10):
            await acceptor.wait_acceptable()
        accepted = acceptor.accept_now()
        assert accepted is not None
        assert accepted.local_address == (host, port)
        accepted.close()
    acceptor.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port)).close()
    assert network.host_name() == socket.getfqdn()


@pytest.mark.parametrize("address", [None, ()])
def test_a_connection_without_an_address_has_gone_already(address: Any) -> None:
    with pytest.raises(ConnectionAbortedError) as raised:
        _address(address)
    assert raised.value.errno == errno.ECONNABORTED
    assert _address(("::1", 9, 0, 0)) == ("::1", 9)
