"""State of a session with ZooKeeper, real or simulated: its id, whether it is connected, listeners to its changes."""

from __future__ import annotations

from collections.abc import Callable

import trio

from barnabas.cluster.zookeeper.session import SessionState


class TrackedSession:
    """The state of a session, a part of `session.ZooKeeper`; the subclass that speaks to the server calls `_set_state`."""

    def __init__(self) -> None:
        """Begin without a session."""
        self._session_id = 0
        self._state = SessionState.DISCONNECTED
        self._is_closed = False
        self._connected = trio.Event()
        self._listeners: list[Callable[[SessionState], None]] = []

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
        """The present state of the session, as known here."""
        return self._state

    @property
    def is_closed(self) -> bool:
        """True once the session was ended by `close`."""
        return self._is_closed

    def watch_session(self, changed: Callable[[SessionState], None]) -> None:
        """Call `changed` with each new state."""
        self._listeners.append(changed)

    async def wait_connected(self) -> None:
        """Return when the session is connected, the same or a new one, or was closed."""
        while self._state is not SessionState.CONNECTED and not self._is_closed:
            await self._connected.wait()
        await trio.lowlevel.checkpoint()
