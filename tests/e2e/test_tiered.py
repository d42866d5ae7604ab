"""Tiered storage under librdkafka: a log of many times its local retention is read from its beginning."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from barnabas.testing.running import import_path

from .conftest import PROGRAM, ROOT, BrokerProcess, StartBroker

pytestmark = pytest.mark.e2e

TOPIC = "ledger"
SEGMENT_BYTES = 64 << 10
VALUE = b"x" * 1000
STORE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


def settings_of(tmp_path: Path) -> list[str]:
    return [
        "remote.log.storage.system.enable=true",
        f"remote.log.storage.manager.class.name={STORE}",
        f"rsm.config.dir={tmp_path / 'tier'}",
        "rlmm.config.remote.log.metadata.topic.num.partitions=3",
        "remote.log.manager.task.interval.ms=200",
        "log.retention.check.interval.ms=300",
    ]


def until(condition: Callable[[], bool], what: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def create(bootstrap: str, topic: str = TOPIC, **settings: str) -> None:
    config = {
        "remote.storage.enable": "true",
        "local.retention.bytes": str(SEGMENT_BYTES),
        "internal.segment.bytes": str(SEGMENT_BYTES),
        "file.delete.delay.ms": "100",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)


def produce(bootstrap: str, first: int, count: int, topic: str = TOPIC) -> None:
    failures: list[KafkaError] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "batch.size": 16_000}
    )
    for number in range(first, first + count):
        producer.produce(
            topic, key=b"%d" % number, value=VALUE,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )  # fmt: skip
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failures == []


def read(bootstrap: str, count: int, topic: str = TOPIC, *, start: int = 0, **settings: str) -> list[bytes]:
    options = {name.replace("_", "."): value for name, value in settings.items()}
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False, **options,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, start)])
    keys: list[bytes] = []
    end = time.monotonic() + 60
    while len(keys) < count and time.monotonic() < end:
        for message in consumer.consume(500, timeout=1):
            assert message.error() is None, message.error()
            keys.append(message.key() or b"")
    consumer.close()
    return keys


def offset(bootstrap: str, spec: OffsetSpec, topic: str = TOPIC) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partition = TopicPartition(topic, 0)
    return admin.list_offsets({partition: spec})[partition].result(30).offset


def stored(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "tier/kafka-tiered-storage").rglob("*.log"))


def local_bytes(data: Path, topic: str = TOPIC) -> int:
    return sum(path.stat().st_size for path in (data / f"{topic}-0").glob("*.log"))


def keys_of(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


@pytest.fixture
def tiered(start_broker: StartBroker, tmp_path: Path) -> BrokerProcess:
    return start_broker(*settings_of(tmp_path), options=("--metrics", "127.0.0.1:0"))


def test_log_of_twenty_times_its_local_retention_is_read_whole(tiered, tmp_path):
    create(tiered.bootstrap)
    produce(tiered.bootstrap, 0, 1500)
    until(lambda: local_bytes(tiered.data) <= 2 * SEGMENT_BYTES, "local segments stay")
    assert len(stored(tmp_path)) >= 20
    assert read(tiered.bootstrap, 1500) == keys_of(0, 1500)
    assert read(tiered.bootstrap, 700, start=800) == keys_of(800, 700)
    metrics = urllib.request.urlopen(tiered.metrics_url).read().decode()
    assert 'kafka_server_brokertopicmetrics_remotecopybytes_total{topic="ledger"}' in metrics
    assert 'kafka_server_brokertopicmetrics_remotefetchbytes_total{topic="ledger"}' in metrics


def test_killed_broker_has_all_that_is_stored(tiered, start_broker, tmp_path):
    create(tiered.bootstrap)
    produce(tiered.bootstrap, 0, 800)
    until(lambda: len(stored(tmp_path)) >= 3, "nothing is stored")
    tiered.stop(signal.SIGKILL)
    again = start_broker(*settings_of(tmp_path), data=tiered.data)
    produce(again.bootstrap, 800, 400)
    until(lambda: local_bytes(again.data) <= 2 * SEGMENT_BYTES, "local segments stay")
    assert read(again.bootstrap, 1200) == keys_of(0, 1200)
    assert again.stop() == 0
    third = start_broker(*settings_of(tmp_path), data=tiered.data)
    assert read(third.bootstrap, 1200) == keys_of(0, 1200)


def test_committed_transactions_are_read_out_of_the_store(tiered, tmp_path):
    create(tiered.bootstrap)
    producer = Producer({"bootstrap.servers": tiered.bootstrap, "transactional.id": "t", "linger.ms": 0})
    producer.init_transactions()
    for number in range(200):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(TOPIC, key=b"%d" % number, value=VALUE)
        if number % 3:
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()
    until(lambda: local_bytes(tiered.data) <= 2 * SEGMENT_BYTES, "local segments stay")
    committed = [b"%d" % number for number in range(200) for _ in range(3) if number % 3]
    assert read(tiered.bootstrap, len(committed), isolation_level="read_committed") == committed
    every = [b"%d" % number for number in range(200) for _ in range(3)]
    assert read(tiered.bootstrap, len(every), isolation_level="read_uncommitted") == every


def test_expired_records_go_from_both_tiers(tiered, tmp_path):
    create(tiered.bootstrap, retention_bytes=str(5 * SEGMENT_BYTES))
    produce(tiered.bootstrap, 0, 1500)
    until(lambda: offset(tiered.bootstrap, OffsetSpec.earliest()) > 1000, "nothing expires")
    until(lambda: len(stored(tmp_path)) <= 6, "segments stay in the store")
    start = offset(tiered.bootstrap, OffsetSpec.earliest())
    assert read(tiered.bootstrap, 1500 - start, start=start) == keys_of(start, 1500 - start)


def test_tiered_storage_cannot_go_before_its_topics(tiered, start_broker, tmp_path):
    create(tiered.bootstrap)
    assert tiered.stop() == 0
    command = [*PROGRAM, "serve", "--listen", "127.0.0.1:0", "--data", str(tiered.data)]
    environment = {**os.environ, "PYTHONPATH": import_path(ROOT)}
    refused = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=30)
    assert refused.returncode != 0
    assert "You have to delete all topics with the property" in refused.stderr
    again = start_broker(*settings_of(tmp_path), data=tiered.data)
    admin = AdminClient({"bootstrap.servers": again.bootstrap})
    admin.delete_topics([TOPIC])[TOPIC].result(30)
    assert again.stop() == 0
    assert start_broker(data=tiered.data).stop() == 0
