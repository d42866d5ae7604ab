"""librdkafka through confluent-kafka, used as its documentation shows."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from .conftest import BrokerProcess

pytestmark = pytest.mark.e2e

COUNT = 5000


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def produce(bootstrap: str, topic: str, count: int, **options: Any) -> None:
    errors: list[KafkaError] = []
    delivered: list[int] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            delivered.append(message.offset() or 0)

    producer = Producer({"bootstrap.servers": bootstrap, **options})
    for i in range(count):
        producer.produce(
            topic, key=b"k%d" % i, value=b"v%d" % i, headers=[("h", b"%d" % i)], on_delivery=report
        )
        producer.poll(0)
    assert producer.flush(30) == 0
    assert not errors
    assert len(delivered) == count


def consume(bootstrap: str, topic: str, group: str, count: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    seen: list[int] = []
    for _ in range(count + 200):
        message = consumer.poll(0.5)
        if message is None:
            continue
        assert message.error() is None, message.error()
        number = int((message.value() or b"")[1:])
        assert message.key() == b"k%d" % number
        assert message.headers() == [("h", b"%d" % number)]
        seen.append(number)
        if len(seen) == count:
            break
    consumer.commit(asynchronous=False)
    consumer.close()
    return seen


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_what_is_produced_is_consumed_by_a_group(broker: BrokerProcess, codec: str, idempotent: bool) -> None:
    topic, group = fresh("topic"), fresh("group")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])[topic].result(10)
    options = {"compression.type": codec, "enable.idempotence": idempotent, "acks": "all"}
    produce(broker.bootstrap, topic, COUNT, **options)
    assert sorted(consume(broker.bootstrap, topic, group, COUNT)) == list(range(COUNT))


def test_the_records_of_one_key_keep_their_order(broker: BrokerProcess) -> None:
    topic = fresh("topic")
    produce(broker.bootstrap, topic, COUNT)
    numbers = consume(broker.bootstrap, topic, fresh("group"), COUNT)
    assert numbers == sorted(numbers)
