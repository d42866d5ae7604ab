"""Roles of a replica of the quorum: elections, leading, following, and work that is due by time (KIP-595, KIP-996). Pure.

The rule: the epoch never falls, and each replica has one vote in it. A leader that restarts does not lead in the same
epoch again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from barnabas.cluster.kraft.contacts import Contacts
from barnabas.cluster.kraft.decisions import Append, Decision
from barnabas.cluster.kraft.observer import Observer
from barnabas.cluster.kraft.quorum import control_batch
from barnabas.cluster.kraft.raft.leading import Leading
from barnabas.cluster.kraft.raft.messages import Asker
from barnabas.cluster.kraft.raft.ports import NotLeaderError
from barnabas.cluster.kraft.raft.records import Control, leader_change, value_batch, voters_records
from barnabas.cluster.kraft.raft.values import RaftSettings, ReplicaKey, Role, address_by, is_same
from barnabas.cluster.kraft.replica_values import Identity, Leader, StoredLog, Vote
from barnabas.cluster.kraft.values import Voter
from barnabas.wire.generated.errors import ErrorCode

FETCHING: Final = -1
"""Key of the Fetch request; the key of other requests is the id of the receiving voter."""

REFUSED_ROUNDS_MAX: Final = 10
"""Rounds after which the wait for the next round exceeds any fetch timeout."""


class Ballot:
    """Votes of an election, or of its pre-vote."""

    def __init__(self, voters: Sequence[Voter], own: ReplicaKey) -> None:
        self.voters = tuple(voters)
        self.votes: dict[int, bool] = {voter.id: True for voter in voters if is_same(voter, own)}

    @property
    def needed(self) -> int:
        """Number of votes that are a majority."""
        return len(self.voters) // 2 + 1

    @property
    def is_won(self) -> bool:
        """True once a majority has granted."""
        return bool(self.voters) and sum(self.votes.values()) >= self.needed

    @property
    def is_lost(self) -> bool:
        """True once so many voters have refused that no majority is possible."""
        refused = len(self.votes) - sum(self.votes.values())
        return len(self.voters) - refused < self.needed

    def waiting(self) -> list[Voter]:
        """Return the voters with missing answers that still matter."""
        if self.is_won or self.is_lost:
            return []
        return [voter for voter in self.voters if voter.id not in self.votes]


class Roles:
    """A voter, or a node that may become one, in its role and with its timeouts. `log` has the log and the leader."""

    def __init__(
        self,
        identity: Identity,
        stored: StoredLog,
        settings: RaftSettings,
        below: Callable[[int], int],
    ) -> None:
        """`below` returns a random number from 0 to a limit, exclusive."""
        self.settings = settings
        self.cluster_id = identity.cluster_id
        self.key = ReplicaKey(identity.node_id, identity.directory_id)
        self.log = Observer(
            identity,
            stored,
            static_voters=settings.static_voters,
            listener=settings.listener,
            fetch_bytes_max=settings.fetch_bytes_max,
            snapshot_bytes_max=settings.snapshot_bytes_max,
        )
        self.role = Role.UNATTACHED
        self.leading: Leading | None = None
        self.has_fetched = False
        """True once the present leader has answered a fetch."""
        self.is_stopping = False
        """True once the node is to end: it resigns, and does not stand for election."""
        self._below = below
        self._asker = Asker(identity.cluster_id, self.key, settings.endpoints)
        own = address_by(settings.endpoints, settings.listener)
        others = [address for address in settings.bootstrap if address != own]
        self._contacts = (
            Contacts(
                others,
                first=below(len(others)),
                backoff_ms=settings.retry_backoff_ms,
                fetch_timeout_ms=settings.fetch_timeout_ms,
            )
            if others
            else None
        )
        self._ballot: Ballot | None = None
        self._deadline_ms = 0
        self._leader_is_refused = False
        self._refused_rounds = 0
        self._update_at_ms = 0
        self._has_told_leader = False
        self._successors: tuple[Voter, ...] = ()
        self._unaware: dict[int, Voter] = {}
        self._in_flight: dict[int, int] = {}
        self._ready_at: dict[int, int] = {}
        self._number = 0

    # --- state ----------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The newest known epoch."""
        return self.log.leader.epoch

    @property
    def leader_id(self) -> int:
        """The leader of the epoch, -1 if it has none yet or the leader is unknown."""
        return self.log.leader.id

    @property
    def voters(self) -> tuple[Voter, ...]:
        """Voters by the log, committed or not; the static ones at kraft.version 0."""
        return self.settings.voters(self.log.leadership)

    @property
    def is_voter(self) -> bool:
        """True if this replica has a vote."""
        return any(is_same(voter, self.key) for voter in self.voters)

    @property
    def is_alone(self) -> bool:
        """True if this replica is the only voter."""
        return self.is_voter and len(self.voters) == 1

    def endpoints_of(self, node_id: int) -> tuple[tuple[str, str, int], ...]:
        """Return the listeners of a voter, or of this node; empty if unknown."""
        if node_id == self.key.id:
            return tuple(self.settings.endpoints)
        return next((voter.endpoints for voter in self.voters if voter.id == node_id), ())

    # --- time -----------------------------------------------------------------------------------------------

    def begin(self, now_ms: int) -> tuple[Decision, ...]:
        """Resume the role of the last run; call once, before all other methods."""
        leader, vote = self.log.leader, self.log.vote
        self._update_at_ms = now_ms
        if (
            leader.id == self.key.id
        ):  # its last appends in this epoch may be lost: it must not lead in it again
            self._resigned((), now_ms)
        elif self.is_voter and leader.id < 0 and is_same(vote, self.key):
            decisions = self._stand(now_ms)
            if self.role is Role.LEADER:
                return decisions
        elif leader.id >= 0 and leader.host:
            self._follow(now_ms)
        else:
            self._become(Role.UNATTACHED, now_ms + self._election_ms())
        return self._candidate(now_ms) if self.is_alone else ()

    def next_deadline(self) -> int | None:
        """Return the time at which `tick` or `sends` must be called unless an event is earlier; None for never."""
        times = [] if self.role is Role.LEADER or not self._has_timeout() else [self._deadline_ms]
        leading = self.leading
        if leading is not None:
            times += [
                time for time in (leading.silent_at_ms(self.voters), leading.begin_at_ms(self.voters)) if time
            ]
            if leading.change is not None:
                times.append(leading.change.deadline_ms)
        times += [time for key, time in self._ready_at.items() if key not in self._in_flight]
        if self._fetches() and FETCHING not in self._in_flight and self._contacts is not None:
            times.append(self._contacts.ready_at_ms)
        return min(times, default=None)

    def _has_timeout(self) -> bool:
        return not self.is_stopping and (self.role is Role.RESIGNED or self.is_voter)

    def tick(self, now_ms: int) -> tuple[Decision, ...]:
        """Carry out the timeouts of the role that have passed."""
        self._ready_at = {key: time for key, time in self._ready_at.items() if time > now_ms}
        if self.role is Role.LEADER:
            return self._check_quorum(now_ms)
        if now_ms < self._deadline_ms or not self._has_timeout():
            return ()
        match self.role:
            case Role.RESIGNED:
                return self._unattached(self.epoch + 1, now_ms)
            case Role.PROSPECTIVE:
                return self._not_preferred(now_ms)
            case _:
                return self._prospective(now_ms)

    def _check_quorum(self, now_ms: int) -> tuple[Decision, ...]:
        assert self.leading is not None
        change, silent_at_ms = self.leading.change, self.leading.silent_at_ms(self.voters)
        if change is not None and change.deadline_ms <= now_ms:
            self.finish_change(ErrorCode.REQUEST_TIMED_OUT)
        if silent_at_ms is not None and silent_at_ms <= now_ms:
            self.resign(now_ms)
        return ()

    def _election_ms(self) -> int:
        return self.settings.election_timeout_ms + self._below(max(self.settings.election_timeout_ms, 1))

    # --- roles ----------------------------------------------------------------------------------------------

    def _become(self, role: Role, deadline_ms: int) -> None:
        if self.leading is not None:
            self.finish_change(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.role, self._deadline_ms = role, deadline_ms
        self.leading, self._ballot = None, None
        self.has_fetched = False
        self._leader_is_refused = False
        self._in_flight.clear()
        self._ready_at.clear()

    def _unattached(self, epoch: int, now_ms: int) -> tuple[Decision, ...]:
        decisions = self.log.elect(Leader(-1, epoch)) if epoch > self.epoch else ()
        self._become(Role.UNATTACHED, now_ms + self._election_ms())
        return decisions

    def _follow(self, now_ms: int) -> None:
        self._become(Role.FOLLOWER, now_ms + self.settings.fetch_timeout_ms)
        self._has_told_leader = False
        self._update_at_ms = now_ms + self.settings.fetch_timeout_ms

    def _resigned(self, successors: Sequence[Voter], now_ms: int) -> None:
        self._become(Role.RESIGNED, now_ms + self._election_ms())
        self._successors = tuple(successors)
        self._unaware = {voter.id: voter for voter in self.voters if not is_same(voter, self.key)}

    def resign(self, now_ms: int) -> None:
        """Resign, and announce that to the other voters, the most advanced of which should stand first."""
        if self.leading is not None:
            self._resigned(self.leading.by_progress(self.voters), now_ms)

    def voted(self, candidate: ReplicaKey, now_ms: int) -> tuple[Decision, ...]:
        """Record this replica's vote of the epoch for a candidate."""
        self._deadline_ms = now_ms + self._election_ms()
        return self.log.elect(self.log.leader, Vote(*candidate))

    def leader_resigned(self, leader_id: int, position: int, count: int, now_ms: int) -> None:
        """Note that the leader resigns, and this node's position in its list of successors."""
        if self.role is not Role.FOLLOWER or leader_id != self.leader_id:
            return
        longest_ms = self.settings.election_backoff_max_ms
        if position == 0:
            wait_ms = 0
        elif position < count:
            wait_ms = min(longest_ms, longest_ms >> (count - 1) << (position - 1))
        else:
            wait_ms = longest_ms
        self._deadline_ms = now_ms + wait_ms
        self.has_fetched = False

    def leader_ended(self, now_ms: int) -> None:
        """Note that nothing listens at the leader's address: stand soon, at a random time, and grant pre-votes.

        If the others still receive from the leader and refuse, each further wait is longer, up to the fetch timeout.
        """
        if self.role is not Role.FOLLOWER or self._leader_is_refused:
            return
        longest_ms = min(
            self.settings.election_timeout_ms // 2 << self._refused_rounds, self.settings.fetch_timeout_ms
        )
        self._deadline_ms = min(self._deadline_ms, now_ms + self._below(max(longest_ms, 1)))
        self._refused_rounds = min(self._refused_rounds + 1, REFUSED_ROUNDS_MAX)
        self._leader_is_refused = True
        self.has_fetched = False

    def stop(self, now_ms: int) -> None:
        """Prepare for shutdown: a leader resigns."""
        self.is_stopping = True
        self.resign(now_ms)

    @property
    def is_known_to_resign(self) -> bool:
        """True if this node is not resigning, or all voters know that it is."""
        return self.role is not Role.RESIGNED or not self._unaware

    def _prospective(self, now_ms: int) -> tuple[Decision, ...]:
        """Ask for pre-votes, before the epoch is raised."""
        self._become(Role.PROSPECTIVE, now_ms + self._election_ms())
        self._ballot = Ballot(self.voters, self.key)
        return self._candidate(now_ms) if self._ballot.is_won else ()

    def _not_preferred(self, now_ms: int) -> tuple[Decision, ...]:
        """Follow the leader again, if it is known: the pre-vote was lost."""
        if self.leader_id >= 0 and self.log.leader.host:
            self._follow(now_ms)
            return ()
        return self._unattached(self.epoch, now_ms)

    def _candidate(self, now_ms: int) -> tuple[Decision, ...]:
        saved = self.log.elect(Leader(-1, self.epoch + 1), Vote(*self.key))
        return (*saved, *self._stand(now_ms))

    def _stand(self, now_ms: int) -> tuple[Decision, ...]:
        self._become(Role.CANDIDATE, now_ms + self._election_ms())
        self._ballot = Ballot(self.voters, self.key)
        return self._lead(now_ms) if self._ballot.is_won else ()

    def _lead(self, now_ms: int) -> tuple[Decision, ...]:
        assert self._ballot is not None
        granting = [
            ReplicaKey(voter.id, voter.directory_id)
            for voter in self._ballot.voters
            if self._ballot.votes.get(voter.id)
        ]
        host, port = address_by(self.settings.endpoints, self.settings.listener) or ("", -1)
        saved = self.log.elect(Leader(self.key.id, self.epoch, host, port))
        self._become(Role.LEADER, 0)
        self.leading = Leading(
            self.key,
            self.epoch,
            self.log.end_offset,
            check_ms=self.settings.fetch_timeout_ms * 3 // 2,
            begin_ms=self.settings.fetch_timeout_ms // 2,
            now_ms=now_ms,
        )
        voters, level = self.voters, self.log.leadership.kraft_version
        controls = [leader_change(self.key.id, voters, granting)]
        if level:
            updated = self.with_own_entry(voters)
            if self.log.voters_offset() < 0 or updated != voters:
                controls += voters_records(updated, level)
        return (*saved, self._append_controls(controls, now_ms))

    wall_clock_ahead_ms = 0
    """The wall clock, for timestamps, minus the clock of the times that are passed in, in ms."""

    def wall_ms(self, now_ms: int) -> int:
        """Return the time for a timestamp."""
        return now_ms + self.wall_clock_ahead_ms

    def with_own_entry(self, voters: Sequence[Voter]) -> tuple[Voter, ...]:
        """Return the voters with this node's present endpoints and levels."""
        own = Voter(*self.key, tuple(self.settings.endpoints), self.settings.kraft_versions)
        return tuple(
            own if voter.id == own.id and voter.directory_id == own.directory_id else voter
            for voter in voters
        )

    # --- leading --------------------------------------------------------------------------------------------

    def append(self, epoch: int, values: Sequence[bytes], now_ms: int) -> Append:
        """Append records as one batch. Raises NotLeaderError."""
        if self.leading is None or self.leading.epoch != epoch:
            raise NotLeaderError(f"node {self.key.id} does not lead in epoch {epoch}")
        return self.log.append_own(value_batch(values, self.log.end_offset, epoch, self.wall_ms(now_ms)))

    def append_voters(self, voters: Sequence[Voter], now_ms: int) -> Append:
        """Append the record of new voters, which count immediately."""
        return self._append_controls(voters_records(sorted(voters)), now_ms)

    def _append_controls(self, controls: Sequence[Control], now_ms: int) -> Append:
        batch = control_batch(controls, self.log.end_offset, self.epoch, self.wall_ms(now_ms))
        return self.log.append_own(batch)

    def synced(self, end_offset: int, now_ms: int) -> tuple[Decision, ...]:
        """Note that the own log is on disk up to an offset."""
        if self.leading is None:
            return ()
        self.leading.synced_offset = max(self.leading.synced_offset, end_offset)
        return self.commit(now_ms)

    def commit(self, now_ms: int) -> tuple[Decision, ...]:
        """Raise the high watermark to the offset of a majority."""
        leading = self.leading
        assert leading is not None
        decisions = self.log.commit(leading.majority_offset(self.voters))
        change = leading.change
        if (
            decisions
            and change is not None
            and change.offset is not None
            and change.offset < self.log.high_watermark
        ):
            self.finish_change(ErrorCode.NONE)
        if self.log.high_watermark > leading.start_offset and self._is_removed():
            self.resign(now_ms)
        return decisions

    def _is_removed(self) -> bool:
        """Return whether voters without this node are committed."""
        return not self.is_voter and self.log.voters_offset() < self.log.high_watermark

    def finish_change(self, error: int, message: str | None = None) -> None:
        """Finish the change of voters in progress, if any, with its outcome."""
        if self.leading is not None and self.leading.change is not None:
            change, self.leading.change = self.leading.change, None
            change.finish(error, message)

    def _fetches(self) -> bool:
        return self.role in (Role.FOLLOWER, Role.UNATTACHED)
