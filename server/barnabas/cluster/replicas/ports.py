"""Ports of a replica: to the controller, to fetchers, to quotas, to waiters for its growth.

The rule: implementations are chosen at the assembly of the broker; their arguments are of type `Replica`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from barnabas.errors import RequestError, StorageError

if TYPE_CHECKING:
    from barnabas.cluster.replication.leader import IsrChange

Replica = TypeVar("Replica", contravariant=True)

StorageFailed = Callable[[StorageError], RequestError]
"""Called with every StorageError; returns the error for the client."""


class Watcher(Protocol[Replica]):
    """An object that waits for a replica to grow."""

    def partition_advanced(self, replica: Replica) -> None:
        """Note that readers see more of the replica, or that its role has changed or it is closed."""


class ChangeWatch(Protocol):
    """An object that is notified, once, of the next change of a replica."""

    def changed(self) -> None:
        """Take note that the replica has grown, is committed further, begins elsewhere, or has another role or ISR."""


class AlterPartition(Protocol[Replica]):
    """Destination of the leader's proposals for the ISR: the controller, local or remote (KIP-497)."""

    def propose(self, replica: Replica, change: IsrChange) -> None:
        """Change the ISR; `replica.isr_settled` is called with the answer."""


class Fetchers(Protocol[Replica]):
    """Fetchers for the followers of this broker."""

    def start(self, replica: Replica) -> None:
        """Fetch from the leader that `replica` follows now, in its leader epoch."""

    def stop(self, replica: Replica) -> None:
        """Stop fetching for a replica; no error if it was not started."""


class NoFetchers:
    """The `Fetchers` of a broker that is alone."""

    def start(self, replica: object) -> None:
        """Do nothing: there is no leader to fetch from."""

    def stop(self, replica: object) -> None:
        """Do nothing."""


class TierStartError(Exception):
    """A log could not be restarted after the records in tiered storage: it is tried again."""

    def __init__(self, message: str, code: int = 0, *, is_passing: bool = False) -> None:
        """`code` is the leader's answer; `is_passing` is true for a transient error."""
        super().__init__(message)
        self.code = code
        self.is_passing = is_passing


class TierStarts(Protocol):
    """Restarts logs of followers after the records in tiered storage (KIP-405)."""

    def begins_last(self, replica: Any, leader_end_offset: int) -> bool:
        """Return whether an empty log is to begin after all that is in tiered storage, rather than in it (KIP-1023)."""

    def start(
        self,
        follower: Any,
        leader: Any,
        done: Callable[[TierStartError | StorageError | None], None],
    ) -> None:
        """Restart the log of a `FollowerLog`, by requests to its `RemoteLeader`, in a separate task.

        `done` is called at its end, in the event loop.
        """


class Throttle(Protocol[Replica]):
    """Limit on how fast records of throttled replicas may be sent, or fetched."""

    def holds(self, replica: Replica) -> bool:
        """Return whether records of a replica must wait, unless the follower that fetches them is in sync."""

    def used(self, replica: Replica, size: int) -> None:
        """Count sent or fetched bytes."""


class NoThrottle:
    """A `Throttle` without a limit."""

    def holds(self, replica: object) -> bool:  # noqa: ARG002
        """Hold nothing."""
        return False

    def used(self, replica: object, size: int) -> None:
        """Do nothing."""
