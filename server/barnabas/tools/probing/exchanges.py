"""A connection that sends any frames, valid or not, and records all traffic.

The rule: nothing is retried and nothing hidden: a broker that closes the connection, is silent or sends an invalid answer
is a result, and each has its own error.
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from barnabas.client.connection import InTrio
from barnabas.client.errors import AuthenticationError, ConnectionLostError
from barnabas.client.login import Login
from barnabas.client.settings import ClientSettings, Endpoint
from barnabas.network.dialing import dial, reason_of
from barnabas.wire import registry
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import API_VERSIONS, decode_response, encode_request

ANSWER_BYTES_MAX = 128 << 20
PRODUCE = 0
UNSUPPORTED_VERSION = (35).to_bytes(2, "big")

COORDINATOR_COMES = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""A coordinator that is being loaded, or waits for its topic to be made: asked again."""


class ExchangeError(Exception):
    """A request has no proper answer."""


class ClosedByBrokerError(ExchangeError):
    """The broker closed the connection instead of answering."""


class SilentError(ExchangeError):
    """The broker neither answered nor closed the connection in time."""


class NonsenseError(ExchangeError):
    """The answer cannot be decoded, is too large, or belongs to another request."""


@dataclass(slots=True)
class Exchange:
    """A request and its outcome."""

    label: str
    key: int
    version: int
    sent: bytes
    request: Any = None
    answered: bytes | None = None
    answer: Any = None
    outcome: str = ""
    """Failure that happened instead of an answer, as text."""


@dataclass(slots=True)
class Target:
    """A broker and how it is reached."""

    endpoint: Endpoint
    settings: ClientSettings
    timeout_s: float = 20.0

    @asynccontextmanager
    async def connect(
        self, journal: list[Exchange] | None = None, *, log_in: bool = True
    ) -> AsyncIterator[Wire]:
        """Open a connection, logged in if configured. Raises ConnectionLostError, AuthenticationError."""
        stream = await self._dial()
        wire = Wire(stream, self.settings.client_id, [], self.timeout_s)
        try:
            if log_in and self.settings.sasl is not None:
                await self._log_in(wire)
            wire.journal = [] if journal is None else journal  # a login's requests hold secrets
            yield wire
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async def _dial(self) -> trio.abc.Stream:
        try:
            with trio.fail_after(self.settings.connect_timeout_ms / 1000):
                stream: trio.abc.Stream = await dial(self.endpoint.host, self.endpoint.port)
                if self.settings.tls is None:
                    return stream
                secured = trio.SSLStream(stream, self.settings.tls, server_hostname=self.endpoint.host)
                try:
                    await secured.do_handshake()
                except BaseException:
                    await trio.aclose_forcefully(stream)
                    raise
                return secured
        except trio.TooSlowError:
            raise ConnectionLostError(
                f"{self.endpoint}: no connection in {self.settings.connect_timeout_ms} ms"
            ) from None
        except (OSError, ssl.SSLError, trio.BrokenResourceError) as error:
            raise ConnectionLostError(f"{self.endpoint}: {reason_of(error.__cause__ or error)}") from error

    async def _log_in(self, wire: Wire) -> None:
        assert self.settings.sasl is not None
        try:
            await Login(self.settings.sasl, self.endpoint).run(wire.ask, 1, InTrio())
        except ExchangeError as error:
            raise AuthenticationError(f"{self.endpoint}: login: {error}") from error


