"""Frames passed to the request parts of a broker, without a socket."""

from __future__ import annotations

import os
from collections.abc import Awaitable
from typing import Any

from barnabas.broker.handlers import Handlers
from barnabas.environment.real import real_environment
from barnabas.security.authorizer import AllowEverything
from barnabas.serving.context import ConnectionInfo, ContextParts
from barnabas.serving.encoding import CodecWorker
from barnabas.serving.log_limit import LogLimit
from barnabas.serving.request import Request
from barnabas.serving.request_parts import RequestParts
from barnabas.serving.stages import STAGES
from barnabas.wire.headers import encode_request
from barnabas.wire.regions import FileRegion

ENTRIES_MAX = 250_000


class Transport:
    """A transport that takes a limited number of bytes without waiting, and the rest in a wait."""

    def __init__(self, room: int = 1 << 20) -> None:
        self.room = room
        self.now = b""
        self.later = b""
        self.is_reset = False

    @property
    def sent(self) -> bytes:
        """All that was sent."""
        return self.now + self.later

    def send_now(self, data: bytes) -> int:
        self.now += bytes(data[: self.room])
        return min(self.room, len(data))

    async def send(self, chunks: list[Any]) -> None:
        for chunk in chunks:
            is_region = isinstance(chunk, FileRegion)
            self.later += os.pread(chunk.fd, chunk.size, chunk.position) if is_region else bytes(chunk)

    def reset(self) -> None:
        self.is_reset = True


def request_parts_of(
    services: Any, memory: Any, *, authorizer: Any = None, quotas: Any = None, **parts: Any
) -> RequestParts:
    """Return request parts with new handlers; `parts` are meter, interceptor and sender."""
    environment = real_environment()
    return RequestParts(
        services.served,
        Handlers(services),
        ContextParts(memory, LogLimit(), AllowEverything() if authorizer is None else authorizer, quotas),
        CodecWorker(environment.threads, ENTRIES_MAX),
        budget=services.budget,
        failures=services.failures,
        release=services.release,
        clock_ms=services.clock_ms,
        now_s=environment.monotonic,
        **parts,
    )


def new_connection(number: int = 1, **fields: Any) -> ConnectionInfo:
    """Return a new connection; ApiVersions stores the client's name and version in it."""
    return ConnectionInfo(
        number, "PLAINTEXT", "PLAINTEXT", ("127.0.0.1", 9092), ("127.0.0.1", 50_000), **fields
    )


def frame_of(key: int, version: int, request: Any, client_id: str = "client", number: int = 7) -> memoryview:
    """Return a request as a connection passes it on: without its size, in writable memory."""
    chunks = encode_request(key, version, number, client_id, request)
    return memoryview(bytearray(b"".join(bytes(chunk) for chunk in chunks)[4:]))


def start(
    request_parts: RequestParts, connection: ConnectionInfo, transport: Any, frame: memoryview
) -> bool | Awaitable[bool]:
    """Run a request until it must wait; returns whether its connection continues, or an awaitable of that."""
    request = Request(STAGES, request_parts, connection, transport, frame)
    wait = request.advance()
    return request.is_alive if wait is None else request.finish(wait)


async def answered(
    request_parts: RequestParts, connection: ConnectionInfo, transport: Any, frame: memoryview
) -> bool:
    """Answer a request; returns whether its connection continues."""
    done = start(request_parts, connection, transport, frame)
    return done if isinstance(done, bool) else await done
