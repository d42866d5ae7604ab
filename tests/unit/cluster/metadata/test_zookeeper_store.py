"""The store on ZooKeeper does more than every store: registration, partitions, others that are quicker."""

from random import Random

import pytest
import trio
import trio.testing

from barnabas.cluster.metadata import topic_decisions
from barnabas.cluster.metadata.changes import (
    BrokerRegistered,
    ConfigChanged,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
)
from barnabas.cluster.metadata.image import BROKER, BrokerInfo, PartitionInfo, TopicInfo
from barnabas.cluster.zookeeper.registration import IdTakenError, generated_broker_id
from barnabas.cluster.zookeeper.store import ZooKeeperStore
from barnabas.cluster.zookeeper.znodes import ReplicaAssignment, TopicAssignment, encode_topic, topic_path
from barnabas.errors import RequestError, StorageError
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper, ZooKeeperWeather
from barnabas.wire.generated.errors import ErrorCode
from tests.support.effort import drawing, examples
from tests.support.zookeeper_stores import Cluster, registration, settled, topic

# --- registration -----------------------------------------------------------------------------------------------


async def test_registered_broker_creates_the_common_znodes():
    cluster = Cluster()
    async with cluster.store() as store:
        assert store.broker_epoch > 0
        assert cluster.znode("/brokers/ids/1")["endpoints"] == ["PLAINTEXT://h:9001"]
        assert cluster.znode("/cluster/id") == {"version": "1", "id": "c"}
        for path in ("/consumers", "/config/users", "/admin/delete_topics"):
            assert path in cluster.server.dump()
        assert "/latest_producer_id_block" not in cluster.server.dump(), "where it is empty no Kafka starts"
    assert "/brokers/ids/1" not in cluster.server.dump()


async def test_the_first_broker_names_the_cluster():
    cluster = Cluster()
    async with cluster.store():
        second = ZooKeeperStore(cluster.server.session(), 2, lambda: 0)
        await second.open("another")
        assert second.image.cluster_id == "c"


async def test_another_brokers_id_is_refused():
    cluster = Cluster()
    async with cluster.store():
        second = ZooKeeperStore(cluster.server.session(), 1, lambda: 0)
        await second.open("c")
        with pytest.raises(IdTakenError, match=r"broker\.id=1: .*PLAINTEXT://h:9001.*id of its own"):
            await second.register(registration(9999))


async def test_an_earlier_session_of_the_same_address_is_waited_for(autojump_clock):
    cluster = Cluster()
    async with cluster.store() as first:
        before = first.broker_epoch
        cluster.sessions[0].kill()
        second = ZooKeeperStore(cluster.server.session(), 1, lambda: 0)
        await second.open("c")
        began = trio.current_time()
        assert await second.register(registration(9001)) > before
        assert trio.current_time() - began >= 18


async def test_an_earlier_session_that_does_not_end_is_an_error(autojump_clock):
    cluster = Cluster()
    async with cluster.store():
        second = ZooKeeperStore(cluster.server.session(), 1, lambda: 0)
        await second.open("c")
        with pytest.raises(IdTakenError, match="does not end"):
            await second.register(registration(9001))


@pytest.mark.parametrize("lost", ["lose_next_answer", "lose_next_request"])
async def test_a_registration_whose_answer_is_lost_is_found(lost):
    server = SimulatedZooKeeper()
    session = server.session()
    store = ZooKeeperStore(session, 1, lambda: 0)
    await store.open("c")
    getattr(session, lost)()
    epoch = await store.register(registration(9001))
    assert (await session.exists("/brokers/ids/1")).created == epoch


async def test_lost_session_is_followed_by_a_new_broker_epoch():
    cluster = Cluster()
    async with cluster.store() as store:
        before = store.broker_epoch
        assert store.image.brokers[1].epoch == before
        cluster.server.expire(cluster.sessions[0])
        await settled(3)
        assert store.broker_epoch > before
        assert store.image.brokers[1].epoch == store.broker_epoch
        with pytest.raises(RequestError) as refused:
            store.check_controller(9, 1, before)
        assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH
        store.check_controller(9, 1, store.broker_epoch)
        await store.change(lambda _: [topic("t")])


