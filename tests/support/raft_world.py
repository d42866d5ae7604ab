"""A replica of a quorum with its disk and requests to it; all of its decisions are carried out immediately."""

from barnabas.cluster.kraft.decisions import Append, SaveElection
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.raft.messages import Asker
from barnabas.cluster.kraft.raft.requests import answer
from barnabas.cluster.kraft.raft.values import RaftSettings, ReplicaKey, Role
from barnabas.cluster.kraft.raft.voter import Replica
from barnabas.cluster.kraft.replica_values import Identity
from barnabas.wire import registry
from tests.support.raft_disk import Disk, batches_of
from tests.support.raft_nodes import CLUSTER, addresses_of, directory_id, endpoints_of, fetch_request, voter

NOW = 10_000


class World:
    """A replica with its disk."""

    def __init__(self, number=1, voters=(1, 2, 3), *, election=None, is_static=False):
        leadership = Leadership(voters=tuple(voter(entry) for entry in voters), kraft_version=1)
        self.disk = Disk(Leadership() if is_static else leadership)
        settings = RaftSettings(
            endpoints=endpoints_of(number),
            bootstrap=tuple(addresses_of(voters).values()),
            static_voters=addresses_of(voters) if is_static else {},
        )
        if election is not None:
            self.disk.election = election.encode()
        identity = Identity(number, directory_id(number), CLUSTER)
        self.replica = Replica(identity, self.disk.stored(), settings, lambda limit: 0)
        self.now = NOW
        self.saved = []
        self.carry_out(self.replica.begin(self.now))

    def carry_out(self, decisions):
        for decision in decisions:
            if isinstance(decision, Append):
                self.disk.log += batches_of(decision.records)
                self.disk.sync()
            if isinstance(decision, SaveElection):
                self.saved.append(decision.state)

    def ask(self, api_key, request, version=None):
        version = registry.info(api_key).max_stable_version if version is None else version
        reply = answer(self.replica, api_key, version, request, self.now, self.disk)
        self.carry_out(reply.decisions)
        codec = registry.response_codec(api_key)
        if reply.change is None:  # the response can be encoded in that version
            codec.encode_bytes(reply.response, version)
        return reply

    def partition(self, api_key, request, version=None):
        return self.ask(api_key, request, version).response.topics[0].partitions[0]

    def lead(self):
        """Let voter 2 elect the replica."""
        replica = self.replica
        self.now += 5_000
        self.carry_out(replica.tick(self.now))
        for _ in range(2):
            for send in replica.sends(self.now):
                if send.key == 2 and replica.role is not Role.LEADER:
                    other = World(2, [entry.id for entry in replica.voters])
                    response = other.ask(52, send.message).response
                    self.carry_out(replica.answered(send, response, self.now))
        assert replica.role is Role.LEADER
        self.carry_out(replica.synced(replica.log.end_offset, self.now))
        return self

    def commit(self, *followers):
        """Let voters fetch the whole log."""
        replica = self.replica
        self.carry_out(replica.synced(replica.log.end_offset, self.now))
        for follower in followers or (2,):
            request = fetch_request(
                replica.log.end_offset, epoch=replica.epoch, last_epoch=replica.log.last_epoch,
                replica_id=follower, directory=directory_id(follower),
            )  # fmt: skip
            self.ask(1, request)
        return self


def asker(number=2, cluster=CLUSTER):
    return Asker(cluster, ReplicaKey(number, directory_id(number)), endpoints_of(number))


def vote(epoch, *, number=2, last_epoch=0, end_offset=0, pre_vote=False, target=1, cluster=CLUSTER):
    return asker(number, cluster).vote(voter(target), epoch, last_epoch, end_offset, pre_vote=pre_vote)
