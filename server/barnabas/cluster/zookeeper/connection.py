"""A session with real ZooKeeper servers: kazoo in a separate thread, with its answers passed to the event loop.

The rule: only kazoo's thread uses the connection, and only passes on results; the session's state changes only in the
event loop's thread. A request that was made before a break of the connection is reported as lost; it is never sent
later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import trio
from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol import serialization as packets
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from barnabas.cluster.zookeeper.requests import (
    Handler,
    Many,
    Multi,
    MultiRead,
    Pending,
    Requests,
    WatchCall,
    log_in,
    soon,
    stat_of,
    tls_context,
    translated,
)
from barnabas.cluster.zookeeper.resource_znodes import is_open, is_sensitive
from barnabas.cluster.zookeeper.session import (
    ANY_VERSION,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    SessionExpiredError,
    SessionState,
    SetData,
    Stat,
    Watch,
    ZooKeeperError,
)
from barnabas.cluster.zookeeper.tracked_session import TrackedSession
from barnabas.config.cluster import ZooKeeperSasl, ZooKeeperSettings
from barnabas.environment import Threads
from barnabas.network.tls_stores import TlsError

log = logging.getLogger(__name__)

EPHEMERAL = 1
SEQUENCE = 2
RECONNECT_DELAY_S = 0.1
RECONNECT_DELAY_MAX_S = 1.0
READS_TOGETHER = 128
"""Znodes read with one request, if the server supports it (ZooKeeper 3.6)."""


class UnreachableError(ZooKeeperError):
    """No server could be reached in time; the message has the addresses and their errors."""


class ZooKeeperConnection(TrackedSession):
    """A session, as `session.ZooKeeper`. Lifecycle: `connect`, requests, `close`."""

    def __init__(self, settings: ZooKeeperSettings, threads: Threads) -> None:
        """Connect to nothing yet. Raises UnreachableError for files of keys or certificates that cannot be used."""
        super().__init__()
        self._settings = settings
        self._threads = threads
        self._token = trio.lowlevel.current_trio_token()
        count = len(settings.servers)
        timeout_s = max(settings.connection_timeout_ms / 1000 / count, 1.0)
        tls = settings.tls
        try:
            context = tls_context(tls) if tls is not None else None
        except (OSError, TlsError) as error:
            raise UnreachableError(f"TLS to ZooKeeper cannot be set up: {error}") from error
        self._handler = Handler(timeout_s, context, checks_host_name=bool(tls and tls.checks_host_name))
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
        self._has_logged_in = True  # on this connection; only kazoo's thread looks at it
        if settings.sasl is not None:
            self._set_up_sasl(settings.sasl)
        self._requests = Requests(self._client, settings.requests_in_flight_max)
        self._pending: set[Pending] = set()
        self._has_multi_read = True

    def _set_up_sasl(self, sasl: ZooKeeperSasl) -> None:
        """Make every connection begin with a login. Raises UnreachableError."""
        from barnabas.cluster.zookeeper.sasl import SaslSetupError, login_by

        try:
            messages = login_by(sasl.jaas, sasl.service)
        except SaslSetupError as error:
            raise UnreachableError(f"zookeeper.sasl.jaas.config=...: {error}") from error
        kazoo = self._client._connection

        def authenticate(host: str, timeout_s: float) -> None:
            try:
                log_in(kazoo, messages(host), timeout_s)
            except kazoo_errors.ConnectionDropped as error:
                self._handler.last_failure = f"{host}: {error}"
                raise
            self._has_logged_in = True
            self._kazoo_changed(KazooState.CONNECTED)

        kazoo.sasl_options = {}  # not None, which has kazoo call the other
        kazoo._authenticate_with_sasl = authenticate
        self._has_logged_in = False

    async def connect(self) -> None:
        """Begin the session, and create the chroot if it is missing. Raises UnreachableError, NoAuthError."""
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
            if not self._has_logged_in:
                return  # it comes again
            self._requests.drop_stale()
            soon(self._token, self.begin_session, self._client._session_id)
        elif state == KazooState.SUSPENDED:
            self._has_logged_in = self._settings.sasl is None
            soon(self._token, self.end_session, SessionState.DISCONNECTED)
        else:
            if keeper == KeeperState.AUTH_FAILED:
                log.error("ZooKeeper has refused zookeeper.digest.credentials: no session begins any more")
            soon(self._token, self.end_session, SessionState.EXPIRED)

    # the event loop's thread

    def begin_session(self, session_id: int) -> None:
        """Note that a session is connected."""
        if self._is_closed:
            return
        log.info("ZooKeeper: session 0x%x is connected", session_id)
        self._session_id = session_id
        self._set_state(SessionState.CONNECTED)

    def end_session(self, state: SessionState) -> None:
        """Note that the connection of a session is lost, or the session has expired; requests fail."""
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

    def _path(self, path: str) -> str:
        return (self._settings.chroot + path).rstrip("/") or "/"

    def _acl(self, path: str) -> Any:
        if not self._settings.has_acls or is_open(path):
            return OPEN_ACL_UNSAFE
        return CREATOR_ALL_ACL if is_sensitive(path) else CREATOR_ALL_ACL + READ_ACL_UNSAFE

    def _call(self, watch: Watch | None) -> WatchCall | None:
        return WatchCall(watch, self._token) if watch is not None else None

    async def _ask(self, request: Any, path: str) -> Any:
        return await self._answer(lambda pending: self._requests.submit(request, pending.done), path)

    async def _answer(self, send: Callable[[Pending], None], path: str) -> Any:
        if self._is_closed:
            raise SessionExpiredError("the session was closed")
        if self._state is not SessionState.CONNECTED:
            await trio.lowlevel.checkpoint()
            raise ConnectionLostError("no ZooKeeper server can be reached")
        pending = Pending(self._token)
        self._pending.add(pending)
        try:
            send(pending)
            await pending.answered.wait()
        finally:
            self._pending.discard(pending)
        if pending.error is not None:
            raise translated(pending.error, path) from pending.error
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
            created, stat = await self._ask(request, path)
        except NoNodeError:
            parent = path.rpartition("/")[0]
            if not parents or not parent:
                raise
            with suppress(NodeExistsError):
                await self.create(parent, parents=True)
            created, stat = await self._ask(request, path)
        return created.removeprefix(self._settings.chroot), stat_of(stat)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Return a znode's data."""
        data, stat = await self._ask(packets.GetData(self._path(path), self._call(watch)), path)
        return data or b"", stat_of(stat)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Return the data of many znodes, None for missing ones; all are requested together."""
        if not paths:
            await trio.lowlevel.checkpoint()
            return []

        full = [self._path(path) for path in paths]
        shown = f"{paths[0]} and {len(paths) - 1} more"
        if self._has_multi_read:
            parts = [full[at : at + READS_TOGETHER] for at in range(0, len(full), READS_TOGETHER)]
            try:
                answers = await self._ask_many([MultiRead(part) for part in parts], shown)
            except ZooKeeperError as error:
                if not isinstance(error.__cause__, kazoo_errors.UnimplementedError):
                    raise
                self._has_multi_read = False  # before 3.6
            else:
                return [answer for part in answers for answer in part]
        singles = await self._ask_many([packets.GetData(path, None) for path in full], shown)
        return [None if node is None else (node[0] or b"", stat_of(node[1])) for node in singles]

    async def _ask_many(self, requests: Sequence[Any], shown: str) -> list[Any]:
        """Ask for all of these at once; None is the answer for a znode that is not there."""

        def send(pending: Pending) -> None:
            many = Many(pending, len(requests))
            for index, request in enumerate(requests):
                self._requests.submit(request, many.done(index))

        answers: list[Any] = await self._answer(send, shown)
        return answers

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return a znode's Stat, None if it does not exist; the watch is set in both cases."""
        stat = await self._ask(packets.Exists(self._path(path), self._call(watch)), path)
        return None if stat is None else stat_of(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a znode's children, sorted."""
        return sorted(await self._ask(packets.GetChildren(self._path(path), self._call(watch)), path))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Change a znode's data."""
        return stat_of(await self._ask(packets.SetData(self._path(path), data, version), path))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a znode."""
        await self._ask(packets.Delete(self._path(path), version), path)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        """Do all of these or none."""
        if not operations:
            await trio.lowlevel.checkpoint()
            return []
        request = Multi([self._packet(operation) for operation in operations])
        results = await self._ask(request, operations[0].path)
        for index, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, kazoo_errors.RolledBackError):
                error = translated(result, operations[index].path)
                error.operation_index = index  # type: ignore[attr-defined]
                raise error
        return [None if result is None else stat_of(result) for result in results]

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
    """Return a logger that silences kazoo: this module logs the same events, and others do not concern operators."""
    logger = logging.getLogger(f"{__name__}.kazoo")
    logger.setLevel(logging.ERROR)
    return logger


async def connect(settings: ZooKeeperSettings, threads: Threads) -> ZooKeeperConnection:
    """Return a session that is connected. Raises UnreachableError, NoAuthError."""
    connection = ZooKeeperConnection(settings, threads)
    await connection.connect()
    return connection
