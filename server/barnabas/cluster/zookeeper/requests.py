"""Work of kazoo's thread: connect, send requests in order, pass on results.

The rule: this code neither waits for the event loop nor uses its objects: answers and watches reach it through its
queue. ZooKeeper's requests that kazoo lacks are here.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any

import trio
from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import serialization as packets
from kazoo.protocol.states import ZnodeStat

from barnabas.cluster.zookeeper.session import (
    BadVersionError,
    ConnectionLostError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    Stat,
    Watch,
    ZooKeeperError,
)
from barnabas.config.cluster import StoreFile, ZooKeeperTls
from barnabas.network.tls_stores import PEM, StoreSettings, read_key_store, read_trust_store
from barnabas.system.files import as_file

CREATE_2 = 15
MULTI = 14
MULTI_READ = 22

_ERRORS: tuple[tuple[type[Exception], type[ZooKeeperError]], ...] = (
    (kazoo_errors.NoNodeError, NoNodeError),
    (kazoo_errors.NodeExistsError, NodeExistsError),
    (kazoo_errors.BadVersionError, BadVersionError),
    (kazoo_errors.NotEmptyError, NotEmptyError),
    (kazoo_errors.NoAuthError, NoAuthError),
    (kazoo_errors.AuthFailedError, NoAuthError),
    (kazoo_errors.InvalidACLError, NoAuthError),
    (kazoo_errors.SessionExpiredError, SessionExpiredError),
    (kazoo_errors.ConnectionLoss, ConnectionLostError),
    (kazoo_errors.ConnectionClosedError, ConnectionLostError),
    (kazoo_errors.OperationTimeoutError, ConnectionLostError),
    (kazoo_errors.SessionMovedError, ConnectionLostError),
)


def translated(error: BaseException, path: str) -> ZooKeeperError:
    """Return the session's error for one of kazoo's."""
    for theirs, ours in _ERRORS:
        if isinstance(error, theirs):
            return ours(path)
    return ZooKeeperError(f"{path}: {type(error).__name__} {error}")


def stat_of(stat: ZnodeStat) -> Stat:
    """Convert kazoo's Stat."""
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner, stat.numChildren, stat.ctime)


class Multi:
    """All of these operations or none; unlike kazoo's own, it requests the Stat of created znodes."""

    type = MULTI

    def __init__(self, operations: Sequence[Any]) -> None:
        self._operations = operations

    def serialize(self) -> bytes:
        """The bytes of the request."""
        parts = [
            packets.MultiHeader(operation.type, False, -1).serialize() + operation.serialize()
            for operation in self._operations
        ]
        return bytes(b"".join(parts) + packets.multiheader_struct.pack(-1, True, -1))

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[Any]:
        """Return one result for each operation: a Stat, None, or the error."""
        results: list[Any] = []
        while True:
            header, offset = packets.MultiHeader.deserialize(data, offset)
            if header.done:
                return results
            if header.type == CREATE_2:
                _, offset = packets.read_string(data, offset)
            if header.type in (CREATE_2, packets.SetData.type):
                results.append(ZnodeStat._make(packets.stat_struct.unpack_from(data, offset)))
                offset += packets.stat_struct.size
            elif header.type == -1:
                (code,) = packets.int_struct.unpack_from(data, offset)
                offset += packets.int_struct.size
                results.append(kazoo_errors.EXCEPTIONS[code]())
            else:
                results.append(None)


class MultiRead:
    """Read many znodes; the answer has None for those that do not exist."""

    type = MULTI_READ

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        """The bytes of the request."""
        head = packets.MultiHeader(packets.GetData.type, False, -1).serialize()
        parts = [head + packets.GetData(path, None).serialize() for path in self._paths]
        return bytes(b"".join(parts) + packets.multiheader_struct.pack(-1, True, -1))

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[tuple[bytes, Stat] | None]:
        """Return data and Stat of each znode, None for missing ones."""
        results: list[tuple[bytes, Stat] | None] = []
        while True:
            header, offset = packets.MultiHeader.deserialize(data, offset)
            if header.done:
                return results
            if header.type == -1:
                (code,) = packets.int_struct.unpack_from(data, offset)
                offset += packets.int_struct.size
                if code != kazoo_errors.NoNodeError.code:
                    raise kazoo_errors.EXCEPTIONS[code]()
                results.append(None)
            else:
                value, offset = packets.read_buffer(data, offset)
                stat = ZnodeStat._make(packets.stat_struct.unpack_from(data, offset))
                offset += packets.stat_struct.size
                results.append((bytes(value or b""), stat_of(stat)))


