"""Random histories of whole quorums keep Raft's promises; a bug that is planted breaks one."""

import pytest

from barnabas.cluster.kraft.decisions import Truncate
from barnabas.cluster.kraft.observer import Observer
from barnabas.cluster.kraft.raft import membership, requests
from barnabas.cluster.kraft.raft.leading import Leading
from barnabas.cluster.kraft.raft.messages import Asker
from barnabas.cluster.kraft.raft.roles import Ballot
from barnabas.cluster.kraft.raft.values import Role
from barnabas.cluster.kraft.raft.voter import Replica
from barnabas.log.epochs import LeaderEpochs
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchResponse
from tests.support.effort import SEED, daily, examples
from tests.support.raft_walks import run_walk
from tests.support.slips import FittingPatch

KINDS = (
    {"voters": 3, "nodes": 4},
    {"voters": 3, "nodes": 4, "is_static": True},
    {"voters": 5, "nodes": 6, "is_static": True},
    {"voters": 3, "nodes": 6},
)
WALKS = 40
"""Walks of an ordinary day, a tenth of a second each."""
OTHER_SEEDS = 20


def walk(seed):
    return run_walk(seed, **KINDS[seed % len(KINDS)])


def test_random_histories_keep_the_promises():
    first = SEED * 1_000
    for seed in range(first, first + examples(WALKS)):
        try:
            walk(seed)
        except Exception as error:
            raise AssertionError(f"walk {seed}: {error}") from error


# --- planted bugs: elections --------------------------------------------------------------------------------------------


def vote_is_not_saved(patch):
    """A vote is given and forgotten with a crash."""
    voted = Replica.voted
    patch.setattr(Replica, "voted", lambda self, candidate, now_ms: voted(self, candidate, now_ms) and ())


def vote_is_given_twice(patch):
    """Two candidates of an epoch get the vote."""
    may_grant = requests.may_grant

    def planted(replica, candidate, *, is_up_to_date, is_asking):
        if is_up_to_date and not is_asking and replica.role is Role.UNATTACHED:
            return True
        return may_grant(replica, candidate, is_up_to_date=is_up_to_date, is_asking=is_asking)

    patch.setattr(requests, "may_grant", planted)


def logs_are_not_compared(patch):
    """A candidate that lacks records gets the vote."""
    may_grant = requests.may_grant
    patch.setattr(
        requests,
        "may_grant",
        lambda replica, candidate, *, is_up_to_date, is_asking: may_grant(
            replica, candidate, is_up_to_date=True, is_asking=is_asking
        ),
    )


def candidate_boasts(patch):
    """A candidate gives a later epoch for its last record than it has."""
    vote = Asker.vote
    patch.setattr(
        Asker,
        "vote",
        lambda self, voter, epoch, last_epoch, end_offset, *, pre_vote: vote(
            self, voter, epoch, max(last_epoch, epoch - 1), end_offset, pre_vote=pre_vote
        ),
    )


