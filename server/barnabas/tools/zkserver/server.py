"""The server: connections, the journal, and the order of writing and sending.

The rule: a message depends on the transactions before it, and waits until these are on disk. So no client sees changes
that a crash could undo, and many transactions share one sync.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import trio

from barnabas.security.digest_md5 import DigestServer
from barnabas.tools.zkserver.acl import Identity, digest_identity
from barnabas.tools.zkserver.core import Core, Peer
from barnabas.tools.zkserver.errors import RefusedError
from barnabas.tools.zkserver.jute import Reader, encode_bool, encode_buffer, encode_int, encode_long
from barnabas.tools.zkserver.sessions import Session
from barnabas.tools.zkserver.storage import Storage, StorageError, encode_snapshot
from barnabas.tools.zkserver.words import WORDS, Status

log = logging.getLogger(__name__)

PASSWORD_BYTES = 16
FRAME_BYTES_MAX = (1 << 20) + 64 * 1024
"""ZooKeeper's jute.maxbuffer, plus the size of a request's other fields."""
UNSENT_BYTES_MAX = 16 << 20
"""A client that reads so slowly that more than this waits for it is disconnected."""
READ_AHEAD_BYTES = 1 << 20
"""Bytes waiting to be sent to a client at which reading of its requests pauses."""
CONNECT_SECONDS = 10.0
TICK_SECONDS = 0.5
CHECK_NODES_TICKS = 120
"""Ticks between checks of containers and times to live."""
SASL_SERVICE, SASL_HOST = "zookeeper", "zk-sasl-md5"
"""The service, and the host and realm, of every ZooKeeper server with DIGEST-MD5."""
NONCE_BYTES = 16
TIMEOUT_MIN_MS = 1000
TIMEOUT_MAX_MS = 60_000


class ProtocolError(Exception):
    """A client sends an invalid request; its connection is closed."""


class _Connection:
    """A client's connection, and its queue of outgoing messages."""

    def __init__(self, server: Server, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.scope = trio.CancelScope()
        self.received = 0
        self.sent = 0
        self.unsent_bytes = 0
        self.is_ending = False
        """True once the queue accepts no more messages."""
        self._server = server
        self._unsent: deque[tuple[int, bytes]] = deque()
        self._wake = trio.Event()
        self.has_room = trio.Event()
        self.has_room.set()

    def send(self, payload: bytes) -> None:
        """Send a message, with its length, as soon as all transactions so far are on disk."""
        self.send_raw(len(payload).to_bytes(4, "big") + payload)

    def send_raw(self, message: bytes) -> None:
        """Send bytes as soon as all transactions so far are on disk."""
        self._unsent.append((self._server.core.zxid, message))
        self.unsent_bytes += len(message)
        if self.unsent_bytes > UNSENT_BYTES_MAX:
            log.warning("a client does not read what it has asked for; it is disconnected")
            self.scope.cancel()
        if self.unsent_bytes > READ_AHEAD_BYTES and self.has_room.is_set():
            self.has_room = trio.Event()
        self.wake()

    def end(self) -> None:
        """Close the connection after the last response is sent."""
        self.is_ending = True
        self.wake()

    def wake(self) -> None:
        """Have the sending task look again."""
        self._wake.set()

    async def send_forever(self) -> None:
        """Send messages once their transactions are on disk, until cancelled or at the end."""
        while True:
            parts = []
            while self._unsent and self._unsent[0][0] <= self._server.written_zxid:
                parts.append(self._unsent.popleft()[1])
            if parts:
                data = b"".join(parts)
                await self.stream.send_all(data)
                self.sent += len(parts)
                self.unsent_bytes -= len(data)
                if self.unsent_bytes <= READ_AHEAD_BYTES:
                    self.has_room.set()
            elif self.is_ending and not self._unsent:
                self.scope.cancel()
                return
            else:
                self._wake = trio.Event()
                await self._wake.wait()


class Server:
    """A server of one node. Lifecycle: `open`, `run` in a task, `close`. Raises StorageError if the disk fails."""

    def __init__(
        self, directory: Path, *, credentials: str | None = None, users: Mapping[str, str] | None = None
    ) -> None:
        """`credentials` are the `user:password` (scheme digest) required of all clients; None: no login required.

        `users` maps users to their passwords for SASL (DIGEST-MD5); None: no SASL.
        """
        required = digest_identity(credentials.encode()) if credentials is not None else None
        self.core = Core(
            timeout_min_ms=TIMEOUT_MIN_MS,
            timeout_max_ms=TIMEOUT_MAX_MS,
            required=required,
            login=partial(_login, users) if users is not None else None,
        )
        self.written_zxid = 0
        """The last transaction that is on disk."""
        self._storage = Storage(directory)
        self._listeners: list[trio.SocketListener] = []
        self._connections: dict[int, _Connection] = {}
        """By session id."""
        self._open: set[_Connection] = set()
        self._has_work = trio.Event()
        self._received = self._sent = 0

    async def open(self, host: str, port: int) -> int:
        """Read the directory and listen; returns the port, a free one if `port` is 0. Raises StorageError, OSError."""
        await trio.to_thread.run_sync(self._storage.open, self.core, _clock_ms())
        self.written_zxid = self.core.zxid
        self._listeners = await trio.open_tcp_listeners(port, host=host)
        bound: int = self._listeners[0].socket.getsockname()[1]
        return bound

    async def run(self) -> None:
        """Serve until cancelled. Raises StorageError when the journal cannot be written."""
        self.core.sessions.wait_for_all(_clock_ms())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write_forever)
            nursery.start_soon(self._tick_forever)
            await trio.serve_listeners(self._serve, self._listeners)

    async def close(self) -> None:
        """Close the port and the directory."""
        for listener in self._listeners:
            await listener.aclose()
        self._storage.close()

    def end_owner_of(self, path: str) -> None:
        """End the session that owns an ephemeral znode, if it exists: its client is known to have ended."""
        node = self.core.tree.nodes.get(path)
        if node is not None and node.owner:
            self._end_session(node.owner)

    def _end_session(self, session_id: int) -> None:
        self.core.end_session(session_id, _now_ms())
        connection = self._connections.get(session_id)
        if connection is not None:
            connection.scope.cancel()
        self._follow()

    # --- the journal ----------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Dispatch the core's output: notifications to their connections, transactions to the disk."""
        messages, self.core.messages = self.core.messages, []
        for session_id, message in messages:
            connection = self._connections.get(session_id)
            if connection is not None:
                connection.send(message)
        if self.core.transactions:
            self._has_work.set()

    async def _write_forever(self) -> None:
        while True:
            if not self.core.transactions:
                self._has_work = trio.Event()
                await self._has_work.wait()
            transactions, self.core.transactions = self.core.transactions, []
            snapshot = encode_snapshot(self.core) if self._storage.wants_snapshot else None
            try:
                await trio.to_thread.run_sync(self._storage.write, transactions)
                if snapshot is not None:
                    await trio.to_thread.run_sync(
                        self._storage.write_snapshot, transactions[-1].zxid, snapshot
                    )
            except OSError as error:
                raise StorageError(f"the journal cannot be written: {error}") from error
            self.written_zxid = transactions[-1].zxid
            for connection in self._open:
                connection.wake()

    async def _tick_forever(self) -> None:
        """End expired sessions, and remove expired znodes."""
        ticks, last_ms = 0, _clock_ms()
        while True:
            await trio.sleep(TICK_SECONDS)
            ticks += 1
            clock_ms = _clock_ms()
            if (
                clock_ms - last_ms > 4 * TICK_SECONDS * 1000
            ):  # no client could be heard while this process stood
                self.core.sessions.wait_for_all(clock_ms)
            last_ms = clock_ms
            for session_id in self.core.sessions.expired(clock_ms):
                log.info("session 0x%x has expired", session_id)
                self._end_session(session_id)
            if ticks % CHECK_NODES_TICKS == 0:
                self.core.remove_expired_nodes(_now_ms())
            self._follow()

    # --- connections ----------------------------------------------------------------------------------------

    async def _serve(self, stream: trio.SocketStream) -> None:
        connection = _Connection(self, stream)
        self._open.add(connection)
        try:
            with connection.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(connection.send_forever)
                    await self._receive_forever(connection)
                    connection.end()
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            log.debug("a connection broke")
        except* (ProtocolError, RefusedError) as group:
            log.warning("closing a connection: %s", group.exceptions[0])
        except* Exception:
            log.exception("closing a connection after an internal error")
        finally:
            self._open.discard(connection)
            self._received += connection.received
            self._sent += connection.sent
            with trio.move_on_after(1) as scope:
                scope.shield = True
                await stream.aclose()

    async def _receive_forever(self, connection: _Connection) -> None:
        stream = connection.stream
        peer: Peer | None = None
        data = bytearray()
        with trio.move_on_after(CONNECT_SECONDS):
            first = await _receive(stream, data, 4)
            if first in WORDS:
                connection.send_raw(WORDS[first](self.status()).encode())
                return
            frame = await _frame(stream, data, first)
            if frame is None:
                return
            peer = self._begin(connection, frame)
        if peer is None:
            return
        session_id = peer.session.session_id
        try:
            while not peer.is_closed:
                frame = await _frame(stream, data)
                if frame is None or self.core.sessions.get(session_id) is None:
                    return
                connection.received += 1
                answer = self.core.answer(peer, frame, _now_ms(), _clock_ms())
                self._follow()  # a watch's notification precedes the response after the change
                connection.send(answer)
                if peer.refusal:
                    log.warning("a login from %s is refused: %s", _host(stream), peer.refusal)
                await connection.has_room.wait()
                await trio.lowlevel.checkpoint()
        finally:
            if self._connections.get(session_id) is connection:
                del self._connections[session_id]
                self.core.watches.drop(session_id)

    def _begin(self, connection: _Connection, frame: bytes) -> Peer | None:
        """Respond to the connect request: a new session, a resumed one, or its expiry."""
        reader = Reader(frame)
        version, seen, wanted_ms = reader.int32(), reader.int64(), reader.int32()
        session_id, password = reader.int64(), reader.buffer()
        knows_read_only = bool(reader.rest)
        if seen > self.core.zxid:
            raise ProtocolError(
                f"a client has seen transaction 0x{seen:x}, and the last one here is 0x{self.core.zxid:x}: it was the "
                "client of another server"
            )
        session: Session | None
        if session_id:
            session = self.core.resume_session(session_id, wanted_ms, password, _clock_ms())
        else:
            session = self.core.begin_session(
                wanted_ms, secrets.token_bytes(PASSWORD_BYTES), _now_ms(), _clock_ms()
            )
        self._follow()
        answer = encode_int(version)
        if session is None:
            answer += encode_int(0) + encode_long(0) + encode_buffer(bytes(PASSWORD_BYTES))
        else:
            answer += encode_int(session.timeout_ms) + encode_long(session.session_id)
            answer += encode_buffer(session.password)
        connection.send(answer + (encode_bool(False) if knows_read_only else b""))
        if session is None:
            return None
        earlier = self._connections.get(session.session_id)
        if earlier is not None:
            earlier.scope.cancel()
            self.core.watches.drop(session.session_id)
        self._connections[session.session_id] = connection
        return Peer(session, {Identity("ip", _host(connection.stream))})

    def status(self) -> Status:
        """Return the status for the four-letter words."""
        return Status(
            zxid=self.core.zxid,
            nodes=len(self.core.tree.nodes),
            ephemerals=sum(map(len, self.core.tree.of_session.values())),
            watches=len(self.core.watches),
            sessions=len(self.core.sessions),
            connections=len(self._open),
            received=self._received + sum(connection.received for connection in self._open),
            sent=self._sent + sum(connection.sent for connection in self._open),
            port=self._listeners[0].socket.getsockname()[1],
            timeout_min_ms=TIMEOUT_MIN_MS,
            timeout_max_ms=TIMEOUT_MAX_MS,
        )


