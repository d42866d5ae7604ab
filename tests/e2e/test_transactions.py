"""Transactions of stock clients: seen whole or not at all, over fencing, timeouts, restarts and kill -9."""

from __future__ import annotations

import signal
import time
import uuid

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Place

from .conftest import BrokerProcess, StartBroker

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore")]

SECONDS = 20


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def topic_on(broker: BrokerProcess, partitions: int = 3) -> str:
    topic = fresh("topic")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(10)
    return topic


def transactional(broker: BrokerProcess, transactional_id: str, **options: object) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, **options}
    )
    producer.init_transactions(SECONDS)
    return producer


def read(broker: BrokerProcess, topic: str, isolation: str = "read_committed") -> list[str]:
    """Every value up to the end of each partition, as the isolation level shows it."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": fresh("reader"),
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
    values: list[str] = []
    at_end: set[int] = set()
    deadline = time.monotonic() + SECONDS
    while len(at_end) < len(partitions):
        assert time.monotonic() < deadline, (values, at_end)
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            at_end.add(message.partition())
            continue
        values.append((message.value() or b"").decode())
    consumer.close()
    return sorted(values)


def send(producer: Producer, topic: str, *values: str) -> None:
    for value in values:
        producer.produce(topic, key=value, value=value)


def test_commits_are_seen_and_aborts_are_not(broker: BrokerProcess) -> None:
    topic = topic_on(broker)
    producer = transactional(broker, fresh("txn"))
    for number in range(10):
        producer.begin_transaction()
        send(producer, topic, f"{number}-a", f"{number}-b", f"{number}-c")
        if number % 2:
            assert producer.flush(SECONDS) == 0  # what is still queued would be dropped
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
    committed = sorted(f"{number}-{part}" for number in range(0, 10, 2) for part in "abc")
    assert read(broker, topic) == committed
    assert set(committed) < set(read(broker, topic, "read_uncommitted"))


def test_what_is_open_is_not_seen(broker: BrokerProcess) -> None:
    topic = topic_on(broker, partitions=1)
    producer = transactional(broker, fresh("txn"))
    producer.begin_transaction()
    send(producer, topic, "open")
    assert producer.flush(SECONDS) == 0
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    send(plain, topic, "after")
    assert plain.flush(SECONDS) == 0
    assert read(broker, topic) == []
    assert read(broker, topic, "read_uncommitted") == ["after", "open"]
    producer.commit_transaction(SECONDS)
    assert read(broker, topic) == ["after", "open"]


def test_second_instance_fences_the_first_and_aborts_its_work(broker: BrokerProcess) -> None:
    topic, transactional_id = topic_on(broker), fresh("txn")
    first = transactional(broker, transactional_id)
    first.begin_transaction()
    send(first, topic, "of the first")
    assert first.flush(SECONDS) == 0
    second = transactional(broker, transactional_id)
    with pytest.raises(KafkaException) as failure:
        first.commit_transaction(SECONDS)
    assert failure.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    second.begin_transaction()
    send(second, topic, "of the second")
    second.commit_transaction(SECONDS)
    assert read(broker, topic) == ["of the second"]


def test_a_transaction_that_takes_too_long_is_aborted(broker: BrokerProcess) -> None:
    topic = topic_on(broker)
    producer = transactional(broker, fresh("txn"), **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    send(producer, topic, "too late")
    assert producer.flush(SECONDS) == 0
    deadline = time.monotonic() + SECONDS
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    send(plain, topic, "plain")
    assert plain.flush(SECONDS) == 0
    while read(broker, topic) != ["plain"]:
        assert time.monotonic() < deadline
    with pytest.raises(KafkaException):
        producer.commit_transaction(SECONDS)
    assert read(broker, topic) == ["plain"]


def test_offsets_count_when_the_transaction_commits(broker: BrokerProcess) -> None:
    source, target, group = topic_on(broker, 1), topic_on(broker, 1), fresh("group")
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    send(plain, source, *(f"{n}" for n in range(10)))
    assert plain.flush(SECONDS) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )  # fmt: skip
    consumer.subscribe([source])
    seen = []
    while len(seen) < 10:
        message = consumer.poll(SECONDS)
        assert message is not None
        assert not message.error()
        seen.append(message)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def committed() -> int:
        asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(source, 0)])]
        answered = admin.list_consumer_group_offsets(asked)[group].result(10)
        return answered.topic_partitions[0].offset

    producer = transactional(broker, fresh("txn"))
    for end, commit in ((4, True), (7, False), (9, True)):
        before = committed()
        producer.begin_transaction()
        send(producer, target, f"up to {end}")
        producer.send_offsets_to_transaction(
            [TopicPartition(source, 0, end)], consumer.consumer_group_metadata(), SECONDS
        )
        assert committed() == before
        if commit:
            producer.commit_transaction(SECONDS)
            assert committed() == end
        else:
            producer.abort_transaction(SECONDS)
            assert committed() == before
    consumer.close()
    assert read(broker, target) == ["up to 4", "up to 9"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_transactions_survive_the_broker(start_broker: StartBroker, how: signal.Signals) -> None:
    broker = start_broker()
    topic, transactional_id = topic_on(broker), fresh("txn")
    producer = transactional(broker, transactional_id)
    producer.begin_transaction()
    send(producer, topic, "committed")
    producer.commit_transaction(SECONDS)
    producer.begin_transaction()
    send(producer, topic, "across")
    assert producer.flush(SECONDS) == 0
    broker.stop(how)
    again = start_broker(data=broker.data, listen=broker.bootstrap)
    assert again.bootstrap == broker.bootstrap
    producer.commit_transaction(SECONDS)
    assert read(again, topic) == ["across", "committed"]
    other = transactional(again, transactional_id)
    producer.begin_transaction()
    send(producer, topic, "fenced")
    with pytest.raises(KafkaException):
        producer.commit_transaction(SECONDS)
    other.begin_transaction()
    send(other, topic, "of another")
    other.commit_transaction(SECONDS)
    assert read(again, topic) == ["across", "committed", "of another"]


def test_kafka_python_commits_and_aborts(broker: BrokerProcess) -> None:
    topic = topic_on(broker, partitions=1)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=fresh("txn"))
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number)
        if number % 3:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed", consumer_timeout_ms=2000
    )
    consumer.assign([Place(topic, 0)])
    consumer.seek_to_beginning()
    assert [message.value for message in consumer] == [b"0", b"3"]
    consumer.close()
