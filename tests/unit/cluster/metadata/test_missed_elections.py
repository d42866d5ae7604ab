"""A broker that ZooKeeper is cut off from believes other brokers' metadata only if the leader epoch is higher."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio
import trio.testing

from barnabas.cluster.metadata.changes import PartitionChanged
from barnabas.cluster.metadata.control_requests import of_leader_and_isr
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.zookeeper.missed_elections import ASK_SECONDS, MissedElections, later_leaders
from barnabas.cluster.zookeeper.session import SessionState
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.metadata import MetadataResponse

TOPIC_ID, OTHER_ID = b"t" * 16, b"o" * 16
LED = PartitionInfo(leader=1, replicas=(1, 2, 3), isr=(1, 2, 3), leader_epoch=4, partition_epoch=7)
IMAGE = ClusterImage("cluster", topics={"t": TopicInfo("t", TOPIC_ID, (LED,))})


def told(leader: int, leader_epoch: int, *, topic_id: bytes = TOPIC_ID, index: int = 0) -> MetadataResponse:
    """Metadata of one partition."""
    partition = MetadataResponse.MetadataResponsePartition(
        partition_index=index, leader_id=leader, leader_epoch=leader_epoch, isr_nodes=[2, 3]
    )
    topic = MetadataResponse.MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[partition])
    return MetadataResponse(topics=[topic])


@pytest.mark.parametrize("topic_id", [TOPIC_ID, bytes(16)])
def test_a_higher_leader_epoch_is_believed(topic_id: bytes) -> None:
    (change,) = later_leaders(IMAGE, told(2, 5, topic_id=topic_id), 1)
    assert change == PartitionChanged("t", 0, PartitionInfo(2, (1, 2, 3), (2, 3), 5, -1))


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(told(2, 4), id="the same epoch"),
        pytest.param(told(2, 3), id="an older epoch"),
        pytest.param(told(2, -1), id="an epoch that is not told (Metadata before v7)"),
        pytest.param(told(-1, 5), id="no leader"),
        pytest.param(told(1, 5), id="this broker itself, which the controller will tell"),
        pytest.param(told(2, 5, topic_id=OTHER_ID), id="another topic of the name"),
        pytest.param(told(2, 5, index=1), id="a partition that is not known here"),
    ],
)
def test_nothing_else_is(response: MetadataResponse) -> None:
    assert not later_leaders(IMAGE, response, 1)


def test_what_a_replica_follows_is_left_to_the_controller() -> None:
    followed = PartitionInfo(leader=3, replicas=(1, 2, 3), isr=(1, 2, 3), leader_epoch=4)
    image = ClusterImage("cluster", topics={"t": TopicInfo("t", TOPIC_ID, (followed,))})
    assert not later_leaders(image, told(2, 5), 1)


def test_controller_wins_within_the_same_leader_epoch() -> None:
    (change,) = later_leaders(IMAGE, told(2, 5), 1)
    assert isinstance(change, PartitionChanged)
    image = ClusterImage("cluster", topics={"t": TopicInfo("t", TOPIC_ID, (change.partition,))})
    state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        partition_index=0, leader=2, leader_epoch=5, isr=[2], partition_epoch=9, replicas=[1, 2, 3]
    )
    topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(
        topic_name="t", topic_id=TOPIC_ID, partition_states=[state]
    )
    learned = of_leader_and_isr(image, LeaderAndIsrRequest(topic_states=[topic]), 1)
    (later,) = [change for change in learned.changes if isinstance(change, PartitionChanged)]
    assert later.partition == PartitionInfo(2, (1, 2, 3), (2,), 5, 9)


async def test_others_are_asked_while_zookeeper_is_not_connected(
    autojump_clock: trio.testing.MockClock,
) -> None:
    watchers, asked = [], []

    async def ask(other, *_, **__):
        asked.append(other)
        return MetadataResponse(
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=9092)]
        )

    missed = MissedElections(
        1,
        SimpleNamespace(watch_session=watchers.append, is_closed=False),
        SimpleNamespace(image=SimpleNamespace(brokers={1: None, 2: None, 3: None})),
        SimpleNamespace(ask=ask),
        LoopBudget(measures=False),
    )
    (session_is,) = watchers
    async with trio.open_nursery() as nursery:
        nursery.start_soon(missed.run)
        await trio.testing.wait_all_tasks_blocked()
        for state in (SessionState.CONNECTED, SessionState.CONNECTED):  # as after an expired session
            session_is(state)
        await trio.sleep(10 * ASK_SECONDS)
        assert not asked
        for _ in range(2):
            asked.clear()
            session_is(SessionState.DISCONNECTED)
            await trio.sleep(4.5 * ASK_SECONDS)
            assert sorted(asked) in ([2, 2, 3, 3], [2, 2, 3, 3, 3], [2, 2, 2, 3, 3])
            session_is(SessionState.CONNECTED)
            asked.clear()
            await trio.sleep(10 * ASK_SECONDS)
            assert not asked
        nursery.cancel_scope.cancel()
