"""The metadata of several brokers in one process, changed by the test, which is the controller.

The rule: there is one true state, and each broker has a view that follows its changes in order, unless the test holds it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import trio

from barnabas.cluster.kraft.takeover import changes_of
from barnabas.cluster.metadata.changes import (
    BrokerRegistered,
    BrokerUnregistered,
    PartitionChanged,
    TopicCreated,
)
from barnabas.cluster.metadata.image import BrokerInfo, Change, ClusterImage, Delta, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.store import Decide, Subscriber


class SharedMetadata:
    """The true state of the cluster."""

    def __init__(self, cluster_id: str = "c") -> None:
        self.image = ClusterImage(cluster_id)
        self.views: dict[int, View] = {}
        self._epoch = 0

    def join(self, broker_id: int) -> View:
        """Return a new view for a broker that starts: empty, with the whole state as its first changes."""
        view = self.views[broker_id] = View(self)
        view.follow([*map(BrokerRegistered, self.image.brokers.values()), *changes_of(self.image)])
        return view

    def change(self, *changes: Change) -> ClusterImage:
        """Apply changes to the true state; returns it. Views follow unless they are held."""
        self.image = self.image.apply(changes)
        for view in self.views.values():
            view.follow(changes)
        return self.image

    # --- the controller's changes ---------------------------------------------------------------------------

    def register(self, broker_id: int, host: str, port: int, rack: str | None = None) -> None:
        """Register a broker, in a new epoch."""
        self._epoch += 1
        self.change(BrokerRegistered(BrokerInfo(broker_id, rack, {"PLAINTEXT": (host, port)}, self._epoch)))

    def unregister(self, broker_id: int) -> None:
        """Unregister a broker; leaders do not change."""
        self.views.pop(broker_id, None)
        if broker_id in self.image.brokers:
            self.change(BrokerUnregistered(broker_id))

    def create(
        self, topic: str, *assignments: tuple[int, ...], topic_id: bytes = b"0123456789abcdef"
    ) -> None:
        """Create a topic with partitions on these replicas, the first of which leads."""
        partitions = tuple(PartitionInfo(replicas[0], replicas, replicas) for replicas in assignments)
        self.change(TopicCreated(TopicInfo(topic, topic_id, partitions)))

    def partition(self, topic: str, index: int = 0) -> PartitionInfo:
        """Return the true state of a partition."""
        return self.image.topics[topic].partitions[index]

    def broker_failed(self, broker_id: int) -> None:
        """Handle a lost broker as a controller: remove it from ISRs, and elect leaders from the live ISR members."""
        self.unregister(broker_id)
        for name, topic in self.image.topics.items():
            for index, info in enumerate(topic.partitions):
                others = tuple(id_ for id_ in info.isr if id_ != broker_id)
                live = [id_ for id_ in info.replicas if id_ in others and id_ in self.image.brokers]
                if broker_id in info.isr and live:
                    leader = live[0] if info.leader == broker_id else info.leader
                    self.elect(name, index, leader, isr=others)
                elif info.leader == broker_id:
                    self.elect(name, index, -1, isr=info.isr)

    def broker_came(self, broker_id: int) -> None:
        """Make a returned broker the leader of partitions that no other ISR member can lead."""
        for name, topic in self.image.topics.items():
            for index, info in enumerate(topic.partitions):
                if info.leader < 0 and broker_id in info.isr:
                    self.elect(name, index, broker_id, isr=info.isr)

    def reassign(self, topic: str, index: int, replicas: tuple[int, ...]) -> None:
        """Change the replicas of a partition, in the same leader epoch."""
        info = self.partition(topic, index)
        self.change(
            PartitionChanged(
                topic, index, info._replace(replicas=replicas, partition_epoch=info.partition_epoch + 1)
            )
        )

    def elect(
        self, topic: str, index: int, leader: int, *, isr: Iterable[int] | None = None
    ) -> PartitionInfo:
        """Elect another leader, in a new epoch; the ISR is `isr`, or its live members."""
        info = self.partition(topic, index)
        live = tuple(id_ for id_ in info.isr if id_ in self.image.brokers or id_ == leader)
        new = info._replace(
            leader=leader,
            isr=live if isr is None else tuple(isr),
            leader_epoch=info.leader_epoch + 1,
            partition_epoch=info.partition_epoch + 1,
        )
        self.change(PartitionChanged(topic, index, new))
        return new


class View:
    """One broker's `MetadataStore`. Lifecycle: `run` in a task."""

    def __init__(self, truth: SharedMetadata) -> None:
        self._truth = truth
        self._image = ClusterImage(truth.image.cluster_id)
        self._subscribers: list[Subscriber] = []
        self._coming: deque[Change] = deque()
        self._published = trio.Event()
        self._wake = trio.Event()
        self.is_held = False
        """True while changes are held back."""

    @property
    def image(self) -> ClusterImage:
        """The image of the broker."""
        return self._image

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a subscriber."""
        self._subscribers.append(subscriber)

    def follow(self, changes: Iterable[Change]) -> None:
        """Queue changes."""
        self._coming.extend(changes)
        self._wake.set()

    def hold(self, *, is_held: bool = True) -> None:
        """Hold back changes, or release them."""
        self.is_held = is_held
        self._wake.set()

    async def run(self) -> None:
        """Apply queued changes, and notify subscribers, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._coming and not self.is_held:
                changes = list(self._coming)
                self._coming.clear()
                old, new = self._image, self._image.apply(changes)
                delta = Delta.of(old, new, changes)
                for subscriber in self._subscribers:
                    await subscriber.prepare(delta)
                self._image = new
                for subscriber in self._subscribers:
                    subscriber.publish(delta)
                for subscriber in self._subscribers:
                    await subscriber.clean_up(delta)
                self._published.set()
                self._published = trio.Event()

    async def change(self, decide: Decide) -> ClusterImage:
        """Apply the result of `decide` for the true state; returns the new state once this view has it."""
        await trio.lowlevel.checkpoint()
        image = self._truth.image
        changes = [change for change in decide(image) if change is not None]
        if changes:
            image = self._truth.change(*changes)
            while self._coming:
                await self._published.wait()
        return image

    async def close(self) -> None:
        """Do nothing: other views stay open."""
        await trio.lowlevel.checkpoint()
