"""Echo: one request in flight to a process that answers at once, without looking at what came.

The rule: this is what no broker can be faster than that waits for its sockets in this way; wall time, since most of
it is passed in the kernel, on the way between two processes. `bench.scenarios.latency` has the brokers.
"""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.micro.timing import Timing
from bench.tools import loadgen
from bench.wire import produce_v7, record_batch

REQUESTS = 10_000
WARMUP = 1_000
SAMPLES = 5
CORRELATION_ID = slice(8, 12)  # of a request, with its size field
REPLY_SIZE, REPLY_REST = (
    (52).to_bytes(4, "big"),
    bytes(48),
)  # with this as long as the answer to the request in `latency-socket`


def run() -> Iterator[Timing]:
    """The median round trip of each sample."""
    frame = produce_v7("latency", [0], record_batch([b"x" * 100], 0))
    with TemporaryDirectory() as directory:
        path = Path(directory, "frame")
        path.write_bytes(frame)
        for name, serve in (
            ("a blocking socket", _serve_blocking),
            ("the broker's transport on Trio", _serve_trio),
        ):
            medians_s = [_p50_us(path, len(frame), serve) / 1e6 for _ in range(SAMPLES)]
            yield Timing(f"Round trip to {name}, p50", min(medians_s), median(medians_s))


Serve = Callable[[socket.socket, int], None]


def _p50_us(path: Path, size: int, serve: Serve) -> float:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_listen, args=(theirs, serve, size), daemon=True)
    process.start()
    try:
        result = loadgen(
            "replay",
            f"127.0.0.1:{ours.recv()}",
            frame=path,
            reply=path.with_name("reply"),
            count=REQUESTS,
            warmup=WARMUP,
        )
    finally:
        process.kill()
        process.join()
    return result["p50_us"]


def _listen(parent: Connection, serve: Serve, size: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        parent.send(listening.getsockname()[1])
        while True:
            accepted, _ = listening.accept()
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            serve(accepted, size)


def _reply(request: memoryview) -> bytes:
    return REPLY_SIZE + bytes(request[CORRELATION_ID]) + REPLY_REST


def _serve_blocking(accepted: socket.socket, size: int) -> None:
    view = memoryview(bytearray(size))
    while accepted.recv_into(view, size, socket.MSG_WAITALL) == size:
        accepted.sendall(_reply(view))


def _serve_trio(accepted: socket.socket, size: int) -> None:
    import trio

    from barnabas.network.sockets import PlainTransport

    accepted.setblocking(False)

    async def main() -> None:
        transport = PlainTransport(accepted)
        view = memoryview(bytearray(size))
        used = 0
        while True:
            await transport.wait_readable()
            received = transport.receive_now(view[used:])
            if received == 0:
                break
            used += received or 0
            if used == size:
                used = 0
                await transport.send([_reply(view)])

    trio.run(main)
