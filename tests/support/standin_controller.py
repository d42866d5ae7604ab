"""A controller for tests of the store alone: the first replica of each partition leads it immediately.

The rule: it reads and deletes the same znodes as a controller, and updates one store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import trio

from barnabas.cluster.metadata.changes import (
    BrokerRegistered,
    BrokerUnregistered,
    ControllerChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import BrokerInfo, Change, ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.session import (
    ConnectionLostError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeper,
)
from barnabas.cluster.zookeeper.store import ZooKeeperStore
from barnabas.cluster.zookeeper.writes import topic_info
from barnabas.errors import RequestError, StorageError


class StandInController:
    """Lifecycle: `run` in a separate task."""

    def __init__(self, zookeeper: ZooKeeper, store: ZooKeeperStore, *, epoch: int = 1) -> None:
        self._zookeeper = zookeeper
        self._store = store
        self._epoch = epoch
        self._changed = trio.Event()
        self._sent = trio.Event()

    async def has_sent_all(self) -> None:
        """Wait until the store's image has a broker."""
        await self._sent.wait()

    async def run(self) -> None:
        """Read all znodes after each change, and update the store, until the session is closed."""
        while not self._zookeeper.is_closed:
            self._changed = trio.Event()
            try:
                decide = await self._look()
                self._store.check_controller(9, self._epoch, -1)
                image = await self._store.follow(decide)
            except (ConnectionLostError, SessionExpiredError):
                await self._zookeeper.wait_connected()
                continue
            except NoNodeError:
                continue  # a znode was deleted meanwhile
            except (StorageError, RequestError):
                return
            if image.brokers:
                self._sent.set()
            await self._changed.wait()

    def _look_again(self) -> None:
        self._changed.set()

    async def _look(self) -> Callable[[ClusterImage], Iterator[Change]]:
        zookeeper, again = self._zookeeper, self._look_again
        for name in await zookeeper.children(znodes.DELETE_TOPICS, again):
            await self._delete(name)
        brokers = {}
        for name in await zookeeper.children(znodes.BROKER_IDS, again):
            data, _ = await zookeeper.get(znodes.broker_path(int(name)))
            decoded = znodes.decode_broker(int(name), data)
            endpoints = {endpoint.listener: (endpoint.host, endpoint.port) for endpoint in decoded.endpoints}
            brokers[int(name)] = BrokerInfo(int(name), decoded.rack, endpoints)
        topics = {}
        for name in await zookeeper.children(znodes.TOPICS, again):
            data, _ = await zookeeper.get(znodes.topic_path(name), again)
            info = topic_info(name, znodes.decode_topic(name, data))
            parts = tuple(
                PartitionInfo(part.replicas[0], part.replicas, part.replicas) for part in info.partitions
            )
            topics[name] = TopicInfo(name, info.id, parts)

        def decide(image: ClusterImage) -> Iterator[Change]:
            if image.controller_id != 9:
                yield ControllerChanged(9, self._epoch)
            for broker_id in image.brokers.keys() - brokers.keys():
                yield BrokerUnregistered(broker_id)
            for broker_id, broker in brokers.items():
                registered = image.brokers.get(broker_id)
                if registered is None or registered.endpoints != broker.endpoints:
                    yield BrokerRegistered(broker)
            for name, known_topic in image.topics.items():
                if name not in topics or topics[name].id != known_topic.id:
                    yield TopicDeleted(name)
            for name, topic in topics.items():
                before = image.topics.get(name)
                if before is None or before.id != topic.id:
                    yield TopicCreated(topic)
                elif len(before.partitions) < len(topic.partitions):
                    yield PartitionsAdded(name, topic.partitions[len(before.partitions) :])

        return decide

    async def _delete(self, name: str) -> None:
        for path in (
            resources.config_path(resources.TOPICS, name),
            znodes.topic_path(name),
            znodes.delete_topic_path(name),
        ):
            try:
                await self._zookeeper.delete(path)
            except NoNodeError:
                continue
