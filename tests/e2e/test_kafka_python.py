"""kafka-python, used as its documentation shows."""

from __future__ import annotations

import signal
import uuid

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from .conftest import BrokerProcess, StartBroker

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore")]

COUNT = 1000


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def produce(bootstrap: str, topic: str, first: int, last: int, **options: object) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, **options)
    sent = [
        producer.send(topic, key=b"k%d" % i, value=b"v%d" % i, headers=[("h", b"%d" % i)])
        for i in range(first, last)
    ]
    producer.flush(30)
    for future in sent:
        future.get(30)
    producer.close()


def read(bootstrap: str, topic: str, partitions: int, count: int) -> list[int]:
    """Read a topic from its beginning, without a group."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    assigned = [TopicPartition(topic, index) for index in range(partitions)]
    consumer.assign(assigned)
    consumer.seek_to_beginning(*assigned)
    seen: list[int] = []
    for _ in range(200):
        for records in consumer.poll(timeout_ms=200).values():
            for record in records:
                number = int(record.value[1:])
                assert record.key == b"k%d" % number
                assert record.headers == [("h", b"%d" % number)]
                seen.append(number)
        if len(seen) >= count:
            break
    consumer.close()
    return seen


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    admin.close()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_is_read(broker: BrokerProcess, codec: str | None) -> None:
    topic = fresh("topic")
    create(broker.bootstrap, topic, 3)
    produce(broker.bootstrap, topic, 0, COUNT, compression_type=codec)
    assert sorted(read(broker.bootstrap, topic, 3, COUNT)) == list(range(COUNT))


def test_records_survive_a_restart_and_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker()
    create(broker.bootstrap, "kept", 3)
    produce(broker.bootstrap, "kept", 0, COUNT)
    assert broker.stop() == 0
    broker = start_broker(data=broker.data)
    produce(broker.bootstrap, "kept", COUNT, COUNT + 100)
    assert broker.stop(signal.SIGKILL) == -signal.SIGKILL
    broker = start_broker(data=broker.data)
    assert sorted(read(broker.bootstrap, "kept", 3, COUNT + 100)) == list(range(COUNT + 100))


def test_offsets_are_found_by_timestamp(broker: BrokerProcess) -> None:
    topic = fresh("topic")
    create(broker.bootstrap, topic, 1)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for i in range(10):
        producer.send(topic, b"%d" % i, timestamp_ms=1_700_000_000_000 + i * 1000)
    producer.flush()
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    partition = TopicPartition(topic, 0)
    result = consumer.offsets_for_times({partition: 1_700_000_004_500})[partition]
    assert (result.offset, result.timestamp) == (5, 1_700_000_005_000)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 10}
    consumer.close()


def test_a_deleted_topic_is_gone(broker: BrokerProcess) -> None:
    topic = fresh("topic")
    create(broker.bootstrap, topic, 2)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    assert topic in admin.list_topics()
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()
