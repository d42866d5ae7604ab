"""Proposals for in-sync replicas on their way to the controller: with a controller that answers as the test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.cluster.metadata.changes import TopicCreated
from barnabas.cluster.metadata.image import NO_TOPIC_ID, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.peers import PeerUnavailableError, VersionedRequest
from barnabas.cluster.replicas.alter_partition import RemoteAlterPartition
from barnabas.wire.generated.alter_partition import AlterPartitionResponse
from barnabas.wire.generated.errors import ErrorCode
from tests.support.logs import TOPIC_ID
from tests.support.replicas import Node

PartitionData = AlterPartitionResponse.PartitionData


class Controller:
    """Stands for `Peers` in RemoteAlterPartition."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.requests: list[Any] = []
        self.answers: list[Callable[[], Any]] = []

    async def ask_controller(
        self, request: VersionedRequest, *, version_max: int | None = None, timeout_s: float
    ) -> Any:
        await trio.lowlevel.checkpoint()
        version = self.version if version_max is None else min(self.version, version_max)
        self.requests.append(request.make(version))
        answer = self.answers.pop(0)()
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, PartitionData):
            topic = AlterPartitionResponse.TopicData(partitions=[answer])
            if version >= 2:
                topic.topic_id = TOPIC_ID
            else:
                topic.topic_name = "t"
            return AlterPartitionResponse(topics=[topic])
        return answer


async def leader(isr: tuple[int, ...] = (1,)) -> Node:
    """Broker 1, which leads t-0 in leader epoch 5 and partition epoch 7; brokers 2 and 3 follow."""
    node = Node(1)
    await node.create(PartitionInfo(1, (1, 2, 3), isr, 5, 7))
    return node


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_what_the_controller_accepts_is_the_isr(version: int) -> None:
    node, controller = await leader(), Controller(version)
    node.replica.follower_fetched(2, 0, log_start_offset=0, broker_epoch=22)
    (proposal,) = node.proposals
    controller.answers = [lambda: PartitionData(0, 0, 1, 5, [1, 2], partition_epoch=8)]
    await carry_out(controller, proposal)
    (request,) = controller.requests
    assert (request.broker_id, request.broker_epoch) == (1, 11)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.topic_name, topic.topic_id) == ("t", TOPIC_ID)
    assert (partition.partition_index, partition.leader_epoch, partition.partition_epoch) == (0, 5, 7)
    if version < 3:
        assert partition.new_isr == [1, 2]
    else:
        assert [(state.broker_id, state.broker_epoch) for state in partition.new_isr_with_epochs] == [
            (1, 11),
            (2, 22),
        ]
    assert node.replica.in_sync_replicas == {1, 2}


async def carry_out(controller: Controller, *proposals: Any) -> None:
    """Let proposals be sent until the controller has no more answers."""
    async with trio.open_nursery() as nursery:
        alter = RemoteAlterPartition(1, controller, lambda: 11)  # type: ignore[arg-type]
        nursery.start_soon(alter.run)
        for proposal in proposals:
            alter.propose(*proposal)
        with trio.fail_after(60):
            while controller.answers:
                await trio.sleep(0.01)
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()


async def test_a_controller_that_is_not_there_is_asked_again(autojump_clock: trio.testing.MockClock) -> None:
    node, controller = await leader(), Controller(3)
    node.replica.follower_fetched(2, 0, log_start_offset=0)
    controller.answers = [
        lambda: PeerUnavailableError("no controller is elected"),
        lambda: AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
        lambda: AlterPartitionResponse(),
        lambda: PartitionData(0, ErrorCode.UNKNOWN_SERVER_ERROR),
        lambda: PeerUnavailableError("no version in common", lacks_version=True),
        lambda: PartitionData(0, 0, 1, 5, [1, 2], partition_epoch=8),
    ]
    await carry_out(controller, *node.proposals)
    assert len(controller.requests) == 6
    assert node.replica.in_sync_replicas == {1, 2}


@pytest.mark.parametrize(
    ("code", "is_taken_back"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, True),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, True),
        (ErrorCode.INVALID_UPDATE_VERSION, False),
        (ErrorCode.FENCED_LEADER_EPOCH, False),
        (ErrorCode.UNKNOWN_TOPIC_ID, False),
        (ErrorCode.INVALID_REQUEST, False),
    ],
)
async def test_uncertain_proposal_counts_until_newer_metadata(
    autojump_clock: trio.testing.MockClock, code: ErrorCode, is_taken_back: bool
) -> None:
    node, controller = await leader(), Controller(3)
    node.replica.follower_fetched(2, 0, log_start_offset=0)
    controller.answers = [lambda: PartitionData(0, code)]
    await carry_out(controller, *node.proposals)
    assert node.replica.in_sync_replicas == {1}
    node.now_ms = 10_000  # the follower is not waited for because of its speed
    end = node.produce(b"x")
    assert (node.replica.log.high_watermark == end) is is_taken_back
    await node.change(PartitionInfo(1, (1, 2, 3), (1,), 5, 8))
    assert node.replica.log.high_watermark == end


async def test_proposals_of_an_epoch_that_is_over_are_not_sent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    node, controller = await leader(), Controller(3)
    node.replica.follower_fetched(2, 0, log_start_offset=0)
    await node.change(PartitionInfo(2, (1, 2, 3), (1,), 6, 8))
    await carry_out(controller, *node.proposals)
    assert controller.requests == []


async def test_a_log_keeps_the_id_that_its_topic_gets_later() -> None:
    node = Node(1)
    info = PartitionInfo(1, (1, 2), (1,), 5, 7)
    node.replicas.begin_empty("t", 0)
    await node.apply([TopicCreated(TopicInfo("t", NO_TOPIC_ID, (info,)))])
    assert node.replica.log.topic_id is None
    leader = node.replica
    await node.apply([TopicCreated(TopicInfo("t", TOPIC_ID, (info,)))])
    assert node.replica is leader
    assert leader.log.topic_id == TOPIC_ID
    assert leader.leader_epoch == 5
