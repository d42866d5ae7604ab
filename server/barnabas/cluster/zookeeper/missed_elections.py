"""Elections that a broker misses while only ZooKeeper is unreachable: it requests the leaders from other brokers.

The controller sends nothing more to a broker after its session has ended, so that a broker which is cut off from ZooKeeper,
and not from its clients, would continue to lead: producers with acks=all would wait for replicas that follow another
leader, until their requests time out. Other brokers can be trusted, as only a controller raises a leader epoch.

The rule: only a higher leader epoch changes anything, and only for partitions that this broker believes to lead. No request
is sent while ZooKeeper is connected, and no broker stops leading merely because ZooKeeper is unreachable, as in Apache
Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.metadata.changes import PartitionChanged
from barnabas.cluster.metadata.control_requests import NO_EPOCH
from barnabas.cluster.metadata.image import NO_TOPIC_ID
from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.cluster.zookeeper.session import SessionState
from barnabas.errors import StorageError
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import Change, ClusterImage
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.cluster.zookeeper.session import ZooKeeper
    from barnabas.cluster.zookeeper.store import ZooKeeperStore
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

ASK_SECONDS = 0.2
"""Pause before another broker is asked whether this one is still registered, a request of some 30 bytes."""
TIMEOUT_SECONDS = 1.0
TOPICS_PER_BATCH = 100
CHANNEL = "missed elections"


class MissedElections:
    """Takes over leaders from other brokers' metadata while ZooKeeper is not connected. Lifecycle: `run` in a task."""

    def __init__(
        self, broker_id: int, zookeeper: ZooKeeper, store: ZooKeeperStore, peers: Peers, budget: LoopBudget
    ) -> None:
        self._broker_id = broker_id
        self._zookeeper = zookeeper
        self._store = store
        self._peers = peers
        self._budget = budget
        self._disconnected = trio.Event()
        self._last_asked = broker_id
        zookeeper.watch_session(self._session_is)

    def _session_is(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            self._disconnected.set()
        elif self._disconnected.is_set():  # else a task may be waiting for this one
            self._disconnected = trio.Event()

    async def run(self) -> None:
        """Ask while ZooKeeper is not connected, until cancelled or the session is closed."""
        while not self._zookeeper.is_closed:
            await self._disconnected.wait()
            await trio.sleep(ASK_SECONDS)
            if self._disconnected.is_set():
                try:
                    await self._ask(self._next_broker())
                except PeerUnavailableError as error:
                    log.debug("the leaders are not known: %s", error)
                except StorageError as error:
                    log.debug("the store is closed: %s", error)
                    return

    def _next_broker(self) -> int:
        """Return another broker, each in turn; this one if it is the only one."""
        others = sorted(broker_id for broker_id in self._store.image.brokers if broker_id != self._broker_id)
        self._last_asked = next(
            (broker_id for broker_id in others if broker_id > self._last_asked),
            others[0] if others else self._broker_id,
        )
        return self._last_asked

    async def _ask(self, other: int) -> None:
        """Ask one broker. Raises PeerUnavailableError, StorageError."""
        if other == self._broker_id:
            return
        response = await self._metadata(other, ())
        if any(broker.node_id == self._broker_id for broker in response.brokers):
            return
        topics = await self._topics_led()
        for at in range(0, len(topics), TOPICS_PER_BATCH):
            await self._take_over(other, await self._metadata(other, topics[at : at + TOPICS_PER_BATCH]))

    async def _metadata(self, other: int, topics: Sequence[str]) -> MetadataResponse:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        response: MetadataResponse = await self._peers.ask(
            other, request, timeout_s=TIMEOUT_SECONDS, channel=CHANNEL
        )
        return response

    async def _topics_led(self) -> list[str]:
        """Return the topics with partitions that this broker believes to lead and others have replicas of."""
        topics = []
        for name, topic in self._store.image.topics.items():
            if any(
                partition.leader == self._broker_id and len(partition.replicas) > 1
                for partition in topic.partitions
            ):
                topics.append(name)
            await self._budget.checkpoint()
        return topics

    async def _take_over(self, other: int, response: MetadataResponse) -> None:
        changes: list[Change] = []

        def decide(image: ClusterImage) -> Iterable[Change]:
            changes[:] = later_leaders(image, response, self._broker_id)
            return changes

        await self._store.publish(decide)
        if changes:
            log.warning(
                "broker %d does not count this broker any more, which is cut off from ZooKeeper: "
                "%d partitions that it has led are led by others now",
                other,
                len(changes),
            )


def later_leaders(image: ClusterImage, response: MetadataResponse, broker_id: int) -> list[Change]:
    """Return the states of partitions that this broker believes to lead, and others lead by another broker's metadata.

    That metadata has no partition epoch: any state from the controller in the same leader epoch is newer.
    """
    changes: list[Change] = []
    for topic in response.topics:
        topic_before = image.topics.get(topic.name or "")
        if topic_before is None or (
            NO_TOPIC_ID not in (topic_before.id, topic.topic_id) and topic_before.id != topic.topic_id
        ):
            continue
        for partition in topic.partitions:
            index = partition.partition_index
            before = topic_before.partitions[index] if index < len(topic_before.partitions) else None
            if (
                before is None
                or before.leader != broker_id
                or partition.leader_id in (-1, broker_id)
                or partition.leader_epoch <= before.leader_epoch
            ):
                continue
            now = before._replace(
                leader=partition.leader_id,
                isr=tuple(partition.isr_nodes),
                leader_epoch=partition.leader_epoch,
                partition_epoch=NO_EPOCH,
            )
            changes.append(PartitionChanged(topic_before.name, index, now))
    return changes
