"""One connection to a broker: requests go out at once, responses come back in their order.

The rule: a request is answered, or fails with ConnectionLostError; nothing is sent again here. What the peer answers
out of turn, or not in time, ends the connection, since nothing that comes after it could be told apart.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trio

from barnabas.client.background import background
from barnabas.client.errors import (
    AuthenticationError,
    ClientError,
    ConnectionLostError,
    UnsupportedVersionError,
    check,
)
from barnabas.client.frames import FrameReader
from barnabas.client.settings import ClientSettings, Endpoint
from barnabas.network.dialing import dial, reason_of
from barnabas.wire import registry
from barnabas.wire.errors import DecodeError, EncodeError
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import API_VERSIONS, decode_response, encode_request
from barnabas.wire.regions import FileRegion

if TYPE_CHECKING:
    from barnabas.client.login import Login

Dial = Callable[[Endpoint], Awaitable[trio.abc.Stream]]
"""Opens a byte stream to an address. Raises OSError."""

PRODUCE, SASL_HANDSHAKE, SASL_AUTHENTICATE = 0, 17, 36
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")

# A broker older than 0.10 closes the connection on ApiVersions; these it has.
ANCIENT_VERSIONS = dict.fromkeys((0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14), (0, 0))


async def dial_tcp(endpoint: Endpoint) -> trio.abc.Stream:
    """Open a TCP connection. Raises OSError."""
    return await dial(endpoint.host, endpoint.port)


class _NoVersionsError(ConnectionLostError):
    """The broker closed the connection on the first request, as brokers before 0.10 do."""


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
    """A request that has been sent; made by `Connection.begin`."""

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


class Connection:
    """An open connection; made by `open_connection`, which closes it."""

    def __init__(self, stream: trio.abc.Stream, peer: Endpoint, settings: ClientSettings) -> None:
        self.peer = peer
        self.versions: dict[int, tuple[int, int]] = {}
        """Versions that the broker serves: (first, last version) by API key; empty until `handshake`."""
        self.features: dict[str, int] = {}
        """Levels of features that the cluster works with, by name (KIP-584)."""
        self._stream = stream
        self._settings = settings
        self._send_lock = trio.StrictFIFOLock()
        self._waiting: deque[_Waiter] = deque()
        self._last_id = 0
        self._failure = ""
        self._was_closed_by_peer = False
        self._reading = trio.CancelScope()
        self._ended = trio.Event()
        self._login = _login(settings, peer)

    async def wait_closed(self) -> None:
        """Wait until the connection is closed, by either side: no request can be sent any more."""
        await self._ended.wait()

    @property
    def is_open(self) -> bool:
        """True while a request can still be sent."""
        return not self._failure

    # --- asking ---------------------------------------------------------------------------------------------

    def version_of(self, key: int, version_max: int | None = None) -> int:
        """Return the newest stable version that both know, `version_max` at most. Raises UnsupportedVersionError."""
        low, high = self.versions.get(key, (0, -1))
        info = registry.info(key)
        version = min(high, info.max_stable_version)
        if version_max is not None:
            version = min(version, version_max)
        if version < max(low, info.request_min_version):
            raise UnsupportedVersionError(f"{self.peer} serves no usable version of {info.name}")
        return version

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
        """End the connection because of a response that is late, and return the error that says so."""
        # What comes later could not be told from the answers to others.
        self._fail(f"no answer to {registry.name_of(begun.key)} in {begun.seconds:g} s")
        return self._lost()

    async def _begin(self, key: int, version: int, message: Any) -> _Waiter | None:
        await trio.lowlevel.checkpoint_if_cancelled()  # nothing has been sent yet
        if self._send_lock.locked():
            await self._send_lock.acquire()
        else:
            self._send_lock.acquire_nowait()  # saves a turn of the event loop
        try:
            if self._login is not None and self._login.is_due and not self._failure:
                await self._log_in()
            return await self._send(key, version, message)
        finally:
            self._send_lock.release()

    async def _ask_in_turn(self, message: Any, version: int) -> Any:
        """Send a request and wait for its response; the caller holds the lock. Raises ConnectionLostError."""
        key = registry.key_of(type(message).__name__.removesuffix("Request"))
        seconds = self._settings.request_timeout_ms / 1000
        try:
            with trio.fail_after(seconds):
                waiter = await self._send(key, version, message)
                assert waiter is not None
                return await self.response_to(waiter)
        except trio.TooSlowError:
            self._fail(f"no answer to {registry.name_of(key)} in {seconds:g} s")
            raise self._lost() from None

    async def _send(self, key: int, version: int, message: Any) -> _Waiter | None:
        """Send a request under the lock; returns the waiter for its response, None if it has none."""
        if self._failure:
            raise self._lost()
        self._last_id = (self._last_id + 1) & 0x7FFFFFFF
        waiter = _Waiter(self._last_id, key, version)
        chunks = encode_request(key, version, waiter.correlation_id, self._settings.client_id, message)
        data = b"".join(map(_as_bytes, chunks))
        is_answered = key != PRODUCE or message.acks != 0
        if is_answered:
            self._waiting.append(waiter)
        sent = False
        try:
            await self._stream.send_all(data)
            sent = True
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            self._fail(f"cannot send: {_cause(error)}")
            raise self._lost() from error
        finally:
            if not sent:  # also when cancelled: half of a request may be out
                self._fail("a request was broken off")
        return waiter if is_answered else None

    async def response_to(self, waiter: _Waiter) -> Any:
        """Wait for a response. Raises ConnectionLostError."""
        await waiter.settled.wait()
        if waiter.response is None:
            raise self._lost()
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
            self._fail(f"the answer makes no sense: {error}")
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            self._was_closed_by_peer = True
            self._fail(_cause(error))
        finally:
            self._fail("closed")
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)

    def _answer(self, frame: memoryview) -> None:
        if not self._waiting:
            raise DecodeError("comes without a request", "response", 0)
        waiter = self._waiting[0]
        version = waiter.version
        if waiter.key == API_VERSIONS and frame[4:6] == _UNSUPPORTED_VERSION:
            version = 0  # whatever was asked for (KIP-511)
        correlation_id, response = decode_response(frame, waiter.key, version)
        if correlation_id != waiter.correlation_id:
            raise DecodeError(f"is {correlation_id}, not {waiter.correlation_id}", "correlation id", 0)
        self._waiting.popleft()
        waiter.response = response
        waiter.settled.set()

    def _fail(self, reason: str) -> None:
        """Record why the connection ended, and wake all pending requests; the first reason counts."""
        if not self._failure:
            self._failure = reason
            self._ended.set()
            self._reading.cancel()
            for waiter in self._waiting:
                waiter.settled.set()
            self._waiting.clear()

    def _lost(self) -> ConnectionLostError:
        return ConnectionLostError(f"{self.peer}: {self._failure}")

    def close(self) -> None:
        """Close the connection; pending requests raise ConnectionLostError."""
        self._fail("closed")

    # --- the first requests ---------------------------------------------------------------------------------

    async def handshake(self) -> None:
        """Learn the versions, and log in where that is asked for.

        Raises ConnectionLostError, AuthenticationError, UnsupportedVersionError, ResponseError.
        """
        await self._learn_versions()
        if self._login is not None:
            async with self._send_lock:
                await self._log_in()

    async def _learn_versions(self) -> None:
        request = ApiVersionsRequest(
            client_software_name=self._settings.software_name,
            client_software_version=self._settings.software_version,
        )
        try:
            response = await self.ask(request, version=3)
        except ConnectionLostError as error:
            if self._was_closed_by_peer:
                raise _NoVersionsError(str(error)) from error
            raise
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # An older broker answers in version 0, with the versions of ApiVersions at least (KIP-511).
            response = await self.ask(ApiVersionsRequest(), version=0)
        check(response.error_code, f"asking {self.peer} for its versions")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        self.features = {
            finalized_feature.name: finalized_feature.max_version_level
            for finalized_feature in response.finalized_features
        }

    async def _log_in(self) -> None:
        """Log in, for the first time or again; the caller holds the lock."""
        if self._login is None:
            return
        if self.versions.get(SASL_HANDSHAKE, (0, 0))[1] < 1:
            raise UnsupportedVersionError(f"{self.peer} has no SaslHandshake v1 (KIP-152, Apache Kafka 1.0)")
        is_done = False
        try:
            await self._login.run(self._ask_in_turn, self.version_of(SASL_AUTHENTICATE, 2))
            is_done = True
        except AuthenticationError as error:
            self._fail(str(error))
            raise
        finally:
            if not is_done:  # also when cancelled: what the broker expects next is not known
                self._fail("a login was broken off")


@asynccontextmanager
async def open_connection(
    endpoint: Endpoint, settings: ClientSettings, *, dial: Dial = dial_tcp
) -> AsyncIterator[Connection]:
    """Connect, log in, and close at the end of the block. Raises as `Connection.handshake`.

    What the block raises leaves it as it is, not in an exception group.
    """
    async with background() as nursery:
        yield await start_connection(nursery, endpoint, settings, dial=dial)


async def start_connection(
    nursery: trio.Nursery, endpoint: Endpoint, settings: ClientSettings, *, dial: Dial = dial_tcp
) -> Connection:
    """Connect and log in; the connection is read by a task of `nursery`. Raises as `Connection.handshake`."""
    try:
        return await _start(nursery, endpoint, settings, dial, versions=None)
    except _NoVersionsError as error:
        if settings.sasl is not None or not await _is_ancient(endpoint, settings, dial):
            raise ConnectionLostError(str(error)) from error
    return await _start(nursery, endpoint, settings, dial, versions=ANCIENT_VERSIONS)


async def _is_ancient(endpoint: Endpoint, settings: ClientSettings, dial: Dial) -> bool:
    """Say whether the broker is alive and yet closes connections on ApiVersions, as those before 0.10 do.

    A broker that restarts, or a proxy in front of one, closes connections too: taking it for an ancient one would
    mean versions in which, for example, transactions are not told apart.
    """
    from barnabas.wire.generated.fetch import FetchRequest

    async with trio.open_nursery() as nursery:
        try:
            probe = await _start(nursery, endpoint, settings, dial, versions=ANCIENT_VERSIONS)
            await probe.ask(FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0), version=0)
            probe.close()
            again = await _start(nursery, endpoint, settings, dial, versions=None)
            again.close()
        except _NoVersionsError:
            return True
        except ClientError:
            return False
        finally:
            nursery.cancel_scope.cancel()
    return False


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
    try:
        if versions is None:
            await connection.handshake()
        else:
            connection.versions = dict(versions)
    except BaseException:
        connection.close()
        raise
    return connection


async def _dial(endpoint: Endpoint, settings: ClientSettings, dial: Dial) -> trio.abc.Stream:
    """Open a stream, with TLS where that is asked for. Raises ConnectionLostError."""
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
        # The last two: a broker advertises what is no host name or no port.
        raise ConnectionLostError(f"{endpoint}: {_cause(error)}") from error


def _login(settings: ClientSettings, peer: Endpoint) -> Login | None:
    if settings.sasl is None:
        return None
    from barnabas.client.login import Login

    return Login(settings.sasl, peer)


def _as_bytes(chunk: object) -> bytes | bytearray | memoryview:
    if isinstance(chunk, FileRegion):
        raise EncodeError("a request cannot hold a region of a file")
    assert isinstance(chunk, bytes | bytearray | memoryview)
    return chunk


def _cause(error: BaseException) -> str:
    return reason_of(error.__cause__ or error)
