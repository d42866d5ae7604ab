"""A client's session with the simulated ZooKeeper: its requests in order, and their failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import trio

from barnabas.cluster.zookeeper.session import (
    ANY_VERSION,
    ConnectionLostError,
    NoAuthError,
    Operation,
    SessionExpiredError,
    SessionState,
    Stat,
    Watch,
    ZooKeeperError,
)
from barnabas.cluster.zookeeper.tracked_session import TrackedSession

if TYPE_CHECKING:
    from random import Random

    from barnabas.testing.simulation.zookeeper_tree import Tree

Answer = Any
Work = Callable[[], Answer]


@dataclass(slots=True)
class ZooKeeperWeather:
    """Conditions of the sessions; times in seconds of trio's clock, each drawn from 0 to its maximum."""

    request_max_s: float = 0.0
    answer_max_s: float = 0.0
    watch_max_s: float = 0.0
    reconnect_max_s: float = 0.0
    session_timeout_s: float = 18.0
    """A session without a connection for so long is expired."""
    lost_request_probability: float = 0.0
    """Probability that the connection breaks with a write that does not happen."""
    lost_answer_probability: float = 0.0
    """Probability that the connection breaks with a write that has happened."""


class Servers(Protocol):
    """Interface of the servers, as a session needs it."""

    random: Random
    weather: ZooKeeperWeather
    is_down: bool
    refuses_writes: bool

    @property
    def tree(self) -> Tree:
        """The znodes."""

    def begin_session(self, session: SimulatedSession) -> int:
        """Return the id of a new session."""

    def is_alive(self, session_id: int) -> bool:
        """Return whether a session is alive."""

    def end(self, session_id: int) -> None:
        """End a session."""

    def lost_client(self, session_id: int) -> None:
        """Note that a session has no connection."""

    def wait_for_start(self, session: SimulatedSession) -> None:
        """Have a session connected once servers can be reached."""

    def drop_watches(self, session_id: int) -> list[Watch]:
        """Forget a session's watches and return them."""

    def delay(self, at_most_s: float) -> float:
        """Return a random time."""

    def after(self, seconds: float, act: Callable[[], object], *, not_before: float = 0.0) -> float:
        """Have `act` called later; return when."""


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
    """A client's session, as `cluster.zookeeper.session.ZooKeeper`. Tests may inject failures."""

    def __init__(self, server: Servers) -> None:
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

    # failures

    def disconnect(self) -> None:
        """Break the connection until `connect_soon`; messages in flight are lost."""
        if self._state is SessionState.CONNECTED:
            self.connection += 1
            self._server.lost_client(self._session_id)
            self._set_state(SessionState.DISCONNECTED)
            self._fail_all(ConnectionLostError("the connection broke before the answer"))
            self._call_all(self._server.drop_watches(self._session_id))

    def connect_soon(self) -> None:
        """Reconnect, with a new session if the old one has ended."""
        if self._state is not SessionState.CONNECTED and not self._is_closed:
            connection = self.connection

            def connect() -> None:
                if self.connection != connection or self._is_closed:
                    return
                if self._server.is_down:
                    self._server.wait_for_start(self)
                else:
                    self.begin()

            self._server.after(self._server.delay(self._server.weather.reconnect_max_s), connect)

    def lose_next_answer(self) -> None:
        """Break the connection after the next write, before its answer; the client reconnects soon."""
        self._lost_next = "answer"

    def lose_next_request(self) -> None:
        """Break the connection before the next write; the client reconnects soon."""
        self._lost_next = "request"

    def kill(self) -> None:
        """Kill the client, as a process: its session expires after its time-out."""
        self._listeners.clear()
        self._is_closed = True
        self.disconnect()

    # interface for the server

    def begin(self) -> None:
        """Note that the connection is established."""
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
        for request in pending:
            request.fail(error)

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
        """Execute a request that has reached the server, and send the response."""
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

        created: tuple[str, Stat] = await self._ask(work, is_write=True)
        return created

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Return a znode's data."""

        def work() -> tuple[bytes, Stat]:
            node = self._server.tree.node(path)
            self._server.tree.watch(path, self._session_id, watch)
            return node.data, node.stat()

        node_data: tuple[bytes, Stat] = await self._ask(work, is_write=False)
        return node_data

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Return the data of many znodes, None for missing ones."""
        nodes_data: list[tuple[bytes, Stat] | None] = []
        nodes = self._server.tree.nodes

        def work(path: str) -> None:
            node = nodes.get(path)
            nodes_data.append(None if node is None else (node.data, node.stat()))

        def works() -> None:
            for path in paths:
                work(path)

        await self._ask(works, is_write=False)
        return nodes_data

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return the stat of a znode, None if it does not exist."""

        def work() -> Stat | None:
            node = self._server.tree.nodes.get(path)
            self._server.tree.watch(path, self._session_id, watch)
            return None if node is None else node.stat()

        stat: Stat | None = await self._ask(work, is_write=False)
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a znode's children, sorted."""

        def work() -> list[str]:
            node = self._server.tree.node(path)
            self._server.tree.watch(path, self._session_id, watch, children=True)
            return sorted(node.children)

        names: list[str] = await self._ask(work, is_write=False)
        return names

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
        """End the session: its ephemeral znodes are removed immediately."""
        if not self._is_closed:
            self._is_closed = True
            self._server.drop_watches(self._session_id)
            self._server.end(self._session_id)
            self._fail_all(SessionExpiredError("the session was closed"))
            self._set_state(SessionState.EXPIRED)
            self._connected.set()
        await trio.lowlevel.checkpoint()
