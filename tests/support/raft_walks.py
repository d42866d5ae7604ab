"""Whole quorums on virtual time: real state machines and responses, on disks that lose unsynced data, over a bad network.

The rule: after each step, Raft's guarantees are checked for all nodes: one leader an epoch, matching logs, leaders with
all committed records, and no committed record that ever changes, on any node, after any crash.
"""

import heapq
from functools import partial
from itertools import count
from random import Random

from barnabas.cluster.kraft.quorum import decode_control
from barnabas.cluster.kraft.raft import requests
from barnabas.cluster.kraft.raft.values import Role
from barnabas.cluster.kraft.replica_values import WrongAnswerError
from barnabas.records.any_magic import iter_any_records
from barnabas.wire.generated.add_raft_voter import AddRaftVoterRequest
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.wire.registry import key_of
from tests.support.raft_nodes import CLUSTER, directory_id, endpoints_of, record, supported_levels
from tests.support.raft_shell import Node, PromiseError

CHAOS_MS = 25_000
CALM_MS = 15_000


HAPPENINGS = (
    *("crash", "crash", "fuse", "fuse", "split", "split", "heal", "heal"),
    *("resign", "snapshot", "snapshot", "change", "change", "change", "change"),
)


class Walk:
    """One history, from one seed."""

    def __init__(self, seed, *, voters=3, nodes=4, is_static=False, chaos_ms=CHAOS_MS):
        self.random = Random(seed)
        self.now_ms = 1_000
        self.events, self.order = [], count()
        self.is_static, self.first_voters = is_static, tuple(range(1, voters + 1))
        self.node_count, self.chaos_ms = nodes, chaos_ms
        self.election_timeout_ms = self.random.choice((1_000, 1_000, 60, 20))
        self.loss, self.sides = 0.0, {}
        self.leaders, self.votes, self.batches, self.truth = {}, {}, {}, {}
        self.committed_end, self.configurations = 0, []
        self.values, self.acknowledged = count(), 0
        self.nodes = {number: Node(self, number) for number in range(1, nodes + 1)}

    # --- time and network -------------------------------------------------------------------------------------

    def later(self, ms, work):
        heapq.heappush(self.events, (self.now_ms + ms, next(self.order), work))

    def run_until(self, end_ms):
        while self.events and self.events[0][0] <= end_ms:
            self.now_ms, _, work = heapq.heappop(self.events)
            work()
        self.now_ms = end_ms

    def passes(self, source, target):
        return self.sides.get(source) == self.sides.get(target) and self.random.random() >= self.loss

    def send(self, node, send):
        random, target = self.random, self.nodes[int(send.address[0][1:])]
        life, is_done = node.life, []

        def finish(response, *, is_refused=False):
            if is_done or not node.is_up or node.life != life:
                return
            is_done.append(True)
            if response is None:
                node.step(lambda: node.replica.failed(send, self.now_ms, is_refused=is_refused), lambda _: ())
                return
            try:
                node.step(lambda: node.replica.answered(send, response, self.now_ms))
            except WrongAnswerError as error:
                raise PromiseError(f"an answer is not taken: {error}") from error

        def reply(response):
            if self.passes(target.number, node.number):
                for _ in range(1 + (random.random() < self.loss)):
                    self.later(random.randint(0, 15), lambda: finish(response))

        def arrive():
            if not target.is_up:
                self.later(1, lambda: finish(None, is_refused=True))
                return
            target.connected.append(lambda: self.passes(target.number, node.number) and finish(None))
            if isinstance(send.message, ApiVersionsRequest):
                reply(supported_levels())
                return
            name = type(send.message).__name__.removesuffix("Request")
            target.answer(target.life, key_of(name), send.message, reply, None)

        self.later(2_000, lambda: finish(None))
        if self.passes(node.number, target.number):
            for _ in range(1 + (random.random() < self.loss)):
                self.later(random.randint(0, 15), arrive)

    # --- guarantees -------------------------------------------------------------------------------------------

    def check(self, node):
        replica = node.replica
        if replica.epoch < node.epoch_seen:
            raise PromiseError(f"the epoch of {node.number} falls from {node.epoch_seen} to {replica.epoch}")
        node.epoch_seen = replica.epoch
        if replica.log.end_offset != node.disk.end_offset:
            raise PromiseError(f"{node.number} believes its log to end at {replica.log.end_offset}")
        if replica.role is not Role.LEADER:
            return
        leader = self.leaders.setdefault(replica.epoch, (node.number, node.life))
        if leader != (node.number, node.life):
            raise PromiseError(f"epoch {replica.epoch} has two leaders, {leader[0]} and {node.number}")
        if self.leaders.get((replica.epoch, "checked")) is None:
            self.leaders[replica.epoch, "checked"] = True
            have = {batch.base: batch.data for batch in node.disk.log}
            for offset, batch in self.truth.items():
                is_older = batch.epoch < replica.epoch
                if is_older and offset >= node.disk.start_offset and have.get(offset) != batch.data:
                    raise PromiseError(f"leader {node.number} of epoch {replica.epoch} lacks offset {offset}")

    def appended(self, node, batch):
        if batch.is_control and node.replica.leading is not None:
            self._may_change_voters(node, batch)
        key = (batch.epoch, batch.base)
        written = self.batches.setdefault(key, batch)
        if written.data != batch.data:
            raise PromiseError(f"two batches of epoch {batch.epoch} at offset {batch.base}")
        if written is batch:
            before = node.disk.log[-1] if node.disk.log else None
            self.batches[key, "before"] = None if before is None else before.data
        else:
            before, expected = (
                (node.disk.log[-1].data if node.disk.log else None),
                self.batches[key, "before"],
            )
            if before is not None and expected is not None and before != expected:
                raise PromiseError(f"{node.number} has another batch before offset {batch.base}")

    def _may_change_voters(self, leader, batch):
        """Require that a leader changes voters only after it has committed a record of its epoch, and the last change."""
        log, start_offset = leader.replica.log, leader.replica.leading.start_offset
        if batch.base == start_offset:
            return
        changes = [other for other in leader.disk.log if other.is_control and other.base > log.high_watermark]
        if log.high_watermark <= start_offset or any(other.base >= log.high_watermark for other in changes):
            raise PromiseError(
                f"leader {leader.number} changes voters at {batch.base} before the last change counts"
            )

    def committed(self, node, high_watermark):
        replica, disk = node.replica, node.disk
        if high_watermark < node.applied:
            raise PromiseError(f"the high watermark of {node.number} falls")
        for batch in disk.log:
            if batch.base < node.applied or batch.base >= high_watermark:
                continue
            truth = self.truth.get(batch.base)
            if truth is not None and truth.data != batch.data:
                raise PromiseError(f"{node.number} commits something else at offset {batch.base}")
            if truth is None:
                if replica.role not in (Role.LEADER, Role.RESIGNED):
                    raise PromiseError(f"{node.number} commits offset {batch.base} before its leader")
                last = next(other for other in disk.log if other.end == high_watermark)
                if last.epoch != replica.epoch:
                    raise PromiseError(
                        f"leader {node.number} commits by counting a record of epoch {last.epoch}"
                    )
                self.truth[batch.base] = batch
                self._must_last(node, batch)
            if batch.is_control:
                self._note_voters(batch)
        node.applied = max(node.applied, high_watermark)
        self.committed_end = max(self.committed_end, high_watermark)

    def _must_last(self, leader, batch):
        """Require that a majority of the leader's voters has synced a batch."""
        voters = leader.replica.voters
        holders = [
            entry.id for entry in voters if self.nodes[entry.id].disk.has_synced(batch.base, batch.data)
        ]
        if len(holders) <= len(voters) // 2:
            raise PromiseError(f"offset {batch.base} is committed, and only {holders} have it on disk")

    def _note_voters(self, batch):
        for entry in iter_any_records(batch.data):
            message = decode_control(entry)[1]
            if type(message).__name__ == "VotersRecord":
                ids = frozenset(entry.voter_id for entry in message.voters)
                if (entry.offset, ids) not in self.configurations:
                    self.configurations.append((entry.offset, ids))
                    last = self.configurations[-2][1] if len(self.configurations) > 1 else ids
                    if len(last ^ ids) > 1:
                        raise PromiseError(f"voters change from {sorted(last)} to {sorted(ids)} at once")

    def installed(self, node, snapshot_id):
        last = [batch for batch in self.truth.values() if batch.end == snapshot_id.end_offset]
        if not last or last[0].epoch != snapshot_id.epoch:
            raise PromiseError(f"{node.number} takes a snapshot of what is not committed: {snapshot_id}")

    def voted(self, node, api_key, request, response):
        if api_key != requests.VOTE or not response.topics:
            return
        asked, answer = request.topics[0].partitions[0], response.topics[0].partitions[0]
        if answer.vote_granted and not asked.pre_vote:
            first = self.votes.setdefault((node.number, asked.replica_epoch), asked.replica_id)
            if self.random.random() < (0.1 if self.election_timeout_ms > 100 else 0.4):
                self.later(1, node.blink)
            if first != asked.replica_id:
                raise PromiseError(
                    f"{node.number} votes for {first} and {asked.replica_id} in epoch {asked.replica_epoch}"
                )

    # --- events -------------------------------------------------------------------------------------------------

    def up(self):
        return [node for node in self.nodes.values() if node.is_up]

    def leader(self):
        leading = [node for node in self.up() if node.replica.role is Role.LEADER]
        return max(leading, key=lambda node: node.replica.epoch, default=None)

    def produce(self):
        for node in self.up():
            replica = node.replica
            if replica.role is Role.LEADER and replica.log.high_watermark > replica.leading.start_offset:
                values = [record(next(self.values)) for _ in range(self.random.randint(1, 3))]
                node.step(partial(node.append, values))

    def disturb(self):
        random = self.random
        node = random.choice(list(self.nodes.values()))
        match random.choice(HAPPENINGS):
            case "crash" if node.is_up:
                node.crash()
                self.later(random.randint(10, 6_000), node.restart)
            case "fuse" if node.is_up:
                node.fuse = random.randint(1, 12)
            case "split":
                self.sides = {number: random.randint(0, 1) for number in self.nodes}
            case "heal":
                self.sides = {}
            case "resign" if self.leader() is not None:
                leader = self.leader()
                leader.replica.resign(self.now_ms)
                leader.after()
            case "snapshot" if node.is_up:
                node.take_snapshot()
            case "change":
                self.change_voters()
        if random.random() < 0.3:
            self.loss = random.choice((0.0, 0.0, 0.05, 0.3))

    def change_voters(self):
        random, leader = self.random, self.leader()
        if leader is None or self.is_static:
            return
        voters = {entry.id for entry in leader.replica.voters}
        number = random.choice(list(self.nodes))
        if number in voters and len(voters) > 2:
            request = RemoveRaftVoterRequest(CLUSTER, number, directory_id(number))
            leader.answer(leader.life, requests.REMOVE, request, lambda _: None, None)
        elif number not in voters:
            listeners = [AddRaftVoterRequest.Listener(*endpoint) for endpoint in endpoints_of(number)]
            request = AddRaftVoterRequest(CLUSTER, 5_000, number, directory_id(number), listeners)
            leader.answer(leader.life, requests.ADD, request, lambda _: None, None)

    def run(self):
        for node in self.nodes.values():
            node.start()
        end_ms = self.now_ms + self.chaos_ms
        self.run_until(self.now_ms + 3_000)
        while self.now_ms < end_ms:
            for _ in range(self.random.randint(1, 8)):
                self.later(self.random.randint(0, 900), self.produce)
            self.run_until(self.now_ms + self.random.choice((50, 150, 400, 900)))
            self.disturb()
        self.calm()

    def calm(self):
        """Run all nodes without faults: a leader must be elected soon, and its records be committed everywhere."""
        self.loss, self.sides = 0.0, {}
        for node in self.nodes.values():
            node.fuse = None
            node.restart()
        end_ms = self.now_ms + CALM_MS
        before = self.committed_end
        while self.now_ms < end_ms:
            self.run_until(self.now_ms + 500)
            if not self.committed_end > before + 1:
                self.produce()
            elif len({(node.disk.end_offset, node.applied) for node in self.nodes.values()}) == 1:
                return
        states = [
            f"{node.number}: {node.replica.role.value} {node.replica.epoch} led by {node.replica.leader_id}, "
            f"{node.disk.end_offset}, {node.applied}"
            for node in self.nodes.values()
        ]
        raise PromiseError(f"no progress: {states}, committed {self.committed_end}")


def run_walk(seed, **options):
    """Run the walk of a seed. Raises PromiseError."""
    walk = Walk(seed, **options)
    walk.run()
    return walk
