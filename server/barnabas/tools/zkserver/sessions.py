"""Sessions of clients, and their expiry without heartbeats. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class Session:
    """State of a session. Times are in ms of a monotonic clock."""

    session_id: int
    timeout_ms: int
    password: bytes
    ends_ms: int


class Sessions:
    """All sessions, by id."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}
        self._due: list[tuple[int, int]] = []
        """Heap of (when to look, session id): a session may have been heard of since."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._sessions.values()))

    def get(self, session_id: int) -> Session | None:
        """Return a session that has not ended."""
        return self._sessions.get(session_id)

    def begin(self, session_id: int, timeout_ms: int, password: bytes, now_ms: int) -> None:
        """Begin a session, or restore one from the journal."""
        session = Session(session_id, timeout_ms, password, now_ms + timeout_ms)
        self._sessions[session_id] = session
        heapq.heappush(self._due, (session.ends_ms, session_id))

    def heard(self, session: Session, now_ms: int) -> None:
        """Note a sign of life."""
        session.ends_ms = now_ms + session.timeout_ms

    def set_timeout(self, session: Session, timeout_ms: int, now_ms: int) -> None:
        """Change how long it lives without a sign of life, as a client may when it connects again."""
        session.timeout_ms = timeout_ms
        session.ends_ms = now_ms + timeout_ms
        heapq.heappush(self._due, (session.ends_ms, session.session_id))

    def end(self, session_id: int) -> None:
        """Forget a session."""
        self._sessions.pop(session_id, None)

    def wait_for_all(self, now_ms: int) -> None:
        """Restart the timeout of every session, after a time in which no client could send heartbeats."""
        self._due = []
        for session in self._sessions.values():
            session.ends_ms = now_ms + session.timeout_ms
            self._due.append((session.ends_ms, session.session_id))
        heapq.heapify(self._due)

    def expired(self, now_ms: int) -> list[int]:
        """Return the ids of the sessions that have expired, each once; they live until `end`."""
        over: dict[int, None] = {}
        while self._due and self._due[0][0] <= now_ms:
            _, session_id = heapq.heappop(self._due)
            session = self._sessions.get(session_id)
            if session is None:
                continue
            if session.ends_ms > now_ms:
                heapq.heappush(self._due, (session.ends_ms, session_id))
            else:
                over[session_id] = None
        return list(over)
