"""A replica of the quorum: its role, and its requests (KIP-595, KIP-853). Pure.

The rule: each method for an event or the time returns decisions, which are carried out in order before the next
event and before anything is sent; so a vote is on disk before it is answered.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.cluster.kraft.decisions import Append, Decision
from barnabas.cluster.kraft.observer import FETCH_WAIT_MS
from barnabas.cluster.kraft.raft.leading import VoterChange
from barnabas.cluster.kraft.raft.membership import take_versions, told_voters
from barnabas.cluster.kraft.raft.messages import LeaderNews, news_of, only_partition
from barnabas.cluster.kraft.raft.ports import NotLeaderError
from barnabas.cluster.kraft.raft.records import voters_records
from barnabas.cluster.kraft.raft.roles import FETCHING, Roles
from barnabas.cluster.kraft.raft.values import Role, Send, address_by
from barnabas.cluster.kraft.replica_values import Leader, WrongAnswerError
from barnabas.cluster.kraft.state import MetadataLogError, Snapshot
from barnabas.cluster.kraft.values import Voter
from barnabas.config.quorum import Address
from barnabas.wire.generated.add_raft_voter import AddRaftVoterResponse
from barnabas.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.generated.begin_quorum_epoch import BeginQuorumEpochResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.fetch_snapshot import FetchSnapshotResponse
from barnabas.wire.generated.remove_raft_voter import RemoveRaftVoterResponse
from barnabas.wire.generated.update_raft_voter import UpdateRaftVoterResponse
from barnabas.wire.generated.vote import VoteResponse

_STALE: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER})


class Replica(Roles):
    """State machine of a voter, or of a node that may become one.

    Lifecycle: `begin`, then `tick` whenever `next_deadline` is past, `sends` after each event, `answered` or `failed`
    for each request sent; `requests` has its responses.
    """

    # --- requests to others ---------------------------------------------------------------------------------

    def sends(self, now_ms: int) -> list[Send]:
        """Return the requests to send now; each is in flight until it is answered or has failed."""
        sends: list[Send] = []
        match self.role:
            case Role.PROSPECTIVE | Role.CANDIDATE:
                assert self._ballot is not None
                is_asking = self.role is Role.PROSPECTIVE
                for voter in self._ballot.waiting():
                    vote = self._asker.vote(
                        voter, self.epoch, self.log.last_epoch, self.log.end_offset, pre_vote=is_asking
                    )
                    self._send(sends, voter, vote, now_ms)
            case Role.LEADER:
                assert self.leading is not None
                for voter in self.leading.to_begin(self.voters, now_ms):
                    self._send(sends, voter, self._asker.begin(voter, self.epoch), now_ms)
                    self.leading.told(voter.id, now_ms)
                self._probe(sends, self.leading.change, now_ms)
            case Role.RESIGNED:
                for voter in self._unaware.values():
                    self._send(sends, voter, self._asker.end(self.epoch, self._successors), now_ms)
            case _:
                self._send_fetch(sends, now_ms)
        return sends

    def _send(self, sends: list[Send], voter: Voter, message: Any, now_ms: int) -> None:
        address = self.settings.address_of(voter)
        if address is not None:
            self._send_to(sends, voter.id, address, message, now_ms)

    def _send_to(self, sends: list[Send], key: int, address: Address, message: Any, now_ms: int) -> bool:
        if key in self._in_flight or self._ready_at.get(key, 0) > now_ms:
            return False
        self._number += 1
        self._in_flight[key] = self._number
        sends.append(Send(self._number, key, address, message))
        return True

    def _probe(self, sends: list[Send], change: VoterChange | None, now_ms: int) -> None:
        """Ask a new voter for its supported levels."""
        if change is None or change.offset is not None or change.is_asked:
            return
        address = address_by(change.endpoints, self.settings.listener)
        if address is not None:
            request = ApiVersionsRequest(client_software_name="barnabas", client_software_version="1")
            change.is_asked = self._send_to(sends, change.key.id, address, request, now_ms)

    def _send_fetch(self, sends: list[Send], now_ms: int) -> None:
        leader = self.log.leader
        if self.role is Role.FOLLOWER and now_ms >= self._update_at_ms and leader.host:
            self._update_at_ms = now_ms + self.settings.fetch_timeout_ms
            request = self._own_entry_request()
            if request is not None:
                self._send_to(sends, leader.id, (leader.host, leader.port), request, now_ms)
        if FETCHING in self._in_flight:
            return
        if self._contacts is not None:
            address = self._contacts.choose(leader, now_ms)
            is_ready = self._contacts.ready_at_ms <= now_ms
        else:
            address, is_ready = (leader.host, leader.port), bool(leader.host)
        if is_ready:
            self._send_to(sends, FETCHING, address, self.log.request(max_wait_ms=FETCH_WAIT_MS), now_ms)

    def _own_entry_request(self) -> Any:
        """Return the request to update this node's entry, or to make it a voter; None if nothing needs to change.

        At kraft.version 0 each leader gets one update: it needs the directories and levels of all voters to raise the
        version to 1. A voter with this node id and another directory, which was lost, is removed first.
        """
        if not self.log.leadership.kraft_version:
            is_new = self.is_voter and not self._has_told_leader
            return self._asker.update(self.epoch, self.settings.kraft_versions) if is_new else None
        if self.is_voter:
            is_current = self.with_own_entry(self.voters) == self.voters
            return None if is_current else self._asker.update(self.epoch, self.settings.kraft_versions)
        if not self.settings.joins or not self.has_fetched:
            return None
        former = next((voter for voter in self.voters if voter.id == self.key.id), None)
        return self._asker.join() if former is None else self._asker.remove(former)

    # --- answers --------------------------------------------------------------------------------------------

    def failed(self, send: Send, now_ms: int, *, is_refused: bool = False) -> None:
        """Note that a node was not reached or did not answer in time; `is_refused` if nothing listens there."""
        if not self._settle(send):
            return
        if is_refused and send.address == (self.log.leader.host, self.log.leader.port):
            self.leader_ended(now_ms)
        if send.key == FETCHING and self._contacts is not None:
            self._contacts.failed(now_ms)
        else:
            self._ready_at[send.key] = now_ms + self.settings.retry_backoff_ms
        if self.is_stopping:
            self._unaware.pop(send.key, None)  # shutdown does not wait for an absent voter
        change = self.leading.change if self.leading is not None else None
        if change is not None and change.offset is None and isinstance(send.message, ApiVersionsRequest):
            self.finish_change(ErrorCode.REQUEST_TIMED_OUT, f"node {change.key.id} does not answer")

    def _settle(self, send: Send) -> bool:
        """Return whether a request is in flight, and end that."""
        if self._in_flight.get(send.key) != send.number:
            return False
        del self._in_flight[send.key]
        return True

    def answered(self, send: Send, response: Any, now_ms: int) -> tuple[Decision, ...]:
        """Process an answer. Raises MetadataLogError if the quorum is broken."""
        if not self._settle(send):
            return ()
        if isinstance(response, FetchResponse | FetchSnapshotResponse):
            return self._take_log(response, now_ms)
        if isinstance(response, ApiVersionsResponse):
            return take_versions(self, response, now_ms)
        if isinstance(response, UpdateRaftVoterResponse):
            self._has_told_leader = self._has_told_leader or response.error_code == ErrorCode.NONE
            leader = response.current_leader
            leader_news = LeaderNews(
                response.error_code, leader.leader_id, leader.leader_epoch, (leader.host, leader.port)
            )
            return self._take_news(leader_news if leader.host else leader_news._replace(address=None), now_ms)
        if isinstance(response, AddRaftVoterResponse | RemoveRaftVoterResponse):
            return ()  # the log has the outcome; otherwise the request is repeated
        news = news_of(response)
        if news is None:
            self._ready_at[send.key] = now_ms + self.settings.retry_backoff_ms
            return ()
        before = self.role, self.epoch
        decisions = self._take_news(news, now_ms)
        if (self.role, self.epoch) != before or news.epoch < self.epoch:
            return decisions
        if news.error != ErrorCode.NONE:
            self._ready_at[send.key] = now_ms + self.settings.retry_backoff_ms
        elif isinstance(response, VoteResponse):
            return (*decisions, *self._count_vote(send, only_partition(response).vote_granted, now_ms))
        elif not isinstance(response, BeginQuorumEpochResponse):
            self._unaware.pop(send.key, None)
        return decisions

    def _count_vote(self, send: Send, is_granted: bool, now_ms: int) -> tuple[Decision, ...]:
        ballot = self._ballot
        is_pre_vote = send.message.topics[0].partitions[0].pre_vote
        if ballot is None or is_pre_vote != (self.role is Role.PROSPECTIVE):
            return ()
        ballot.votes[send.key] = is_granted
        if ballot.is_won:
            return self._candidate(now_ms) if is_pre_vote else self._lead(now_ms)
        return self._not_preferred(now_ms) if is_pre_vote and ballot.is_lost else ()

    def _take_news(self, news: LeaderNews, now_ms: int) -> tuple[Decision, ...]:
        if news.epoch > self.epoch or (
            news.epoch == self.epoch and (news.error in _STALE or self.leader_id < 0)
        ):
            return self.note_leader(news.leader_id, news.epoch, news.address, now_ms)
        return ()

    def note_leader(
        self, leader_id: int, epoch: int, address: Address | None, now_ms: int
    ) -> tuple[Decision, ...]:
        """Note the leader of an epoch, which is not earlier than its own. Raises MetadataLogError for a second leader."""
        current = self.log.leader
        is_other = leader_id >= 0 and epoch == current.epoch and leader_id != current.id
        if is_other and (current.id >= 0 or leader_id == self.key.id):
            raise MetadataLogError(
                f"the quorum has two leaders of epoch {epoch}: {leader_id}, and {current.id} as node {self.key.id} says"
            )
        if leader_id < 0 or leader_id == self.key.id:
            return self._unattached(epoch, now_ms) if epoch > current.epoch else ()
        host, port = address or ("", -1)
        decisions = self.log.elect(Leader(leader_id, epoch, host, port))
        if (leader_id, epoch) != current[:2] and self._contacts is not None:
            self._contacts.elected(now_ms)
        if (leader_id, epoch) != current[:2] or self.role in (Role.PROSPECTIVE, Role.UNATTACHED):
            self._follow(now_ms)
        return decisions

    def _take_log(self, response: FetchResponse | FetchSnapshotResponse, now_ms: int) -> tuple[Decision, ...]:
        before, contacts = self.log.leader, self._contacts
        try:
            taken = self.log.take(response)
        except WrongAnswerError:
            if contacts is not None:
                contacts.failed(now_ms)
            raise
        if self.log.leader[:2] != before[:2]:
            self._follow_answer(now_ms)
        elif not taken.asks_elsewhere and not taken.must_wait:
            self.has_fetched = True
            self._leader_is_refused, self._refused_rounds = False, 0
            if self.role is Role.FOLLOWER:
                self._deadline_ms = now_ms + self.settings.fetch_timeout_ms
        if contacts is not None:
            contacts.answered(taken, now_ms)
        elif taken.asks_elsewhere or taken.must_wait:
            self._ready_at[FETCHING] = now_ms + self.settings.retry_backoff_ms
        return taken.decisions

    def _follow_answer(self, now_ms: int) -> None:
        leader = self.log.leader
        if leader.id >= 0 and leader.id != self.key.id:
            self._follow(now_ms)
        else:
            self._become(Role.UNATTACHED, now_ms + self._election_ms())

    def raise_level(self, epoch: int, level: int, now_ms: int) -> Append:
        """Append a new kraft.version with the voters as reported, which count immediately. Raises NotLeaderError."""
        if self.leading is None or self.leading.epoch != epoch:
            raise NotLeaderError(f"node {self.key.id} does not lead in epoch {epoch}")
        voters = sorted(told_voters(self, self.leading))
        return self._append_controls(voters_records(voters, level), now_ms)

    def installed(self, snapshot: Snapshot) -> Decision:
        """Note that the log was restarted after a snapshot."""
        return self.log.installed(snapshot)

    def abandon_snapshot(self) -> tuple[Decision, ...]:
        """Abandon the snapshot that is being fetched, which is damaged."""
        return self.log.abandon_snapshot()