@dataclass(slots=True, eq=False)
class Wire:
    """An open connection, used by one task; created by `Target.connect`."""

    stream: trio.abc.Stream
    client_id: str | None
    journal: list[Exchange]
    timeout_s: float
    is_open: bool = True
    _received: bytes = b""
    _last_id: int = field(default=0)

    async def ask(self, message: Any, version: int, *, label: str = "") -> Any:
        """Send a request and return its answer; None for Produce with acks=0. Raises ExchangeError."""
        key = registry.key_of(type(message).__name__.removesuffix("Request"))
        self._last_id += 1
        chunks = encode_request(key, version, self._last_id, self.client_id, message)
        frame = b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]
        exchange = Exchange(label, key, version, frame, message)
        self.journal.append(exchange)
        await self.send(frame, exchange)
        if key == PRODUCE and message.acks == 0:
            return None
        return await self.answer(exchange, self._last_id)

    async def ask_frame(
        self, frame: bytes, key: int, version: int, *, correlation_id: int | None = None, label: str = ""
    ) -> Any:
        """Send a frame unchanged, and decode the response as one of this key and version.

        Without `correlation_id` any is accepted. Raises ExchangeError.
        """
        exchange = Exchange(label, key, version, frame)
        self.journal.append(exchange)
        await self.send(frame, exchange)
        return await self.answer(exchange, correlation_id)

    async def send(self, data: bytes, exchange: Exchange | None = None) -> None:
        """Send bytes. Raises ClosedByBrokerError, SilentError if the broker does not read them."""
        try:
            with trio.fail_after(self.timeout_s):
                await self.stream.send_all(data)
        except trio.TooSlowError:
            raise self._failed(
                exchange, SilentError(f"the broker took nothing for {self.timeout_s:g} s")
            ) from None
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            raise self._failed(exchange, ClosedByBrokerError("the broker closed the connection")) from None

    async def answer(self, exchange: Exchange, correlation_id: int | None) -> Any:
        """Receive and decode the answer to an exchange. Raises ExchangeError."""
        frame = await self.frame(exchange)
        exchange.answered = frame
        version = exchange.version
        if exchange.key == API_VERSIONS and frame[4:6] == UNSUPPORTED_VERSION:
            version = 0  # KIP-511
        try:
            answered_id, exchange.answer = decode_response(memoryview(frame), exchange.key, version)
        except (DecodeError, ValueError) as error:
            raise self._failed(exchange, NonsenseError(f"the answer cannot be decoded: {error}")) from error
        if correlation_id is not None and answered_id != correlation_id:
            raise self._failed(
                exchange, NonsenseError(f"the answer's correlation id is {answered_id}, not {correlation_id}")
            )
        return exchange.answer

    async def frame(self, exchange: Exchange | None = None) -> bytes:
        """Receive a frame without its size. Raises ExchangeError."""
        try:
            with trio.fail_after(self.timeout_s):
                size = struct.unpack(">i", await self._exactly(4))[0]
                if not 0 <= size <= ANSWER_BYTES_MAX:
                    raise self._failed(exchange, NonsenseError(f"the answer says that it has {size} bytes"))
                return await self._exactly(size)
        except trio.TooSlowError:
            raise self._failed(exchange, SilentError(f"no answer in {self.timeout_s:g} s")) from None
        except ClosedByBrokerError as error:
            raise self._failed(exchange, error) from None

    async def _exactly(self, size: int) -> bytes:
        parts = [self._received]
        have = len(self._received)
        while have < size:
            try:
                part = await self.stream.receive_some(max(65536, min(size - have, 1 << 20)))
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                part = b""
            if not part:
                self._received = b""
                raise ClosedByBrokerError("the broker closed the connection")
            parts.append(bytes(part))
            have += len(part)
        data = b"".join(parts)
        self._received = data[size:]
        return data[:size]

    def _failed(self, exchange: Exchange | None, error: ExchangeError) -> ExchangeError:
        self.is_open = False
        if exchange is not None:
            exchange.outcome = str(error)
        return error


def frame_of(key: int, version: int, body: bytes, *, correlation_id: int = 1, client_id: bytes | None = b"barnabas",
             header_tags: bytes | None = None) -> bytes:  # fmt: skip
    """Return a frame around a body of any bytes; `header_tags` replaces the empty tagged fields of a flexible header."""
    length = -1 if client_id is None else len(client_id)
    head = struct.pack(">hhih", key, version, correlation_id, length) + (client_id or b"")
    if registry.is_flexible(key, version):
        head += b"\0" if header_tags is None else header_tags
    return struct.pack(">i", len(head) + len(body)) + head + body
