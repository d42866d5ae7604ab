"""One connection to a broker: requests are sent immediately, responses arrive in order.

The rule: a request is answered, or fails with ConnectionLostError; nothing is retried here. A response out of order, or
too late, ends the connection, since later ones could not be matched.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import trio

from barnabas.client.background import background
from barnabas.client.base_connection import (
    PRODUCE,
    BaseConnection,
    Versions,
    closes_on_versions,
    decoded,
    start_of_any_age,
)
from barnabas.client.errors import ConnectionLostError
from barnabas.client.frames import FrameReader
from barnabas.client.settings import ClientSettings, Endpoint
from barnabas.network.dialing import dial, reason_of
from barnabas.wire import registry
from barnabas.wire.errors import DecodeError

T = TypeVar("T")
Dial = Callable[[Endpoint], Awaitable[trio.abc.Stream]]
"""Opens a byte stream to an address. Raises OSError."""


async def dial_tcp(endpoint: Endpoint) -> trio.abc.Stream:
    """Open a TCP connection. Raises OSError."""
    return await dial(endpoint.host, endpoint.port)


@dataclass(slots=True)
class _Waiter:
    """A request that has been sent, and the event that its response sets."""

    correlation_id: int
    key: int
    version: int
    settled: trio.Event = field(default_factory=trio.Event)
    response: Any = None


@dataclass(slots=True)
class Begun:
    """A request that has been sent; created by `Connection.begin`."""

    connection: Connection
    key: int
    seconds: float
    deadline: float
    """Time at which the connection is given up (trio's clock, s)."""
    waiter: _Waiter | None = None

    async def response(self) -> Any:
        """Wait for the response; None for Produce with acks=0. Raises ConnectionLostError."""
        if self.waiter is None:
            return None
        try:
            with trio.fail_at(self.deadline):
                return await self.connection.response_to(self.waiter)
        except trio.TooSlowError:
            raise self.connection.late(self) from None


class InTrio:
    """Time and threads of Trio."""

    async def in_thread(
        self, work: Callable[[], T], *, limiter: Any = None, may_be_abandoned: bool = False
    ) -> T:
        """Return the result of a function, which runs in a thread of Trio."""
        return await trio.to_thread.run_sync(work, abandon_on_cancel=may_be_abandoned, limiter=limiter)

    def now(self) -> float:
        """Return the time of Trio's clock, s."""
        return trio.current_time()


class Connection(InTrio, BaseConnection):
    """An open connection; created by `open_connection`, which closes it."""

    def __init__(self, stream: trio.abc.Stream, peer: Endpoint, settings: ClientSettings) -> None:
        super().__init__(peer, settings)
        self._stream = stream
        self._send_lock = trio.StrictFIFOLock()
        self._waiting: deque[_Waiter] = deque()
        self._reading = trio.CancelScope()
        self._ended = trio.Event()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed, by either side: then no request can be sent."""
        await self._ended.wait()

    # --- asking ---------------------------------------------------------------------------------------------

    async def ask(
        self,
        message: Any,
        *,
        version: int | None = None,
        version_max: int | None = None,
        timeout_ms: float | None = None,
    ) -> Any:
        """Send a request and return its response; None for Produce with acks=0, which has none.

        Requests of several tasks may be in flight. The response to a cancelled request is discarded.
        Raises ConnectionLostError, UnsupportedVersionError, EncodeError.
        """
        begun = await self.begin(message, version=version, version_max=version_max, timeout_ms=timeout_ms)
        return await begun.response()

    async def begin(
        self,
        message: Any,
        *,
        version: int | None = None,
        version_max: int | None = None,
        timeout_ms: float | None = None,
    ) -> Begun:
        """Send a request; its response is awaited later. Requests are sent in the order of the calls.

        Raises as `ask`.
        """
        key = registry.key_of(type(message).__name__.removesuffix("Request"))
        if version is None:
            version = self.version_of(key, version_max)
        seconds = (self._settings.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        begun = Begun(self, key, seconds, trio.current_time() + seconds)
        try:
            with trio.fail_at(begun.deadline):
                begun.waiter = await self._begin(key, version, message)
        except trio.TooSlowError:
            raise self.late(begun) from None
        return begun

    def late(self, begun: Begun) -> ConnectionLostError:
        """End the connection because of a late response, and return the error for it."""
        # a later response could not be matched to its request
        self.fail(f"no answer to {registry.name_of(begun.key)} in {begun.seconds:g} s")
        return self.lost()

    async def _begin(self, key: int, version: int, message: Any) -> _Waiter | None:
        await trio.lowlevel.checkpoint_if_cancelled()  # nothing has been sent yet
        if self._send_lock.locked():
            await self._send_lock.acquire()
        else:
            self._send_lock.acquire_nowait()  # saves a turn of the event loop
        try:
            if self._login is not None and self._login.is_due(self.now()) and not self._failure:
                await self._log_in()
            return await self._send(key, version, message)
        finally:
            self._send_lock.release()

    async def ask_in_turn(self, message: Any, version: int) -> Any:
        """Send a request and wait for its response; the caller holds the lock. Raises ConnectionLostError."""
        key = registry.key_of(type(message).__name__.removesuffix("Request"))
        seconds = self._settings.request_timeout_ms / 1000
        try:
            with trio.fail_after(seconds):
                waiter = await self._send(key, version, message)
                assert waiter is not None
                return await self.response_to(waiter)
        except trio.TooSlowError:
            self.fail(f"no answer to {registry.name_of(key)} in {seconds:g} s")
            raise self.lost() from None

    async def _send(self, key: int, version: int, message: Any) -> _Waiter | None:
        """Send a request under the lock; returns the waiter for its response, None if no response follows."""
        if self._failure:
            raise self.lost()
        waiter = _Waiter(self.next_id(), key, version)
        data = self.encoded(key, version, waiter.correlation_id, message)
        is_answered = key != PRODUCE or message.acks != 0
        if is_answered:
            self._waiting.append(waiter)
        sent = False
        try:
            await self._stream.send_all(data)
            sent = True
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            self.fail(f"cannot send: {_cause(error)}")
            raise self.lost() from error
        finally:
            if not sent:  # also when cancelled: half of a request may be out
                self.fail("a request was broken off")
        return waiter if is_answered else None

    async def response_to(self, waiter: _Waiter) -> Any:
        """Wait for a response. Raises ConnectionLostError."""
        await waiter.settled.wait()
        if waiter.response is None:
            raise self.lost()
        return waiter.response

    # --- reading --------------------------------------------------------------------------------------------

    async def read_forever(self) -> None:
        """Deliver responses to their requests until the connection ends; then close it.

        Connection errors are raised by the pending requests, not here.
        """
        frames = FrameReader(self._stream)
        try:
            with self._reading:
                while True:
                    self._answer(await frames.next())
        except DecodeError as error:
            self.fail(f"the answer makes no sense: {error}")
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            self._was_closed_by_peer = True
            self.fail(_cause(error))
        finally:
            self.fail("closed")
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)

    def _answer(self, frame: memoryview) -> None:
        if not self._waiting:
            raise DecodeError("comes without a request", "response", 0)
        waiter = self._waiting[0]
        response = decoded(frame, waiter.key, waiter.version, waiter.correlation_id)
        self._waiting.popleft()
        waiter.response = response
        waiter.settled.set()

    def fail(self, reason: str) -> None:
        """Record why the connection ended, and wake all pending requests; the first reason counts."""
        if not self._failure:
            self._failure = reason
            self._ended.set()
            self._reading.cancel()
            for waiter in self._waiting:
                waiter.settled.set()
            self._waiting.clear()

    # --- the login ------------------------------------------------------------------------------------------

    async def _first_login(self) -> None:
        async with self._send_lock:
            await self._log_in()


@asynccontextmanager
async def open_connection(
    endpoint: Endpoint, settings: ClientSettings, *, dial: Dial = dial_tcp
) -> AsyncIterator[Connection]:
    """Connect, log in, and close at the end of the block. Raises as `Connection.handshake`.

    Errors of the block are raised unchanged, not in an exception group.
    """
    async with background() as nursery:
        yield await start_connection(nursery, endpoint, settings, dial=dial)


async def start_connection(
    nursery: trio.Nursery, endpoint: Endpoint, settings: ClientSettings, *, dial: Dial = dial_tcp
) -> Connection:
    """Connect and log in; the connection is read by a task of `nursery`. Raises as `Connection.handshake`."""

    async def start(versions: Versions | None) -> Connection:
        return await _start(nursery, endpoint, settings, dial, versions=versions)

    async def is_ancient() -> bool:
        async with trio.open_nursery() as probes:
            try:
                return await closes_on_versions(
                    lambda versions: _start(probes, endpoint, settings, dial, versions=versions)
                )
            finally:
                probes.cancel_scope.cancel()

    return await start_of_any_age(start, settings, is_ancient)


async def _start(
    nursery: trio.Nursery,
    endpoint: Endpoint,
    settings: ClientSettings,
    dial: Dial,
    *,
    versions: dict[int, tuple[int, int]] | None,
) -> Connection:
    stream = await _dial(endpoint, settings, dial)
    connection = Connection(stream, endpoint, settings)
    try:
        nursery.start_soon(connection.read_forever)
    except RuntimeError:  # the nursery has ended meanwhile
        await trio.aclose_forcefully(stream)
        raise
    await connection.set_up(versions)
    return connection


async def _dial(endpoint: Endpoint, settings: ClientSettings, dial: Dial) -> trio.abc.Stream:
    """Open a stream, with TLS if configured. Raises ConnectionLostError."""
    try:
        with trio.fail_after(settings.connect_timeout_ms / 1000 or math.inf):
            stream = await dial(endpoint)
            if settings.tls is None:
                return stream
            tls = trio.SSLStream(stream, settings.tls, server_hostname=endpoint.host)
            try:
                await tls.do_handshake()
            except BaseException:
                await trio.aclose_forcefully(stream)
                raise
            return tls
    except trio.TooSlowError:
        raise ConnectionLostError(f"{endpoint}: no connection in {settings.connect_timeout_ms} ms") from None
    except (OSError, trio.BrokenResourceError, ValueError, OverflowError) as error:
        # the last two: the advertised host or port is invalid
        raise ConnectionLostError(f"{endpoint}: {_cause(error)}") from error


def _cause(error: BaseException) -> str:
    return reason_of(error.__cause__ or error)
