"""The znodes, and the application of changes. Pure.

The rule: the caller checks a change first (`check_*`); `apply` never fails, and works the same for new changes and for
those read from the journal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from barnabas.tools.zkserver.acl import OPEN, Acl
from barnabas.tools.zkserver.errors import Code, RefusedError
from barnabas.tools.zkserver.jute import encode_int, encode_long

ANY_VERSION = -1
ROOT = "/"
OWN = ("/zookeeper", "/zookeeper/config", "/zookeeper/quota")
"""Znodes that exist from the beginning, and cannot be deleted."""
DATA_MAX = 1 << 20
"""Bytes that a znode can have, as ZooKeeper's jute.maxbuffer allows by default."""


class Kind(IntEnum):
    """Kind of a znode: the event that removes it, besides a deletion."""

    PERSISTENT = 0
    EPHEMERAL = 1
    """Its session."""
    CONTAINER = 2
    """Having had children, and no more."""
    TTL = 3
    """Having no children, and not having been changed for its time."""


class EventType(IntEnum):
    """Events of watches, with the numbers of the wire."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


@dataclass(slots=True)
class Znode:
    """One znode. Times in ms since 1970; `creates` counts all children that were ever created."""

    data: bytes | None
    acl: tuple[Acl, ...]
    created: int
    created_ms: int
    modified: int
    modified_ms: int
    children_modified: int
    kind: Kind = Kind.PERSISTENT
    owner: int = 0
    ttl_ms: int = 0
    version: int = 0
    acl_version: int = 0
    creates: int = 0
    children: set[str] = field(default_factory=set)

    def stat(self) -> bytes:
        """Return ZooKeeper's Stat, encoded: 68 bytes."""
        children = len(self.children)
        return b"".join(
            (
                encode_long(self.created),
                encode_long(self.modified),
                encode_long(self.created_ms),
                encode_long(self.modified_ms),
                encode_int(self.version),
                encode_int(self.creates * 2 - children),  # counts creations and deletions
                encode_int(self.acl_version),
                encode_long(self.owner),
                encode_int(len(self.data or b"")),
                encode_int(children),
                encode_long(self.children_modified),
            )
        )


@dataclass(frozen=True, slots=True)
class NodeCreated:
    """A znode is created; `path` includes the number of a sequential one."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    kind: Kind = Kind.PERSISTENT
    owner: int = 0
    ttl_ms: int = 0


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    """A znode without children is removed."""

    path: str


@dataclass(frozen=True, slots=True)
class DataSet:
    """The data of a znode has changed."""

    path: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class AclSet:
    """The ACL of a znode has changed."""

    path: str
    acl: tuple[Acl, ...]


@dataclass(frozen=True, slots=True)
class SessionBegun:
    """A client has a session; `password` authenticates it when it reconnects."""

    session_id: int
    timeout_ms: int
    password: bytes


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A session is over."""

    session_id: int


NodeChange = NodeCreated | NodeDeleted | DataSet | AclSet
Change = NodeChange | SessionBegun | SessionEnded
Event = tuple[EventType, str]
Undo = Callable[[], None]


def parent_of(path: str) -> str:
    """Return the path of the parent; the root's is the root."""
    return path.rpartition("/")[0] or ROOT


def check_path(path: str) -> None:
    """Raise RefusedError with BAD_ARGUMENTS for an invalid path of a znode."""
    if path == ROOT:
        return
    parts = path.split("/")
    if parts[0] or len(parts) == 1 or not all(part and part not in (".", "..") for part in parts[1:]):
        raise RefusedError(Code.BAD_ARGUMENTS, f"{path!r} is no path of a znode")
    if any(
        char <= "\x1f" or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\uf8ff" or char >= "\ufff0"
        for char in path
        if not " " <= char <= "~"
    ):
        raise RefusedError(Code.BAD_ARGUMENTS, f"{path!r} has a character that no path of a znode may have")


def check_data(data: bytes | None) -> None:
    """Raise RefusedError with BAD_ARGUMENTS for more data than a znode can have."""
    if data is not None and len(data) > DATA_MAX:
        raise RefusedError(Code.BAD_ARGUMENTS, f"{len(data)} bytes of data")


def check_version(what: str, version: int, expected: int) -> None:
    """Raise RefusedError with BAD_VERSION unless this version is expected, or any."""
    if expected not in (ANY_VERSION, version):
        raise RefusedError(Code.BAD_VERSION, f"{what} has version {version}, not {expected}")


