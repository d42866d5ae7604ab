"""Tiered storage in clusters, under librdkafka: leaders that are killed, topics that are deleted or switched off."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.tiered_ledger import Writer, read_keys

from .test_local_cluster import READY, cluster
from .test_quorum import WAIT_SECONDS_MAX, until
from .test_tiered_cluster import STORE, TOPIC, VALUE, Cluster

pytestmark = pytest.mark.e2e

METADATA_TOPIC = "__remote_log_metadata"
SEGMENT_BYTES = 32 << 10


@pytest.fixture
def tiers(tmp_path: Path) -> Iterator[Cluster]:
    tiers = Cluster(tmp_path)
    tiers.start()
    yield tiers
    tiers.end()


def stored(directory: Path) -> list[int]:
    """Return the base offsets of all segments in the store."""
    return sorted(int(path.name[:20]) for path in (directory / "tier/kafka-tiered-storage").rglob("*.log"))


class Reader(threading.Thread):
    """Reads the topic from its beginning, again and again; each time the same keys."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._address = bootstrap
        self._is_over = threading.Event()
        self.keys: list[bytes] = []
        """Those of the longest time."""
        self.problems: list[str] = []
        self.times = 0

    def stop(self) -> None:
        self._is_over.set()
        self.join()

    def run(self) -> None:
        while not self._is_over.is_set():
            consumer = Consumer({
                "bootstrap.servers": self._address, "group.id": "again", "enable.partition.eof": True,
                "isolation.level": "read_committed", "auto.offset.reset": "error", "log_level": 0,
            })  # fmt: skip
            consumer.assign([TopicPartition(TOPIC, 0, 0)])
            keys: list[bytes] = []
            is_at_end = False
            while not is_at_end and not self._is_over.is_set():
                for message in consumer.consume(200, timeout=0.5):
                    error = message.error()
                    if error is None:
                        keys.append(message.key() or b"")
                    elif error.code() == KafkaError._PARTITION_EOF:
                        is_at_end = True
                    elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                        self.problems.append(str(error))
            consumer.close()
            common = min(len(keys), len(self.keys))
            if keys[:common] != self.keys[:common]:
                self.problems.append(f"{len(keys)} records are others than before")
            self.keys = max(keys, self.keys, key=len)
            self.times += is_at_end


def check_metadata_topic(tiers: Cluster) -> None:
    """Check that the topic was made once, as the settings of the brokers say."""
    topic = tiers.admin.list_topics(METADATA_TOPIC, timeout=WAIT_SECONDS_MAX).topics[METADATA_TOPIC]
    assert [len(partition.replicas) for partition in topic.partitions.values()] == [3, 3]
    resource = ConfigResource(ResourceType.TOPIC, METADATA_TOPIC)
    entries = tiers.admin.describe_configs([resource])[resource].result(WAIT_SECONDS_MAX)
    expected = {
        "min.insync.replicas": "1",
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "remote.storage.enable": "false",
    }
    assert {name: entries[name].value for name in expected} == expected


def test_log_is_read_whole_while_its_leaders_are_killed(tmp_path: Path, tiers: Cluster) -> None:
    check_metadata_topic(tiers)
    tiers.create([4, 5, 6])
    writer = Writer(tiers.bootstrap, TOPIC, VALUE)
    writer.write(400)
    reader = Reader(tiers.bootstrap)
    reader.start()
    for _ in range(3):
        leader = tiers.leader()
        tiers.brokers[leader].end(signal.SIGKILL)
        until(lambda leader=leader: tiers.leader() not in (-1, leader))
        writer.write(300)
        tiers.brokers[leader].start()
        until(lambda: tiers.isr() == {4, 5, 6})
    until(lambda: min(tiers.local_start(broker) for broker in tiers.brokers) > 1000)
    reader.stop()
    assert reader.problems == []
    assert reader.times > 0
    assert reader.keys == writer.committed[: len(reader.keys)]
    assert read_keys(tiers.bootstrap, TOPIC, len(writer.committed)) == writer.committed
    bases = stored(tmp_path)
    assert len(bases) == len(set(bases)) > 20


