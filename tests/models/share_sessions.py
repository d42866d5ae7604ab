"""Share sessions by the rules of KIP-932: which request of a member belongs to one, and what it reads from.

Written from those rules, and without any code of the broker's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.models.transactions import RefusedError, refuse_unless

FIRST, FINAL = 0, -1
LAST_EPOCH = 2**31 - 1
ID_LENGTH_MAX = 36

Partition = tuple[bytes, int]


@dataclass
class Session:
    """One session. `epoch` is what its next request must carry; partitions are in the order in which they came."""

    connection: int
    partitions: list[Partition]
    epoch: int = 1


@dataclass
class ShareSessions:
    """The sessions of a broker by group and member, at most `most`."""

    most: int
    sessions: dict[tuple[str, str], Session] = field(default_factory=dict)

    def fetch(
        self, group: str, member: str, epoch: int, named: list[Partition], forgotten: list[Partition], connection: int,
        *, acknowledges: bool,
    ) -> list[Partition]:  # fmt: skip
        """A ShareFetch; returns the partitions that its answer must name: all of them if the session is new."""
        refuse_unless(0 < len(member) <= ID_LENGTH_MAX, "INVALID_REQUEST")
        if epoch == FIRST:
            refuse_unless(not acknowledges, "INVALID_REQUEST")
            self.sessions.pop((group, member), None)
            refuse_unless(len(self.sessions) < self.most, "SHARE_SESSION_LIMIT_REACHED")
            session = self.sessions[group, member] = Session(connection, list(dict.fromkeys(named)))
            return session.partitions
        self.go_on(group, member, epoch)
        if epoch == FINAL:
            del self.sessions[group, member]
        else:
            session = self.sessions[group, member]
            every = dict.fromkeys(session.partitions + named)
            session.partitions = [partition for partition in every if partition not in forgotten]
        return []

    def acknowledge(self, group: str, member: str, epoch: int) -> None:
        """A ShareAcknowledge, which begins no session."""
        refuse_unless(0 < len(member) <= ID_LENGTH_MAX, "INVALID_REQUEST")
        refuse_unless(epoch != FIRST, "INVALID_SHARE_SESSION_EPOCH")
        self.go_on(group, member, epoch)
        if epoch == FINAL:
            del self.sessions[group, member]

    def go_on(self, group: str, member: str, epoch: int) -> None:
        """The session's next request; the last one may come at any time."""
        if (group, member) not in self.sessions:
            raise RefusedError("SHARE_SESSION_NOT_FOUND")
        session = self.sessions[group, member]
        if epoch != FINAL:
            refuse_unless(epoch == session.epoch, "INVALID_SHARE_SESSION_EPOCH")
            session.epoch = 1 if epoch == LAST_EPOCH else epoch + 1

    def disconnect(self, connection: int) -> None:
        """Sessions end with the connection on which they began."""
        self.sessions = {key: open_ for key, open_ in self.sessions.items() if open_.connection != connection}
