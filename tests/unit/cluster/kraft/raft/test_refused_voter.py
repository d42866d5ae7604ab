"""A voter that the leader's address refuses: when it asks for votes, and what it says to others that ask."""

from barnabas.cluster.kraft.observer import Identity, StoredLog
from barnabas.cluster.kraft.raft.messages import Asker
from barnabas.cluster.kraft.raft.requests import VOTE, answer
from barnabas.cluster.kraft.raft.values import RaftSettings, ReplicaKey, Role
from barnabas.cluster.kraft.raft.voter import Replica
from barnabas.log.format.quorum_state import QuorumState
from barnabas.wire.generated.fetch import FetchRequest
from tests.support.raft_nodes import CLUSTER, addresses_of, directory_id, endpoints_of, voter

LEADER, OWN, OTHER = 1, 2, 3
EPOCH = 7


class Refused:
    """A follower of a leader, with the limits of the random numbers that it has drawn; each is the largest."""

    def __init__(self):
        self.limits = []
        addresses = addresses_of((LEADER, OWN, OTHER))
        self.replica = Replica(
            Identity(OWN, directory_id(OWN), CLUSTER),
            StoredLog(
                end_offset=5, epochs=((EPOCH, 0),), election=QuorumState(0, LEADER, EPOCH, voters=(1, 2, 3))
            ),
            RaftSettings(endpoints=endpoints_of(OWN), static_voters=addresses),
            self.below,
        )
        self.replica.begin(0)
        assert self.replica.role is Role.FOLLOWER

    def below(self, limit):
        self.limits.append(limit)
        return limit - 1

    def fetch(self, now_ms, *, is_refused):
        """Have a fetch fail."""
        (send,) = self.replica.sends(now_ms)
        assert isinstance(send.message, FetchRequest)
        self.replica.failed(send, now_ms, is_refused=is_refused)
        self.replica.tick(now_ms + 20)

    def role_at(self, now_ms):
        self.replica.tick(now_ms)
        return self.replica.role

    def would_vote(self, now_ms):
        """Say whether it would vote for another node with as much of the log."""
        asker = Asker(CLUSTER, ReplicaKey(OTHER, directory_id(OTHER)), ())
        request = asker.vote(voter(OWN), EPOCH, EPOCH, 5, pre_vote=True)
        reply = answer(self.replica, VOTE, 2, request, now_ms, None)
        return reply.response.topics[0].partitions[0].vote_granted


def test_refused_voter_asks_for_votes_at_one_random_time():
    refused = Refused()
    for now_ms in range(0, 400, 25):
        refused.fetch(now_ms, is_refused=True)
    assert refused.limits == [500]
    assert refused.role_at(498) is Role.FOLLOWER
    assert refused.role_at(499) is Role.PROSPECTIVE


def test_voter_that_is_not_answered_waits_for_the_fetch_timeout():
    refused = Refused()
    for now_ms in range(0, 400, 25):
        refused.fetch(now_ms, is_refused=False)
    assert refused.limits == []
    assert refused.role_at(1_999) is Role.FOLLOWER
    assert refused.role_at(2_000) is Role.PROSPECTIVE


def test_refused_voter_would_vote_for_another():
    refused = Refused()
    refused.replica.has_fetched = True
    assert not refused.would_vote(0)
    refused.fetch(0, is_refused=True)
    assert refused.would_vote(1)


def test_voter_whom_others_refuse_asks_less_and_less_often():
    refused, now_ms, limits = Refused(), 0, []
    for _ in range(5):
        refused.limits.clear()
        refused.fetch(now_ms, is_refused=True)
        limits += refused.limits
        now_ms += refused.limits[0]
        assert refused.role_at(now_ms) is Role.PROSPECTIVE
        now_ms += 2_000  # without an answer of the others
        assert refused.role_at(now_ms) is Role.FOLLOWER
    assert limits == [500, 1_000, 2_000, 2_000, 2_000]