class Tree:
    """All znodes by path."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {ROOT: Znode(b"", OPEN, 0, 0, 0, 0, 0)}
        self.of_session: defaultdict[int, set[str]] = defaultdict(set)
        """The paths of ephemeral znodes by session."""
        self.expiring: set[str] = set()
        """The paths of containers and of znodes with a time to live."""
        for path in OWN:
            self.put(path, Znode(b"", OPEN, 0, 0, 0, 0, 0))

    def node(self, path: str) -> Znode:
        """Return a znode; the empty path is the root's, too. Raises RefusedError."""
        znode = self.nodes.get(path or ROOT)
        if znode is None:
            raise RefusedError(Code.NO_NODE, path)
        return znode

    def put(self, path: str, node: Znode) -> None:
        """Add an initial znode, or one of a snapshot; its parent exists."""
        if path == ROOT:
            self.nodes[ROOT] = node
        else:
            parent, _, name = path.rpartition("/")
            self._add(path, name, node, self.nodes[parent or ROOT])

    # --- checks ---------------------------------------------------------------------------------------------

    def check_create(self, path: str, parent: Znode, *, is_sequence: bool) -> str:
        """Return the path that a new znode will have. Raises RefusedError."""
        if is_sequence:
            path = f"{path}{parent.creates:010d}"
        check_path(path)
        if path in self.nodes:
            raise RefusedError(Code.NODE_EXISTS, path)
        if parent.kind is Kind.EPHEMERAL:
            raise RefusedError(Code.NO_CHILDREN_FOR_EPHEMERALS, path)
        return path

    def check_delete(self, path: str, version: int) -> None:
        """Raise RefusedError for a znode that cannot be deleted."""
        check_version(path, self.nodes[path].version, version)
        if self.nodes[path].children:
            raise RefusedError(Code.NOT_EMPTY, path)

    # --- changes --------------------------------------------------------------------------------------------

    def apply(self, change: NodeChange, zxid: int, now_ms: int) -> tuple[list[Event], Undo]:
        """Apply a change; return the events for watches, and a function that undoes the change if it is the last one."""
        match change:
            case NodeCreated():
                return self._create(change, zxid, now_ms)
            case NodeDeleted(path):
                return self._delete(path, zxid)
            case DataSet(path, data):
                return self._set_data(path, data, zxid, now_ms)
            case AclSet(path, acl):
                return self._set_acl(path, acl)

    def _create(self, change: NodeCreated, zxid: int, now_ms: int) -> tuple[list[Event], Undo]:
        path = change.path
        parent_path, _, name = path.rpartition("/")
        parent = self.nodes[parent_path or ROOT]
        before = parent.children_modified
        znode = Znode(
            change.data,
            change.acl,
            zxid,
            now_ms,
            zxid,
            now_ms,
            zxid,
            change.kind,
            change.owner,
            change.ttl_ms,
        )
        self._add(path, name, znode, parent)
        parent.creates += 1
        parent.children_modified = zxid

        def undo() -> None:
            self._remove(path, name, znode, parent)
            parent.creates -= 1
            parent.children_modified = before

        return [(EventType.CREATED, path), (EventType.CHILDREN_CHANGED, parent_path or ROOT)], undo

    def _delete(self, path: str, zxid: int) -> tuple[list[Event], Undo]:
        parent_path, _, name = path.rpartition("/")
        parent, removed = self.nodes[parent_path or ROOT], self.nodes[path]
        before = parent.children_modified
        self._remove(path, name, removed, parent)
        parent.children_modified = zxid

        def undo() -> None:
            self._add(path, name, removed, parent)
            parent.children_modified = before

        return [(EventType.DELETED, path), (EventType.CHILDREN_CHANGED, parent_path or ROOT)], undo

    def _add(self, path: str, name: str, node: Znode, parent: Znode) -> None:
        self.nodes[path] = node
        parent.children.add(name)
        if node.kind is Kind.EPHEMERAL:
            self.of_session[node.owner].add(path)
        elif node.kind is not Kind.PERSISTENT:
            self.expiring.add(path)

    def _remove(self, path: str, name: str, node: Znode, parent: Znode) -> None:
        del self.nodes[path]
        parent.children.discard(name)
        self.expiring.discard(path)
        if node.kind is Kind.EPHEMERAL:
            paths = self.of_session[node.owner]
            paths.discard(path)
            if not paths:
                del self.of_session[node.owner]

    def _set_data(self, path: str, data: bytes | None, zxid: int, now_ms: int) -> tuple[list[Event], Undo]:
        node = self.nodes[path]
        before = node.data, node.modified, node.modified_ms
        node.data, node.modified, node.modified_ms = data, zxid, now_ms
        node.version += 1

        def undo() -> None:
            node.data, node.modified, node.modified_ms = before
            node.version -= 1

        return [(EventType.DATA_CHANGED, path)], undo

    def _set_acl(self, path: str, acl: tuple[Acl, ...]) -> tuple[list[Event], Undo]:
        node = self.nodes[path]
        before = node.acl
        node.acl = acl
        node.acl_version += 1

        def undo() -> None:
            node.acl = before
            node.acl_version -= 1

        return [], undo

    # --- expiry ---------------------------------------------------------------------------------------------

    def ephemerals(self, session_id: int) -> list[str]:
        """Return the paths of a session's ephemeral znodes, sorted."""
        return sorted(self.of_session.get(session_id, ()))

    def expired(self, now_ms: int) -> Iterator[str]:
        """Return the paths of containers and of znodes with a time to live that is over."""
        for path in sorted(self.expiring):
            node = self.nodes[path]
            if node.children:
                continue
            if node.creates if node.kind is Kind.CONTAINER else now_ms - node.modified_ms > node.ttl_ms:
                yield path
