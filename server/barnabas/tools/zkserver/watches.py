"""Watches: the sessions to notify of each change. Pure.

A watch on a znode's data (or on its absence) and a watch on its children fire once. Persistent watches remain and cover
both; persistent recursive watches cover a whole subtree, except changes of lists of children.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import Enum, IntEnum, auto

from barnabas.tools.zkserver.errors import Code, RefusedError
from barnabas.tools.zkserver.tree import ROOT, Event, EventType, parent_of


class WatchKind(IntEnum):
    """Kinds of watches, with the numbers of RemoveWatches."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    """Both; no watch is of this kind."""


class _Mode(Enum):
    ONCE = auto()
    LASTING = auto()
    RECURSIVE = auto()


_Watchers = dict[int, set[_Mode]]
"""Modes by session."""


class Watches:
    """The watches of all sessions, by kind and path."""

    def __init__(self) -> None:
        self._watchers: dict[WatchKind, dict[str, _Watchers]] = {WatchKind.CHILDREN: {}, WatchKind.DATA: {}}
        self._of_session: defaultdict[int, set[tuple[WatchKind, str]]] = defaultdict(set)
        self._recursive = 0
        """Number of recursive watches."""

    def __len__(self) -> int:
        return sum(len(watches) for watches in self._of_session.values())

    def add(self, kind: WatchKind, path: str, session_id: int) -> None:
        """Notify a session once."""
        self._add(kind, path, session_id, _Mode.ONCE)

    def add_lasting(self, path: str, session_id: int, *, is_recursive: bool) -> None:
        """Notify a session until it removes the watch."""
        for kind in self._watchers:
            self._add(kind, path, session_id, _Mode.RECURSIVE if is_recursive else _Mode.LASTING)

    def _add(self, kind: WatchKind, path: str, session_id: int, mode: _Mode) -> None:
        modes = self._watchers[kind].setdefault(path, {}).setdefault(session_id, set())
        self._recursive += mode is _Mode.RECURSIVE and mode not in modes
        modes.add(mode)
        self._of_session[session_id].add((kind, path))

    def has(self, kind: WatchKind, path: str, session_id: int) -> bool:
        """Return whether a session has a watch of this kind there."""
        return any(session_id in self._watchers[watch_kind].get(path, ()) for watch_kind in self._kinds(kind))

    def remove(self, kind: WatchKind, path: str, session_id: int) -> None:
        """Remove a session's watches of this kind. Raises RefusedError with NO_WATCHER if it has none."""
        if not self.has(kind, path, session_id):
            raise RefusedError(Code.NO_WATCHER, path)
        for watch_kind in self._kinds(kind):
            self._discard(watch_kind, path, session_id, *_Mode)

    def _kinds(self, kind: WatchKind) -> Iterable[WatchKind]:
        return tuple(self._watchers) if kind is WatchKind.ANY else (kind,)

    def _discard(self, kind: WatchKind, path: str, session_id: int, *modes: _Mode) -> None:
        watchers = self._watchers[kind].get(path, {})
        own = watchers.get(session_id, set())
        self._recursive -= _Mode.RECURSIVE in own and _Mode.RECURSIVE in modes
        own.difference_update(modes)
        if own:
            return
        watchers.pop(session_id, None)
        if not watchers:
            self._watchers[kind].pop(path, None)
        watched = self._of_session[session_id]
        watched.discard((kind, path))
        if not watched:
            del self._of_session[session_id]

    def drop(self, session_id: int) -> None:
        """Forget the watches of a closed connection: its client sets them again when it reconnects."""
        for kind, path in tuple(self._of_session.get(session_id, ())):
            self._discard(kind, path, session_id, *_Mode)

    def triggered(self, events: Iterable[Event]) -> Iterator[tuple[int, EventType, str]]:
        """Return the notifications for sessions, in the order of the events; one-time watches are removed."""
        for event, path in events:
            sessions: dict[int, None] = {}
            if event is not EventType.CHILDREN_CHANGED:
                sessions |= self._called(WatchKind.DATA, event, path)
            if event in (EventType.CHILDREN_CHANGED, EventType.DELETED):
                sessions |= self._called(WatchKind.CHILDREN, event, path)
            for session_id in sessions:
                yield session_id, event, path

    def _called(self, kind: WatchKind, event: EventType, path: str) -> dict[int, None]:
        """The sessions with a watch of this kind for an event."""
        sessions: dict[int, None] = {}
        for session_id, modes in tuple(self._watchers[kind].get(path, {}).items()):
            if modes != {_Mode.RECURSIVE}:
                sessions[session_id] = None
                self._discard(kind, path, session_id, _Mode.ONCE)
        if not self._recursive or event is EventType.CHILDREN_CHANGED:
            return sessions
        while True:
            for session_id, modes in self._watchers[kind].get(path, {}).items():
                if _Mode.RECURSIVE in modes:
                    sessions[session_id] = None
            if path == ROOT:
                return sessions
            path = parent_of(path)
