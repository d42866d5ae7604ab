"""Share sessions: the partitions that a member fetches from, remembered between its requests. Pure.

The rule: a session belongs to one member of one group and to the connection on which it began. Its epoch moves by one
with each request, fetch or acknowledgement, so that a lost or repeated request is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicIdPartition

EPOCH_INITIAL, EPOCH_FINAL = 0, -1
EPOCH_MAX = 2**31 - 1

SessionKey = tuple[str, str]
"""Group id and member id."""


@dataclass(slots=True)
class ShareSession:
    """A share session; `epoch` is the one that its next request must have.

    Partitions are in the order in which they were added.
    """

    key: SessionKey
    connection_id: int
    epoch: int = 1
    topic_partitions: dict[TopicIdPartition, None] = field(default_factory=dict)

    def update(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Apply the changes of a request; a partition that is both added and forgotten is forgotten."""
        for topic_partition in added:
            self.topic_partitions.setdefault(topic_partition)
        for topic_partition in forgotten:
            self.topic_partitions.pop(topic_partition, None)

    def rotated(self, epoch: int) -> list[TopicIdPartition]:
        """Return all partitions, with another start in each epoch, so that a limit starves no partition."""
        topic_partitions = list(self.topic_partitions)
        turn = epoch % len(topic_partitions) if topic_partitions else 0
        return topic_partitions[turn:] + topic_partitions[:turn]


class ShareSessions:
    """All sessions of a broker, at most `sessions_max` (group.share.max.share.sessions)."""

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Number of partitions in all sessions."""
        return sum(len(session.topic_partitions) for session in self._sessions.values())

    def open(
        self, key: SessionKey, topic_partitions: Iterable[TopicIdPartition], connection_id: int
    ) -> ShareSession:
        """Begin a session, which replaces an older one of the same member. Raises SHARE_SESSION_LIMIT_REACHED."""
        self._sessions.pop(key, None)
        if len(self._sessions) >= self._sessions_max:
            raise RequestError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"there are {self._sessions_max} share sessions"
            )
        session = self._sessions[key] = ShareSession(
            key, connection_id, topic_partitions=dict.fromkeys(topic_partitions)
        )
        return session

    def resume(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a request with this epoch, unless it opens a session.

        Raises SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH; the latter not for the last request.
        """
        session = self._sessions.get(key)
        if session is None:
            raise RequestError(
                ErrorCode.SHARE_SESSION_NOT_FOUND, f"member {key[1]!r} of {key[0]!r} has no session"
            )
        if epoch == EPOCH_FINAL:
            return session
        if epoch != session.epoch:
            raise RequestError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"the session is in epoch {session.epoch}, not {epoch}"
            )
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def close(self, key: SessionKey) -> ShareSession | None:
        """End a session; returns it, None if it does not exist."""
        return self._sessions.pop(key, None)

    def has_any(self, group_id: str) -> bool:
        """Return whether a group has a session."""
        return any(key[0] == group_id for key in self._sessions)

    def of_connection(self, connection_id: int) -> list[ShareSession]:
        """Return the sessions that began on a connection."""
        return [session for session in self._sessions.values() if session.connection_id == connection_id]
