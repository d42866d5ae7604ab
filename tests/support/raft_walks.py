"""Whole quorums on virtual time: the real machines and answers, on disks that lose what is not synced, over a bad network.

The rule: after each step Raft's promises are compared with what all nodes have: one leader an epoch, logs that match,
leaders with all that is committed, and nothing committed that is ever another thing, on any node, after any crash.
"""

import heapq
from functools import partial
from itertools import count
from random import Random

from barnabas.cluster.kraft.decisions import (
    Append,
    Commit,
    DropSnapshot,
    InstallSnapshot,
    SaveElection,
    SnapshotId,
    Truncate,
    WritePiece,
)
from barnabas.cluster.kraft.image import EMPTY, Position
from barnabas.cluster.kraft.observer import Identity, StoredLog, WrongAnswerError
from barnabas.cluster.kraft.quorum import Leadership, decode_control
from barnabas.cluster.kraft.raft import requests
from barnabas.cluster.kraft.raft.values import RaftSettings, Role
from barnabas.cluster.kraft.raft.voter import Replica
from barnabas.cluster.kraft.snapshots import snapshot_batches
from barnabas.cluster.kraft.state import snapshot_steps
from barnabas.log.format.quorum_state import QuorumState
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches
from barnabas.wire.generated.add_raft_voter import AddRaftVoterRequest
from barnabas.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.generated.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.wire.registry import info, key_of
from tests.support.raft_nodes import CLUSTER, directory_id, endpoints_of, record, voter

CHAOS_MS = 25_000
CALM_MS = 15_000
VERSIONS = {1: 18, 52: 2, 53: 1, 54: 1, 59: 1, 80: 1, 81: 0, 82: 0}


HAPPENINGS = (
    *("crash", "crash", "fuse", "fuse", "split", "split", "heal", "heal"),
    *("resign", "snapshot", "snapshot", "change", "change", "change", "change"),
)


class PromiseError(AssertionError):
    """The quorum has broken a promise."""


class CrashError(Exception):
    """The node has lost its power between two decisions."""


class Batch:
    __slots__ = ("base", "data", "end", "epoch", "is_control")

    def __init__(self, header, data):
        self.base, self.end = header.base_offset, header.next_offset
        self.epoch, self.is_control, self.data = header.leader_epoch, header.is_control, bytes(data)


def batches_of(data):
    return [Batch(header, data[at : at + header.size]) for at, header in iter_batches(data)]


