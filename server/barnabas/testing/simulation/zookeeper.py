"""A ZooKeeper in memory for several sessions in one event loop, which delays, loses and expires as a seed says.

The rule: what ZooKeeper promises holds (a session's requests are carried out in its order, its answers come in that
order, `multi` is atomic, a watch is called once), and nothing else does: how long all of it takes, whether a write whose
answer was lost has happened, when a session ends, and whether a watch or the answer with the new data comes first.
By default nothing takes time and nothing is lost.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import trio

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
from barnabas.cluster.zookeeper.tracked_session import TrackedSession

BEGIN_MS = 1_700_000_000_000
"""What the servers' clocks show when trio's clock shows 0, as in a simulated world."""
Answer = Any
Work = Callable[[], Answer]


@dataclass(slots=True)
class ZooKeeperWeather:
    """How the sessions fare; times in seconds of trio's clock, each drawn from 0 to its maximum."""

    request_max_s: float = 0.0
    answer_max_s: float = 0.0
    watch_max_s: float = 0.0
    reconnect_max_s: float = 0.0
    session_timeout_s: float = 18.0
    """A session without a connection for so long is expired."""
    lost_request_probability: float = 0.0
    """How often the connection breaks with a write that does not happen."""
    lost_answer_probability: float = 0.0
    """How often the connection breaks with a write that has happened."""


@dataclass(slots=True)
class _Node:
    data: bytes
    created: int
    modified: int
    version: int = 0
    owner: int = 0
    created_ms: int = 0
    child_changes: int = 0
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        return Stat(
            self.version, self.created, self.modified, self.owner, len(self.children), self.created_ms
        )


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class _Tree:
    """The znodes, and who watches them. Each change is carried out at one moment."""

    def __init__(self) -> None:
        self.nodes = {"/": _Node(b"", 0, 0)}
        self.zxid = 0
        self.fire: Callable[[tuple[int, Watch]], object] = bool
        self._data_watches: dict[str, dict[tuple[int, Watch], None]] = defaultdict(dict)
        self._child_watches: dict[str, dict[tuple[int, Watch], None]] = defaultdict(dict)

    def node(self, path: str) -> _Node:
        found = self.nodes.get(path)
        if found is None:
            raise NoNodeError(path)
        return found

    def create(
        self, path: str, data: bytes, owner: int, *, sequence: bool, parents: bool
    ) -> tuple[str, Stat]:
        self.zxid += 1
        if parents:
            self._make_parents(_parent(path))
        path = self._create(path, data, owner, sequence=sequence)
        self._changed(path, is_child_change=True)
        return path, self.nodes[path].stat()

    def _make_parents(self, path: str) -> None:
        if path not in self.nodes:
            self._make_parents(_parent(path))
            self._create(path, b"", 0, sequence=False)
            self._changed(path, is_child_change=True)

    def _create(self, path: str, data: bytes, owner: int, *, sequence: bool) -> str:
        if not path.startswith("/") or (path.endswith("/") and not sequence):
            raise ZooKeeperError(f"{path!r} is no path of a znode")
        parent = self.node(_parent(path))
        if sequence:
            path = f"{path}{parent.child_changes:010d}"
        if path in self.nodes:
            raise NodeExistsError(path)
        if parent.owner:
            raise ZooKeeperError(f"{_parent(path)} is ephemeral and cannot have children")
        self.nodes[path] = _Node(
            data, self.zxid, self.zxid, owner=owner, created_ms=BEGIN_MS + int(trio.current_time() * 1000)
        )
        parent.children.add(path.rpartition("/")[2])
        parent.child_changes += 1
        return path

    def set_data(self, path: str, data: bytes, version: int) -> Stat:
        self._check(path, version)
        self.zxid += 1
        stat = self._set(path, data)
        self._changed(path)
        return stat

    def _check(self, path: str, version: int) -> None:
        found = self.node(path)
        if version not in (ANY_VERSION, found.version):
            raise BadVersionError(f"{path} has version {found.version}, not {version}")

    def _set(self, path: str, data: bytes) -> Stat:
        node = self.nodes[path]
        node.data, node.version, node.modified = data, node.version + 1, self.zxid
        return node.stat()

    def delete(self, path: str, version: int) -> None:
        self._check(path, version)
        self.zxid += 1
        self._delete(path)
        self._changed(path, is_child_change=True)

    def _delete(self, path: str) -> None:
        if self.node(path).children:
            raise NotEmptyError(path)
        del self.nodes[path]
        parent = self.nodes[_parent(path)]
        parent.children.discard(path.rpartition("/")[2])
        parent.child_changes += 1

    def multi(self, operations: Sequence[Operation], session_id: int) -> list[Stat | None]:
        """Do all or nothing; the watches of what has changed are called at the end."""
        before: dict[str, tuple[_Node, bytes, int, int, int, set[str]] | None] = {}
        zxid = self.zxid
        self.zxid += 1
        stats: list[Stat | None] = []
        try:
            for operation in operations:
                for path in (operation.path, _parent(operation.path)):
                    before.setdefault(path, self._kept(path))
                stats.append(self._one_of_many(operation, session_id))
        except ZooKeeperError as error:
            for path, kept in before.items():
                self._restore(path, kept)
            self.zxid = zxid
            error.operation_index = len(stats)  # type: ignore[attr-defined]
            raise
        for operation in operations:
            if not isinstance(operation, Check):
                self._changed(operation.path, is_child_change=not isinstance(operation, SetData))
        return stats

    def _kept(self, path: str) -> tuple[_Node, bytes, int, int, int, set[str]] | None:
        node = self.nodes.get(path)
        if node is None:
            return None
        return node, node.data, node.version, node.modified, node.child_changes, set(node.children)

    def _restore(self, path: str, kept: tuple[_Node, bytes, int, int, int, set[str]] | None) -> None:
        if kept is None:
            self.nodes.pop(path, None)
            return
        node = self.nodes[path] = kept[0]
        _, node.data, node.version, node.modified, node.child_changes, node.children = kept

    def _one_of_many(self, operation: Operation, session_id: int) -> Stat | None:
        match operation:
            case Create(path, data, ephemeral):
                self._create(path, data, session_id if ephemeral else 0, sequence=False)
                return self.nodes[path].stat()
            case SetData(path, data, version):
                self._check(path, version)
                return self._set(path, data)
            case Delete(path, version):
                self._check(path, version)
                self._delete(path)
                return None
            case Check(path, version):
                self._check(path, version)
                return None

    def end_session(self, session_id: int) -> None:
        """Remove the ephemeral znodes of a session."""
        for path in [path for path, node in self.nodes.items() if node.owner == session_id]:
            self.delete(path, ANY_VERSION)

    def watch(self, path: str, session_id: int, watch: Watch | None, *, children: bool = False) -> None:
        if watch is not None:
            watches = self._child_watches if children else self._data_watches
            watches[path][session_id, watch] = None

    def drop_watches(self, session_id: int) -> list[Watch]:
        """Forget a session's watches and return them."""
        dropped: dict[Watch, None] = {}
        for watches in (self._data_watches, self._child_watches):
            for path in list(watches):
                for key in [key for key in watches[path] if key[0] == session_id]:
                    del watches[path][key]
                    dropped[key[1]] = None
                if not watches[path]:
                    del watches[path]
        return list(dropped)

    def _changed(self, path: str, *, is_child_change: bool = False) -> None:
        called = self._data_watches.pop(path, {})
        if is_child_change:
            called |= self._child_watches.pop(_parent(path), {})
            if path not in self.nodes:
                called |= self._child_watches.pop(path, {})
        for key in called:
            self.fire(key)


