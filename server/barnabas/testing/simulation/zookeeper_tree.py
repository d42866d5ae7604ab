"""The znodes of the simulated ZooKeeper, and their watches; changes are atomic.

`tools/zkserver/tree.py` has znodes, too, changed by frames of the protocol and by a journal. The two are separate on
purpose: this one uses the values of `cluster/zookeeper/session.py`, and a simulated world that shared the server's rules
would share its mistakes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from barnabas.cluster.zookeeper.session import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    Stat,
    Watch,
    ZooKeeperError,
)

BEGIN_MS = 1_700_000_000_000
"""Time of the servers' clocks, in ms since 1970, when trio's clock shows 0, as in a simulated world."""


@dataclass(slots=True)
class Node:
    """A znode. The zxids of its creation and its last change, not times, are in `created` and `modified`."""

    data: bytes
    created: int
    modified: int
    version: int = 0
    owner: int = 0
    created_ms: int = 0
    child_changes: int = 0
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        """Return its stat for clients."""
        return Stat(
            self.version, self.created, self.modified, self.owner, len(self.children), self.created_ms
        )


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Tree:
    """The znodes, and their watches. Changes are atomic."""

    def __init__(self) -> None:
        self.nodes = {"/": Node(b"", 0, 0)}
        self.zxid = 0
        self.fire: Callable[[tuple[int, Watch]], object] = bool
        self.observers: list[Callable[[str, bytes | None], object]] = []
        self._data_watches: dict[str, dict[tuple[int, Watch], None]] = defaultdict(dict)
        self._child_watches: dict[str, dict[tuple[int, Watch], None]] = defaultdict(dict)

    def node(self, path: str) -> Node:
        """Return a znode. Raises NoNodeError."""
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        return node

    def create(
        self, path: str, data: bytes, owner: int, *, sequence: bool, parents: bool
    ) -> tuple[str, Stat]:
        """Make a znode and return its path. Raises ZooKeeperError."""
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
        self.nodes[path] = Node(
            data, self.zxid, self.zxid, owner=owner, created_ms=BEGIN_MS + int(trio.current_time() * 1000)
        )
        parent.children.add(path.rpartition("/")[2])
        parent.child_changes += 1
        return path

    def set_data(self, path: str, data: bytes, version: int) -> Stat:
        """Change a znode's data. Raises NoNodeError, BadVersionError."""
        self._check(path, version)
        self.zxid += 1
        stat = self._set(path, data)
        self._changed(path)
        return stat

    def _check(self, path: str, version: int) -> None:
        node = self.node(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError(f"{path} has version {node.version}, not {version}")

    def _set(self, path: str, data: bytes) -> Stat:
        node = self.nodes[path]
        node.data, node.version, node.modified = data, node.version + 1, self.zxid
        return node.stat()

    def delete(self, path: str, version: int) -> None:
        """Remove a znode. Raises NoNodeError, BadVersionError, NotEmptyError."""
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
        """Apply all operations or none; watches of changed znodes fire at the end."""
        before: dict[str, tuple[Node, bytes, int, int, int, set[str]] | None] = {}
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

    def _kept(self, path: str) -> tuple[Node, bytes, int, int, int, set[str]] | None:
        node = self.nodes.get(path)
        if node is None:
            return None
        return node, node.data, node.version, node.modified, node.child_changes, set(node.children)

    def _restore(self, path: str, kept: tuple[Node, bytes, int, int, int, set[str]] | None) -> None:
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
        """Have `watch`, if any, called at the next change."""
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
        node = self.nodes.get(path)
        for observer in tuple(self.observers):
            observer(path, None if node is None else node.data)
        called = self._data_watches.pop(path, {})
        if is_child_change:
            called |= self._child_watches.pop(_parent(path), {})
            if path not in self.nodes:
                called |= self._child_watches.pop(path, {})
        for key in called:
            self.fire(key)
