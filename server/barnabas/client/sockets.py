"""The client of programs that ask and end: its calls block, and no event loop is loaded.

    with socket_client("localhost:9092") as client:
        topics = finished(Admin(client).topics())

The rule: a coroutine on this client never waits for an event loop, so that `finished` runs it to its end; a program with
Trio tasks uses `Client`. Requests to several brokers run in threads.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from barnabas.client.base_client import BaseClient
from barnabas.client.base_connection import (
    PRODUCE,
    RESPONSE_BYTES_MAX,
    SET_ASIDE_BYTES,
    BaseConnection,
    Versions,
    closes_on_versions,
    decoded,
    start_of_any_age,
)
from barnabas.client.errors import ClientError, ConnectionLostError
from barnabas.client.settings import ClientSettings, Endpoint, parse_bootstrap
from barnabas.network.dialing import CLOSED_BY_BROKER, first_reason, reason_of
from barnabas.wire import registry
from barnabas.wire.errors import DecodeError
from barnabas.wire.framing import SIZE_BYTES, check_frame_size

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

THREADS_MAX = 16
"""Number of brokers that are asked in parallel."""


def finished(work: Awaitable[T]) -> T:
    """Run a coroutine that awaits a SocketClient alone, and return its result."""
    assert isinstance(work, Coroutine)
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    work.close()
    raise RuntimeError("the coroutine waits for an event loop, and there is none")


class InPlace:
    """Time and threads of a program in which nothing else waits."""

    async def in_thread(
        self,
        work: Callable[[], T],
        *,
        limiter: Any = None,  # noqa: ARG002
        may_be_abandoned: bool = False,  # noqa: ARG002
    ) -> T:
        """Return the result of a function."""
        return work()

    def now(self) -> float:
        """Return the time of a monotonic clock, s."""
        return time.monotonic()


class SocketConnection(InPlace, BaseConnection):
    """A connection with one request in flight at a time; requests of other threads wait."""

    def __init__(self, sock: socket.socket, peer: Endpoint, settings: ClientSettings) -> None:
        super().__init__(peer, settings)
        self._socket = sock
        self._turn = threading.Lock()

    async def ask(
        self,
        message: Any,
        *,
        version: int | None = None,
        version_max: int | None = None,
        timeout_ms: float | None = None,
    ) -> Any:
        """Send a request and return its response; otherwise as `BaseConnection.ask`."""
        key = registry.key_of(type(message).__name__.removesuffix("Request"))
        if version is None:
            version = self.version_of(key, version_max)
        with self._turn:
            if self._login is not None and self._login.is_due(self.now()) and not self._failure:
                await self._log_in()
            return self._exchange(
                key, version, message, self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
            )

    async def ask_in_turn(self, message: Any, version: int) -> Any:
        """Send a request of the login and return its response."""
        key = registry.key_of(type(message).__name__.removesuffix("Request"))
        return self._exchange(key, version, message, self._settings.request_timeout_ms)

    def _exchange(self, key: int, version: int, message: Any, timeout_ms: float) -> Any:
        """Send a request and wait for its response. Raises ConnectionLostError, EncodeError."""
        if self._failure:
            raise self.lost()
        correlation_id = self.next_id()
        data = self.encoded(key, version, correlation_id, message)
        seconds = timeout_ms / 1000
        is_done = False
        try:
            deadline = self.now() + seconds
            self._socket.settimeout(seconds)
            self._socket.sendall(data)
            if key == PRODUCE and not message.acks:
                is_done = True
                return None
            response = decoded(self._frame(deadline), key, version, correlation_id)
            is_done = True
            return response
        except TimeoutError:
            self.fail(f"no answer to {registry.name_of(key)} in {seconds:g} s")
            raise self.lost() from None
        except DecodeError as error:
            self.fail(f"the answer makes no sense: {error}")
            raise self.lost() from error
        except OSError as error:
            self._was_closed_by_peer = True
            self.fail(reason_of(error))
            raise self.lost() from error
        finally:
            if not is_done:
                self.fail("a request was broken off")

    def _frame(self, deadline: float) -> memoryview:
        """Receive a response without its size. Raises OSError, DecodeError."""
        head = bytearray(SIZE_BYTES)
        self._fill(head, 0, deadline)
        size = check_frame_size(head, 0, RESPONSE_BYTES_MAX)
        frame, at = bytearray(min(size, SET_ASIDE_BYTES)), 0
        while True:
            self._fill(frame, at, deadline)
            at = len(frame)
            if at == size:
                return memoryview(frame)
            frame += bytes(min(size - at, at))

    def _fill(self, data: bytearray, at: int, deadline: float) -> None:
        """Receive into a buffer from `at` to its end. Raises OSError, TimeoutError."""
        with memoryview(data) as view:
            while at < len(view):
                remaining_s = deadline - self.now()
                if remaining_s <= 0:
                    raise TimeoutError
                self._socket.settimeout(remaining_s)
                count = self._socket.recv_into(view[at:])
                if not count:
                    raise ConnectionResetError(CLOSED_BY_BROKER)
                at += count

    def fail(self, reason: str) -> None:
        """Record why the connection ended, and close it; the first reason counts."""
        if not self._failure:
            self._failure = reason
            self._socket.close()


class SocketClient(InPlace, BaseClient[SocketConnection]):
    """Lifecycle: `socket_client`."""

    def __init__(self, bootstrap: Iterable[Endpoint], settings: ClientSettings) -> None:
        super().__init__(bootstrap, settings)
        self._opening: dict[tuple[Endpoint, str], threading.Lock] = {}

    async def open_connection(self, endpoint: Endpoint, lane: str) -> SocketConnection:
        """Connect to an address, once for all threads that ask for it."""
        place = endpoint, lane
        with self._opening.setdefault(place, threading.Lock()):
            connection = self._connections.get(place)
            if connection is None or not connection.is_open:
                connection = self._connections[place] = await start_socket_connection(endpoint, self.settings)
            return connection

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        if seconds > 0:
            time.sleep(seconds)

    async def each(self, keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T | ClientError]:
        """Call a function for each key, in threads if there are several: a broker that is down delays no other."""
        unique = list(dict.fromkeys(keys))
        results: dict[K, T | ClientError] = {}
        failures: list[BaseException] = []
        remaining = iter(unique)
        turn = threading.Lock()

        def run() -> None:
            while True:
                with turn:
                    key = next(remaining, None)
                if key is None or failures:
                    return
                try:
                    results[key] = finished(ask(key))
                except ClientError as error:
                    results[key] = error
                except BaseException as error:
                    failures.append(error)

        if len(unique) <= 1:
            run()
        else:
            # Not waited for by an interpreter that ends: Ctrl-C is not held up by a broker that does not answer.
            threads = [threading.Thread(target=run, daemon=True) for _ in unique[:THREADS_MAX]]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]
        return {key: results[key] for key in unique}


async def start_socket_connection(endpoint: Endpoint, settings: ClientSettings) -> SocketConnection:
    """Connect and log in. Raises as `BaseConnection.handshake`."""

    async def start(versions: Versions | None) -> SocketConnection:
        connection = SocketConnection(_dial(endpoint, settings), endpoint, settings)
        await connection.set_up(versions)
        return connection

    async def is_ancient() -> bool:
        return await closes_on_versions(start)

    return await start_of_any_age(start, settings, is_ancient)


def _dial(endpoint: Endpoint, settings: ClientSettings) -> socket.socket:
    """Open a socket, with TLS if configured. Raises ConnectionLostError."""
    timeout_s = settings.connect_timeout_ms / 1000 or None
    try:
        sock = _connected(endpoint, timeout_s)
        if settings.tls is None:
            return sock
        try:
            return settings.tls.wrap_socket(sock, server_hostname=endpoint.host)
        except BaseException:
            sock.close()
            raise
    except TimeoutError:
        raise ConnectionLostError(f"{endpoint}: no connection in {settings.connect_timeout_ms} ms") from None
    except (OSError, ValueError, OverflowError) as error:
        # the last two: the advertised host or port is invalid
        raise ConnectionLostError(f"{endpoint}: {reason_of(error)}") from error


def _connected(endpoint: Endpoint, timeout_s: float | None) -> socket.socket:
    """Connect to one of a host's addresses, which share the timeout. Raises OSError as `dialing.dial`."""
    host = (
        endpoint.host.encode() if endpoint.host.isascii() else endpoint.host
    )  # a str would load a codec for it
    addresses = socket.getaddrinfo(host, endpoint.port, type=socket.SOCK_STREAM)
    failures: list[OSError] = []
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(None if timeout_s is None else timeout_s / len(addresses))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            sock.close()
            failures.append(error)
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise first_reason(failures)


@contextmanager
def socket_client(
    bootstrap: str | Iterable[Endpoint], settings: ClientSettings | None = None
) -> Iterator[SocketClient]:
    """Make a client; connections are opened when they are needed and closed at the end of the block."""
    endpoints = parse_bootstrap(bootstrap) if isinstance(bootstrap, str) else list(bootstrap)
    client = SocketClient(endpoints, settings or ClientSettings())
    try:
        yield client
    finally:
        client.close()