class SimulatedZooKeeper:
    """The servers, as one. Lifecycle: made within `trio.run`; `session` for each client."""

    def __init__(self, random: Random | None = None, weather: ZooKeeperWeather | None = None) -> None:
        self.random = random or Random(0)
        self.weather = weather or ZooKeeperWeather()
        self.is_down = False
        self.refuses_writes = False
        """Whether no session may change anything, as with ACLs."""
        self._tree = _Tree()
        self._tree.fire = self._fire
        self._sessions: dict[int, SimulatedSession] = {}
        self._last_session_id = 0x1000
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0
        self._is_running = False
        self._changed = trio.Event()

    def session(self) -> SimulatedSession:
        """Return a client that is connected."""
        made = SimulatedSession(self)
        made.begin()
        return made

    def dump(self) -> dict[str, bytes]:
        """Return the data of all znodes by path."""
        return {path: node.data for path, node in sorted(self._tree.nodes.items())}

    def stop(self) -> None:
        """Let nobody reach a server until `start`; sessions do not expire meanwhile, as without a quorum."""
        self.is_down = True
        for session in list(self._sessions.values()):
            session.disconnect()

    def start(self) -> None:
        """Serve again; who was disconnected connects."""
        self.is_down = False
        for session in list(self._sessions.values()):
            session.connect_soon()
            self._expire_later(session.session_id)

    def expire(self, session: SimulatedSession) -> None:
        """End a client's session now; the client learns it when it is connected again, which it tries soon."""
        self.end(session.session_id)
        session.disconnect()
        session.connect_soon()

    # what sessions use

    def begin_session(self, session: SimulatedSession) -> int:
        """Return the id of a new session."""
        self._last_session_id += 1
        self._tree.zxid += 1
        self._sessions[self._last_session_id] = session
        return self._last_session_id

    def is_alive(self, session_id: int) -> bool:
        """Say whether a session goes on."""
        return session_id in self._sessions

    def end(self, session_id: int) -> None:
        """End a session: its ephemeral znodes go."""
        if session_id in self._sessions:
            self._tree.end_session(session_id)
            del self._sessions[session_id]

    def lost_client(self, session_id: int) -> None:
        """Note that a session has no connection: it expires after its time-out, unless it is connected again."""
        self._expire_later(session_id)

    def _expire_later(self, session_id: int) -> None:
        session = self._sessions.get(session_id)
        if session is None:
            return
        since = session.connection

        def expire() -> None:
            if (
                session.connection == since
                and session.state is not SessionState.CONNECTED
                and not self.is_down
            ):
                self.end(session_id)

        self.after(self.weather.session_timeout_s, expire)

    def drop_watches(self, session_id: int) -> list[Watch]:
        """Forget a session's watches and return them."""
        return self._tree.drop_watches(session_id)

    def _fire(self, key: tuple[int, Watch]) -> None:
        session_id, watch = key
        session = self._sessions.get(session_id)
        if session is not None:
            session.watch_fired(watch)

    @property
    def tree(self) -> _Tree:
        """The znodes."""
        return self._tree

    def delay(self, at_most_s: float) -> float:
        """Return a random time."""
        return self.random.uniform(0, at_most_s) if at_most_s else 0.0

    def after(self, seconds: float, act: Callable[[], object], *, not_before: float = 0.0) -> float:
        """Have `act` called later, in order of time; return when."""
        when = max(trio.current_time() + seconds, not_before)
        self._count += 1
        heapq.heappush(self._due, (when, self._count, act))
        self._changed.set()
        if not self._is_running:
            self._is_running = True
            trio.lowlevel.spawn_system_task(self._run)
        return when

    async def _run(self) -> None:
        while self._due:
            when = self._due[0][0]
            if when > trio.current_time():
                self._changed = trio.Event()
                with trio.move_on_at(when):
                    await self._changed.wait()
                continue
            heapq.heappop(self._due)[2]()
            await trio.lowlevel.checkpoint()  # whoever got an answer runs before the next one has its own
        self._is_running = False


