"""An internal topic is deleted while stock clients use its coordinator: they go on after a while, as with Apache Kafka."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .conftest import BrokerProcess

pytestmark = pytest.mark.e2e

SECONDS = 20


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def delete(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(SECONDS)


def topic_on(broker: BrokerProcess) -> str:
    topic = fresh("topic")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)
    return topic


def produce(broker: BrokerProcess, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value=value)
    assert producer.flush(SECONDS) == 0


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 2 * SECONDS
    while not done():
        assert time.monotonic() < end


def read(consumer: Consumer, seen: list[str], count: int) -> None:
    def poll() -> bool:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            seen.append(message.value().decode())
        return len(seen) >= count

    until(poll)


def commit(consumer: Consumer) -> int:
    """Commit, with as many tries as it takes; returns the offset that is committed of the only partition."""
    offsets: list[int] = []

    def committed() -> bool:
        try:
            offsets.extend(place.offset for place in consumer.commit(asynchronous=False))
        except KafkaException:
            consumer.poll(0.1)  # the member may have to join again first
        return bool(offsets)

    until(committed)
    return offsets[0]


def consumer_in(broker: BrokerProcess, group: str, protocol: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def test_a_classic_group_goes_on_after_its_topic_was_deleted(broker: BrokerProcess) -> None:
    topic, group = topic_on(broker), fresh("group")
    consumer = consumer_in(broker, group, "classic")
    consumer.subscribe([topic])
    produce(broker, topic, "1", "2")
    seen: list[str] = []
    read(consumer, seen, 2)
    commit(consumer)
    for number in range(2):
        delete(broker, "__consumer_offsets")
        produce(broker, topic, f"after-{number}")
        until(partial(read_one, consumer, seen, f"after-{number}"))
        offset = commit(consumer)
    consumer.close()
    again = consumer_in(broker, group, "classic")
    (result,) = again.committed([TopicPartition(topic, 0)], SECONDS)
    assert result.offset == offset
    again.close()


def test_kip_848_group_starts_anew_after_its_topic_was_deleted(broker: BrokerProcess) -> None:
    """Its members end with GROUP_ID_NOT_FOUND, as with Apache Kafka; new ones join."""
    topic, group = topic_on(broker), fresh("group")
    for _ in range(2):
        consumer = consumer_in(broker, group, "consumer")
        consumer.subscribe([topic])
        produce(broker, topic, "1")
        seen: list[str] = []
        read(consumer, seen, 1)
        assert commit(consumer) >= 1
        delete(broker, "__consumer_offsets")
        consumer.close()


def read_one(consumer: Consumer, seen: list[str], value: str) -> bool:
    message = consumer.poll(0.1)
    if message is not None and not message.error():
        seen.append(message.value().decode())
    return value in seen


def transactional(broker: BrokerProcess, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(SECONDS)
    return producer


def test_transactions_go_on_after_their_topic_was_deleted(broker: BrokerProcess) -> None:
    topic, transactional_id = topic_on(broker), fresh("txn")
    producer = transactional(broker, transactional_id)
    producer.begin_transaction()
    producer.produce(topic, value="first")
    producer.commit_transaction(SECONDS)
    delete(broker, "__transaction_state")
    try:
        producer.begin_transaction()
        producer.produce(topic, value="lost")
        producer.commit_transaction(SECONDS)
    except KafkaException:
        pass  # its producer id is known to nobody any more: with Apache Kafka it has to be made again, too
    del producer
    producer = transactional(broker, transactional_id)
    producer.begin_transaction()
    producer.produce(topic, value="second")
    producer.commit_transaction(SECONDS)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": fresh("reader"),
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    seen: list[str] = []
    until(lambda: read_one(consumer, seen, "second"))
    assert seen[0] == "first"
    consumer.close()
