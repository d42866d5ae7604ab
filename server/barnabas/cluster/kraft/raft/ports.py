"""The replicated log of a quorum, as a controller needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from barnabas.cluster.kraft.quorum import Leadership


class NotLeaderError(Exception):
    """This node does not lead, or does so in another epoch: records that it appended may be lost."""


class RaftListener(Protocol):
    """Follows the changes of the leader. Calls are made in order, none of them waits."""

    def on_leader(self, epoch: int, end_offset: int) -> None:
        """Lead from now on: all of the log before `end_offset` is committed and applied to the image."""

    def on_resigned(self, epoch: int) -> None:
        """Stop leading: appended records that are not committed may be lost."""


class Raft(Protocol):
    """A voter. `leadership` is by the records of the log, `leader_id` and `epoch` by the newest election (-1 none)."""

    node_id: int

    @property
    def leadership(self) -> Leadership:
        """Voters and kraft.version, by the log."""

    @property
    def leader_id(self) -> int:
        """The leader of the newest epoch, -1 if there is none yet."""

    @property
    def epoch(self) -> int:
        """The newest epoch."""

    @property
    def end_offset(self) -> int:
        """The offset after the last record of the own log."""

    def append(self, epoch: int, values: Sequence[bytes]) -> int:
        """Append records (encoded with their frames) as one batch, and return the offset of the last.

        The batch is on its way to disk and to the followers when this returns. Raises NotLeaderError.
        """

    def reason_against_kraft_version(self, level: int) -> str:
        """Return why kraft.version cannot go up to a level, empty if all voters have told that they support it."""

    def raise_kraft_version(self, epoch: int, level: int) -> int:
        """Append another kraft.version with the voters as one batch, and return the offset of the last record.

        Raises NotLeaderError.
        """

    async def wait_committed(self, offset: int, epoch: int) -> None:
        """Return once an offset that was appended in `epoch` is committed. Raises NotLeaderError."""

    def resign(self, epoch: int) -> None:
        """Give up leading, as after a fault; another voter is asked to take over."""

    async def answer(self, api_key: int, version: int, request: Any) -> Any:
        """Return the response to Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot, DescribeQuorum,
        AddRaftVoter, RemoveRaftVoter or UpdateRaftVoter; authorization has been checked."""