def half_of_the_votes_is_enough(patch):
    """A majority is one too few."""
    patch.setattr(Ballot, "needed", property(lambda self: len(self.voters) // 2))


def epoch_of_a_candidate_is_not_saved(patch):
    """A candidate that crashes stands in the same epoch again, or in one before."""
    elect = Observer.elect

    def planted(self, leader, vote=None):
        decisions = elect(self, leader, vote)
        return () if vote is not None and vote.id == self.identity.node_id else decisions

    patch.setattr(Observer, "elect", planted)


def leadership_survives_a_crash(patch):
    """A leader that starts again leads on in its epoch."""
    begin = Replica.begin

    def planted(self, now_ms):
        if self.log.leader.id == self.key.id:
            self._ballot = Ballot(self.voters, self.key)
            return self._lead(now_ms)
        return begin(self, now_ms)

    patch.setattr(Replica, "begin", planted)


def pre_vote_is_a_vote(patch):
    """A majority that would vote makes a leader."""
    patch.setattr(Replica, "_candidate", lambda self, now_ms: self._lead(now_ms))


def old_epochs_are_obeyed(patch):
    """Requests of a candidate or leader of an earlier epoch are taken."""

    def planted(replica, node_id, epoch):
        return ErrorCode.INVALID_REQUEST if node_id < 0 else ErrorCode.NONE

    patch.setattr(requests, "_checked", planted)
    patch.setattr(
        requests, "may_grant", lambda replica, candidate, *, is_up_to_date, is_asking: is_up_to_date
    )


def followers_vote_again(patch):
    """A follower gives its vote in the epoch of its leader."""

    def planted(replica, candidate, *, is_up_to_date, is_asking):
        return is_up_to_date and replica.role is not Role.LEADER

    patch.setattr(requests, "may_grant", planted)


# --- planted bugs: commit -----------------------------------------------------------------------------------------------


def unsynced_records_count(patch):
    """The leader counts what is not on its disk yet."""
    commit = Replica.commit

    def planted(self, now_ms):
        self.leading.synced_offset = self.log.end_offset
        return commit(self, now_ms)

    patch.setattr(Replica, "commit", planted)


def earlier_epochs_are_committed_by_counting(patch):
    """Records of an earlier epoch are committed before one of the own epoch."""

    def planted(self, voters):
        offsets = sorted((self._end_of(voter) for voter in voters), reverse=True)
        return offsets[len(offsets) // 2]

    patch.setattr(Leading, "majority_offset", planted)


def half_of_the_logs_is_enough(patch):
    """Records that one voter too few has are committed."""

    def planted(self, voters):
        offsets = sorted((self._end_of(voter) for voter in voters), reverse=True)
        offset = offsets[max(len(offsets) // 2 - 1, 0)]
        return offset if offset > self.start_offset else -1

    patch.setattr(Leading, "majority_offset", planted)


def observers_count(patch):
    """Records that any replicas have, voters or not, are committed."""

    def planted(self, voters):
        ends = [progress.end_offset for progress in self._progress.values()]
        offsets = sorted([self.synced_offset, *ends], reverse=True)
        offset = offsets[len(voters) // 2] if len(offsets) > len(voters) // 2 else -1
        return offset if offset > self.start_offset else -1

    patch.setattr(Leading, "majority_offset", planted)


def removed_leader_counts_itself(patch):
    """A leader that is no voter any more counts its own log."""

    def planted(self, voters):
        offsets = sorted(
            (self.progress_of(voter).end_offset for voter in voters if voter.id != self.key.id), reverse=True
        )
        offset = sorted([self.synced_offset, *offsets], reverse=True)[len(voters) // 2]
        return offset if offset > self.start_offset else -1

    patch.setattr(Leading, "majority_offset", planted)


def follower_commits_all_it_has(patch):
    """A follower applies records before they are committed."""
    take = Observer.take

    def planted(self, response):
        if isinstance(response, FetchResponse):
            response.responses[0].partitions[0].high_watermark = 1 << 40
        return take(self, response)

    patch.setattr(Observer, "take", planted)


# --- planted bugs: divergence -------------------------------------------------------------------------------------------


def divergence_is_not_answered(patch):
    """A fetch from any place is answered with what comes next there."""
    patch.setattr(requests, "place", lambda *_: True)


def longer_logs_of_an_epoch_are_taken(patch):
    """A follower that has more of an epoch than the leader keeps it."""
    place = requests.place

    def planted(replica, offset, last_epoch, files, answer):
        if (
            replica.log.epoch_end(last_epoch)[0] == last_epoch
            and offset > replica.log.epoch_end(last_epoch)[1]
        ):
            return True
        return place(replica, offset, last_epoch, files, answer)

    patch.setattr(requests, "place", planted)


def epochs_end_where_the_log_ends(patch):
    """The end of an earlier epoch is answered with the end of the log."""
    patch.setattr(Observer, "epoch_end", lambda self, epoch: (epoch, self._end_offset))


def cut_leaves_a_record(patch):
    """A log that diverges keeps one record too many."""
    take = Observer.take

    def planted(self, response):
        diverging = (
            response.responses[0].partitions[0].diverging_epoch
            if isinstance(response, FetchResponse)
            else None
        )
        if diverging is not None and 0 <= diverging.end_offset < self.end_offset - 1:
            diverging.end_offset += 1
        return take(self, response)

    patch.setattr(Observer, "take", planted)


def epochs_survive_a_cut(patch):
    """The epochs of what was cut are still asked for."""
    patch.setattr(LeaderEpochs, "truncate_from_end", lambda *_: False)


def log_start_is_not_looked_at(patch):
    """A follower that is behind the start of the log gets records from there."""

    def planted(replica, offset, last_epoch, files, answer):
        class Without:
            snapshot_ids, start_offset = (), 0

        return place(replica, offset, last_epoch, Without, answer)

    place = requests.place
    patch.setattr(requests, "place", planted)


# --- planted bugs: voters -----------------------------------------------------------------------------------------------


def voters_survive_a_cut(patch):
    """Voters count that were cut with their record."""
    take = Observer.take

    def planted(self, response):
        controls = list(self._controls)
        taken = take(self, response)
        if any(isinstance(decision, Truncate) for decision in taken.decisions):
            self._controls = controls
        return taken

    patch.setattr(Observer, "take", planted)


def voters_change_at_any_time(patch):
    """Voters are changed while the last change, or the epoch, is not committed."""
    patch.setattr(membership, "require_changeable", lambda *_: None)


def two_voters_change_at_once(patch):
    """A voter is removed with its neighbour."""
    append_voters = Replica.append_voters

    def planted(self, voters, now_ms):
        return append_voters(self, [voter for voter in voters if voter.id != 2] or voters, now_ms)

    patch.setattr(Replica, "append_voters", planted)


def voters_of_a_snapshot_are_lost(patch):
    """A replica that begins with a snapshot has the voters of before."""
    installed = Observer.installed

    def planted(self, snapshot):
        return installed(
            self, snapshot._replace(leadership=snapshot.leadership._replace(voters=(), kraft_version=0))
        )

    patch.setattr(Observer, "installed", planted)


PLANTED = {
    vote_is_not_saved: 35,
    vote_is_given_twice: 3,
    logs_are_not_compared: 1,
    candidate_boasts: 9,
    half_of_the_votes_is_enough: 0,
    epoch_of_a_candidate_is_not_saved: 3,
    leadership_survives_a_crash: 0,
    pre_vote_is_a_vote: 0,
    old_epochs_are_obeyed: 1,
    followers_vote_again: 0,
    unsynced_records_count: 0,
    earlier_epochs_are_committed_by_counting: 2,
    half_of_the_logs_is_enough: 0,
    observers_count: 0,
    removed_leader_counts_itself: 12,
    follower_commits_all_it_has: 0,
    divergence_is_not_answered: 1,
    longer_logs_of_an_epoch_are_taken: 1,
    epochs_end_where_the_log_ends: 1,
    cut_leaves_a_record: 1,
    epochs_survive_a_cut: 13,
    log_start_is_not_looked_at: 1,
    voters_survive_a_cut: 7,
    voters_change_at_any_time: 3,
    two_voters_change_at_once: 3,
    voters_of_a_snapshot_are_lost: 3,
}
"""Bugs, each with the seed of a walk that notices it; others are tried when draws have changed."""


def is_noticed(seeds):
    for seed in seeds:
        try:
            walk(seed)
        except Exception:
            return True
    return False


def test_planted_bugs_are_noticed():
    missed, today = [], daily(PLANTED, 4)
    for plant in PLANTED:
        with pytest.MonkeyPatch.context() as patch:
            plant(FittingPatch(patch))
            if plant in today and not is_noticed([PLANTED[plant], *range(examples(OTHER_SEEDS))]):
                missed.append(plant.__name__)
    assert missed == []
