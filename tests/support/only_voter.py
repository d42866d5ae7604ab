"""The only voter of a quorum, with its log in memory: appended records are committed when a test calls for it."""

from __future__ import annotations

import trio

from barnabas.cluster.kraft.image import EMPTY, Position
from barnabas.cluster.kraft.loader import ImageDelta
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.raft.ports import NotLeaderError
from barnabas.cluster.kraft.replay import Replay
from barnabas.cluster.kraft.replica_values import Leader
from barnabas.wire.metadata_records import decode_record


class OnlyVoter:
    """Implements `Voter` of the controller; `lead` makes this node the leader, and notifies its listener."""

    def __init__(self, node_id=1, *, commits_at_once=True):
        self.node_id = node_id
        self.commits_at_once = commits_at_once
        self.leadership = Leadership(kraft_version=1)
        self.leader_id = -1
        self.epoch = 0
        self.batches: list[list] = []
        self.asked = []
        self.in_transaction = False
        self.image = EMPTY
        self._values: list[bytes] = []
        self._replay = Replay()
        self._applied = 0
        self._changed = trio.Event()
        self._subscribers = []
        self._listener = None

    @property
    def leader(self):
        return Leader(self.leader_id, self.epoch)

    @property
    def end_offset(self):
        return len(self._values)

    def subscribe(self, subscriber):
        self._subscribers.append(subscriber)

    def lead(self, listener):
        self._listener = listener
        self.epoch += 1
        self.leader_id = self.node_id
        listener.on_leader(self.epoch, self.end_offset)

    def lose(self):
        """Make another node the leader; uncommitted records are lost."""
        del self._values[self._applied :]
        self.leader_id, self.epoch = 9, self.epoch + 1
        self._listener.on_resigned(self.epoch - 1)
        self._wake()

    def resign(self, epoch):
        if epoch == self.epoch:
            self.lose()
            self.leader_id = -1

    def reason_against_kraft_version(self, level):
        return "" if level == 1 else "no voter supports it"

    def raise_kraft_version(self, epoch, level):
        self.batches.append([("kraft.version", level)])
        self.leadership = self.leadership._replace(kraft_version=level)
        return len(self._values) - 1

    def append(self, epoch, values):
        if epoch != self.epoch or self.leader_id != self.node_id:
            raise NotLeaderError
        self._values += values
        self.batches.append([decode_record(value)[0] for value in values])
        if self.commits_at_once:
            self.commit()
        return len(self._values) - 1

    def commit(self):
        for value in self._values[self._applied :]:
            self._replay.apply(decode_record(value)[0])
        self._applied = len(self._values)
        self.image = self._replay.publish(Position(self._applied - 1, self.epoch, 0))
        self._wake()

    def _wake(self):
        self._changed.set()
        self._changed = trio.Event()

    async def publish(self):
        """Publish all committed records to the subscribers, as the first delta."""
        delta = ImageDelta(EMPTY, self.image, ())
        for subscriber in self._subscribers:
            await subscriber.prepare(delta)
            subscriber.publish(delta)
            await subscriber.clean_up(delta)

    async def wait_committed(self, offset, epoch):
        while True:
            if epoch != self.epoch:
                raise NotLeaderError
            if offset < self._applied:
                return
            await self._changed.wait()

    async def answer(self, api_key, version, request):
        self.asked.append((api_key, version))
        return request
