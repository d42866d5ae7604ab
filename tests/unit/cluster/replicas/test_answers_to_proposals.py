"""Many proposals for ISRs at once: which answer belongs to which, what is sent again, when, and what is taken back."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.cluster.metadata.changes import BrokerRegistered, PartitionChanged, TopicCreated
from barnabas.cluster.metadata.image import BrokerInfo, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.peers import VersionedRequest
from barnabas.cluster.replicas import alter_partition
from barnabas.cluster.replicas.alter_partition import RemoteAlterPartition
from barnabas.cluster.replicas.replica import Replica
from barnabas.cluster.replication.leader import IsrChange
from barnabas.wire.generated.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.wire.generated.errors import ErrorCode
from tests.support.replicas import Node

T_ID, U_ID = b"t" * 16, b"u" * 16
ALONE = PartitionInfo(1, (1, 2, 3), (1,), 5, 7)
PartitionData = AlterPartitionResponse.PartitionData
TopicData = AlterPartitionResponse.TopicData
NOT_DONE = {ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED}
WAITED_FOR = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST, ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}  # fmt: skip


class Noted:
    """A replica that notes its answers."""

    def __init__(self, replica: Replica, settled: list[tuple[str, int | None, Any]]) -> None:
        self._replica = replica
        self._settled = settled
        self.name = f"{replica.topic}-{replica.index}"

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._replica, attribute)

    def isr_settled(self, _change: IsrChange, *, partition_epoch: int | None, isr: Any = None) -> None:
        self._settled.append((self.name, partition_epoch, isr))


class World:
    """Broker 1 leads t-0, t-1 and u-0; a controller that answers in the order of `answers`, later with nothing."""

    def __init__(self, version: int = 3) -> None:
        self.node = Node(1)
        self.version = version
        self.asked: list[tuple[float, int, AlterPartitionRequest]] = []
        self.answers: list[Any] = []
        self.alter = RemoteAlterPartition(1, self, lambda: 11)  # type: ignore[arg-type]
        self.settled: list[tuple[str, int | None, Any]] = []

    async def ask_controller(
        self, request: VersionedRequest, *, version_max: int | None = None, timeout_s: float
    ) -> Any:
        assert timeout_s == alter_partition.TIMEOUT_SECONDS
        version = self.version if version_max is None else min(self.version, version_max)
        self.asked.append((trio.current_time(), version, request.make(version)))
        if not self.answers:
            await trio.sleep_forever()
        answer = self.answers.pop(0)
        answer = answer() if callable(answer) else answer
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def start(self, nursery: trio.Nursery, u_id: bytes = U_ID) -> None:
        brokers = [BrokerRegistered(BrokerInfo(id_, None, {})) for id_ in (1, 2, 3)]
        t, u = TopicInfo("t", T_ID, (ALONE, ALONE)), TopicInfo("u", u_id, (ALONE,))
        await self.node.apply([*brokers, TopicCreated(t), TopicCreated(u)])
        for replica in self.node.replicas:
            self.note(replica)
        nursery.start_soon(self.alter.run)

    def note(self, replica: Replica) -> None:
        noted = Noted(replica, self.settled)
        self.replicas = {**getattr(self, "replicas", {}), noted.name: noted}

    def propose(self, name: str, *isr: int, leader_epoch: int = 5) -> None:
        change = IsrChange(frozenset(isr), leader_epoch, 7)
        self.alter.propose(self.replicas[name], change)  # type: ignore[arg-type]

    def names(self, number: int = -1) -> list[tuple[str, int]]:
        request = self.asked[number][2]
        return [
            (topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions
        ]


def done(epoch: int, *isr: int, index: int = 0, leader_epoch: int = 5) -> Any:
    return PartitionData(index, 0, 1, leader_epoch, list(isr), partition_epoch=epoch)


async def within(world: World, act: Any, **named: Any) -> World:
    async with trio.open_nursery() as nursery:
        await world.start(nursery, **named)
        await act()
        nursery.cancel_scope.cancel()
    return world


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_each_proposal_meets_its_own_answer(version: int, autojump_clock: Any) -> None:
    world = World(version)
    by_id = version >= 2

    def topic(name: str, topic_id: bytes, *partitions: Any) -> Any:
        # The other one of name and id is misleading: it is not what tells topics apart in this version.
        names = {"topic_name": "u" if by_id else name, "topic_id": topic_id if by_id else U_ID}
        return TopicData(partitions=list(partitions), **names)

    async def act() -> None:
        world.answers = [AlterPartitionResponse(topics=[
            topic("u", U_ID, done(70, 1, 3)),
            topic("unknown", b"x" * 16, done(99, 1)),
            topic("t", T_ID, done(81, 2, 1, index=1), done(80, 1, index=0), done(99, 1, index=5)),
        ])]  # fmt: skip
        world.propose("t-0", 1, 2)
        world.propose("u-0", 3, 1)
        world.propose("t-1", 3, 2, 1)
        await trio.sleep(1)

    await within(world, act)
    assert sorted(world.settled) == [("t-0", 80, [1]), ("t-1", 81, [2, 1]), ("u-0", 70, [1, 3])]
    [(_, sent, request)] = world.asked
    assert sent == version
    assert (request.broker_id, request.broker_epoch) == (1, 11)
    assert [(topic.topic_name, topic.topic_id) for topic in request.topics] == [("t", T_ID), ("u", U_ID)]
    assert world.names() == [("t", 0), ("t", 1), ("u", 0)]
    isrs = [
        [each.broker_id for each in partition.new_isr_with_epochs] if version >= 3 else partition.new_isr
        for topic in request.topics
        for partition in topic.partitions
    ]
    assert isrs == [[1, 2], [1, 2, 3], [1, 3]]


@pytest.mark.parametrize("code", [int(code) for code in ErrorCode if code])
async def test_each_error_is_sent_again_taken_back_or_waited_for(code: int, autojump_clock: Any) -> None:
    world = World()

    async def act() -> None:
        refused = PartitionData(0, code)
        world.answers = [AlterPartitionResponse(topics=[TopicData(topic_id=T_ID, partitions=[refused])])]
        world.propose("t-0", 1, 2)
        await trio.sleep(1)

    await within(world, act)
    is_sent_again = code not in NOT_DONE | WAITED_FOR
    assert len(world.asked) == 1 + is_sent_again
    assert world.settled == ([("t-0", None, None)] if code in NOT_DONE else [])
    if is_sent_again:
        assert world.asked[1][0] - world.asked[0][0] == alter_partition.RETRY_SECONDS


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_proposals_of_a_leader_that_is_one_no_more_are_forgotten(
    when: str, autojump_clock: Any
) -> None:
    world = World()

    async def act() -> None:
        newer = PartitionInfo(2, (1, 2, 3), (1, 2), 6, 8)

        async def replaced() -> None:
            await world.node.apply([PartitionChanged("t", 0, newer)])

        if when == "before":
            await replaced()
        else:
            ask = world.ask_controller

            async def asked(*args: Any, **named: Any) -> Any:
                await replaced()
                return await ask(*args, **named)

            world.ask_controller = asked  # type: ignore[method-assign]
            answers = [PartitionData(0, ErrorCode.INELIGIBLE_REPLICA), done(9, 1, 2, index=1)]
            world.answers = [AlterPartitionResponse(topics=[TopicData(topic_id=T_ID, partitions=answers)])]
        world.propose("t-0", 1, 2)
        world.propose("t-1", 1, 2)
        await trio.sleep(1)

    await within(world, act)
    assert world.names(0) == ([("t", 1)] if when == "before" else [("t", 0), ("t", 1)])
    assert world.settled == ([] if when == "before" else [("t-1", 9, [1, 2])])
    assert len(world.asked) == 1
