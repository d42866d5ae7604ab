"""The replicated log of a quorum, as the controller uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from barnabas.cluster.kraft.quorum import Leadership


class NotLeaderError(Exception):
    """This node does not lead, or leads in another epoch: records that it appended may be lost."""


class RaftListener(Protocol):
    """Follows the changes of the leader. Calls are made in order; none of them blocks."""

    def on_leader(self, epoch: int, end_offset: int) -> None:
        """Note that this node leads: all records before `end_offset` are committed and applied to the image."""

    def on_resigned(self, epoch: int) -> None:
        """Note that this node no longer leads: its uncommitted records may be lost."""


class Raft(Protocol):
    """A voter. `leadership` is from the log's records, `leader_id` and `epoch` from the latest election (-1 none)."""

    node_id: int

    @property
    def leadership(self) -> Leadership:
        """Voters and kraft.version, by the log."""

    @property
    def leader_id(self) -> int:
        """The leader of the newest epoch, -1 if it has no leader yet."""

    @property
    def epoch(self) -> int:
        """The newest epoch."""

    @property
    def end_offset(self) -> int:
        """The log end offset of this node."""

    def append(self, epoch: int, values: Sequence[bytes]) -> int:
        """Append records (encoded with their frames) as one batch, and return the offset of the last.

        It returns before the batch is on disk and at the followers. Raises NotLeaderError.
        """

    def reason_against_kraft_version(self, level: int) -> str:
        """Return why kraft.version cannot be raised to a level, empty if all voters have reported support."""

    def raise_kraft_version(self, epoch: int, level: int) -> int:
        """Append a new kraft.version with the voters as one batch, and return the offset of the last record.

        Raises NotLeaderError.
        """

    async def wait_committed(self, offset: int, epoch: int) -> None:
        """Return once an offset that was appended in `epoch` is committed. Raises NotLeaderError."""

    def resign(self, epoch: int) -> None:
        """Resign as the leader, as after a fault; another voter is asked to take over."""

    async def answer(self, api_key: int, version: int, request: Any) -> Any:
        """Return the response to Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot, DescribeQuorum,
        AddRaftVoter, RemoveRaftVoter or UpdateRaftVoter. The caller has checked authorization.
        """
