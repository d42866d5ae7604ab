"""The store on ZooKeeper by itself: who may speak as the controller, what is published, and what comes with it."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.cluster.metadata.changes import (
    BrokerRegistered,
    ConfigChanged,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.control_requests import UNKNOWN
from barnabas.cluster.metadata.image import (
    BROKER,
    TOPIC,
    BrokerInfo,
    Change,
    ClusterImage,
    Delta,
    PartitionInfo,
    TopicInfo,
)
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.features import ZooKeeperFeatures
from barnabas.cluster.zookeeper.session import NoAuthError
from barnabas.cluster.zookeeper.store import ZooKeeperStore, _grown, _with_count
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


OLD_CONTROLLER, OLD_BROKER = ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH


def test_only_the_newest_controller_and_this_registration_are_heard() -> None:
    async def program() -> None:
        store = store_on(SimulatedZooKeeper())
        store.broker_epoch = 50
        for epoch, broker_epoch, code in (
            (3, 50, 0), (3, -1, 0), (2, 50, OLD_CONTROLLER), (3, 51, 0), (4, 49, OLD_BROKER),
            (3, 50, 0), (4, 50, 0), (3, 50, OLD_CONTROLLER), (3, 49, OLD_BROKER),
        ):  # fmt: skip
            try:
                store.check_controller(9, epoch, broker_epoch)
                found = 0
            except RequestError as error:
                found = error.code
            assert found == code, (epoch, broker_epoch)

    trio.run(program)


async def test_what_a_controller_says_waits_for_the_registration(autojump_clock: Any) -> None:
    store = store_on(SimulatedZooKeeper())
    await store.open("c")
    done: list[ClusterImage] = []

    async def follow() -> None:
        done.append(await store.follow(lambda _: [BrokerRegistered(BrokerInfo(2, None, {}))]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.sleep(1)
        assert done == []
        await store.publish(lambda _: [BrokerRegistered(BrokerInfo(3, None, {}))])
        await store.register(registration(1))
    assert done[0].brokers.keys() == {2, 3}


async def test_of_this_broker_alone_the_epoch_is_known() -> None:
    store = store_on(SimulatedZooKeeper())
    await store.open("c")
    await store.register(registration(1))
    told = [BrokerRegistered(BrokerInfo(one, None, {}, 10_000)) for one in (1, 2)]
    image = await store.publish(lambda _: told)
    assert {one.id: one.epoch for one in image.brokers.values()} == {1: store.broker_epoch, 2: 10_000}
    assert 0 < store.broker_epoch < 10_000


async def test_a_lost_session_is_followed_by_another_registration_which_is_published(
    autojump_clock: Any,
) -> None:
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


@pytest.mark.parametrize(
    ("change", "count", "expected"),
    [
        (TopicCreated(topic()), None, TopicCreated(topic())),
        (TopicCreated(topic()), 1, TopicCreated(topic())),
        (TopicCreated(topic()), 0, TopicCreated(topic())),
        (TopicCreated(topic()), 3, TopicCreated(topic(LED, UNKNOWN, UNKNOWN))),
        (PartitionsAdded("t", (LED,)), None, PartitionsAdded("t", (LED,))),
        (PartitionsAdded("t", (LED,)), 3, PartitionsAdded("t", (LED,))),
        (PartitionsAdded("t", (LED,)), 1, PartitionsAdded("t", (LED,))),
        (PartitionsAdded("t", (LED,)), 5, PartitionsAdded("t", (LED, UNKNOWN, UNKNOWN))),
        (TopicDeleted("t"), 5, TopicDeleted("t")),
    ],
)
def test_a_topic_has_as_many_partitions_as_zookeeper_says(
    change: Change, count: int | None, expected: Change
) -> None:
    image = ClusterImage("c").apply([TopicCreated(topic(LED, LED))])
    counts = {"other": 9} | ({"t": count} if count is not None else {})
    assert _with_count(change, counts, image) == expected
    assert _grown(change) == (None if isinstance(change, TopicDeleted) else "t")
    assert _grown(PartitionChanged("t", 0, LED)) is None


async def test_a_new_topic_comes_with_its_partitions_and_settings_and_not_with_those_of_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
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
    made = [TopicCreated(topic(name=name)) for name in ("t", "u", "w")]
    image = await store.publish(lambda _: [None, *made])
    assert {name: len(one.partitions) for name, one in image.topics.items()} == {"t": 3, "u": 1, "w": 1}
    assert {name: dict(image.settings_of(TOPIC, name)) for name in "tuvw"} == {
        "t": {"retention.ms": "5"}, "u": {}, "v": {"retention.ms": "9"}, "w": {"retention.bytes": "7"},
    }  # fmt: skip
    assert "topics/w" in caplog.text


class Follower:
    """Notes what it is called with, and what everybody sees then."""

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


async def test_followers_are_ready_before_the_image_is_seen_and_clean_up_when_all_have_it() -> None:
    store = store_on(SimulatedZooKeeper())
    await store.open("c")
    calls: list[tuple[str, str, int]] = []
    for name in "ab":
        store.subscribe(Follower(store, calls, name))
    await store.publish(lambda _: [])
    assert calls == []
    await store.publish(lambda _: [BrokerRegistered(BrokerInfo(2, None, {}))])
    expected = [("prepare", 0), ("publish", 1), ("clean up", 1)]
    assert calls == [(name, what, version) for what, version in expected for name in "ab"]


async def test_settings_that_are_read_again_are_published(autojump_clock: Any) -> None:
    zookeeper = SimulatedZooKeeper()
    admin = zookeeper.session()
    store = store_on(zookeeper)
    await store.open("c")
    path = resources.config_path("brokers", "1")
    await admin.create(path, resources.encode_config({"log.cleaner.threads": "2"}), parents=True)
    await store.publish_read([(BROKER, "1")], [BrokerRegistered(BrokerInfo(2, None, {}))])
    assert dict(store.image.settings_of(BROKER, "1")) == {"log.cleaner.threads": "2"}
    assert store.image.brokers.keys() == {2}
    await store.publish_read([], [BrokerRegistered(BrokerInfo(3, None, {}))])
    assert store.image.brokers.keys() == {2, 3}


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


async def test_a_failed_log_dir_is_reported_with_the_brokers_id() -> None:
    zookeeper = SimulatedZooKeeper()
    store = store_on(zookeeper, 7)
    await store.open("c")
    await store.report_log_dir_failure()
    [path] = [one for one in zookeeper.dump() if one.startswith(f"{znodes.LOG_DIR_EVENTS}/")]
    assert znodes.decode_log_dir_event(path.rpartition("/")[2], zookeeper.dump()[path]) == 7


# --- features -----------------------------------------------------------------------------------------------------

BOTH = {"group.version": 1, "transaction.version": 2}


@pytest.mark.parametrize("is_enabled", [True, False, None])
@pytest.mark.parametrize(
    ("wanted", "levels"),
    [
        ({"group.version": 2}, {"group.version": 2, "transaction.version": 2}),
        ({"group.version": 0}, {"transaction.version": 2}),
        ({"new": 3}, BOTH | {"new": 3}),
        ({"new": 0}, BOTH),
        ({}, BOTH),
    ],
)
async def test_features_are_finalized_beside_those_that_are(
    is_enabled: bool | None, wanted: dict[str, int], levels: dict[str, int]
) -> None:
    zookeeper = SimulatedZooKeeper()
    session = zookeeper.session()
    store = ZooKeeperStore(session, 1, lambda: 0)
    await store.open("c")
    if is_enabled is not None:
        there = resources.FinalizedFeatures(is_enabled=is_enabled, levels=BOTH)
        await session.create(resources.FEATURE, resources.encode_features(there))
    if not is_enabled:
        levels = {name: level for name, level in wanted.items() if level}
    features = ZooKeeperFeatures(session, store)
    await features.read()
    assert store.image.features == (BOTH if is_enabled else {})
    await features.finalize(wanted)
    kept = resources.decode_features(zookeeper.dump()[resources.FEATURE])
    assert kept == resources.FinalizedFeatures(is_enabled=True, levels=levels)
    is_written = is_enabled is not None and (levels != BOTH or not is_enabled)
    assert (store.image.features, store.image.features_epoch) == (levels, int(is_written))
    version = store.image.version
    await features.read()
    assert store.image.version == version, "nothing is new"


async def test_features_that_zookeeper_refuses_are_an_error_of_the_request() -> None:
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
