"""Readers of the metrics endpoint that hang, and requests to it that are no HTTP."""

from __future__ import annotations

import socket
import time

from compat.hostile.attack import Target, attack

ON = (("metrics.listener", "127.0.0.1:0"),)
SCRAPE_TIMEOUT_S = 20


@attack(
    "hanging-metric-readers",
    "100 connections to the metrics endpoint that send half a request or read nothing",
    "another reader is answered",
    settings=ON,
    needs_metrics=True,
)
def hanging_readers(target: Target) -> None:
    assert target.metrics is not None
    target.begin()
    sockets = []
    try:
        for n in range(100):
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.settimeout(5)
            try:
                reader.connect(target.metrics)
                reader.sendall(b"GET /metrics HTTP/1.1\r\n" + (b"Host: x\r\n\r\n" if n % 2 else b""))
            except OSError:
                reader.close()
                continue
            sockets.append(reader)
        target.wait()
        ends = time.monotonic() + SCRAPE_TIMEOUT_S
        answer = b""
        while not answer and time.monotonic() < ends:
            answer = _scrape(target.metrics)
        target.expect(answer.startswith(b"HTTP/1.1 200"), f"a good reader is answered {answer[:40]!r}")
    finally:
        for reader in sockets:
            reader.close()


@attack(
    "metrics-garbage",
    "bytes to the metrics endpoint that are no HTTP",
    "closed or refused",
    settings=ON,
    needs_metrics=True,
)
def garbage(target: Target) -> None:
    assert target.metrics is not None
    target.begin()
    while target.goes_on:
        for data in (
            target.rng.randbytes(200),
            b"GET " + b"x" * 100_000,
            b"POST /metrics HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\n",
        ):
            with socket.create_connection(target.metrics, 5) as peer:
                try:
                    peer.sendall(data)
                    peer.shutdown(socket.SHUT_WR)
                    peer.recv(1000)
                except OSError:
                    continue
    target.expect(_scrape(target.metrics).startswith(b"HTTP/1.1 200"), "a good reader is not answered")


def _scrape(address: tuple[str, int]) -> bytes:
    """The endpoint's answer to a good request; empty when it closes or does not answer soon."""
    try:
        with socket.create_connection(address, 2) as peer:
            peer.settimeout(2)
            peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return peer.recv(1000)
    except OSError:
        return b""