class WatchCall:
    """A watch in the form for kazoo, called in its thread; two of the same watch are equal."""

    __slots__ = ("_token", "_watch")

    def __init__(self, watch: Watch, token: trio.lowlevel.TrioToken) -> None:
        self._watch = watch
        self._token = token

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WatchCall) and other._watch == self._watch

    def __hash__(self) -> int:
        return hash(self._watch)

    def __call__(self, _: object) -> None:
        """Schedule the watch in the event loop."""
        soon(self._token, self._watch)


def soon(token: trio.lowlevel.TrioToken, act: Callable[..., object], *arguments: object) -> None:
    """Schedule a call in the event loop, in the order of these calls."""
    with suppress(trio.RunFinishedError):  # the event loop has ended
        token.run_sync_soon(act, *arguments)


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Handler for kazoo: one thread, which connects, sends, receives, and passes on results."""

    def __init__(self, timeout_s: float, context: ssl.SSLContext | None, *, checks_host_name: bool) -> None:
        super().__init__()
        self._timeout_s = timeout_s
        self._context = context
        self._checks_host_name = checks_host_name
        self.last_failure = ""

    def start(self) -> None:
        """Start nothing: there are no threads for callbacks."""

    def stop(self) -> None:
        """Stop nothing."""

    def dispatch_callback(self, callback: Any) -> None:
        """Hand a watch over at once."""
        callback.func(*callback.args)

    def create_connection(self, address: tuple[str, int], hostname: str = "", **_: object) -> socket.socket:
        """Connect to a server, with TLS if it is configured."""
        try:
            connection = socket.create_connection(address, self._timeout_s)
            if self._context is None:
                return connection
            try:
                return self._context.wrap_socket(connection, server_hostname=hostname or address[0])
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            self.last_failure = f"{hostname or address[0]}:{address[1]}: {error}"
            raise


def tls_context(tls: ZooKeeperTls) -> ssl.SSLContext:
    """Return the TLS context. Raises TlsError for unusable files, ssl.SSLError for invalid content."""
    trusted = read_trust_store(_settings(tls.trust_store)) if tls.trust_store is not None else None
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cadata=trusted)
    context.check_hostname = tls.checks_host_name
    if tls.key_store is not None:
        material = read_key_store(_settings(tls.key_store))
        with as_file(material.pem) as path:
            context.load_cert_chain(path, password=material.password)
    return context


def log_in(connection: Any, messages: Generator[bytes, bytes, None], timeout_s: float) -> None:
    """Log in by SASL on a connection of kazoo's, before anything else is sent.

    Raises ConnectionDropped, upon which kazoo connects again: by then the server may know the password, and tickets may
    be available.
    """
    from barnabas.client.errors import ClientError
    from barnabas.security.digest_md5 import DigestError

    try:
        data: bytes | None = next(messages)
        xid = 0
        while data is not None:
            xid += 1
            connection._submit(packets.SASL(data), timeout_s, xid)
            answer = _token(connection, timeout_s)
            try:
                data = messages.send(answer)
            except StopIteration:
                data = None
    except (ClientError, DigestError) as error:
        raise kazoo_errors.ConnectionDropped(f"SASL: {error}") from error


def _token(connection: Any, timeout_s: float) -> bytes:
    try:
        header, buffer, offset = connection._read_header(timeout_s)
    except kazoo_errors.ConnectionDropped as error:
        raise kazoo_errors.ConnectionDropped(
            "SASL: the server refuses the login, and has closed the connection"
        ) from error
    if header.err:
        name = kazoo_errors.EXCEPTIONS[header.err].__name__
        raise kazoo_errors.ConnectionDropped(f"SASL: the server refuses the login: {name}")
    token, _ = packets.SASL.deserialize(buffer, offset)
    return bytes(token or b"")


def _settings(store: StoreFile) -> StoreSettings:
    """A store for `tls_stores`: ZooKeeper's settings have one password, which for PEM is the key's."""
    is_pem = store.type.upper() == PEM
    is_key = store.setting.endswith("keystore")
    return StoreSettings(
        store.setting,
        store.type,
        store.location,
        password=None if is_pem and is_key else store.password,
        key_password=store.password if is_pem else None,
    )


Done = Callable[[Any, "BaseException | None"], None]
"""Called in kazoo's thread with the answer of a request, or with the error."""