async def test_ids_are_generated_above_the_reserved_ones():
    server = SimulatedZooKeeper()
    session = server.session()
    assert await generated_broker_id(session, 1000) == 1001
    assert await generated_broker_id(session, 1000) == 1002
    session.lose_next_answer()
    assert await generated_broker_id(session, 1000) > 1002


async def test_requests_for_an_old_registration_wait_and_are_refused(autojump_clock):
    cluster = Cluster()
    async with cluster.store() as first, trio.open_nursery() as nursery:
        before = first.broker_epoch
        cluster.sessions[0].kill()
        second = ZooKeeperStore(cluster.server.session(), 1, lambda: 0)
        await second.open("c")
        refused = []

        def decide(_):
            second.check_controller(9, 1, before)
            return [BrokerRegistered(BrokerInfo(7, None, {}))]

        async def ask():
            with pytest.raises(RequestError) as error:
                await second.follow(decide)
            refused.append(error.value.code)

        nursery.start_soon(ask)
        await trio.sleep(5)
        assert not refused
        await second.register(registration(9001))
        await settled()
        assert refused == [ErrorCode.STALE_BROKER_EPOCH]
        assert not second.image.brokers


async def test_older_controllers_are_refused():
    cluster = Cluster()
    async with cluster.store(has_controller=False) as store:
        store.check_controller(2, 5, -1)
        store.check_controller(2, 5, store.broker_epoch)
        with pytest.raises(RequestError) as refused:
            store.check_controller(1, 4, -1)
        assert refused.value.code == ErrorCode.STALE_CONTROLLER_EPOCH


# --- partitions -------------------------------------------------------------------------------------------------


def assigned(count: int) -> bytes:
    return encode_topic(
        TopicAssignment({index: ReplicaAssignment((1 + index % 2,)) for index in range(count)})
    )


@pytest.mark.parametrize("name", ["__transaction_state", "t"])
async def test_a_topic_has_all_partitions_as_soon_as_it_is_there(name):
    cluster = Cluster()
    async with cluster.store(1, has_controller=False) as store:
        await cluster.sessions[0].create(topic_path(name), assigned(50))
        await store.follow(lambda _: [topic(name, 1)])
        parts = store.image.topics[name].partitions
        assert [part.leader for part in parts] == [1] + [-1] * 49


async def test_a_topic_that_grows_has_all_partitions_at_once():
    cluster = Cluster()
    async with cluster.store(1, has_controller=False) as store:
        await cluster.sessions[0].create(topic_path("t"), assigned(2))
        await store.follow(lambda _: [topic("t", 2)])
        await cluster.sessions[0].set(topic_path("t"), assigned(5))
        await store.follow(lambda _: [PartitionsAdded("t", topic("t", 1).topic.partitions)])
        assert [partition.leader for partition in store.image.topics["t"].partitions] == [1, 1, 1, -1, -1]


@pytest.mark.parametrize("name", ["__transaction_state", "t"])
async def test_a_topic_without_a_znode_is_there_with_what_is_known(name):
    cluster = Cluster()
    async with cluster.store(1) as store:
        await store.follow(lambda _: [topic(name, 2)])
        assert len(store.image.topics[name].partitions) == 2


# --- changes ----------------------------------------------------------------------------------------------------