class Disk:
    """A directory: what was written, and of it what is synced. `requests.LogFiles`."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.log, self.synced = [], []
        self.start_offset = 0
        self.snapshots = {}
        self.parts = {}
        self.election = None

    @property
    def end_offset(self):
        return self.log[-1].end if self.log else self.start_offset

    @property
    def synced_end(self):
        return self.synced[-1].end if self.synced else self.start_offset

    @property
    def snapshot_ids(self):
        return sorted(self.snapshots)

    def read_log(self, offset, bytes_max):
        pieces = []
        for batch in self.log:
            if batch.end > offset:
                if pieces and bytes_max < len(batch.data):
                    break
                bytes_max -= len(batch.data)
                pieces.append(batch.data)
        return b"".join(pieces)

    def snapshot_size(self, snapshot_id):
        return len(self.snapshots[snapshot_id])

    def read_snapshot(self, snapshot_id, position, size):
        return self.snapshots[snapshot_id][position : position + size]

    def sync(self):
        self.synced = list(self.log)

    def has_synced(self, offset, data):
        """Say whether what is committed at an offset survives a crash here."""
        if offset < self.start_offset:
            return True
        return any(batch.base == offset and batch.data == data for batch in self.synced)

    def crash(self, random):
        """Lose what is not synced, or a part of it."""
        shared = 0
        for old, new in zip(self.synced, self.log, strict=False):
            if old is not new:
                break
            shared += 1
        if random.random() < 0.5:
            self.log = list(self.synced)
        else:
            self.log = self.log[: random.randint(min(len(self.synced), shared), len(self.log))]
            if len(self.log) < len(self.synced) and shared == len(self.log):
                self.log = list(self.synced)
        self.synced = list(self.log)
        self.parts = {}

    def leadership_at(self, end_offset):
        leadership = Leadership()
        for _, leadership in self._controls(end_offset):  # noqa: B007
            pass
        return leadership

    def _controls(self, end_offset):
        ids = self.snapshot_ids
        leadership, start = self.bootstrap, 0
        if ids:
            leadership, start = self.decode(ids[-1]).leadership, ids[-1].end_offset
            if end_offset < start:
                leadership, start = self.decode(ids[0]).leadership, ids[0].end_offset
        yield start - 1, leadership
        for batch in self.log:
            if batch.is_control and batch.base >= start and batch.end <= end_offset:
                for entry in iter_any_records(batch.data):
                    leadership = leadership.after(decode_control(entry)[1], batch.epoch, entry)
                    yield entry.offset, leadership

    def decode(self, snapshot_id, data=None):
        data = self.snapshots[snapshot_id] if data is None else data
        batches = [(header, data[at : at + header.size]) for at, header in iter_batches(data)]
        return [*snapshot_steps(snapshot_id, "simulated", batches)][-1]

    def stored(self):
        ids = self.snapshot_ids
        epochs = []
        for batch in self.log:
            if not epochs or epochs[-1][0] != batch.epoch:
                epochs.append((batch.epoch, batch.base))
        election = None if self.election is None else QuorumState.decode(self.election)
        return StoredLog(
            self.end_offset, tuple(epochs), ids[-1] if ids else None, tuple(self._controls(1 << 62)), election
        )


class Node:
    """The shell of a replica: what it decides is carried out, with the lights going out between two decisions."""

    def __init__(self, walk, number):
        self.walk, self.number = walk, number
        dynamic = Leadership(voters=tuple(voter(n) for n in walk.first_voters), kraft_version=1)
        is_first = number in walk.first_voters
        self.disk = Disk(dynamic if not walk.is_static and is_first else Leadership())
        self.settings = RaftSettings(
            endpoints=endpoints_of(number),
            bootstrap=tuple((f"c{n}", 9093) for n in range(1, walk.node_count + 1)),
            static_voters={n: (f"c{n}", 9093) for n in walk.first_voters} if walk.is_static else {},
            snapshot_bytes_max=120,
            election_timeout_ms=walk.election_timeout_ms,
        )
        self.replica = None
        self.connected = []
        """What fails when this node crashes: requests that it has not answered."""
        self.life = 0
        self.fuse = None
        self.epoch_seen = 0
        self.applied = 0

    @property
    def is_up(self):
        return self.replica is not None

    def start(self):
        walk = self.walk
        self.life += 1
        self.applied = 0
        self.connected.clear()
        self.parked, self.timer, self.syncing, self.seen = [], None, False, None
        identity = Identity(self.number, directory_id(self.number), CLUSTER)
        self.replica = Replica(identity, self.disk.stored(), self.settings, walk.random.randrange)
        self.applied = max(self.replica.log.high_watermark, 0)
        self.step(lambda: self.replica.begin(walk.now_ms))

    def crash(self):
        self.replica, self.fuse = None, None
        for broken in self.connected:
            self.walk.later(1, broken)
        self.disk.crash(self.walk.random)

    def step(self, take, decisions_of=lambda decisions: decisions):
        """Take something in; None if the power went."""
        replica = self.replica
        try:
            taken = take()
            decisions = decisions_of(taken)
            for decision in decisions:
                self.burn()
                self.carry_out(decision)
            if any(isinstance(decision, Truncate | InstallSnapshot) for decision in decisions):
                self.check_voters()
            if any(isinstance(decision, Append) for decision in decisions):
                if replica.leading is None:
                    self.disk.sync()
                else:
                    self.begin_sync()
        except CrashError:
            self.crash()
            self.walk.later(self.walk.random.randint(10, 4_000), self.restart)
            return None
        self.walk.check(self)
        self.after()
        return taken

    def check_voters(self):
        """Require that the voters are those of the log as it is."""
        if self.replica.voters != self.settings.voters(self.disk.leadership_at(1 << 62)):
            raise PromiseError(f"{self.number} believes in other voters than its log has")

    def append(self, values):
        return (self.replica.append(self.replica.epoch, values, self.walk.now_ms),)

    def burn(self):
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                raise CrashError

    def blink(self):
        """Lose power for a moment."""
        if self.is_up:
            self.crash()
            self.walk.later(self.walk.random.randint(1, 40), self.restart)

    def restart(self):
        if not self.is_up:
            self.start()

    def carry_out(self, decision):
        disk = self.disk
        match decision:
            case Append(records):
                for batch in batches_of(records):
                    if batch.base != disk.end_offset:
                        raise PromiseError(
                            f"{self.number} appends at {batch.base}, the log ends at {disk.end_offset}"
                        )
                    self.walk.appended(self, batch)
                    disk.log.append(batch)
            case Truncate(end_offset):
                disk.log = [batch for batch in disk.log if batch.end <= end_offset]
            case Commit(high_watermark):
                self.walk.committed(self, high_watermark)
            case SaveElection(state):
                disk.election = state.encode()
            case WritePiece(snapshot_id, position, data):
                part = disk.parts.get(snapshot_id, b"")[:position] if position else b""
                if len(part) != position:
                    raise PromiseError("a piece of a snapshot leaves a gap")
                disk.parts[snapshot_id] = part + data
            case DropSnapshot(snapshot_id):
                disk.parts.pop(snapshot_id, None)
            case InstallSnapshot(snapshot_id):
                snapshot = disk.decode(snapshot_id, disk.parts[snapshot_id])
                disk.snapshots = {snapshot_id: disk.parts.pop(snapshot_id)}
                disk.log, disk.synced, disk.start_offset = [], [], snapshot_id.end_offset
                self.walk.installed(self, snapshot_id)
                self.applied = snapshot_id.end_offset
                self.carry_out(self.replica.installed(snapshot))

    def begin_sync(self):
        if self.syncing:
            return
        self.syncing = True
        leading, life = self.replica.leading, self.life

        def sync():
            if self.life != life or not self.is_up:
                return
            self.syncing = False
            self.disk.sync()
            end_offset = self.disk.end_offset
            if leading is not None and self.replica.leading is leading:
                self.step(lambda: self.replica.synced(end_offset, self.walk.now_ms))
            elif self.replica.leading is not None:
                self.begin_sync()

        self.walk.later(self.walk.random.randint(0, 30), sync)

    def after(self):
        """Send what is to be sent, answer what waits, and look at the clock again."""
        walk, replica = self.walk, self.replica
        for send in replica.sends(walk.now_ms):
            walk.send(self, send)
        seen = (replica.role, replica.epoch, replica.log.end_offset, replica.log.high_watermark)
        if seen != self.seen:
            self.seen = seen
            parked, self.parked = self.parked, []
            for question in parked:
                walk.later(0, lambda question=question: self.answer(*question))
        deadline = replica.next_deadline()
        if deadline is not None and (
            self.timer is None or deadline < self.timer or self.timer <= walk.now_ms
        ):
            self.timer = max(deadline, walk.now_ms + 1)
            life, timer = self.life, self.timer
            walk.later(self.timer - walk.now_ms, lambda: self.tick(life, timer))

    def tick(self, life, timer):
        if self.is_up and self.life == life and self.timer == timer:
            self.timer = None
            self.step(lambda: self.replica.tick(self.walk.now_ms))

    def answer(self, life, api_key, request, reply_to, deadline):
        walk = self.walk
        if not self.is_up or self.life != life:
            return
        reply = self.step(
            lambda: requests.answer(
                self.replica, api_key, VERSIONS[api_key], request, walk.now_ms, self.disk
            ),
            lambda reply: reply.decisions,
        )
        if reply is None or not self.is_up:
            return
        deadline = walk.now_ms + reply.waits_ms if deadline is None else deadline
        if reply.waits_ms and walk.now_ms < deadline:
            question = (life, api_key, request, reply_to, deadline)
            self.parked.append(question)
            walk.later(deadline - walk.now_ms, lambda: self.expire(question))
            return
        walk.voted(self, api_key, request, reply.response)
        reply_to(reply.response)

    def expire(self, question):
        if question in self.parked:
            self.parked.remove(question)
            self.answer(*question)

    def take_snapshot(self):
        """Write a snapshot of what is applied, and perhaps drop the log before the oldest one kept."""
        disk, random = self.disk, self.walk.random
        offset = self.applied
        last = next((batch for batch in disk.log if batch.end == offset), None)
        if last is None or any(known.end_offset >= offset for known in disk.snapshots):
            return
        snapshot_id = SnapshotId(offset, last.epoch)
        image = EMPTY._replace(position=Position(offset - 1, last.epoch, 1))
        disk.snapshots[snapshot_id] = b"".join(
            snapshot_batches(image, disk.leadership_at(offset), now_ms=self.walk.now_ms)
        )
        disk.sync()
        if random.random() < 0.7:
            oldest = random.choice(disk.snapshot_ids)
            disk.snapshots = {known: data for known, data in disk.snapshots.items() if known >= oldest}
            disk.start_offset = oldest.end_offset
            disk.log = [batch for batch in disk.log if batch.base >= oldest.end_offset]
            disk.sync()


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
                feature = ApiVersionsResponse.SupportedFeatureKey("kraft.version", 0, 1)
                reply(ApiVersionsResponse(supported_features=[feature]))
                return
            name = type(send.message).__name__.removesuffix("Request")
            target.answer(target.life, info(key_of(name)).key, send.message, reply, None)

        self.later(2_000, lambda: finish(None))
        if self.passes(node.number, target.number):
            for _ in range(1 + (random.random() < self.loss)):
                self.later(random.randint(0, 15), arrive)

    # --- promises ---------------------------------------------------------------------------------------------

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
        """Require that a leader changes voters once its epoch has begun, and the last change is committed."""
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
        """Require that a majority of the leader's voters has a batch on disk, for good."""
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

    # --- what happens -------------------------------------------------------------------------------------------

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
        """Let all nodes live together: a leader is elected soon, and what it writes is committed everywhere."""
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
    """Take a walk; raises what is wrong."""
    walk = Walk(seed, **options)
    walk.run()
    return walk