class Requests:
    """Requests in flight up to a limit, and queued ones in order. Used by both threads."""

    def __init__(self, client: KazooClient, in_flight_max: int) -> None:
        self._client = client
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        self._waiting: deque[tuple[Any, Done]] = deque()
        self._lock = threading.Lock()

    def submit(self, request: Any, done: Done) -> None:
        """Send a request as soon as there is room for it."""
        with self._lock:
            if self._in_flight >= self._in_flight_max:
                self._waiting.append((request, done))
                return
            self._in_flight += 1
        self._send(request, done)

    def _send(self, request: Any, done: Done) -> None:
        self._client._call(request, Result(self, done))

    def answered(self) -> None:
        """Note that another request may be sent."""
        with self._lock:
            if not self._waiting:
                self._in_flight -= 1
                return
            request, done = self._waiting.popleft()
        self._send(request, done)

    def broke(self, error: BaseException) -> None:
        """Note that a request was lost with the connection: queued ones are lost, too."""
        with self._lock:
            self._in_flight -= 1
            waiting, self._waiting = self._waiting, deque()
        for _, done in waiting:
            done(None, error)

    def drop_stale(self) -> None:
        """Fail requests made without a connection. Called in kazoo's thread, before anything is sent."""
        queue = self._client._queue
        while True:
            try:
                _, result = queue.popleft()
            except IndexError:
                return
            if result is not None:
                result.set_exception(kazoo_errors.ConnectionLoss())


class Result:
    """Receives the result of a request from kazoo."""

    __slots__ = ("_done", "_is_done", "_requests")

    def __init__(self, requests: Requests, done: Done) -> None:
        self._requests = requests
        self._done = done
        self._is_done = False

    def set(self, value: Any) -> None:
        """Take the answer."""
        if not self._is_done:
            self._is_done = True
            self._requests.answered()
            self._done(value, None)

    def set_exception(self, error: BaseException) -> None:
        """Take the error."""
        if self._is_done:
            return
        self._is_done = True
        if isinstance(error, kazoo_errors.ZookeeperError) and not isinstance(
            error, kazoo_errors.ConnectionLoss | kazoo_errors.SessionExpiredError
        ):
            self._requests.answered()
        else:
            self._requests.broke(error)
        self._done(None, error)


class Pending:
    """A task in the event loop that waits for an answer."""

    __slots__ = ("_token", "answered", "error", "result")

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        self.answered = trio.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def done(self, result: Any, error: BaseException | None) -> None:
        """Store the result of the request, in kazoo's thread."""
        soon(self._token, self.finish, result, error)

    def finish(self, result: Any, error: BaseException | None) -> None:
        """Wake the waiting task, in the event loop; a second answer is ignored."""
        if not self.answered.is_set():
            self.result, self.error = result, error
            self.answered.set()


class Many:
    """The answers of many requests, passed on together."""

    def __init__(self, pending: Pending, count: int) -> None:
        self._pending = pending
        self._left = count
        self._error: BaseException | None = None
        self.results: list[Any] = [None] * count

    def done(self, index: int) -> Done:
        """Return the callback for the answer of one of the requests."""

        def done(result: Any, error: BaseException | None) -> None:
            self.results[index] = result
            if error is not None and not isinstance(error, kazoo_errors.NoNodeError):
                self._error = self._error or error
            self._left -= 1
            if not self._left:
                self._pending.done(self.results, self._error)

        return done
