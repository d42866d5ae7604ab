"""Two brokers' replicas of a partition, with real logs, under failovers and crashes at random.

Whoever leads changes, also before the other has everything; metadata arrive late; a broker dies and comes back with the
high watermark of its last checkpoint. At the end both logs have the same bytes, and nothing that was committed is lost.
Each history repeats from its seed.
"""

from __future__ import annotations

from random import Random

import pytest

from barnabas.cluster.image import PartitionInfo
from barnabas.errors import RequestError
from barnabas.records.batch import iter_batches, read_records
from barnabas.replicas.following import FollowerLog
from barnabas.replication.roles import Role
from tests.support.effort import examples
from tests.support.logs import NOW_MS
from tests.support.replicas import Node, fetch_once

STEPS = 60


def content(node: Node) -> bytes:
    """All bytes of the log."""
    log, data = node.replica.log, b""
    for segment in log.segments:
        data += segment.file.read(segment.size, 0)
    return data


class Pair:
    """Two brokers, and the controller's view of the partition that both have."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.state = PartitionInfo(leader=1, replicas=(1, 2), isr=(1, 2))
        self.nodes = {one: Node(one, segment_bytes=self.random.choice((400, 1 << 20))) for one in (1, 2)}
        self.followers: dict[int, FollowerLog] = {}
        self.up = {1, 2}
        self.number = 0
        self.committed: dict[int, bytes] = {}  # by offset

    async def begin(self) -> None:
        for node in self.nodes.values():
            await node.create(self.state)

    async def learn(self, broker_id: int) -> None:
        """A broker hears of the newest state."""
        if broker_id in self.up and self.nodes[broker_id].image.topics["t"].partitions[0] != self.state:
            await self.nodes[broker_id].change(self.state)

    def elect(self, leader: int) -> None:
        """The controller makes another in-sync replica the leader."""
        self.state = self.state._replace(
            leader=leader,
            isr=tuple(one for one in self.state.isr if one in self.up) or (leader,),
            leader_epoch=self.state.leader_epoch + 1,
            partition_epoch=self.state.partition_epoch + 1,
        )

    def decide_on_proposals(self, node: Node) -> None:
        for replica, change in node.proposals:
            state = self.state
            is_valid = (
                state.leader == node.broker_id
                and (change.leader_epoch, change.partition_epoch)
                == (state.leader_epoch, state.partition_epoch)
                and change.isr - frozenset(state.isr) <= self.up
            )
            if is_valid:
                self.state = state._replace(
                    isr=tuple(sorted(change.isr)), partition_epoch=state.partition_epoch + 1
                )
            epoch = self.state.partition_epoch if is_valid else None
            replica.isr_settled(change, partition_epoch=epoch)
        node.proposals.clear()

    def produce(self) -> None:
        node = self.nodes[self.state.leader]
        self.number += 1
        values = [b"%d.%d" % (self.number, n) for n in range(self.random.randint(1, 4))]
        try:
            node.produce(*values, acks=self.random.choice((-1, 1)))
        except RequestError:
            return  # it has not heard yet that it leads
        self.note_committed(node)

    def note_committed(self, node: Node) -> None:
        """Remember what consumers can see, and check that they saw the same before."""
        log = node.replica.log
        if node.replica.role is not Role.LEADER or node.replica.leader_epoch != self.state.leader_epoch:
            return
        data = content(node)
        for position, _ in iter_batches(data):
            for record in read_records(data, position):
                if record.offset < log.high_watermark:
                    assert record.value is not None
                    assert self.committed.setdefault(record.offset, record.value) == record.value

    def fetch(self, broker_id: int) -> None:
        node = self.nodes[broker_id]
        if broker_id not in self.up or node.replica.role is not Role.FOLLOWER:
            return
        follower = self.followers.get(broker_id)
        if follower is None or not follower.is_current or follower.replica is not node.replica:
            follower = self.followers[broker_id] = FollowerLog(node.replica, lambda: NOW_MS)
        source = node.replica.leader_id
        if source in self.up:
            fetch_once(follower, broker_id, self.nodes[source], self.random.choice((1, 150, 1 << 20)))
            self.decide_on_proposals(self.nodes[source])
            self.note_committed(self.nodes[source])

    async def crash(self, broker_id: int) -> None:
        """Kill a broker as with kill -9; the other one is elected."""
        node = self.nodes[broker_id]
        self.up.discard(broker_id)
        for log in node.logs:
            log.abandon()
        node.logs.ownership.release()
        other = 3 - broker_id
        if self.state.leader == broker_id:
            self.elect(other)
        else:
            self.state = self.state._replace(isr=(other,), partition_epoch=self.state.partition_epoch + 1)
        await self.learn(other)

    async def come_back(self, broker_id: int) -> None:
        node = self.nodes[broker_id]
        node.start()
        node.image = type(node.image)("c")
        node.proposals.clear()
        self.up.add(broker_id)
        await node.create(self.state)

    async def step(self) -> None:
        random = self.random
        one = random.choice((1, 2))
        self.nodes[one].now_ms += random.randint(0, 20)
        match random.randint(0, 9):
            case 0 if len(self.state.isr) == 2 and len(self.up) == 2:
                self.elect(one)
            case 1:
                if len(self.up) == 1:
                    (dead,) = {1, 2} - self.up
                    await self.come_back(dead)
                elif self.state.isr != (one,):
                    await self.crash(one)
            case 2:
                await self.learn(one)
            case 3:
                if one in self.up:
                    self.nodes[one].replica.shrink_isr()
                    self.decide_on_proposals(self.nodes[one])
            case 4 if one in self.up:
                self.nodes[one].logs.write_checkpoints()
            case 5 | 6:
                if self.state.leader in self.up:
                    self.produce()
            case _:
                self.fetch(one)

    async def heal(self) -> None:
        for dead in {1, 2} - self.up:
            await self.come_back(dead)
        for _ in range(400):
            for one in (1, 2):
                await self.learn(one)
                self.fetch(one)


@pytest.mark.parametrize("part", range(4))
async def test_both_logs_are_the_same_after_failovers_and_crashes(part: int) -> None:
    truncated = 0
    for seed in range(part * 1000, part * 1000 + examples(30)):
        pair = Pair(seed)
        await pair.begin()
        try:
            for _ in range(STEPS):
                await pair.step()
            await pair.heal()
            one, two = (pair.nodes[broker_id] for broker_id in (1, 2))
            assert content(one) == content(two)
            assert one.replica.log.epochs.entries == two.replica.log.epochs.entries
            for node in (one, two):
                assert node.replica.log.high_watermark == node.replica.log.log_end_offset
            leader = pair.nodes[pair.state.leader]
            pair.note_committed(leader)
            assert sorted(pair.committed) == list(range(leader.replica.log.log_end_offset))
            truncated += one.replica.log.generation + two.replica.log.generation
        except BaseException:
            print(f"seed {seed}")
            raise
    assert truncated, "no history came to a truncation"
