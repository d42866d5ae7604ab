"""Settings in ZooKeeper: read at the start, written as Kafka writes them, followed by all."""

import json
import logging

import trio
import trio.testing

from barnabas.cluster.changes import ConfigChanged, TopicDeleted
from barnabas.cluster.image import BROKER, TOPIC
from barnabas.cluster.zookeeper.store import ZooKeeperStore
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper
from tests.support.zookeeper_stores import Cluster, settled, topic


async def test_settings_are_read_at_the_start():
    server = SimulatedZooKeeper()
    session = server.session()
    for path, value in (
        ("brokers/<default>", {"a": "1"}),
        ("brokers/1", {"b": "2"}),
        ("topics/t", {"c": "3"}),
    ):
        data = json.dumps({"version": 1, "config": value}).encode()
        await session.create(f"/config/{path}", data, parents=True)
    store = ZooKeeperStore(session, 1, lambda: 0)
    await store.open("c")
    assert store.image.settings_of(BROKER, "") == {"a": "1"}
    assert store.image.settings_of(BROKER, "1") == {"b": "2"}
    assert store.image.settings_of(TOPIC, "t") == {"c": "3"}


async def test_changed_settings_are_written_as_kafka_writes_them_and_followed_by_all():
    cluster = Cluster()
    async with cluster.store(1) as one, cluster.store(2) as two:
        await one.change(lambda _: [topic("t")])
        image = await one.change(lambda _: [ConfigChanged(TOPIC, "t", (("retention.ms", "1"),))])
        assert image.settings_of(TOPIC, "t") == {"retention.ms": "1"}
        await settled()
        assert two.image.settings_of(TOPIC, "t") == {"retention.ms": "1"}
        assert cluster.znode("/config/topics/t") == {"version": 1, "config": {"retention.ms": "1"}}
        assert cluster.znode("/config/changes/config_change_0000000000") == {
            "version": 2, "entity_path": "topics/t",
        }  # fmt: skip
        await one.change(lambda _: [ConfigChanged(BROKER, "", (("log.retention.ms", "5"),))])
        await settled()
        assert two.image.settings_of(BROKER, "") == {"log.retention.ms": "5"}
        assert "/config/brokers/<default>" in cluster.server.dump()


async def test_settings_that_changed_while_nobody_could_be_reached_are_read_again():
    cluster = Cluster()
    async with cluster.store(1) as one, cluster.store(2) as two:
        await settled()
        session = cluster.sessions[1]
        session.disconnect()
        await one.change(lambda _: [ConfigChanged(BROKER, "2", (("a", "1"),))])
        for path in [path for path in cluster.server.dump() if "config_change_" in path]:
            await cluster.sessions[0].delete(path)
        assert two.image.settings_of(BROKER, "2") == {}
        session.connect_soon()
        await settled()
        assert two.image.settings_of(BROKER, "2") == {"a": "1"}


async def test_settings_that_cannot_be_read_leave_the_image_as_it_was(caplog):
    cluster = Cluster()
    async with cluster.store() as store:
        await store.change(lambda _: [ConfigChanged(BROKER, "1", (("a", "1"),))])
        with caplog.at_level(logging.ERROR):
            await cluster.sessions[0].set("/config/brokers/1", b"{")
            for data in (b"nonsense", b'{"version":2,"entity_path":"brokers/1"}'):
                await cluster.sessions[0].create("/config/changes/config_change_", data, sequence=True)
            await settled()
        assert store.image.settings_of(BROKER, "1") == {"a": "1"}
        assert "znode /config/brokers/1: it is not JSON" in caplog.text
        assert "config_change_0000000001: it is not JSON" in caplog.text
        await store.change(lambda _: [ConfigChanged(BROKER, "1", (("a", "2"),))])
        assert cluster.znode("/config/brokers/1")["config"] == {"a": "2"}


async def test_old_notifications_are_removed(autojump_clock):
    cluster = Cluster()
    async with cluster.store() as store:
        await store.change(lambda _: [ConfigChanged(BROKER, "1", (("a", "1"),))])
        await trio.sleep(16 * 60)
        await store.change(lambda _: [ConfigChanged(BROKER, "1", (("a", "2"),))])
        await settled()
        assert [path for path in cluster.server.dump() if "config_change_" in path] == [
            "/config/changes/config_change_0000000001"
        ]


async def test_new_topics_come_with_their_settings_whoever_made_them():
    cluster = Cluster()
    async with cluster.store(1) as one, cluster.store(2) as two:
        await one.change(lambda _: [topic("t"), ConfigChanged(TOPIC, "t", (("retention.ms", "1"),))])
        await settled()
        assert two.image.settings_of(TOPIC, "t") == {"retention.ms": "1"}
        await two.change(lambda _: [TopicDeleted("t")])
        await settled()
        assert one.image.settings_of(TOPIC, "t") == {}
        assert "/brokers/topics/t" not in cluster.server.dump()
        await two.change(lambda _: [topic("t", topic_id=b"new")])
        assert two.image.settings_of(TOPIC, "t") == {}
