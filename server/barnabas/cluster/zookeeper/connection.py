"""A session with real ZooKeeper servers: kazoo in a thread of its own, its answers brought into the event loop.

The rule: kazoo's thread alone touches its connection, and only hands over what came of a request; what this session
says of itself changes in the event loop's thread alone. A request that was made before a break of the connection is
reported as lost; it is never sent later.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import trio
from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import serialization as packets
from kazoo.protocol.states import KazooState, KeeperState, ZnodeStat
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from barnabas.cluster.zookeeper.resource_znodes import is_open, is_sensitive
from barnabas.cluster.zookeeper.session import (
    ANY_VERSION,
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SessionState,
    SetData,
    Stat,
    Watch,
    ZooKeeperError,
)
from barnabas.config.cluster import ZooKeeperSettings, ZooKeeperTls
from barnabas.environment import Threads

log = logging.getLogger(__name__)

EPHEMERAL = 1
SEQUENCE = 2
RECONNECT_DELAY_S = 0.1
RECONNECT_DELAY_MAX_S = 1.0
CREATE_2 = 15
MULTI = 14
MULTI_READ = 22
READS_TOGETHER = 128
"""So many znodes are read with one request, where the server can (ZooKeeper 3.6)."""

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


class UnreachableError(ZooKeeperError):
    """No server could be reached in time; the message says what was tried, and what came of it."""


def _translated(error: BaseException, path: str) -> ZooKeeperError:
    for theirs, ours in _ERRORS:
        if isinstance(error, theirs):
            return ours(path)
    return ZooKeeperError(f"{path}: {type(error).__name__} {error}")


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner, stat.numChildren, stat.ctime)


class _Multi:
    """All of these operations or none; unlike kazoo's own, it asks for the Stat of what is made."""

    type = MULTI

    def __init__(self, operations: Sequence[Any]) -> None:
        self._operations = operations

    def serialize(self) -> bytes:
        parts = [
            packets.MultiHeader(operation.type, False, -1).serialize() + operation.serialize()
            for operation in self._operations
        ]
        return bytes(b"".join(parts) + packets.multiheader_struct.pack(-1, True, -1))

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[Any]:
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


class _MultiRead:
    """Read many znodes; the answer has None for those that cannot be read as they are not there."""

    type = MULTI_READ

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        head = packets.MultiHeader(packets.GetData.type, False, -1).serialize()
        parts = [head + packets.GetData(path, None).serialize() for path in self._paths]
        return bytes(b"".join(parts) + packets.multiheader_struct.pack(-1, True, -1))

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[tuple[bytes, Stat] | None]:
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
                results.append((bytes(value or b""), _stat(stat)))


class _WatchCall:
    """A watch as kazoo calls it, from its thread; two of the same watch are one."""

    __slots__ = ("_token", "_watch")

    def __init__(self, watch: Watch, token: trio.lowlevel.TrioToken) -> None:
        self._watch = watch
        self._token = token

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WatchCall) and other._watch == self._watch

    def __hash__(self) -> int:
        return hash(self._watch)

    def __call__(self, _: object) -> None:
        _soon(self._token, self._watch)


def _soon(token: trio.lowlevel.TrioToken, act: Callable[..., object], *arguments: object) -> None:
    with suppress(trio.RunFinishedError):  # nobody is there any more
        token.run_sync_soon(act, *arguments)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """What kazoo runs on: one thread, which connects, sends, receives, and hands over what came."""

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
        """Connect to a server, with TLS if that is asked for."""
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


def _tls_context(tls: ZooKeeperTls) -> ssl.SSLContext:
    """Raises OSError for files that cannot be read, ssl.SSLError for what is in them."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=tls.trust_file)
    context.check_hostname = tls.checks_host_name
    if tls.key_file is not None:
        context.load_cert_chain(tls.key_file, password=tls.key_password)
    return context


Done = Callable[[Any, "BaseException | None"], None]
"""Called in kazoo's thread with the answer of a request, or with the error."""


