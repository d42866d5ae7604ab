"""Crowd: a thousand members join, and send heartbeats, without a coordinator: each request gets an immediate response.

The rule: this is a lower bound for coordinators that wait for sockets in this way. The members are those of
`bench.scenarios.coordinators`, each in a separate group; the server sends every request of an API the same response. The
results are the server's CPU per request, and as `joins` the wall time until all have joined, since most of it is the
client's: it needs as much of another core.
"""

from __future__ import annotations

import multiprocessing
import selectors
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from statistics import median

from bench.members import HEARTBEAT, JOIN_GROUP, SYNC_GROUP, ClassicMember, Crowd
from bench.micro.timing import Timing
from bench.procfs import cpu_s
from bench.wire import API_VERSIONS

MEMBERS = 1_000
SAMPLES = 5
BEAT_S = 1.0
READ_BYTES = 1 << 16


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _joined() -> bytes:
    member = _string(b"member")
    return (
        struct.pack(">ihi", 0, 0, 1)
        + _string(b"range")
        + 2 * member
        + struct.pack(">i", 1)
        + member
        + bytes(4)
    )


ANSWERS = {
    API_VERSIONS: struct.pack(">hi", 0, 0),
    JOIN_GROUP: _joined(),
    SYNC_GROUP: struct.pack(">ihi", 0, 0, 8) + bytes(8),
    HEARTBEAT: struct.pack(">ih", 0, 0),
}
"""By API: the answer after its correlation id."""


def _answer(frame: bytes) -> bytes:
    body = ANSWERS[int.from_bytes(frame[4:6], "big")]
    return struct.pack(">i", 4 + len(body)) + frame[8:12] + body


def run() -> Iterator[Timing]:
    """Joins and heartbeats of each kind of server."""
    for name, serve in (
        ("an epoll loop in Python", _serve_epoll),
        ("the broker's transport on Trio", _serve_trio),
    ):
        joins, cpus = zip(*[_sample(serve) for _ in range(SAMPLES)], strict=True)
        yield Timing(f"{MEMBERS:,} joins, wall, {name}", min(joins), median(joins))
        yield Timing(f"heartbeat of one of {MEMBERS:,}, CPU, {name}", min(cpus), median(cpus))


Serve = Callable[[socket.socket], None]


def _sample(serve: Serve) -> tuple[float, float]:
    """Return the seconds until all have joined, and the server's CPU seconds per heartbeat."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_listen, args=(theirs, serve), daemon=True)
    process.start()
    try:
        crowd = Crowd(
            f"127.0.0.1:{ours.recv()}", [ClassicMember(f"group-{number}", "t") for number in range(MEMBERS)]
        )
        try:
            crowd.begin()
            joined_s = crowd.run(lambda: True)
            assert process.pid is not None
            cpu = cpu_s(process.pid)
            rate = crowd.beat(BEAT_S)
            return joined_s, (cpu_s(process.pid) - cpu) / (rate * BEAT_S)
        finally:
            crowd.close()
    finally:
        process.kill()
        process.join()


def _listen(parent: Connection, serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=MEMBERS) as listening:
        listening.setblocking(False)
        parent.send(listening.getsockname()[1])
        serve(listening)


def _serve_epoll(listening: socket.socket) -> None:
    selector = selectors.DefaultSelector()
    selector.register(listening, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listening:
                accepted, _ = listening.accept()
                selector.register(accepted, selectors.EVENT_READ, accepted)
                continue
            frame = b""
            with suppress(ConnectionResetError):  # members leave while an answer is on its way
                frame = key.data.recv(READ_BYTES)
            if frame:
                key.data.send(_answer(frame))
            else:
                selector.unregister(key.data)


def _serve_trio(listening: socket.socket) -> None:
    from barnabas.network.sockets import PlainTransport
    from bench.peers.floor_server import serve_each

    scratch = memoryview(bytearray(READ_BYTES))

    async def serve(accepted: socket.socket) -> None:
        transport = PlainTransport(accepted)
        with suppress(ConnectionResetError):
            while True:
                await transport.wait_readable()
                count = transport.receive_now(scratch)
                if count == 0:
                    return
                if count is not None:
                    await transport.send([_answer(bytes(scratch[:count]))])

    serve_each(listening, serve)
