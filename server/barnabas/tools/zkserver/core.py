"""State machine of znodes, sessions and watches: the server's decision on each request. Pure.

The rule: nothing here waits. A request is decided and applied immediately; the changes to write before any client sees them
are appended to `transactions`, the frames to send to `messages`. The server writes first, then sends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial

from barnabas.security.digest_md5 import DigestError, DigestServer
from barnabas.tools.zkserver import acl as acls
from barnabas.tools.zkserver.acl import Identity, Permission
from barnabas.tools.zkserver.errors import Code, RefusedError
from barnabas.tools.zkserver.jute import (
    NULL,
    Reader,
    encode_buffer,
    encode_data,
    encode_int,
    encode_string,
    encode_vector,
)
from barnabas.tools.zkserver.requests import (
    END_OF_PARTS,
    WRITES,
    Check,
    Create,
    Delete,
    Op,
    SetAcl,
    SetData,
    Write,
    decode_parts,
    decode_write,
    encode_acl,
    encode_answer,
    encode_failed_part,
    encode_identity,
    encode_notification,
    encode_part,
    type_of_part,
)
from barnabas.tools.zkserver.sessions import Session, Sessions
from barnabas.tools.zkserver.tree import (
    OWN,
    ROOT,
    AclSet,
    Change,
    DataSet,
    Event,
    EventType,
    Kind,
    NodeChange,
    NodeCreated,
    NodeDeleted,
    SessionBegun,
    SessionEnded,
    Tree,
    Undo,
    Znode,
    check_data,
    check_path,
    check_version,
    parent_of,
)
from barnabas.tools.zkserver.watches import Watches, WatchKind

_FOR_ALL = (Op.AUTH, Op.SASL, Op.PING, Op.CLOSE_SESSION)
"""Requests that a client may send before it is authenticated, where that is required."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """Changes that happen together, with their number and time (ms since 1970)."""

    zxid: int
    now_ms: int
    changes: tuple[Change, ...]


@dataclass(slots=True)
class Peer:
    """The server's state of a connection, once its session has begun."""

    session: Session
    identities: set[Identity] = field(default_factory=set)
    is_closed: bool = False
    """True once requests get no more responses: the session has ended, or the client has failed to authenticate."""
    login: DigestServer | None = None
    """The login by SASL that it has begun."""
    refusal: str = ""
    """Why a login was refused, for the log."""


class _Batch:
    """The changes of one request, of which either all are applied or none."""

    def __init__(self, core: Core, zxid: int, now_ms: int) -> None:
        self.zxid = zxid
        self.now_ms = now_ms
        self.changes: list[NodeChange] = []
        self._tree = core.tree
        self.events: list[Event] = []
        self._undo: list[Undo] = []

    def apply(self, change: NodeChange) -> None:
        events, undo = self._tree.apply(change, self.zxid, self.now_ms)
        self.changes.append(change)
        self.events += events
        self._undo.append(undo)

    def take_back(self) -> None:
        for undo in reversed(self._undo):
            undo()