def test_topic_is_deleted_by_the_leader_of_that_time(tmp_path: Path, tiers: Cluster) -> None:
    tiers.create([4, 5, 6])
    writer = Writer(tiers.bootstrap, TOPIC, VALUE)
    writer.write(500)
    until(lambda: len(stored(tmp_path)) > 5)
    leader = tiers.leader()
    tiers.brokers[leader].end(signal.SIGKILL)
    until(lambda: tiers.leader() not in (-1, leader))
    admin = AdminClient({"bootstrap.servers": tiers.bootstrap})  # others may wait for the killed one
    admin.delete_topics([TOPIC])[TOPIC].result(WAIT_SECONDS_MAX)
    until(lambda: stored(tmp_path) == [])
    tiers.brokers[leader].start()
    assert "stored remotely, and there is no such topic" not in tiers.brokers[leader].log.read_text()


def test_deletion_is_resumed_by_the_broker_that_was_killed(tmp_path: Path, tiers: Cluster) -> None:
    tiers.create([4, 5, 6])
    Writer(tiers.bootstrap, TOPIC, VALUE).write(500)
    until(lambda: len(stored(tmp_path)) > 5)
    leader = tiers.leader()
    store = tmp_path / "tier" / "kafka-tiered-storage"
    store.rename(tmp_path / "away")
    store.write_bytes(b"")  # nothing can be deleted
    tiers.admin.delete_topics([TOPIC])[TOPIC].result(WAIT_SECONDS_MAX)
    # The oldest segment: a copy that was under way fails too, and it is the newest that is deleted then.
    oldest = re.compile(r"offsets 0 to \d+ of .* could not be deleted in the store")
    until(lambda: oldest.search(tiers.brokers[leader].log.read_text()) is not None)
    tiers.brokers[leader].end(signal.SIGKILL)
    store.unlink()
    (tmp_path / "away").rename(store)
    tiers.brokers[leader].start()
    until(lambda: stored(tmp_path) == [])


def test_switched_off_topic_begins_where_its_disks_do(tmp_path: Path, tiers: Cluster) -> None:
    tiers.create([4, 5, 6])
    writer = Writer(tiers.bootstrap, TOPIC, VALUE)
    writer.write(500)
    until(lambda: min(tiers.local_start(broker) for broker in tiers.brokers) > 200)
    resource = ConfigResource(
        ResourceType.TOPIC,
        TOPIC,
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in (
                ("remote.storage.enable", "false"),
                ("remote.log.delete.on.disable", "true"),
                ("local.retention.bytes", "-2"),
            )
        ],
    )
    tiers.admin.incremental_alter_configs([resource])[resource].result(WAIT_SECONDS_MAX)
    until(lambda: stored(tmp_path) == [])
    partition = TopicPartition(TOPIC, 0)
    start = tiers.admin.list_offsets({partition: OffsetSpec.earliest()})[partition].result(WAIT_SECONDS_MAX)
    assert start.offset == tiers.local_start(tiers.leader()) > 200


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--zookeeper"]], ids=["quorum", "zookeeper"])
def test_topics_of_a_local_cluster_are_tiered(tmp_path: Path, options: list[str]) -> None:
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": STORE,
        "rsm.config.dir": str(tmp_path / "tier"),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "remote.log.manager.task.interval.ms": "200",
        "log.retention.check.interval.ms": "300",
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with cluster(tmp_path / "cluster", *options, *words) as running:
        bootstrap = running.until(READY).removeprefix(READY).split()[0]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        config = {
            "remote.storage.enable": "true",
            "local.retention.bytes": "1",
            "internal.segment.bytes": str(SEGMENT_BYTES),
        }
        admin.create_topics([NewTopic(TOPIC, 1, 2, config=config)])[TOPIC].result(WAIT_SECONDS_MAX)
        producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 8_000, "enable.idempotence": True})
        keys = [b"%d" % number for number in range(500)]
        for key in keys:
            producer.produce(TOPIC, key=key, value=bytes(1000), partition=0)
        assert producer.flush(WAIT_SECONDS_MAX) == 0
        until(lambda: len(stored(tmp_path)) >= 12)
        assert read_keys(bootstrap, TOPIC, len(keys)) == keys
        admin.delete_topics([TOPIC])[TOPIC].result(WAIT_SECONDS_MAX)
        until(lambda: stored(tmp_path) == [])