def _login(users: Mapping[str, str]) -> DigestServer:
    return DigestServer(
        users.get, realm=SASL_HOST, uri=f"{SASL_SERVICE}/{SASL_HOST}", nonce=secrets.token_hex(NONCE_BYTES)
    )


def _host(stream: trio.SocketStream) -> str:
    host: str = stream.socket.getpeername()[0]
    return host.removeprefix("::ffff:")


async def _receive(stream: trio.SocketStream, data: bytearray, size: int) -> bytes | None:
    """Return the next bytes, None at the end."""
    while len(data) < size:
        part = await stream.receive_some(65536)
        if not part:
            return None
        data += part
    taken = bytes(data[:size])
    del data[:size]
    return taken


async def _frame(stream: trio.SocketStream, data: bytearray, length: bytes | None = None) -> bytes | None:
    """Return the next frame without its length, None at the end. Raises ProtocolError for a frame that is too large."""
    length = length or await _receive(stream, data, 4)
    if length is None:
        return None
    size = int.from_bytes(length, "big", signed=True)
    if not 0 <= size <= FRAME_BYTES_MAX:
        raise ProtocolError(f"a frame of {size} bytes; at most {FRAME_BYTES_MAX} are read")
    return await _receive(stream, data, size)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _clock_ms() -> int:
    return time.monotonic_ns() // 1_000_000
