"""A plain transport: what it asks of its socket, and tells whoever watches how the peer reads."""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from barnabas.network import sockets
from barnabas.network.ready_sockets import ReadySockets
from barnabas.network.sockets import (
    TOGETHER_BYTES,
    PlainTransport,
    SocketAcceptor,
    SocketNetwork,
    _address,
    _bound,
    _bound_everywhere,
    bind_sockets,
)
from barnabas.network.transport import UnknownHostError
from barnabas.network.wait_set import WaitSets
from barnabas.system.files import MORE_FOLLOWS
from barnabas.wire.regions import FileRegion

JOINED_MAX, READ_MAX = 256 * 1024, 16 * 1024


class Scripted:
    """A socket that takes so many bytes at each `send`, none where it would block, and all when the script ends."""

    def __init__(self, *takes: int) -> None:
        self.takes = list(takes)
        self.sent: list[tuple[bytes, int]] = []
        self.options: list[tuple[Any, ...]] = []

    descriptor = 77

    def fileno(self) -> int:
        return self.descriptor

    def send(self, data: Any, flags: int = 0) -> int:
        count = self.takes.pop(0) if self.takes else len(data)
        if count == 0:
            raise BlockingIOError
        self.sent.append((bytes(data[:count]), flags))
        return min(count, len(data))

    def setsockopt(self, *given: Any) -> None:
        self.options.append(given)


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
    made, watching = PlainTransport(sock, **more), Watching()
    made.report_to(watching)
    return made, watching


@pytest.fixture
def file(tmp_path: Path) -> Any:
    path = tmp_path / "segment"
    path.write_bytes(bytes(range(256)) * 400)
    fd = os.open(path, os.O_RDONLY)
    yield lambda position, size: FileRegion(fd, position, size, None)
    os.close(fd)


# --- sending -------------------------------------------------------------------------------------------------------