class _Requests:
    """Requests on their way: so many at once, the others in their order. Used by both threads."""

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
        self._client._call(request, _Result(self, done))

    def answered(self) -> None:
        """Note that there is room for one more."""
        with self._lock:
            if not self._waiting:
                self._in_flight -= 1
                return
            request, done = self._waiting.popleft()
        self._send(request, done)

    def broke(self, error: BaseException) -> None:
        """Note that a request was lost with the connection: those that wait are lost with it."""
        with self._lock:
            self._in_flight -= 1
            waiting, self._waiting = self._waiting, deque()
        for _, done in waiting:
            done(None, error)

    def drop_stale(self) -> None:
        """Lose what was asked for while there was no connection. Called in kazoo's thread, before anything is sent."""
        queue = self._client._queue
        while True:
            try:
                _, result = queue.popleft()
            except IndexError:
                return
            if result is not None:
                result.set_exception(kazoo_errors.ConnectionLoss())


class _Result:
    """Where kazoo puts what came of one request."""

    __slots__ = ("_done", "_is_done", "_requests")

    def __init__(self, requests: _Requests, done: Done) -> None:
        self._requests = requests
        self._done = done
        self._is_done = False

    def set(self, value: Any) -> None:
        if not self._is_done:
            self._is_done = True
            self._requests.answered()
            self._done(value, None)

    def set_exception(self, error: BaseException) -> None:
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


class _Pending:
    """Somebody in the event loop who waits for an answer."""

    __slots__ = ("_token", "answered", "error", "result")

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        self.answered = trio.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def done(self, result: Any, error: BaseException | None) -> None:
        _soon(self._token, self.finish, result, error)

    def finish(self, result: Any, error: BaseException | None) -> None:
        if not self.answered.is_set():
            self.result, self.error = result, error
            self.answered.set()


class _Many:
    """The answers of many requests, handed over together."""

    def __init__(self, pending: _Pending, count: int) -> None:
        self._pending = pending
        self._left = count
        self._error: BaseException | None = None
        self.results: list[Any] = [None] * count

    def done(self, index: int) -> Done:
        def done(result: Any, error: BaseException | None) -> None:
            self.results[index] = result
            if error is not None and not isinstance(error, kazoo_errors.NoNodeError):
                self._error = self._error or error
            self._left -= 1
            if not self._left:
                self._pending.done(self.results, self._error)

        return done


