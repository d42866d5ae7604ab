"""A session with ZooKeeper, as its users see it.

The rule: the broker uses only this interface of ZooKeeper. One implementation connects to servers, one is simulated;
both call watches in the event loop's thread, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

Watch = Callable[[], None]
"""Called once, when the read content has changed, or may change unnoticed after a lost connection. It must not block."""

ANY_VERSION = -1


class ZooKeeperError(Exception):
    """A request to ZooKeeper failed; nothing has changed unless the subclass states otherwise."""


class NoNodeError(ZooKeeperError):
    """The znode, or its parent, does not exist."""


class NodeExistsError(ZooKeeperError):
    """The znode exists already."""


class BadVersionError(ZooKeeperError):
    """The znode does not have the expected version: another writer was faster."""


class NotEmptyError(ZooKeeperError):
    """The znode has children and cannot be deleted."""


class NoAuthError(ZooKeeperError):
    """The znode's ACL does not allow this to us."""


class ConnectionLostError(ZooKeeperError):
    """The connection broke before the answer: a write may have happened, or may not."""


class SessionExpiredError(ZooKeeperError):
    """The session has ended: its ephemeral znodes are removed, or soon will be. A new session begins automatically."""


class SessionState(Enum):
    """State of the session, as known here."""

    CONNECTED = auto()
    DISCONNECTED = auto()
    """No server can be reached; the session continues if one is found in time."""
    EXPIRED = auto()
    """All ephemeral znodes are gone. CONNECTED follows, with a new session."""


@dataclass(frozen=True, slots=True)
class Stat:
    """Metadata of a znode.

    `version` counts the changes of its data; `created` is the czxid, `created_ms` the server's clock then.
    """

    version: int
    created: int
    modified: int = 0
    ephemeral_owner: int = 0
    children: int = 0
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    """Make a znode, as a part of `multi`."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Change a znode's data, as a part of `multi`."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a znode, as a part of `multi`."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Fail the whole of `multi` unless a znode has this version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


class ZooKeeper(Protocol):
    """A session. Paths are absolute below the chroot.

    Every method may raise ConnectionLostError, SessionExpiredError, NoAuthError, and others that it names. Requests are
    sent in the order in which they are made, without waiting for the answers of earlier ones; without a connection they
    fail immediately with ConnectionLostError.
    """

    @property
    def session_id(self) -> int:
        """The id of the current session, 0 before the first."""

    @property
    def state(self) -> SessionState:
        """The present state of the session, as known here."""

    @property
    def is_closed(self) -> bool:
        """True once `close` was called: then every request raises SessionExpiredError, and no session follows."""

    def watch_session(self, changed: Callable[[SessionState], None]) -> None:
        """Call `changed` with each new state; it must not block."""

    async def wait_connected(self) -> None:
        """Return when the session is connected, the same or a new one, or was closed."""

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> tuple[str, Stat]:
        """Make a znode and return its path (with its number, for a sequence). Raises NodeExistsError, NoNodeError."""

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Return a znode's data. Raises NoNodeError, and sets no watch then."""

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Return the data of many znodes, None for missing ones; all are requested together."""

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return a znode's Stat, None if it does not exist; the watch is set in both cases."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a znode's children, sorted. Raises NoNodeError."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Change a znode's data. Raises NoNodeError, BadVersionError."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a znode. Raises NoNodeError, BadVersionError, NotEmptyError."""

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        """Do all of these or none; one Stat for each Create and SetData.

        Raises the error of the first operation that failed, with `operation_index` as its attribute.
        """

    async def close(self) -> None:
        """End the session: its ephemeral znodes go at once."""