async def test_chunks_are_joined_up_to_a_size_and_all_but_the_last_say_that_more_follows() -> None:
    sock = Scripted()
    made, watching = transport(sock)
    half = bytes(JOINED_MAX // 2)
    await made.send([half, half, b"x", b"y" * JOINED_MAX, b"z"])
    assert [(len(data), flags) for data, flags in sock.sent] == [
        (JOINED_MAX, MORE_FOLLOWS), (1, MORE_FOLLOWS), (JOINED_MAX, MORE_FOLLOWS), (1, 0),
    ]  # fmt: skip
    assert watching.told == [], "nobody is told of what was taken at once"


async def test_a_chunk_that_is_too_large_to_be_joined_is_sent_as_it_is() -> None:
    sock = Scripted()
    made, _ = transport(sock)
    large = bytearray(JOINED_MAX + 1)
    await made.send([large])
    assert [(len(data), flags) for data, flags in sock.sent] == [(JOINED_MAX + 1, 0)]
    await made.send([b"a", large, b"b"])
    assert [len(data) for data, _ in sock.sent[1:]] == [1, JOINED_MAX + 1, 1]


async def test_what_is_not_taken_at_once_is_sent_when_it_can_be_in_its_order(waits: list[str]) -> None:
    sock = Scripted(3, 0, 2, 0, 0)
    made, watching = transport(sock)
    await made.send([b"0123456789"])
    assert [data for data, _ in sock.sent] == [b"012", b"34", b"56789"]
    assert waits == ["writable"] * 5
    assert watching.told == [10, "some", "some", "caught up"]
    await made.send([b"x"])
    assert watching.told[4:] == [], "it has caught up once"


async def test_it_is_told_how_much_stays_in_memory_once_for_each_time_that_it_falls_behind(
    waits: list[str], file: Any
) -> None:
    sock = Scripted(0)
    made, watching = transport(sock)
    await made.send([b"head", file(0, 8), b"x" * 100])
    assert watching.told == [112, "some", "caught up"], "a small region was read: it is in memory"
    sock.takes = [0]
    await made.send([b"y" * 300_000, b"z" * 10])
    assert watching.told[3:] == [300_010, "some", "caught up"]


async def test_nobody_has_to_watch(waits: list[str]) -> None:
    sock = Scripted(0)
    await PlainTransport(sock).send([b"x"])  # type: ignore[arg-type]
    assert [data for data, _ in sock.sent] == [b"x"]
    assert waits == ["writable"]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Files that the kernel sends, as much at a time as it is told; -1 where it would block."""
    made = SimpleNamespace(takes=[], calls=[])

    def send_file(target: int, fd: int, position: int, count: int) -> int:
        take = made.takes.pop(0) if made.takes else count
        if take == -1:
            raise BlockingIOError
        made.calls.append((target, position, count))
        return min(take, count)

    monkeypatch.setattr(sockets, "send_file", send_file)
    return made


@pytest.mark.parametrize(("size", "by_kernel"), [(READ_MAX, False), (READ_MAX + 1, True)])
async def test_only_a_large_region_is_sent_by_the_kernel_after_what_comes_before_it(
    file: Any, kernel: SimpleNamespace, size: int, by_kernel: bool
) -> None:
    sock = Scripted()
    made, _ = transport(sock)
    await made.send([b"head", file(5, size), b"end"])
    if by_kernel:
        assert sock.sent == [(b"head", MORE_FOLLOWS), (b"end", 0)]
        assert kernel.calls == [(77, 5, size)]
    else:
        assert [len(data) for data, _ in sock.sent] == [4 + size + 3]
        assert kernel.calls == []


async def test_what_comes_after_a_region_is_joined_anew(file: Any, kernel: SimpleNamespace) -> None:
    sock = Scripted()
    made, _ = transport(sock)
    await made.send([file(0, READ_MAX + 1)])
    assert (sock.sent, len(kernel.calls)) == ([], 1), "nothing beside it"
    half = bytes(JOINED_MAX // 2)
    await made.send([b"a", file(0, READ_MAX + 1), half, half])
    assert [len(data) for data, _ in sock.sent] == [1, JOINED_MAX]


async def test_a_region_goes_on_where_it_was_left(
    file: Any, kernel: SimpleNamespace, waits: list[str]
) -> None:
    sock = Scripted()
    made, watching = transport(sock)
    kernel.takes = [10_000, -1, -1, 5_000]
    await made.send([b"head", file(100, 40_000)])
    assert kernel.calls == [(77, 100, 40_000), (77, 10_100, 30_000), (77, 15_100, 25_000)]
    assert waits == ["writable"] * 2
    assert watching.told == [4, "some", "some", "caught up"], "what the file holds is not in memory"


async def test_a_region_that_ends_early_says_where(file: Any, kernel: SimpleNamespace) -> None:
    made, _ = transport(Scripted())
    kernel.takes = [10_000, 0]
    with pytest.raises(OSError, match=r"^segment ended 30000 bytes early at position 10100$"):
        await made.send([file(100, 40_000)])


# --- receiving and waiting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "awaited"),
    [
        (0, 1),
        (TOGETHER_BYTES, 1),
        (2 * TOGETHER_BYTES - 1, 1),
        (2 * TOGETHER_BYTES, TOGETHER_BYTES),
        (1 << 30, TOGETHER_BYTES),
    ],
)
def test_much_is_waited_for_together_only_of_what_is_much_larger(size: int, awaited: int) -> None:
    sock = Scripted()
    made, _ = transport(sock)
    made.expect(size)
    made.expect(size)
    low = (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
    assert sock.options == ([(*low, TOGETHER_BYTES)] if awaited > 1 else [])
    made.expect(0)
    assert sock.options == ([(*low, TOGETHER_BYTES), (*low, 1)] if awaited > 1 else [])


def test_what_would_block_is_none_and_the_end_is_0() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with ours, theirs:
        made = PlainTransport(ours)
        view = memoryview(bytearray(4))
        assert made.receive_now(view) is None
        theirs.sendall(b"abcdef")
        assert made.receive_now(view) == 4
        assert view == b"abcd"
        assert made.receive_now(view) == 2
        assert made.send_now(b"xy") == 2
        while made.send_now(bytes(4096)):
            pass
        theirs.shutdown(socket.SHUT_WR)
        assert made.receive_now(view) == 0


@pytest.mark.parametrize(
    ("soon", "is_crowded", "where"),
    [(True, False, None), (True, True, "active"), (False, False, "inactive"), (False, True, "inactive")],
)
@pytest.mark.parametrize("has_sets", [True, False])
async def test_a_connection_waits_with_others_where_they_are_many_or_it_is_idle(
    soon: bool, is_crowded: bool, where: str | None, has_sets: bool
) -> None:
    ours, theirs = socket.socketpair()
    sets = WaitSets()
    made = PlainTransport(ours, wait_sets=sets if has_sets else None)
    asked: list[bool] = []

    def arrived() -> bool:
        asked.append(True)
        return True

    async def wait() -> None:
        await made.wait_readable(soon=soon, is_crowded=is_crowded, arrived=arrived)

    is_with_others = has_sets and where is not None
    with ours, theirs, trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            waiting = {name for name in ("active", "inactive") if len(getattr(sets, name))}
            assert waiting == ({where} if is_with_others else set())
            theirs.send(b"x")
        sets.forget(ours.fileno())
    assert asked == ([True] if is_with_others else []), "Trio's own set asks nobody"


async def test_a_socket_may_have_the_first_descriptor_of_all(waits: list[str]) -> None:
    sock: Any = Scripted()
    sock.descriptor = 0
    await PlainTransport(sock).wait_readable()
    sock.descriptor = -1
    with pytest.raises(trio.ClosedResourceError):
        await PlainTransport(sock).wait_readable()
    assert waits == ["readable"] * 2


@pytest.mark.parametrize(("has_sets", "is_soon"), [(True, True), (True, False), (False, True)])
async def test_a_task_that_waits_is_woken_and_sees_that_it_was_closed(has_sets: bool, is_soon: bool) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    sets = WaitSets()
    made = PlainTransport(ours, wait_sets=sets if has_sets else None)

    async def wait() -> None:
        await made.wait_readable(soon=is_soon)

    async def wait_until_closed() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await wait()

    with theirs, trio.fail_after(10):
        for leave, waits in ((made.wake, wait), (made.close, wait_until_closed)):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(waits)
                await trio.testing.wait_all_tasks_blocked()
                assert len(sets.inactive) == (has_sets and not is_soon)
                leave()
        assert theirs.recv(1) == b""


@pytest.mark.parametrize("other_has_some", [True, False])
def test_whether_it_is_the_only_one_is_known_to_the_set_of_all(other_has_some: bool) -> None:
    ready = ReadySockets()
    pairs = [socket.socketpair() for _ in range(2)]
    try:
        made, other = (PlainTransport(ours, ready=ready) for ours, _ in pairs)
        began = time.monotonic()
        assert not made.is_only_readable(0.05)
        assert time.monotonic() - began >= 0.05, "so long it looks"
        pairs[0][1].send(b"x")
        if other_has_some:
            pairs[1][1].send(b"x")
        assert made.is_only_readable(10) is not other_has_some
        assert not other.is_only_readable(0)
        assert not PlainTransport(pairs[0][0]).is_only_readable(0), "without a set nobody knows"
    finally:
        for one in (one for pair in pairs for one in pair):
            one.close()


def test_a_reset_lingers_for_no_time() -> None:
    sock = Scripted()
    PlainTransport(sock).reset()  # type: ignore[arg-type]
    assert sock.options == [(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))]


# --- binding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "family"),
    [("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6), ("", socket.AF_INET6)],
)
@pytest.mark.parametrize("has_both", [True, False])
def test_everywhere_is_ipv6_with_ipv4_where_the_machine_has_both(
    host: str, family: int, has_both: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: has_both)
    with _bound_everywhere(host, 0) as sock:
        assert sock.family == (family if has_both else socket.AF_INET)
        if sock.family == socket.AF_INET6:
            assert not sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY), "IPv4 comes in as well"
    (one,) = bind_sockets(host, 0)
    with one:
        assert one.getsockname()[0] in ("0.0.0.0", "::")


def test_one_address_of_ipv6_is_of_ipv6_alone_and_does_not_block() -> None:
    with _bound(socket.AF_INET6, ("::1", 0)) as sock:
        assert sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        assert not sock.getblocking()
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        port = sock.getsockname()[1]
        sock.listen()
        with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
            _bound(socket.AF_INET6, ("::1", port))


@pytest.mark.parametrize(("host", "name"), [("nowhere.invalid", b"nowhere.invalid"), ("nöwhere", "nöwhere")])
def test_a_host_without_an_address_is_told_by_its_kind(
    host: str, name: str | bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def getaddrinfo(*given: Any, **more: Any) -> Any:
        asked.append((given, more))
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(UnknownHostError, match="no such name") as raised:
        bind_sockets(host, 9)
    assert raised.value.errno == socket.EAI_NONAME
    assert asked == [((name, 9), {"type": socket.SOCK_STREAM, "flags": socket.AI_PASSIVE})]


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
        made = acceptor.accept_now()
        assert made is not None
        assert made.local_address == (host, port)
        made.close()
    acceptor.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port)).close()
    assert network.host_name() == socket.getfqdn()


def test_an_acceptor_may_be_closed_outside_of_a_loop() -> None:
    (sock,) = bind_sockets("127.0.0.1", 0)
    SocketAcceptor(sock, WaitSets(), ReadySockets()).close()
    assert sock.fileno() == -1


@pytest.mark.parametrize("found", [None, ()])
def test_a_connection_without_an_address_has_gone_already(found: Any) -> None:
    with pytest.raises(ConnectionAbortedError) as raised:
        _address(found)
    assert raised.value.errno == errno.ECONNABORTED
    assert _address(("::1", 9, 0, 0)) == ("::1", 9)