class Core:
    """The state, and the outcomes of requests. Times: `now_ms` since 1970 for znodes, `clock_ms` for sessions."""

    def __init__(
        self,
        *,
        timeout_min_ms: int,
        timeout_max_ms: int,
        required: Identity | None = None,
        login: Callable[[], DigestServer] | None = None,
    ) -> None:
        """`required` alone may do anything, None for all clients; `login` begins a login by SASL, None without any."""
        self.tree = Tree()
        self.sessions = Sessions()
        self.watches = Watches()
        self.zxid = 0
        self.transactions: list[Transaction] = []
        """Transactions that the server has not taken yet."""
        self.messages: list[tuple[int, bytes]] = []
        """Notifications of watches by session that have not been taken by the server yet."""
        self._timeouts = timeout_min_ms, timeout_max_ms
        self._required = required
        self._login = login
        self.last_session_id = 0
        self._handlers: dict[int, Callable[[Peer, Reader, int], bytes]] = {
            Op.EXISTS: self._exists,
            Op.GET_DATA: self._get_data,
            Op.GET_ACL: self._get_acl,
            Op.GET_CHILDREN: self._get_children,
            Op.GET_CHILDREN2: self._get_children2,
            Op.SYNC: lambda _peer, reader, _now_ms: encode_string(reader.string()),
            Op.PING: lambda _peer, _reader, _now_ms: b"",
            Op.MULTI: self._multi,
            Op.MULTI_READ: self._multi_read,
            Op.CHECK_WATCHES: self._check_watches,
            Op.REMOVE_WATCHES: self._remove_watches,
            Op.AUTH: self._authenticate,
            Op.SASL: self._log_in,
            Op.SET_WATCHES: self._set_watches,
            Op.SET_WATCHES2: self._set_watches2,
            Op.GET_EPHEMERALS: self._get_ephemerals,
            Op.GET_ALL_CHILDREN_NUMBER: self._get_all_children_number,
            Op.ADD_WATCH: self._add_watch,
            Op.WHO_AM_I: self._who_am_i,
            Op.CLOSE_SESSION: self._close_session,
        }
        for op in WRITES:
            self._handlers[op] = partial(self._single, op)

    # --- sessions -------------------------------------------------------------------------------------------

    def begin_session(self, wanted_ms: int, password: bytes, now_ms: int, clock_ms: int) -> Session:
        """Begin a session for a client that connects without one."""
        lowest, highest = self._timeouts
        timeout_ms = min(max(wanted_ms, lowest), highest)
        session_id = max(self.last_session_id + 1, (now_ms << 16) & 0x00FF_FFFF_FFFF_FFFF)
        self._commit((SessionBegun(session_id, timeout_ms, password),), now_ms)
        self.last_session_id = session_id
        self.sessions.begin(session_id, timeout_ms, password, clock_ms)
        session = self.sessions.get(session_id)
        assert session is not None
        return session

    def resume_session(
        self, session_id: int, wanted_ms: int, password: bytes, clock_ms: int
    ) -> Session | None:
        """Return the session of a client that reconnects; None if it has expired, or the password is wrong."""
        session = self.sessions.get(session_id)
        if session is None or session.password != password:
            return None
        lowest, highest = self._timeouts
        self.sessions.set_timeout(session, min(max(wanted_ms, lowest), highest), clock_ms)
        return session

    def end_session(self, session_id: int, now_ms: int) -> None:
        """End a session: its ephemeral znodes go."""
        if self.sessions.get(session_id) is None:
            return
        batch = _Batch(self, self.zxid + 1, now_ms)
        for path in self.tree.ephemerals(session_id):
            batch.apply(NodeDeleted(path))
        self.sessions.end(session_id)
        self.watches.drop(session_id)
        self._commit((*batch.changes, SessionEnded(session_id)), now_ms)
        self._tell(batch.events)

    def remove_expired_nodes(self, now_ms: int) -> None:
        """Remove containers that had children, and znodes at the end of their time to live."""
        for path in list(self.tree.expired(now_ms)):
            batch = _Batch(self, self.zxid + 1, now_ms)
            batch.apply(NodeDeleted(path))
            self._commit(batch.changes, now_ms)
            self._tell(batch.events)

    def replay(self, transaction: Transaction, clock_ms: int) -> None:
        """Apply an entry of the journal."""
        self.zxid = transaction.zxid
        for change in transaction.changes:
            match change:
                case SessionBegun(session_id, timeout_ms, password):
                    self.sessions.begin(session_id, timeout_ms, password, clock_ms)
                    self.last_session_id = max(self.last_session_id, session_id)
                case SessionEnded(session_id):
                    self.sessions.end(session_id)
                case _:
                    self.tree.apply(change, transaction.zxid, transaction.now_ms)

    def _commit(self, changes: Iterable[Change], now_ms: int) -> None:
        self.zxid += 1
        self.transactions.append(Transaction(self.zxid, now_ms, tuple(changes)))

    def _tell(self, events: Iterable[Event]) -> None:
        for session_id, event, path in self.watches.triggered(events):
            self.messages.append((session_id, encode_notification(event, path)))

    # --- requests -------------------------------------------------------------------------------------------

    def answer(self, peer: Peer, frame: bytes, now_ms: int, clock_ms: int) -> bytes:
        """Execute one request and return its response, without the length.

        Raises RefusedError with MARSHALLING_ERROR for a frame without a header: the caller closes the connection.
        """
        reader = Reader(frame)
        xid, op = reader.int32(), reader.int32()
        self.sessions.heard(peer.session, clock_ms)
        code, body = Code.OK, b""
        handler = self._handlers.get(op)
        try:
            if handler is None:
                raise RefusedError(Code.UNIMPLEMENTED, f"request of type {op}")
            if self._required is not None and self._required not in peer.identities and op not in _FOR_ALL:
                raise RefusedError(Code.NO_AUTH)
            body = handler(peer, reader, now_ms)
        except RefusedError as error:
            code = error.code
        return encode_answer(xid, self.zxid, code, body)

    def _readable(self, path: str, own: Collection[Identity]) -> Znode:
        node = self.tree.node(path)
        acls.require(node.acl, Permission.READ, own)
        return node

    def _exists(self, peer: Peer, reader: Reader, _now_ms: int) -> bytes:
        path, watch = reader.string(), reader.boolean()
        if watch:
            self.watches.add(WatchKind.DATA, path, peer.session.session_id)
        return self.tree.node(path).stat()

    def _get_data(self, peer: Peer, reader: Reader, _now_ms: int) -> bytes:
        path, watch = reader.string(), reader.boolean()
        node = self._readable(path, peer.identities)
        if watch:
            self.watches.add(WatchKind.DATA, path, peer.session.session_id)
        return encode_data(node.data) + node.stat()

    def _children(self, peer: Peer, reader: Reader) -> tuple[Znode, bytes]:
        path, watch = reader.string(), reader.boolean()
        node = self._readable(path, peer.identities)
        if watch:
            self.watches.add(WatchKind.CHILDREN, path, peer.session.session_id)
        return node, encode_vector(sorted(node.children), encode_string)

    def _get_children(self, peer: Peer, reader: Reader, _now_ms: int) -> bytes:
        return self._children(peer, reader)[1]

    def _get_children2(self, peer: Peer, reader: Reader, _now_ms: int) -> bytes:
        node, names = self._children(peer, reader)
        return names + node.stat()

    def _get_acl(self, peer: Peer, reader: Reader, _now_ms: int) -> bytes:
        path = reader.string()
        node = self.tree.node(path)
        acls.require(node.acl, Permission.READ | Permission.ADMIN, peer.identities)
        return encode_vector(node.acl, encode_acl) + node.stat()

    def _get_ephemerals(self, peer: Peer, reader: Reader, _now_ms: int) -> bytes:
        prefix = reader.string()
        paths = self.tree.ephemerals(peer.session.session_id)
        return encode_vector([path for path in paths if path.startswith(prefix)], encode_string)

    def _get_all_children_number(self, peer: Peer, reader: Reader, _now_ms: int) -> bytes:
        path = reader.string()
        self._readable(path, peer.identities)
        below = path.rstrip("/") + "/"
        return encode_int(sum(other.startswith(below) and other != path for other in self.tree.nodes))

    def _who_am_i(self, peer: Peer, _reader: Reader, _now_ms: int) -> bytes:
        return encode_vector(sorted(peer.identities), encode_identity)

    def _authenticate(self, peer: Peer, reader: Reader, _now_ms: int) -> bytes:
        reader.int32()
        scheme, credentials = reader.string(), reader.buffer()
        peer.is_closed = True  # reset below on success
        if scheme == "digest":
            peer.identities.add(acls.digest_identity(credentials))
        elif scheme not in ("ip", "world"):
            raise RefusedError(Code.AUTH_FAILED, f"scheme {scheme}")
        peer.is_closed = False
        return b""

    def _log_in(self, peer: Peer, reader: Reader, _now_ms: int) -> bytes:
        """Handle one message of a SASL login. A server without SASL returns an empty token, as ZooKeeper does."""
        message = reader.buffer()
        if self._login is None:
            return encode_int(NULL)
        if peer.login is None:
            peer.login = self._login()
        try:
            answer = peer.login.answer(message)
        except DigestError as error:
            peer.is_closed = True
            peer.refusal = str(error)
            raise RefusedError(Code.AUTH_FAILED, peer.refusal) from error
        if peer.login.username is not None:
            peer.identities.add(Identity("sasl", peer.login.username))
        return encode_buffer(answer)

    def _close_session(self, peer: Peer, _reader: Reader, now_ms: int) -> bytes:
        self.end_session(peer.session.session_id, now_ms)
        peer.is_closed = True
        return b""

    # --- watches --------------------------------------------------------------------------------------------

    def _add_watch(self, peer: Peer, reader: Reader, _now_ms: int) -> bytes:
        path, mode = reader.string(), reader.int32()
        check_path(path)
        if mode not in (0, 1):
            raise RefusedError(Code.BAD_ARGUMENTS, f"mode {mode}")
        self.watches.add_lasting(path, peer.session.session_id, is_recursive=bool(mode))
        return encode_int(0)

    def _watch_of(self, reader: Reader) -> tuple[WatchKind, str]:
        path, kind = reader.string(), reader.int32()
        if kind not in list(WatchKind):
            raise RefusedError(Code.BAD_ARGUMENTS, f"watch of type {kind}")
        return WatchKind(kind), path

    def _check_watches(self, peer: Peer, reader: Reader, _now_ms: int) -> bytes:
        kind, path = self._watch_of(reader)
        if not self.watches.has(kind, path, peer.session.session_id):
            raise RefusedError(Code.NO_WATCHER, path)
        return b""

    def _remove_watches(self, peer: Peer, reader: Reader, _now_ms: int) -> bytes:
        kind, path = self._watch_of(reader)
        self.watches.remove(kind, path, peer.session.session_id)
        return b""

    def _set_watches(self, peer: Peer, reader: Reader, _now_ms: int) -> bytes:
        """Set the watches of a client that has reconnected; events that it has missed since `seen` fire immediately."""
        session_id, seen = peer.session.session_id, reader.int64()
        nodes = self.tree.nodes
        for path in reader.vector(reader.string):
            node = nodes.get(path)
            if node is None:
                self.messages.append((session_id, encode_notification(EventType.DELETED, path)))
            elif node.modified > seen:
                self.messages.append((session_id, encode_notification(EventType.DATA_CHANGED, path)))
            else:
                self.watches.add(WatchKind.DATA, path, session_id)
        for path in reader.vector(reader.string):
            if path in nodes:
                self.messages.append((session_id, encode_notification(EventType.CREATED, path)))
            else:
                self.watches.add(WatchKind.DATA, path, session_id)
        for path in reader.vector(reader.string):
            node = nodes.get(path)
            if node is None:
                self.messages.append((session_id, encode_notification(EventType.DELETED, path)))
            elif node.children_modified > seen:
                self.messages.append((session_id, encode_notification(EventType.CHILDREN_CHANGED, path)))
            else:
                self.watches.add(WatchKind.CHILDREN, path, session_id)
        return b""

    def _set_watches2(self, peer: Peer, reader: Reader, now_ms: int) -> bytes:
        self._set_watches(peer, reader, now_ms)
        for is_recursive in (False, True):
            for path in reader.vector(reader.string):
                self.watches.add_lasting(path, peer.session.session_id, is_recursive=is_recursive)
        return b""

    # --- writes ---------------------------------------------------------------------------------------------

    def _single(self, op: int, peer: Peer, reader: Reader, now_ms: int) -> bytes:
        write = decode_write(op, reader)
        batch = _Batch(self, self.zxid + 1, now_ms)
        body = self._carry_out(write, peer, batch)
        self._finish(batch, now_ms)
        return body

    def _multi(self, peer: Peer, reader: Reader, now_ms: int) -> bytes:
        """Carry out several writes, all or none; returns the result of each, encoded."""
        try:
            writes = [(op, decode_write(op, reader, is_part=True)) for op in decode_parts(reader)]
        except RefusedError as error:
            raise RefusedError(Code.MARSHALLING_ERROR, str(error)) from error
        batch, results = _Batch(self, self.zxid + 1, now_ms), []
        for index, (op, write) in enumerate(writes):
            try:
                results.append(encode_part(type_of_part(op, write), self._carry_out(write, peer, batch)))
            except RefusedError as error:
                batch.take_back()
                codes = [Code.OK] * index + [error.code]
                codes += [Code.RUNTIME_INCONSISTENCY] * (len(writes) - len(codes))
                return b"".join(encode_failed_part(code) for code in codes) + END_OF_PARTS
        self._finish(batch, now_ms)
        return b"".join(results) + END_OF_PARTS

    def _multi_read(self, peer: Peer, reader: Reader, now_ms: int) -> bytes:
        """Execute several reads atomically; each has its own result or error."""
        results = []
        for op in decode_parts(reader):
            if op not in (Op.GET_DATA, Op.GET_CHILDREN):
                raise RefusedError(Code.BAD_ARGUMENTS, f"request of type {op} among reads")
            try:
                results.append(encode_part(op, self._handlers[op](peer, reader, now_ms)))
            except RefusedError as error:
                if error.code == Code.MARSHALLING_ERROR:
                    raise
                results.append(encode_failed_part(error.code))
        return b"".join(results) + END_OF_PARTS

    def _finish(self, batch: _Batch, now_ms: int) -> None:
        if batch.changes:
            self._commit(batch.changes, now_ms)
            self._tell(batch.events)

    def _carry_out(self, write: Write, peer: Peer, batch: _Batch) -> bytes:
        """Apply one write as a part of `batch`, and return its result. Raises RefusedError without any effect."""
        tree, own = self.tree, peer.identities
        match write:
            case Create():
                return self._create(write, peer, batch)
            case Delete(path, version):
                if path == ROOT or path in OWN or "/" not in path:
                    raise RefusedError(Code.BAD_ARGUMENTS, f"{path} cannot be deleted")
                acls.require(tree.node(parent_of(path)).acl, Permission.DELETE, own)
                tree.node(path)
                tree.check_delete(path, version)
                batch.apply(NodeDeleted(path))
                return b""
            case SetData(path, data, version):
                check_path(path)
                check_data(data)
                node = tree.node(path)
                acls.require(node.acl, Permission.WRITE, own)
                check_version(path, node.version, version)
                batch.apply(DataSet(path, data))
                return node.stat()
            case SetAcl(path, wanted, version):
                check_path(path)
                acl = acls.resolve(wanted, own)
                node = tree.node(path)
                acls.require(node.acl, Permission.ADMIN, own)
                check_version(f"the ACL of {path}", node.acl_version, version)
                batch.apply(AclSet(path, acl))
                return node.stat()
            case Check(path, version):
                check_path(path)
                node = tree.node(path)
                acls.require(node.acl, Permission.READ, own)
                check_version(path, node.version, version)
                return b""

    def _create(self, request: Create, peer: Peer, batch: _Batch) -> bytes:
        check_data(request.data)
        if "/" not in request.path:
            raise RefusedError(Code.BAD_ARGUMENTS, f"{request.path!r} is no path of a znode")
        acl = acls.resolve(request.acl, peer.identities)
        parent = self.tree.node(parent_of(request.path))
        acls.require(parent.acl, Permission.CREATE, peer.identities)
        path = self.tree.check_create(request.path, parent, is_sequence=request.is_sequence)
        owner = peer.session.session_id if request.kind is Kind.EPHEMERAL else 0
        batch.apply(NodeCreated(path, request.data, acl, request.kind, owner, request.ttl_ms))
        return encode_string(path) + (self.tree.nodes[path].stat() if request.wants_stat else b"")
