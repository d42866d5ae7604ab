"""Echo: one request in flight to a process that responds immediately, or after some work, without decoding the request.

The rule: this is a lower bound for brokers that wait for sockets in this way; wall time, since most of it is spent in the
kernel, between the two processes. `bench.scenarios.latency` has the brokers.

A server that works for a fixed time before it responds shows the machine's part of the tail: that of its scheduler, and of
the host that provides its cores.
"""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
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
TAILS = "p50_us", "p99_us", "p999_us"
WORKS_S = (0.0, 0.000_003, 0.000_006, 0.000_015, 0.000_06, 0.000_13)
"""Seconds of work. The core of a client that waits for more than 3 to 6 us may sleep, and wakes slowly in a VM."""
LOOKS_S = (0.0, 0.000_3)
"""Seconds of polling for the next request after a response; 0: wait immediately, as Apache Kafka does."""
CORRELATION_ID = slice(8, 12)  # of a request, with its size field
REPLY_SIZE, REPLY_REST = (
    (52).to_bytes(4, "big"),
    bytes(48),
)  # the same length as the response in `latency-socket`


def run() -> Iterator[Timing]:
    """The median round trip of each sample; then the quantiles of servers that work."""
    frame = produce_v7("latency", [0], record_batch([b"x" * 100], 0))
    with TemporaryDirectory() as directory:
        path = Path(directory, "frame")
        path.write_bytes(frame)
        for name, serve in (
            ("a blocking socket", _serve_blocking),
            ("the broker's transport on Trio", _serve_trio),
        ):
            medians_s = [_round_trips(path, len(frame), serve)["p50_us"] / 1e6 for _ in range(SAMPLES)]
            yield Timing(f"Round trip to {name}, p50", min(medians_s), median(medians_s))
        servers = [(work_s, look_s) for work_s in WORKS_S for look_s in LOOKS_S]
        rounds: dict[tuple[float, float], list[dict[str, float]]] = {server: [] for server in servers}
        for _ in range(SAMPLES):  # in turns: the host's share of CPU changes by the minute
            for server in servers:
                rounds[server].append(_round_trips(path, len(frame), partial(_serve_working, server)))
        for (work_s, look_s), samples in rounds.items():
            name = f"works {work_s * 1e6:.0f} us, looks {look_s * 1e6:.0f} us"
            for tail in TAILS:
                values_s = [sample[tail] / 1e6 for sample in samples]
                yield Timing(f"{name}: {tail.removesuffix('_us')}", min(values_s), median(values_s))


Serve = Callable[[socket.socket, int], None]


def _round_trips(path: Path, size: int, serve: Serve) -> dict[str, float]:
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
    return result


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


def _serve_working(server: tuple[float, float], accepted: socket.socket, size: int) -> None:
    """Work before each response, and poll for the next request before waiting for it; `server` has the seconds of both."""
    work_s, look_s = server
    clock = time.perf_counter
    view = memoryview(bytearray(size))
    while True:
        ends_s = clock() + look_s
        received = 0
        while not received and clock() < ends_s:
            try:
                received = accepted.recv_into(view, size, socket.MSG_DONTWAIT)
                if not received:
                    return
            except BlockingIOError:
                pass
        if received < size and accepted.recv_into(view[received:], 0, socket.MSG_WAITALL) < size - received:
            return
        ends_s = clock() + work_s
        while clock() < ends_s:
            pass
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
