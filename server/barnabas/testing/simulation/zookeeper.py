"""A ZooKeeper in memory for several sessions in one event loop, which delays, loses and expires by a seed.

The rule: only ZooKeeper's promises hold (a session's requests are executed in order, its responses arrive in that order,
`multi` is atomic, a watch fires once): delays, the fate of a write with a lost response, the end of a session, and the
order of a watch and the response with the new data, are random. By default there are no delays and no losses.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random

import trio

from barnabas.cluster.zookeeper.session import SessionState, Watch
from barnabas.testing.simulation.clock import VirtualClock
from barnabas.testing.simulation.zookeeper_session import SimulatedSession, ZooKeeperWeather
from barnabas.testing.simulation.zookeeper_tree import Tree


class SimulatedZooKeeper:
    """The servers, as one. Lifecycle: created within `trio.run`; `session` for each client."""

    def __init__(self, random: Random | None = None, weather: ZooKeeperWeather | None = None) -> None:
        self.random = random or Random(0)
        self.weather = weather or ZooKeeperWeather()
        self.is_down = False
        self.refuses_writes = False
        """True while no session may change anything, as with ACLs."""
        self._tree = Tree()
        self._tree.fire = self._fire
        self._sessions: dict[int, SimulatedSession] = {}
        self._waiting: dict[SimulatedSession, None] = {}  # tried to connect while no server could be reached
        self._last_session_id = 0x1000
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0
        self._acts_s = math.inf
        """When the next of them is done, in a simulated world; inf if that is not seen to."""
        self._acts = 0
        self._is_running = False
        self._changed = trio.Event()

    def session(self) -> SimulatedSession:
        """Return a client that is connected."""
        session = SimulatedSession(self)
        session.begin()
        return session

    def dump(self) -> dict[str, bytes]:
        """Return the data of all znodes by path."""
        return {path: node.data for path, node in sorted(self._tree.nodes.items())}

    def data(self, path: str) -> bytes | None:
        """Return the data of a znode, None if it does not exist."""
        node = self._tree.nodes.get(path)
        return None if node is None else node.data

    @contextmanager
    def observed(self, observer: Callable[[str, bytes | None], object]) -> Iterator[None]:
        """Call `observer` with path and data (None: removed) at the moment of each change, while this lasts."""
        self._tree.observers.append(observer)
        try:
            yield
        finally:
            self._tree.observers.remove(observer)

    def stop(self) -> None:
        """Make all servers unreachable until `start`; sessions do not expire meanwhile, as without a quorum."""
        self.is_down = True
        for session in list(self._sessions.values()):
            session.disconnect()

    def start(self) -> None:
        """Resume service; disconnected clients reconnect, including those with an ended session."""
        self.is_down = False
        waiting, self._waiting = self._waiting, {}
        for session in {**dict.fromkeys(self._sessions.values()), **waiting}:
            session.connect_soon()
            self._expire_later(session.session_id)

    def expire(self, session: SimulatedSession) -> None:
        """End a client's session now; the client learns that when it reconnects, which it does soon."""
        self.end(session.session_id)
        session.disconnect()
        session.connect_soon()

    # interface for sessions

    def begin_session(self, session: SimulatedSession) -> int:
        """Return the id of a new session."""
        self._last_session_id += 1
        self._tree.zxid += 1
        self._sessions[self._last_session_id] = session
        return self._last_session_id

    def is_alive(self, session_id: int) -> bool:
        """Return whether a session is alive."""
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

    def wait_for_start(self, session: SimulatedSession) -> None:
        """Note that a client has tried to connect while no server could be reached."""
        self._waiting[session] = None

    def drop_watches(self, session_id: int) -> list[Watch]:
        """Forget a session's watches and return them."""
        return self._tree.drop_watches(session_id)

    def _fire(self, key: tuple[int, Watch]) -> None:
        session_id, watch = key
        session = self._sessions.get(session_id)
        if session is not None:
            session.watch_fired(watch)

    @property
    def tree(self) -> Tree:
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
        clock = trio.lowlevel.current_clock()
        if isinstance(clock, VirtualClock):
            self._act_in_time(clock)
        elif not self._is_running:
            self._is_running = True
            trio.lowlevel.spawn_system_task(self._run)
        return when

    def _act_in_time(self, clock: VirtualClock) -> None:
        """Schedule the next due action, unless it is scheduled already."""
        if self._due and self._due[0][0] < self._acts_s:
            self._acts_s = max(self._due[0][0], clock.now_s)
            self._acts += 1
            clock.at(self._acts_s, partial(self._act, clock, self._acts))

    def _act(self, clock: VirtualClock, number: int) -> None:
        if number == self._acts:  # no earlier action was scheduled meanwhile
            heapq.heappop(self._due)[2]()
            self._acts_s = math.inf
            # In another turn: the task that got an answer runs before the next answer.
            self._act_in_time(clock)

    async def _run(self) -> None:
        while self._due:
            when = self._due[0][0]
            if when > trio.current_time():
                self._changed = trio.Event()
                with trio.move_on_at(when):
                    await self._changed.wait()
                continue
            heapq.heappop(self._due)[2]()
            await trio.lowlevel.checkpoint()  # the task that got an answer runs before the next answer
        self._is_running = False


__all__ = ["SimulatedSession", "SimulatedZooKeeper", "ZooKeeperWeather"]
