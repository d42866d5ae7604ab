"""A transport sends exactly the bytes that it is given, from memory or from a file; and ports can be bound again."""

import errno
import os
import select
import socket
from contextlib import suppress

import pytest
import trio

from barnabas.network.sockets import TOGETHER_BYTES, PlainTransport, SocketNetwork, bind_sockets, in_memory
from barnabas.wire.regions import FileRegion

SECONDS_MAX = 30
CONTENT = bytes(range(256)) * 4096  # 1 MiB


@pytest.fixture
def region(tmp_path):
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    fd = os.open(path, os.O_RDONLY)
    yield lambda position, size: FileRegion(fd, position, size, None)
    os.close(fd)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield PlainTransport(ours), trio.socket.from_stdlib_socket(theirs)


async def received(theirs, size):
    data = bytearray()
    while len(data) < size:
        part = await theirs.recv(65536)
        assert part, "the transport has closed"
        data += part
    return bytes(data)


@pytest.mark.parametrize("size", [1, 4_096, 16 * 1024, 16 * 1024 + 1, 300_000])
async def test_regions_of_all_sizes_are_sent_in_their_place(pair, region, size):
    transport, theirs = pair
    chunks = [b"head", region(7, size), b"between", region(0, 10), b"x" * 300_000, region(500_000, size)]
    expected = b"".join(
        CONTENT[chunk.position : chunk.position + chunk.size] if isinstance(chunk, FileRegion) else chunk
        for chunk in chunks
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(transport.send, chunks)
        assert await received(theirs, len(expected)) == expected


@pytest.mark.parametrize("size", [100, 100_000])
async def test_truncated_file_ends_the_connection(pair, region, size):
    transport, _ = pair
    with pytest.raises(OSError, match=f"segment ended {size // 2} bytes early at position {len(CONTENT)}"):
        await transport.send([region(len(CONTENT) - size // 2, size)])


def test_system_chosen_port_can_be_bound_again_after_a_crash() -> None:
    (first,) = bind_sockets("127.0.0.1", 0)
    address = first.getsockname()
    first.listen()
    first.setblocking(True)
    with socket.create_connection(address) as client:
        accepted, _ = first.accept()
        accepted.close()  # before the client's end: what is left of it (FIN_WAIT2, TIME_WAIT) keeps the port
        first.close()
        assert client.recv(1) == b""
        for sock in bind_sockets(*address):
            sock.close()
    for sock in bind_sockets(*address):
        sock.close()


async def test_a_peer_gets_an_error_after_a_reset():
    (acceptor,) = SocketNetwork().bind("127.0.0.1", 0)
    acceptor.listen()
    with socket.create_connection(acceptor.address[:2]) as peer:
        await acceptor.wait_acceptable()
        transport = acceptor.accept_now()
        transport.reset()
        transport.close()
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
    acceptor.close()


@pytest.fixture
def tcp_pair():
    """Both ends of a TCP connection: what is read, and what is written."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def is_readable(sock: socket.socket) -> bool:
    poll = select.poll()  # not `select`, which knows no descriptors above 1,023
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


async def arrived(sock: socket.socket, size: int) -> None:
    """Wait until so many bytes are there to be read."""
    with trio.fail_after(SECONDS_MAX):
        while True:
            with suppress(BlockingIOError):
                if len(sock.recv(size, socket.MSG_PEEK)) == size:
                    return
            await trio.sleep(0)


async def test_of_a_large_request_much_is_waited_for_together(tcp_pair):
    ours, theirs = tcp_pair
    transport = PlainTransport(ours)
    transport.expect(2 * TOGETHER_BYTES)
    theirs.sendall(bytes(1000))
    await arrived(ours, 1000)
    assert not is_readable(ours)
    theirs.sendall(bytes(TOGETHER_BYTES - 1000))
    with trio.fail_after(SECONDS_MAX):
        await transport.wait_readable()
    assert transport.receive_now(memoryview(bytearray(TOGETHER_BYTES))) == TOGETHER_BYTES
    transport.expect(TOGETHER_BYTES)
    theirs.sendall(b"x")
    with trio.fail_after(SECONDS_MAX):
        await transport.wait_readable()
    transport.close()


async def test_closed_connection_is_seen_in_a_large_request(tcp_pair):
    ours, theirs = tcp_pair
    transport = PlainTransport(ours)
    transport.expect(10 * TOGETHER_BYTES)
    theirs.sendall(b"x")
    theirs.shutdown(socket.SHUT_WR)
    with trio.fail_after(SECONDS_MAX):
        await transport.wait_readable()
        view = memoryview(bytearray(10))
        assert transport.receive_now(view) == 1
        await transport.wait_readable()
    assert transport.receive_now(view) == 0
    transport.close()


@pytest.fixture
async def listening():
    """A network and its acceptor, which listens."""
    network = SocketNetwork()
    (acceptor,) = network.bind("127.0.0.1", 0)
    acceptor.listen()
    yield network, acceptor
    acceptor.close()


async def test_small_answers_leave_at_once_and_lost_peers_are_noticed(listening):
    _, acceptor = listening
    with socket.create_connection(acceptor.address[:2]):
        await acceptor.wait_acceptable()
        transport = acceptor.accept_now()
        sock, _, _ = transport.handed_over()
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not sock.getblocking()
        transport.close()


async def test_unwatchable_connection_is_closed_and_the_next_accepted(listening, monkeypatch):
    network, acceptor = listening
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # fs.epoll.max_user_watches

    class FullSet:
        def register(self, descriptor, events):
            raise full

    with monkeypatch.context() as patch:
        patch.setattr(network._ready, "_set", FullSet())
        with socket.create_connection(acceptor.address[:2]) as peer:
            await acceptor.wait_acceptable()
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as raised:
                acceptor.accept_now()
            raised.value.__traceback__ = None  # which holds the socket too
            peer.settimeout(SECONDS_MAX)
            assert peer.recv(1) == b""
    with socket.create_connection(acceptor.address[:2]) as peer:
        await acceptor.wait_acceptable()
        transport = acceptor.accept_now()
        assert transport.peer_address == peer.getsockname()
        transport.close()
    assert acceptor.accept_now() is None


def ports_of(sockets: list[socket.socket]) -> list[tuple[str, int]]:
    ports = [sock.getsockname()[:2] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


@pytest.fixture
def has_addresses(monkeypatch):
    """Let a name have several addresses of IPv4."""

    def let(*hosts: str) -> None:
        monkeypatch.setattr(
            socket,
            "getaddrinfo",
            lambda _, port, **__: [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts
            ],
        )

    return let


NOT_OF_THIS_MACHINE = "192.0.2.1"


def test_all_addresses_of_a_name_share_the_first_port(has_addresses):
    has_addresses("127.0.0.1", "127.0.0.2", "127.0.0.1")
    (first, port), second = ports_of(bind_sockets("some", 0))
    assert (first, second) == ("127.0.0.1", ("127.0.0.2", port))
    assert port > 0


def test_absent_address_is_skipped_beside_a_present_one(has_addresses):
    for hosts in ((NOT_OF_THIS_MACHINE, "127.0.0.1"), ("127.0.0.1", NOT_OF_THIS_MACHINE)):
        has_addresses(*hosts)
        assert [host for host, _ in ports_of(bind_sockets("some", 0))] == ["127.0.0.1"]
    has_addresses(NOT_OF_THIS_MACHINE)
    with pytest.raises(OSError, match=os.strerror(errno.EADDRNOTAVAIL)):
        bind_sockets("some", 0)


@pytest.mark.parametrize("taken", ["127.0.0.1", "127.0.0.2"])
def test_port_taken_on_one_address_is_bound_on_none(taken, has_addresses):
    with socket.create_server((taken, 0)) as other:
        port = other.getsockname()[1]
        has_addresses("127.0.0.1", "127.0.0.2")
        with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)) as raised:
            bind_sockets("some", port)
        raised.value.__traceback__ = None  # which holds the sockets too
        (free,) = {"127.0.0.1", "127.0.0.2"} - {taken}
        socket.create_server((free, port), reuse_port=False).close()


@pytest.mark.parametrize(
    ("sizes", "is_joined"),
    [
        ([], True),
        ([16 * 1024], True),
        ([16 * 1024 + 1], False),
        ([16 * 1024] * 3, True),
        ([16 * 1024] * 4, False),
    ],
)
def test_small_answer_is_sent_at_once_with_file_records(region, sizes, is_joined):
    regions = [region(number, size) for number, size in enumerate(sizes)]
    joined = in_memory([b"head", *regions, b"end"])
    whole = b"".join(CONTENT[region.position : region.position + region.size] for region in regions)
    assert joined == (b"head" + whole + b"end" if is_joined else None)
