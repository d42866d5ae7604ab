"""The store on ZooKeeper by itself: which broker may speak as the controller, what is published, and what comes with it."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.cluster.metadata.changes import BrokerRegistered, ConfigChanged, TopicCreated
from barnabas.cluster.metadata.image import TOPIC, BrokerInfo, Delta, PartitionInfo, TopicInfo
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.features import ZooKeeperFeatures
from barnabas.cluster.zookeeper.session import NoAuthError
from barnabas.cluster.zookeeper.store import ZooKeeperStore
from barnabas.errors import RequestError, StorageError
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper
from barnabas.wire.generated.errors import ErrorCode
from tests.support.zookeeper_stores import registration

ID = b"i" * 16
LED = PartitionInfo(1, (1,), (1,))


def topic(*partitions: PartitionInfo, name: str = "t") -> TopicInfo:
    return TopicInfo(name, name.encode().ljust(16), partitions or (LED,))


def store_on(zookeeper: SimulatedZooKeeper, broker: int = 1) -> ZooKeeperStore:
    return ZooKeeperStore(zookeeper.session(), broker, lambda: 0)


# --- who speaks ---------------------------------------------------------------------------------------------------


async def test_registration_after_a_lost_session_is_published(autojump_clock: Any) -> None:
    zookeeper = SimulatedZooKeeper()
    session = zookeeper.session()
    store = ZooKeeperStore(session, 1, lambda: 0)
    await store.open("c")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        first = await store.register(registration(1))
        await store.publish(lambda _: [BrokerRegistered(BrokerInfo(1, None, {}))])
        session.disconnect()
        session.connect_soon()
        await trio.sleep(1)
        assert (store.broker_epoch, store.is_connected) == (first, True), "the session goes on"
        zookeeper.refuses_writes = True
        zookeeper.expire(session)
        await trio.sleep(0.5)
        assert store.broker_epoch == first
        zookeeper.refuses_writes = False
        await trio.sleep(2)
        assert store.broker_epoch > first
        assert store.image.brokers[1].epoch == store.broker_epoch
        await store.close()
        assert not store.is_connected


# --- what is published --------------------------------------------------------------------------------------------


async def test_new_topic_comes_with_its_own_partitions_and_settings(caplog: pytest.LogCaptureFixture) -> None:
    zookeeper = SimulatedZooKeeper()
    admin = zookeeper.session()
    store = store_on(zookeeper)
    await store.open("c")
    old = [ConfigChanged(TOPIC, name, (("retention.ms", "9"),)) for name in ("t", "u", "v")]
    await store.publish(lambda _: old)
    for name, settings in (("t", {"retention.ms": "5"}), ("w", {"retention.bytes": "7"})):
        path = resources.config_path("topics", name)
        await admin.create(path, resources.encode_config(settings), parents=True)
    parts = {index: znodes.ReplicaAssignment((1,)) for index in range(3)}
    await admin.create(znodes.topic_path("t"), znodes.encode_topic(znodes.TopicAssignment(parts, ID)))
    await admin.create(znodes.topic_path("w"), b"{")
    changes = [TopicCreated(topic(name=name)) for name in ("t", "u", "w")]
    image = await store.publish(lambda _: [None, *changes])
    assert {name: len(info.partitions) for name, info in image.topics.items()} == {"t": 3, "u": 1, "w": 1}
    assert {name: dict(image.settings_of(TOPIC, name)) for name in "tuvw"} == {
        "t": {"retention.ms": "5"}, "u": {}, "v": {"retention.ms": "9"}, "w": {"retention.bytes": "7"},
    }  # fmt: skip
    assert "topics/w" in caplog.text


class Follower:
    """Notes what it is called with, and what all followers see then."""

    def __init__(self, store: ZooKeeperStore, calls: list[tuple[str, str, int]], name: str) -> None:
        self.store, self.calls, self.name = store, calls, name

    def note(self, what: str, delta: Delta) -> None:
        assert delta.old.version < delta.new.version
        self.calls.append((self.name, what, self.store.image.version))

    async def prepare(self, delta: Delta) -> None:
        self.note("prepare", delta)

    def publish(self, delta: Delta) -> None:
        self.note("publish", delta)

    async def clean_up(self, delta: Delta) -> None:
        self.note("clean up", delta)


@pytest.mark.parametrize("is_closed", [True, False])
async def test_without_zookeeper_nothing_new_is_published(is_closed: bool, autojump_clock: Any) -> None:
    zookeeper = SimulatedZooKeeper()
    session = zookeeper.session()
    store = ZooKeeperStore(session, 1, lambda: 0)
    await store.open("c")

    async def refused(*_: object) -> Any:
        raise NoAuthError("no")

    if is_closed:
        await store.close()
    else:
        session.get_many = refused  # type: ignore[method-assign]
    with pytest.raises(StorageError) as caught:
        await store.publish(lambda _: [TopicCreated(topic())])
    assert ("closed" in str(caught.value)) is is_closed
    assert store.image.topics == {}
    if is_closed:
        with pytest.raises(StorageError):
            await store.change(lambda _: [])


@pytest.mark.parametrize("is_closed_before", [True, False])
async def test_with_the_store_what_it_runs_ends(is_closed_before: bool, autojump_clock: Any) -> None:
    zookeeper = SimulatedZooKeeper()
    store = store_on(zookeeper)
    await store.open("c")
    await store.register(registration(1))
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            if is_closed_before:
                await store.close()
                nursery.start_soon(store.run)
            else:
                nursery.start_soon(store.run)
                await trio.sleep(1)
                await store.close()
    assert znodes.broker_path(1) not in zookeeper.dump()


# --- features -----------------------------------------------------------------------------------------------------

BOTH = {"group.version": 1, "transaction.version": 2}


async def test_features_refused_by_zookeeper_fail_the_request() -> None:
    zookeeper = SimulatedZooKeeper()
    session = zookeeper.session()
    store = ZooKeeperStore(session, 1, lambda: 0)
    await store.open("c")
    features = ZooKeeperFeatures(session, store)
    zookeeper.refuses_writes = True
    with pytest.raises(RequestError) as caught:
        await features.finalize(BOTH)
    assert caught.value.code == ErrorCode.FEATURE_UPDATE_FAILED

    async def refused(*_: object) -> Any:
        raise NoAuthError("no")

    session.children = refused  # type: ignore[method-assign]
    with pytest.raises(RequestError) as caught:
        await features.supported()
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_registration_that_cannot_be_read_supports_nothing() -> None:
    zookeeper = SimulatedZooKeeper()
    session = zookeeper.session()
    store = ZooKeeperStore(session, 1, lambda: 0)
    await store.open("c")
    await session.create(znodes.broker_path(3), b"{")
    ours = znodes.BrokerRegistration((znodes.Endpoint("PLAINTEXT", "h", 1),), features={"f": (1, 4)})
    await session.create(znodes.broker_path(2), znodes.encode_broker(ours))
    assert await ZooKeeperFeatures(session, store).supported() == {2: {"f": (1, 4)}, 3: {}}
