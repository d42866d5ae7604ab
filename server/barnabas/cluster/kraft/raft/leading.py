"""State of a leader: each replica's progress in the log, that of a majority, and the time of its last request. Pure.

The rule: an offset is committed when a majority of the voters (by the log, committed or not) has it on disk, with a
record of the leader's own epoch. The leader counts only while it is a voter itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.cluster.kraft.raft.values import ReplicaKey, is_same
from barnabas.cluster.kraft.values import Voter
from barnabas.wire.generated.errors import ErrorCode

OBSERVER_SESSION_MS: Final = 300_000
"""Time for which an observer is still described after its last fetch."""
CAUGHT_UP_MS_MAX: Final = 3_600_000
"""Longest time since the last fetch of a node that is to become a voter, as in Kafka."""


class Progress(NamedTuple):
    """Progress of a replica in the log; -1 for unknown values, times in ms."""

    end_offset: int = -1
    fetched_ms: int = -1
    leader_end: int = -1
    """Log end offset of the leader at the last fetch."""
    caught_up_ms: int = -1

    def after_fetch(self, offset: int, leader_end: int, now_ms: int) -> Progress:
        """Return the progress after a fetch from an offset."""
        caught_up_ms = self.caught_up_ms
        if offset >= leader_end:
            caught_up_ms = now_ms
        elif 0 < self.leader_end <= offset:
            caught_up_ms = max(caught_up_ms, self.fetched_ms)
        return Progress(offset, now_ms, leader_end, caught_up_ms)


NO_PROGRESS: Final = Progress()


class VoterChange:
    """A change of the voters that a client waits for. `error` is None until the outcome is known.

    `offset` is that of the record of the new voters, None until it is appended: before, a new voter is asked at its
    `endpoints` for the levels that it supports.
    """

    def __init__(
        self,
        key: ReplicaKey,
        deadline_ms: int,
        *,
        offset: int | None = None,
        endpoints: tuple[tuple[str, str, int], ...] = (),
        waits_for_commit: bool = True,
    ) -> None:
        self.key = key
        self.deadline_ms = deadline_ms
        self.offset = offset
        self.endpoints = endpoints
        self.waits_for_commit = waits_for_commit
        self.is_asked = False
        self.error: int | None = None
        self.message: str | None = None

    def finish(self, error: int = ErrorCode.NONE, message: str | None = None) -> None:
        """Set the outcome, unless it is set."""
        if self.error is None:
            self.error, self.message = error, message


class Leading:
    """A leader's view of the other replicas, for one epoch."""

    def __init__(
        self, key: ReplicaKey, epoch: int, start_offset: int, *, check_ms: int, begin_ms: int, now_ms: int
    ) -> None:
        """`check_ms` is the longest silence of a majority, `begin_ms` the interval of requests to silent voters."""
        self.key = key
        self.epoch = epoch
        self.start_offset = start_offset
        self.synced_offset = start_offset
        """End offset of the part of the own log that is on disk."""
        self.begun_ms = now_ms
        self.change: VoterChange | None = None
        self.told_voters: dict[int, Voter] = {}
        """Voters by id, as reported to this leader by UpdateRaftVoter at kraft.version 0, when the log has no voters."""
        self._check_ms = check_ms
        self._begin_ms = begin_ms
        self._progress: dict[ReplicaKey, Progress] = {}
        self._heard: set[int] = set()
        self._heard_majority_ms = now_ms
        self._begun: dict[int, int] = {}

    # --- replicas -------------------------------------------------------------------------------------------

    def progress_of(self, voter: Voter) -> Progress:
        """Return a voter's progress; for a voter without a directory id, that of the latest replica with its node id."""
        fitting = [progress for key, progress in self._progress.items() if is_same(voter, key)]
        return max(fitting, key=lambda progress: progress.fetched_ms, default=NO_PROGRESS)

    def fetched(
        self, key: ReplicaKey, offset: int, leader_end: int, voters: Iterable[Voter], now_ms: int
    ) -> None:
        """Note a fetch that continues the log: the replica has all records before the offset on disk."""
        before = self._progress.get(key, NO_PROGRESS)
        self._progress[key] = before.after_fetch(offset, leader_end, now_ms)
        self.heard_of(key, tuple(voters), now_ms)

    def heard_of(self, key: ReplicaKey, voters: tuple[Voter, ...], now_ms: int) -> None:
        """Note a valid request of a follower."""
        if not any(is_same(voter, key) for voter in voters):
            return
        self._heard.add(key.id)
        if len(self._heard) >= self._others_needed(voters):
            self._heard.clear()
            self._heard_majority_ms = now_ms

    def _others_needed(self, voters: tuple[Voter, ...]) -> int:
        is_own_vote = any(is_same(voter, self.key) for voter in voters)
        return len(voters) // 2 + 1 - is_own_vote

    def silent_at_ms(self, voters: tuple[Voter, ...]) -> int | None:
        """Return the time at which a majority will have been silent too long; None if the leader alone is one."""
        return self._heard_majority_ms + self._check_ms if self._others_needed(voters) > 0 else None

    def observers(self, voters: tuple[Voter, ...], now_ms: int) -> list[tuple[ReplicaKey, Progress]]:
        """Return the replicas that fetch but do not vote."""
        return [
            (key, progress)
            for key, progress in self._progress.items()
            if now_ms - progress.fetched_ms < OBSERVER_SESSION_MS
            and not any(is_same(voter, key) for voter in voters)
        ]

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        """Return whether a replica has had the whole log, and has fetched within the last hour."""
        progress = self._progress.get(key, NO_PROGRESS)
        return progress.caught_up_ms >= 0 and progress.fetched_ms > now_ms - CAUGHT_UP_MS_MAX

    # --- commit ---------------------------------------------------------------------------------------------

    def majority_offset(self, voters: tuple[Voter, ...]) -> int:
        """Return the offset up to which a majority of the voters has the log; -1 without a record of the own epoch."""
        if not voters:
            return -1
        offsets = sorted((self._end_of(voter) for voter in voters), reverse=True)
        offset = offsets[len(offsets) // 2]
        return offset if offset > self.start_offset else -1

    def high_watermark(self, own: int) -> int:
        """Return the high watermark for responses: -1 until a record of this epoch is committed."""
        return own if own > self.start_offset else -1

    def _end_of(self, voter: Voter) -> int:
        return self.synced_offset if is_same(voter, self.key) else self.progress_of(voter).end_offset

    def by_progress(self, voters: tuple[Voter, ...]) -> list[Voter]:
        """Return the other voters, the most advanced first."""
        others = [voter for voter in voters if not is_same(voter, self.key)]
        return sorted(others, key=lambda voter: (-self.progress_of(voter).end_offset, voter.id))

    # --- BeginQuorumEpoch -------------------------------------------------------------------------------------

    def to_begin(self, voters: tuple[Voter, ...], now_ms: int) -> list[Voter]:
        """Return the voters that are due for a BeginQuorumEpoch: those that do not fetch."""
        return [voter for voter in voters if not is_same(voter, self.key) and self._begin_at(voter) <= now_ms]

    def begin_at_ms(self, voters: tuple[Voter, ...]) -> int | None:
        """Return the time of the next BeginQuorumEpoch; None if there are no other voters."""
        return min((self._begin_at(voter) for voter in voters if not is_same(voter, self.key)), default=None)

    def _begin_at(self, voter: Voter) -> int:
        told_ms = self._begun.get(voter.id)
        if told_ms is None:
            return self.begun_ms
        return max(told_ms, self.progress_of(voter).fetched_ms) + self._begin_ms

    def told(self, voter_id: int, now_ms: int) -> None:
        """Note that a voter was sent a BeginQuorumEpoch."""
        self._begun[voter_id] = now_ms
