"""Settings in ZooKeeper: read at the start, written as Kafka writes them, followed by all."""

import json
import logging
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.cluster.metadata.changes import ConfigChanged, TopicDeleted
from barnabas.cluster.metadata.image import BROKER, GROUP, TOPIC
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.store import ZooKeeperStore
from barnabas.config import group as group_settings
from barnabas.config import tables
from barnabas.config import topic as topic_settings
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import Setting, SettingError
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


async def test_settings_are_written_like_kafkas_and_followed():
    cluster = Cluster()
    async with cluster.store(1) as first, cluster.store(2) as two:
        await first.change(lambda _: [topic("t")])
        image = await first.change(lambda _: [ConfigChanged(TOPIC, "t", (("retention.ms", "1"),))])
        assert image.settings_of(TOPIC, "t") == {"retention.ms": "1"}
        await settled()
        assert two.image.settings_of(TOPIC, "t") == {"retention.ms": "1"}
        assert cluster.znode("/config/topics/t") == {"version": 1, "config": {"retention.ms": "1"}}
        assert cluster.znode("/config/changes/config_change_0000000000") == {
            "version": 2, "entity_path": "topics/t",
        }  # fmt: skip
        await first.change(lambda _: [ConfigChanged(BROKER, "", (("log.retention.ms", "5"),))])
        await settled()
        assert two.image.settings_of(BROKER, "") == {"log.retention.ms": "5"}
        assert "/config/brokers/<default>" in cluster.server.dump()


async def test_settings_are_read_again_after_a_lost_connection():
    cluster = Cluster()
    async with cluster.store(1) as first, cluster.store(2) as two:
        await settled()
        session = cluster.sessions[1]
        session.disconnect()
        await first.change(lambda _: [ConfigChanged(BROKER, "2", (("a", "1"),))])
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
    async with cluster.store(1) as first, cluster.store(2) as two:
        await first.change(lambda _: [topic("t"), ConfigChanged(TOPIC, "t", (("retention.ms", "1"),))])
        await settled()
        assert two.image.settings_of(TOPIC, "t") == {"retention.ms": "1"}
        await two.change(lambda _: [TopicDeleted("t")])
        await settled()
        assert first.image.settings_of(TOPIC, "t") == {}
        assert "/brokers/topics/t" not in cluster.server.dump()
        await two.change(lambda _: [topic("t", topic_id=b"new")])
        assert two.image.settings_of(TOPIC, "t") == {}


WRONG = "no such value"


def takes(row: Setting[Any], text: str) -> bool:
    try:
        row.parse(text)
    except SettingError:
        return False
    return True


REFUSING = sorted(name for name, row in topic_settings.SETTINGS.items() if not takes(row, WRONG))


@pytest.mark.parametrize("name", REFUSING)
async def test_invalid_topic_setting_stops_a_start_and_is_named(name):
    server = SimulatedZooKeeper()
    session = server.session()
    data = json.dumps({"version": 1, "config": {"x": "1", name: WRONG}}).encode()
    await session.create("/config/topics/orders", data, parents=True)
    with pytest.raises(ZnodeError) as refused:
        await ZooKeeperStore(session, 1, lambda: 0).open("c")
    for part in ("/config/topics/orders", "topic orders", f"{name}={WRONG}"):
        assert part in str(refused.value)


@pytest.mark.parametrize("name", REFUSING)
async def test_running_broker_keeps_the_last_valid_setting(name, caplog):
    cluster = Cluster()
    async with cluster.store(1) as first, cluster.store(2) as two:
        row = topic_settings.SETTINGS[name]
        others = [text for text in ("*", "1000000", "1", "true") if takes(row, text)]
        sound = others[0] if others else row.format(row.default)
        await first.change(lambda _: [topic("t"), ConfigChanged(TOPIC, "t", ((name, sound),))])
        await settled(3)
        assert two.image.settings_of(TOPIC, "t") == {name: sound}
        written = {"version": 1, "config": {name: WRONG, "y": "1"}}
        with caplog.at_level(logging.ERROR):
            await cluster.sessions[0].set("/config/topics/t", json.dumps(written).encode())
            notice = b'{"version":2,"entity_path":"topics/t"}'
            await cluster.sessions[0].create("/config/changes/config_change_", notice, sequence=True)
            await settled(3)
        for store in (first, two):
            assert store.image.settings_of(TOPIC, "t") == {"y": "1", name: sound}
    assert f"znode /config/topics/t: topic t: {name}={WRONG}" in caplog.text
    assert f"{sound} stays in force" in caplog.text


DYNAMIC = [row for name in tables.names() if (row := tables.setting(name)).dynamic and not takes(row, WRONG)]
GROUPS = [row.setting for row in group_settings.rows().values()]
OTHERS = [(BROKER, "brokers", "1", row) for row in DYNAMIC]
OTHERS += [(BROKER, "brokers", "", row) for row in DYNAMIC]
OTHERS += [(GROUP, "groups", "g", row) for row in GROUPS if not takes(row, WRONG)]
KINDS = {BROKER: "broker", GROUP: "group"}


async def test_unreadable_broker_and_group_settings_are_skipped(caplog):
    """Kafka does so with those of brokers, and logs an ERROR for each."""
    server = SimulatedZooKeeper()
    session = server.session()
    written: dict[str, dict[str, str]] = {}
    for _, directory, name, row in OTHERS:
        written.setdefault(f"/config/{directory}/{name or '<default>'}", {"x": "1"})[row.name] = WRONG
    for path, config in written.items():
        data = json.dumps({"version": 1, "config": config}).encode()
        await session.create(path, data, parents=True)
    store = ZooKeeperStore(session, 1, lambda: 0)
    with caplog.at_level(logging.ERROR):
        await store.open("c")
    for kind, _, name, row in OTHERS:
        assert store.image.settings_of(kind, name) == {"x": "1"}
        assert f"{KINDS[kind]} {name or 'default'}: {row.name}={WRONG}" in caplog.text
    assert len(OTHERS) > 50
    config = BrokerConfig({})
    config.set_dynamic(store.image.settings_of(BROKER, ""), store.image.settings_of(BROKER, "1"))
