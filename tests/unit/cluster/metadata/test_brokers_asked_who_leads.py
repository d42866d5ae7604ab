"""Cut off from ZooKeeper a broker asks the others in turn: what it asks for, and what it takes over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.cluster.metadata.changes import BrokerRegistered, TopicCreated
from barnabas.cluster.metadata.image import BrokerInfo, ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.cluster.zookeeper.missed_elections import ASK_SECONDS, TIMEOUT_SECONDS, MissedElections
from barnabas.cluster.zookeeper.session import SessionState
from barnabas.errors import StorageError
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse


def led_by(leader: int, *replicas: int) -> PartitionInfo:
    return PartitionInfo(leader, replicas, replicas, 4, 7)


class World:
    """Broker 2 of the brokers 1 to 3; the others answer as the test says."""

    def __init__(self, *brokers: int, topics: int = 3) -> None:
        self.image = ClusterImage("c").apply([
            *(BrokerRegistered(BrokerInfo(id_, None, {})) for id_ in brokers),
            *(TopicCreated(TopicInfo(f"led{n}", b"l%015d" % n, (led_by(1, 1, 2), led_by(2, 2, 3)))) for n in range(topics)),
            TopicCreated(TopicInfo("alone", b"a" * 16, (led_by(2, 2),))),
            TopicCreated(TopicInfo("followed", b"f" * 16, (led_by(1, 1, 2), led_by(3, 3, 2)))),
        ])  # fmt: skip
        self.is_closed = False
        self.asked: list[tuple[int, float, list[str]]] = []
        self.counts_us = False
        self.failure: Exception | None = None
        self.published = 0
        self.missed = MissedElections(2, self, self, self, LoopBudget())  # type: ignore[arg-type]

    def watch_session(self, changed: Callable[[SessionState], None]) -> None:
        self.session_is = changed

    async def ask(self, other: int, request: MetadataRequest, *, timeout_s: float, channel: str) -> Any:
        assert (timeout_s, channel) == (TIMEOUT_SECONDS, "missed elections")
        assert request.topics is not None
        assert not request.allow_auto_topic_creation
        names = [topic.name or "" for topic in request.topics]
        self.asked.append((other, trio.current_time(), names))
        if self.failure is not None:
            raise self.failure
        brokers = [MetadataResponse.MetadataResponseBroker(node_id=other, host="h", port=1)]
        if self.counts_us:
            brokers.append(MetadataResponse.MetadataResponseBroker(node_id=2, host="h", port=2))
        partition = MetadataResponse.MetadataResponsePartition(
            partition_index=1, leader_id=3, leader_epoch=5, isr_nodes=[3]
        )
        topics = [
            MetadataResponse.MetadataResponseTopic(name=name, partitions=[partition], topic_id=self.image.topics[name].id)
            for name in names
        ]  # fmt: skip
        return MetadataResponse(brokers=brokers, topics=topics)

    async def publish(self, decide: Any) -> ClusterImage:
        self.image = self.image.apply(decide(self.image))
        self.published += 1
        return self.image


async def within(world: World, act: Callable[[], Any]) -> World:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.missed.run)
        await trio.testing.wait_all_tasks_blocked()
        await act()
        nursery.cancel_scope.cancel()
    return world


async def test_who_is_not_counted_any_more_takes_over_who_leads(autojump_clock: Any) -> None:
    world = World(1, 2, 3)

    async def act() -> None:
        world.session_is(SessionState.EXPIRED)
        await trio.sleep(1.5 * ASK_SECONDS)

    await within(world, act)
    begun = world.asked[0][1]
    assert world.asked == [(3, begun, []), (3, begun, ["led0", "led1", "led2"])]
    for name, topic in world.image.topics.items():
        leaders = [partition.leader for partition in topic.partitions]
        assert leaders == {"alone": [2], "followed": [1, 3]}.get(name, [1, 3])


async def test_a_broker_that_is_alone_asks_nobody(autojump_clock: Any) -> None:
    world = World(2)

    async def act() -> None:
        world.session_is(SessionState.DISCONNECTED)
        await trio.sleep(5.5 * ASK_SECONDS)

    assert (await within(world, act)).asked == []


@pytest.mark.parametrize(
    ("failure", "goes_on"),
    [(PeerUnavailableError("gone"), True), (StorageError("ZooKeeper", ValueError()), False)],
)
async def test_other_brokers_are_asked_until_the_store_is_closed(
    failure: Exception, goes_on: bool, autojump_clock: Any
) -> None:
    world = World(1, 2, 3)
    world.failure = failure

    async def act() -> None:
        world.session_is(SessionState.DISCONNECTED)
        await trio.sleep(3.5 * ASK_SECONDS)

    assert [other for other, _, _ in (await within(world, act)).asked] == ([3, 1, 3] if goes_on else [3])