class _Pending:
    """A request that has not been answered."""

    __slots__ = ("answered", "error", "is_write", "result", "work")

    def __init__(self, work: Work, *, is_write: bool) -> None:
        self.work = work
        self.is_write = is_write
        self.answered = trio.Event()
        self.result: Answer = None
        self.error: ZooKeeperError | None = None

    def fail(self, error: ZooKeeperError) -> None:
        if not self.answered.is_set():
            self.error = error
            self.answered.set()

    def answer(self) -> None:
        self.answered.set()


class SimulatedSession(TrackedSession):
    """A client's session, as `cluster.zookeeper.session.ZooKeeper`. What goes wrong may also be asked for by tests."""

    def __init__(self, server: SimulatedZooKeeper) -> None:
        super().__init__()
        self._server = server
        self._pending: dict[_Pending, None] = {}
        self._last_request_s = 0.0
        self._last_answer_s = 0.0
        self._lost_next = ""
        self.connection = 0
        """Counts the connections of this client."""
        self.writes = 0
        """Counts its requests that may change something."""

    # what goes wrong

    def disconnect(self) -> None:
        """Break the connection: nothing that is on its way arrives. Stays so until `connect_soon`."""
        if self._state is SessionState.CONNECTED:
            self.connection += 1
            self._server.lost_client(self._session_id)
            self._set_state(SessionState.DISCONNECTED)
            self._fail_all(ConnectionLostError("the connection broke before the answer"))
            self._call_all(self._server.drop_watches(self._session_id))

    def connect_soon(self) -> None:
        """Connect again, with a new session if the old one has ended."""
        if self._state is not SessionState.CONNECTED and not self._is_closed:
            connection = self.connection

            def connect() -> None:
                if self.connection == connection and not self._server.is_down and not self._is_closed:
                    self.begin()

            self._server.after(self._server.delay(self._server.weather.reconnect_max_s), connect)

    def lose_next_answer(self) -> None:
        """Let the next write happen, and the connection break before its answer; it is made again soon."""
        self._lost_next = "answer"

    def lose_next_request(self) -> None:
        """Let the connection break before the next write happens; it is made again soon."""
        self._lost_next = "request"

    def kill(self) -> None:
        """Let the client vanish, as a process that is killed: its session expires after its time-out."""
        self._listeners.clear()
        self._is_closed = True
        self.disconnect()

    # what the server calls

    def begin(self) -> None:
        """Be connected from now on."""
        self.connection += 1
        if not self._session_id or not self._server.is_alive(self._session_id):
            if self._session_id:
                self._set_state(SessionState.EXPIRED)
                if self._is_closed:
                    return
            self._session_id = self._server.begin_session(self)
        self._last_request_s = self._last_answer_s = 0.0
        self._set_state(SessionState.CONNECTED)

    def watch_fired(self, watch: Watch) -> None:
        """Have a watch called after a while."""
        self._call_all([watch], self._server.delay(self._server.weather.watch_max_s))

    def _call_all(self, watches: Sequence[Watch], seconds: float = 0.0) -> None:
        for watch in watches:
            self._server.after(seconds, lambda watch=watch: None if self._is_closed else watch())  # type: ignore[misc]

    def _fail_all(self, error: ZooKeeperError) -> None:
        pending, self._pending = self._pending, {}
        for one in pending:
            one.fail(error)

    # requests

    async def _ask(self, work: Work, *, is_write: bool) -> Answer:
        if self._is_closed:
            raise SessionExpiredError("the session was closed")
        if self._state is not SessionState.CONNECTED:
            await trio.lowlevel.checkpoint()
            raise ConnectionLostError("no server can be reached")
        pending = _Pending(work, is_write=is_write)
        self._pending[pending] = None
        server = self._server
        delay = server.delay(server.weather.request_max_s)
        self._last_request_s = server.after(
            delay, lambda: self._arrived(pending), not_before=self._last_request_s
        )
        await pending.answered.wait()
        if pending.error is not None:
            raise pending.error
        return pending.result

    def _arrived(self, pending: _Pending) -> None:
        """A request has come to the server: carry it out, and send the answer."""
        if pending not in self._pending:
            return
        server, weather = self._server, self._server.weather
        if not server.is_alive(self._session_id):
            self.disconnect()
            self.connect_soon()
            return
        lost = ""
        if pending.is_write:
            lost, self._lost_next = self._lost_next, ""
            chance = server.random.random() if not lost else 1.0
            if chance < weather.lost_request_probability:
                lost = "request"
            elif chance < weather.lost_request_probability + weather.lost_answer_probability:
                lost = "answer"
        try:
            if pending.is_write:
                self.writes += 1
                if server.refuses_writes:
                    raise NoAuthError("nothing may be changed")
            if lost != "request":
                pending.result = pending.work()
        except ZooKeeperError as error:
            pending.error = error
        if lost:
            pending.error = None
            self.disconnect()
            self.connect_soon()
            return
        delay = server.delay(weather.answer_max_s)
        self._last_answer_s = server.after(
            delay, lambda: self._answered(pending), not_before=self._last_answer_s
        )

    def _answered(self, pending: _Pending) -> None:
        if self._pending.pop(pending, pending) is None:
            pending.answer()

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> tuple[str, Stat]:
        """Make a znode and return its path."""

        def work() -> tuple[str, Stat]:
            owner = self._session_id if ephemeral else 0
            return self._server.tree.create(path, data, owner, sequence=sequence, parents=parents)

        made: tuple[str, Stat] = await self._ask(work, is_write=True)
        return made

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Return a znode's data."""

        def work() -> tuple[bytes, Stat]:
            node = self._server.tree.node(path)
            self._server.tree.watch(path, self._session_id, watch)
            return node.data, node.stat()

        found: tuple[bytes, Stat] = await self._ask(work, is_write=False)
        return found

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Return the data of many znodes, None for those that are not there."""
        found: list[tuple[bytes, Stat] | None] = []
        nodes = self._server.tree.nodes

        def work(path: str) -> None:
            node = nodes.get(path)
            found.append(None if node is None else (node.data, node.stat()))

        def works() -> None:
            for path in paths:
                work(path)

        await self._ask(works, is_write=False)
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return what is known of a znode."""

        def work() -> Stat | None:
            node = self._server.tree.nodes.get(path)
            self._server.tree.watch(path, self._session_id, watch)
            return None if node is None else node.stat()

        found: Stat | None = await self._ask(work, is_write=False)
        return found

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a znode's children, sorted."""

        def work() -> list[str]:
            node = self._server.tree.node(path)
            self._server.tree.watch(path, self._session_id, watch, children=True)
            return sorted(node.children)

        found: list[str] = await self._ask(work, is_write=False)
        return found

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Change a znode's data."""
        stat: Stat = await self._ask(lambda: self._server.tree.set_data(path, data, version), is_write=True)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a znode."""
        await self._ask(lambda: self._server.tree.delete(path, version), is_write=True)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        """Do all of these or none."""
        done: list[Stat | None] = await self._ask(
            lambda: self._server.tree.multi(list(operations), self._session_id), is_write=True
        )
        return done

    async def close(self) -> None:
        """End the session: its ephemeral znodes go at once."""
        if not self._is_closed:
            self._is_closed = True
            self._server.drop_watches(self._session_id)
            self._server.end(self._session_id)
            self._fail_all(SessionExpiredError("the session was closed"))
            self._set_state(SessionState.EXPIRED)
            self._connected.set()
        await trio.lowlevel.checkpoint()