async def test_a_topic_is_written_as_kafka_writes_it():
    cluster = Cluster()
    async with cluster.store() as store:
        await store.change(lambda _: [topic("t", 2)])
        assert cluster.znode("/brokers/topics/t") == {
            "version": 3, "topic_id": "dCAgICAgICAgICAgICAgIA", "partitions": {"0": [1], "1": [1]},
            "adding_replicas": {}, "removing_replicas": {},
        }  # fmt: skip
        assert cluster.znode("/config/topics/t") == {"version": 1, "config": {}}
        image = await store.change(lambda _: [PartitionsAdded("t", (PartitionInfo(2, (2, 1), (2, 1)),))])
        assert len(image.topics["t"].partitions) == 3
        assert cluster.znode("/brokers/topics/t")["partitions"] == {"0": [1], "1": [1], "2": [2, 1]}


async def test_change_waits_for_leaders_and_is_seen_by_the_next():
    cluster = Cluster()
    async with cluster.store(has_controller=False) as store:
        await store.follow(lambda _: [BrokerRegistered(BrokerInfo(1, None, {}))])
        with trio.move_on_after(0.1) as given_up:
            await store.change(lambda _: [topic("t")])
        assert given_up.cancelled_caught
        assert not store.image.topics

        def decide(image):
            if "t" in image.topics:
                raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS)
            return [topic("t", topic_id=b"other")]

        with pytest.raises(RequestError):
            await store.change(decide)
        done = []

        async def add():
            done.append(await store.change(lambda _: [PartitionsAdded("t", (PartitionInfo(1, (1,), (1,)),))]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(add)
            await settled()
            leaderless = PartitionInfo(-1, (1,), (1,))
            first = PartitionInfo(1, (1,), (1,))
            name_and_id = topic("t").topic
            await store.follow(lambda _: [TopicCreated(TopicInfo("t", name_and_id.id, (first, leaderless)))])
            await settled()
            assert not done
            await store.follow(lambda _: [PartitionChanged("t", 1, first)])
        assert len(done[0].topics["t"].partitions) == 2


async def test_who_is_slower_decides_on_what_the_other_one_has_made():
    cluster = Cluster()
    async with cluster.store(1) as first, cluster.store(2, has_controller=False) as two:
        await two.follow(lambda _: [BrokerRegistered(BrokerInfo(2, None, {}))])
        await first.change(lambda _: [topic("t", topic_id=b"first")])
        assert not two.image.topics

        def decide(image):
            if "t" in image.topics:
                raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS)
            return [topic("t", topic_id=b"second")]

        with pytest.raises(RequestError) as refused:
            await two.change(decide)
        assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        await first.change(lambda _: [ConfigChanged(BROKER, "1", (("a", "1"),))])
        cluster.sessions[1].disconnect()  # it has not seen this
        await first.change(lambda _: [ConfigChanged(BROKER, "1", (("a", "1"), ("b", "1")))])

        async def add(name):
            def decide(image):
                settings = dict(image.settings_of(BROKER, "1")) | {name: "2"}
                return [ConfigChanged(BROKER, "1", tuple(settings.items()))]

            await two.change(decide)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(add, "c")
            await settled()
            cluster.sessions[1].connect_soon()
        assert cluster.znode("/config/brokers/1")["config"] == {"a": "1", "b": "1", "c": "2"}


async def test_changes_of_the_controller_are_no_brokers():
    cluster = Cluster()
    async with cluster.store() as store:
        with pytest.raises(TypeError, match="PartitionChanged comes from the controller alone"):
            await store.change(lambda _: [PartitionChanged("t", 0, PartitionInfo(1, (1,), (1,)))])
        await store.change(lambda _: [topic("t")])


async def test_change_waits_for_zookeeper_to_return():
    cluster = Cluster()
    async with cluster.store() as store:
        cluster.server.stop()
        images = []

        async def create():
            images.append(await store.change(lambda _: [topic("t")]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create)
            await settled()
            assert not images
            cluster.server.start()
        assert list(images[0].topics) == ["t"]


async def test_topic_too_large_for_a_znode_is_refused_alone():
    cluster = Cluster()
    async with cluster.store() as store:
        refused = []

        async def too_many():
            with pytest.raises(RequestError) as error:
                await store.change(lambda _: [topic("large", 90_000)])
            refused.append(error.value.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(too_many)
            nursery.start_soon(store.change, lambda _: [topic("small")])
        assert refused == [ErrorCode.POLICY_VIOLATION]
        assert list(store.image.topics) == ["small"]


async def test_a_failed_log_dir_is_reported():
    cluster = Cluster()
    async with cluster.store() as store:
        cluster.sessions[0].lose_next_request()
        await store.report_log_dir_failure()
        assert cluster.znode("/log_dir_event_notification/log_dir_event_0000000000") == {
            "version": 1, "broker": 1, "event": 1,
        }  # fmt: skip


async def test_waiting_changes_end_with_the_store():
    cluster = Cluster()
    async with trio.open_nursery() as nursery:

        async def create(store):
            with pytest.raises(StorageError, match="closed"):
                await store.change(lambda _: [topic("t")])

        async with cluster.store(has_controller=False) as store:
            nursery.start_soon(create, store)
            await settled()


@pytest.mark.parametrize("number", range(examples(4)))
def test_whatever_the_weather_nothing_is_made_twice_or_lost(number):
    seed = drawing(number).randrange(2**32)
    outcome = trio.run(in_weather, seed, clock=trio.testing.MockClock(autojump_threshold=0))
    handed_out, created, images, settings, written = outcome
    assert len(handed_out) == len(set(handed_out))
    assert sorted(created) == [f"t{n}" for n in range(10)]
    assert images == [sorted(created)] * 3
    assert settings == [written] * 3
    assert len(written) == 30


async def in_weather(seed):
    """Three brokers change the same things at once, while answers are lost and sessions expire."""
    random = Random(seed)
    weather = ZooKeeperWeather(
        0.01, 0.01, 0.05, 0.1, lost_request_probability=0.05, lost_answer_probability=0.1
    )
    cluster = Cluster(SimulatedZooKeeper(random))
    handed_out, created = [], []

    async def work(store, number):
        for round_number in range(10):
            image = await store.change(lambda image: [ProducerIdsAllocated(image.next_producer_id + 10)])
            handed_out.append(image.next_producer_id)
            name = f"t{round_number}"

            def decide(image, name=name, round_number=round_number):
                topic_decisions.check_topic_name(name)
                if name in image.topics:
                    raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS)
                return [topic(name, 2, b"%d %d" % (number, round_number))]

            try:
                await store.change(decide)
                created.append(name)
            except RequestError:
                pass

            def configure(image, round_number=round_number):
                now = dict(image.settings_of(BROKER, ""))
                return [ConfigChanged(BROKER, "", tuple((now | {f"{number}.{round_number}": "x"}).items()))]

            await store.change(configure)
            await trio.sleep(random.uniform(0, 0.1))

    async def trouble():
        while True:
            await trio.sleep(random.uniform(0, 0.5))
            session = random.choice(cluster.sessions)
            if random.random() < 0.5:
                cluster.server.expire(session)
            else:
                session.disconnect()
                session.connect_soon()

    async with cluster.store(1) as first, cluster.store(2) as two, cluster.store(3) as three:
        cluster.server.weather = weather
        async with trio.open_nursery() as troubles:
            troubles.start_soon(trouble)
            async with trio.open_nursery() as nursery:
                for number, store in enumerate((first, two, three)):
                    nursery.start_soon(work, store, number)
            troubles.cancel_scope.cancel()
        cluster.server.weather = ZooKeeperWeather()
        await trio.sleep(60)
        stores = (first, two, three)
        images = [sorted(store.image.topics) for store in stores]
        settings = [dict(store.image.settings_of(BROKER, "")) for store in stores]
        written = cluster.znode("/config/brokers/<default>")["config"]
        for broker_id, store in enumerate(stores, 1):
            assert store.broker_epoch == store.image.brokers[broker_id].epoch
    return handed_out, created, images, settings, written
