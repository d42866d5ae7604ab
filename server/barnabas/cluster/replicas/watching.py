"""Watches of partitions in a fetch session for which the fetcher is up to date.

The rule: such a partition costs nothing until its replica changes; then every request visits it, until it is up to date
again.
"""

from __future__ import annotations

from barnabas.cluster.replicas.replica import Replica
from barnabas.serving.fetch_sessions import Session, SessionPartition


class PartitionWatch:
    """Implements `fetch_sessions.Watch` for one partition of a session, and `ports.ChangeWatch` for its replica.

    `seen` is the number of readable bytes at the last read, as counted by the replica's growth.
    """

    __slots__ = ("_partition", "_session", "replica", "seen")

    def __init__(self, session: Session, partition: SessionPartition, replica: Replica, seen: int) -> None:
        """Begin to watch."""
        self._session = session
        self._partition = partition
        self.replica = replica
        self.seen = seen
        session.watched(partition, self)
        replica.subscribers.watch(self)

    def end(self) -> None:
        """Watch no longer."""
        self.replica.subscribers.unwatch(self)

    def changed(self) -> None:
        """Make the next request visit the partition, and wake the request that waits now."""
        session, partition = self._session, self._partition
        partition.watch = None
        session.note_change(partition)
        if session.reader is not None:
            session.reader.partition_changed(self)
