"""The shell of a replica of the quorum on virtual time: it carries out decisions, and may crash between two of them."""

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
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.raft import requests
from barnabas.cluster.kraft.raft.values import RaftSettings
from barnabas.cluster.kraft.raft.voter import Replica
from barnabas.cluster.kraft.replica_values import Identity
from barnabas.cluster.kraft.snapshots import snapshot_batches
from barnabas.wire.registry import info
from tests.support.raft_disk import Disk, batches_of
from tests.support.raft_nodes import CLUSTER, addresses_of, directory_id, endpoints_of, voter


class PromiseError(AssertionError):
    """The quorum has broken a guarantee."""


class CrashError(Exception):
    """The node has lost its power between two decisions."""


class Node:
    """The shell of a replica: carries out its decisions, with power cuts between them."""

    def __init__(self, walk, number):
        self.walk, self.number = walk, number
        dynamic = Leadership(voters=tuple(voter(n) for n in walk.first_voters), kraft_version=1)
        is_first = number in walk.first_voters
        self.disk = Disk(dynamic if not walk.is_static and is_first else Leadership())
        self.settings = RaftSettings(
            endpoints=endpoints_of(number),
            bootstrap=tuple(addresses_of(range(1, walk.node_count + 1)).values()),
            static_voters=addresses_of(walk.first_voters) if walk.is_static else {},
            snapshot_bytes_max=120,
            election_timeout_ms=walk.election_timeout_ms,
        )
        self.replica = None
        self.connected = []
        """Unanswered requests, which fail when this node crashes."""
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
        """Call `take`, and carry out its decisions; returns its result, None after a power cut."""
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
        """Require that the voters are those of the present log. Raises PromiseError."""
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
        """Lose power, and restart after up to 40 ms."""
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
        """Send the due requests, answer waiting ones, and schedule the next timer."""
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
                self.replica, api_key, info(api_key).max_stable_version, request, walk.now_ms, self.disk
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
        """Write a snapshot of the applied records, and perhaps delete the log before the oldest retained snapshot."""
        disk, random = self.disk, self.walk.random
        offset = self.applied
        last = next((batch for batch in disk.log if batch.end == offset), None)
        if last is None or any(snapshot.end_offset >= offset for snapshot in disk.snapshots):
            return
        snapshot_id = SnapshotId(offset, last.epoch)
        image = EMPTY._replace(position=Position(offset - 1, last.epoch, 1))
        disk.snapshots[snapshot_id] = b"".join(
            snapshot_batches(image, disk.leadership_at(offset), now_ms=self.walk.now_ms)
        )
        disk.sync()
        if random.random() < 0.7:
            oldest = random.choice(disk.snapshot_ids)
            disk.snapshots = {kept: data for kept, data in disk.snapshots.items() if kept >= oldest}
            disk.start_offset = oldest.end_offset
            disk.log = [batch for batch in disk.log if batch.base >= oldest.end_offset]
            disk.sync()