class ZooKeeperConnection:
    """A session, as `session.ZooKeeper`. Lifecycle: `connect`, requests, `close`."""

    def __init__(self, settings: ZooKeeperSettings, threads: Threads) -> None:
        """Connect to nothing yet. Raises UnreachableError for files of keys or certificates that cannot be used."""
        self._settings = settings
        self._threads = threads
        self._token = trio.lowlevel.current_trio_token()
        count = len(settings.servers)
        timeout_s = max(settings.connection_timeout_ms / 1000 / count, 1.0)
        tls = settings.tls
        try:
            context = _tls_context(tls) if tls is not None else None
        except OSError as error:
            raise UnreachableError(f"TLS to ZooKeeper cannot be set up: {error}") from error
        self._handler = _Handler(timeout_s, context, checks_host_name=bool(tls and tls.checks_host_name))
        self._client = KazooClient(
            hosts=",".join(_address(host, port) for host, port in settings.servers),
            timeout=settings.session_timeout_ms / 1000,
            handler=self._handler,
            auth_data=[("digest", ":".join(settings.digest))] if settings.digest else None,
            connection_retry={
                "max_tries": -1,
                "delay": RECONNECT_DELAY_S,
                "backoff": 2,
                "max_delay": RECONNECT_DELAY_MAX_S,
                "sleep_func": self._handler.sleep_func,
            },
            logger=_quiet_logger(),
        )
        self._client.add_listener(self._kazoo_changed)
        self._requests = _Requests(self._client, settings.requests_in_flight_max)
        self._pending: set[_Pending] = set()
        self._listeners: list[Callable[[SessionState], None]] = []
        self._state = SessionState.DISCONNECTED
        self._session_id = 0
        self._connected = trio.Event()
        self._is_closed = False
        self._has_multi_read = True

    async def connect(self) -> None:
        """Begin the session, and make the chroot if it is missing. Raises UnreachableError, NoAuthError."""
        self._client.start_async()
        with trio.move_on_after(self._settings.connection_timeout_ms / 1000):
            await self._connected.wait()
        if self._state is not SessionState.CONNECTED:
            await self.close()
            why = f": {self._handler.last_failure}" if self._handler.last_failure else ""
            raise UnreachableError(
                f"ZooKeeper at {self._settings.connect} could not be reached within "
                f"{self._settings.connection_timeout_ms} ms (zookeeper.connection.timeout.ms){why}"
            )
        parts = self._settings.chroot.split("/")[1:]
        for depth in range(1, len(parts) + 1):
            path = "/" + "/".join(parts[:depth])
            with suppress(NodeExistsError):
                await self._ask(packets.Create2(path, b"", self._acl(path), 0), path)

    # kazoo's thread

    def _kazoo_changed(self, state: str) -> None:
        keeper = self._client._state
        if state == KazooState.CONNECTED:
            self._requests.drop_stale()
            _soon(self._token, self._begin, self._client._session_id)
        elif state == KazooState.SUSPENDED:
            _soon(self._token, self._end, SessionState.DISCONNECTED)
        else:
            if keeper == KeeperState.AUTH_FAILED:
                log.error("ZooKeeper has refused zookeeper.digest.credentials: no session begins any more")
            _soon(self._token, self._end, SessionState.EXPIRED)

    # the event loop's thread

    def _begin(self, session_id: int) -> None:
        if self._is_closed:
            return
        log.info("ZooKeeper: session 0x%x is connected", session_id)
        self._session_id = session_id
        self._set_state(SessionState.CONNECTED)

    def _end(self, state: SessionState) -> None:
        if self._is_closed:
            return
        if state is SessionState.EXPIRED:
            log.warning("ZooKeeper: session 0x%x has expired", self._session_id)
        elif self._session_id:
            log.warning("ZooKeeper: the connection is lost %s", self._handler.last_failure)
        self._fail_all(kazoo_errors.ConnectionLoss())
        self._set_state(state)

    def _fail_all(self, error: BaseException) -> None:
        for pending in tuple(self._pending):
            pending.finish(None, error)

    def _set_state(self, state: SessionState) -> None:
        self._state = state
        if state is SessionState.CONNECTED:
            self._connected.set()
        elif self._connected.is_set():
            self._connected = trio.Event()
        for listener in tuple(self._listeners):
            listener(state)

    @property
    def session_id(self) -> int:
        """The id of the current session, 0 before the first."""
        return self._session_id

    @property
    def state(self) -> SessionState:
        """What is known of the session now."""
        return self._state

    @property
    def is_closed(self) -> bool:
        """Whether the session was ended by `close`."""
        return self._is_closed

    def watch_session(self, changed: Callable[[SessionState], None]) -> None:
        """Have `changed` called with each new state."""
        self._listeners.append(changed)

    async def wait_connected(self) -> None:
        """Return when the session is connected, be it the same or a new one, or was closed."""
        while self._state is not SessionState.CONNECTED and not self._is_closed:
            await self._connected.wait()
        await trio.lowlevel.checkpoint()

    def _path(self, path: str) -> str:
        return (self._settings.chroot + path).rstrip("/") or "/"

    def _acl(self, path: str) -> Any:
        if not self._settings.has_acls or is_open(path):
            return OPEN_ACL_UNSAFE
        return CREATOR_ALL_ACL if is_sensitive(path) else CREATOR_ALL_ACL + READ_ACL_UNSAFE

    def _call(self, watch: Watch | None) -> _WatchCall | None:
        return _WatchCall(watch, self._token) if watch is not None else None

    async def _ask(self, request: Any, path: str) -> Any:
        return await self._answer(lambda pending: self._requests.submit(request, pending.done), path)

    async def _answer(self, send: Callable[[_Pending], None], path: str) -> Any:
        if self._is_closed:
            raise SessionExpiredError("the session was closed")
        if self._state is not SessionState.CONNECTED:
            await trio.lowlevel.checkpoint()
            raise ConnectionLostError("no ZooKeeper server can be reached")
        pending = _Pending(self._token)
        self._pending.add(pending)
        try:
            send(pending)
            await pending.answered.wait()
        finally:
            self._pending.discard(pending)
        if pending.error is not None:
            raise _translated(pending.error, path) from pending.error
        return pending.result

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> tuple[str, Stat]:
        """Make a znode and return its path (with its number, for a sequence)."""
        flags = (EPHEMERAL if ephemeral else 0) | (SEQUENCE if sequence else 0)
        full = self._settings.chroot + path
        request = packets.Create2(full, data, self._acl(path), flags)
        try:
            made, stat = await self._ask(request, path)
        except NoNodeError:
            parent = path.rpartition("/")[0]
            if not parents or not parent:
                raise
            with suppress(NodeExistsError):
                await self.create(parent, parents=True)
            made, stat = await self._ask(request, path)
        return made.removeprefix(self._settings.chroot), _stat(stat)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Return a znode's data."""
        data, stat = await self._ask(packets.GetData(self._path(path), self._call(watch)), path)
        return data or b"", _stat(stat)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Return the data of many znodes, None for those that are not there; all are asked for at once."""
        if not paths:
            await trio.lowlevel.checkpoint()
            return []

        full = [self._path(path) for path in paths]
        shown = f"{paths[0]} and {len(paths) - 1} more"
        if self._has_multi_read:
            parts = [full[at : at + READS_TOGETHER] for at in range(0, len(full), READS_TOGETHER)]
            try:
                found = await self._ask_many([_MultiRead(part) for part in parts], shown)
            except ZooKeeperError as error:
                if not isinstance(error.__cause__, kazoo_errors.UnimplementedError):
                    raise
                self._has_multi_read = False  # before 3.6
            else:
                return [one for part in found for one in part]
        singles = await self._ask_many([packets.GetData(path, None) for path in full], shown)
        return [None if one is None else (one[0] or b"", _stat(one[1])) for one in singles]

    async def _ask_many(self, requests: Sequence[Any], shown: str) -> list[Any]:
        """Ask for all of these at once; None is the answer for a znode that is not there."""

        def send(pending: _Pending) -> None:
            many = _Many(pending, len(requests))
            for index, request in enumerate(requests):
                self._requests.submit(request, many.done(index))

        answers: list[Any] = await self._answer(send, shown)
        return answers

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return what is known of a znode, None if there is none; the watch is set in both cases."""
        stat = await self._ask(packets.Exists(self._path(path), self._call(watch)), path)
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a znode's children, sorted."""
        return sorted(await self._ask(packets.GetChildren(self._path(path), self._call(watch)), path))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Change a znode's data."""
        return _stat(await self._ask(packets.SetData(self._path(path), data, version), path))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a znode."""
        await self._ask(packets.Delete(self._path(path), version), path)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        """Do all of these or none."""
        if not operations:
            await trio.lowlevel.checkpoint()
            return []
        request = _Multi([self._packet(operation) for operation in operations])
        results = await self._ask(request, operations[0].path)
        for index, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, kazoo_errors.RolledBackError):
                error = _translated(result, operations[index].path)
                error.operation_index = index  # type: ignore[attr-defined]
                raise error
        return [None if result is None else _stat(result) for result in results]

    def _packet(self, operation: Operation) -> Any:
        path = self._path(operation.path)
        match operation:
            case Create(plain, data, ephemeral):
                return packets.Create2(path, data, self._acl(plain), EPHEMERAL if ephemeral else 0)
            case SetData(_, data, version):
                return packets.SetData(path, data, version)
            case Delete(_, version):
                return packets.Delete(path, version)
            case Check(_, version):
                return packets.CheckVersion(path, version)

    async def close(self) -> None:
        """End the session: its ephemeral znodes go at once."""
        if self._is_closed:
            return
        self._is_closed = True
        self._fail_all(kazoo_errors.SessionExpiredError())
        self._set_state(SessionState.EXPIRED)
        self._connected.set()
        with trio.CancelScope(shield=True):
            await self._threads.run(self._stop)

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:
            log.warning("ZooKeeper: the session could not be ended, and expires: %s", error)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _quiet_logger() -> logging.Logger:
    """Kazoo says each thing that this module says too, and some that are none of an operator's business."""
    logger = logging.getLogger(f"{__name__}.kazoo")
    logger.setLevel(logging.ERROR)
    return logger


async def connect(settings: ZooKeeperSettings, threads: Threads) -> ZooKeeperConnection:
    """Return a session that is connected. Raises UnreachableError, NoAuthError."""
    connection = ZooKeeperConnection(settings, threads)
    await connection.connect()
    return connection
