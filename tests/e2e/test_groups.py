"""Consumer groups of stock clients: joining, rebalancing, committing, resuming."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from .conftest import BrokerProcess, StartBroker

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore")]

COUNT = 600
AGREEMENT_SECONDS_MAX = 60


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def fill(bootstrap: str, topic: str, first: int, last: int, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic not in admin.list_topics(timeout=10).topics:
        created = admin.create_topics([NewTopic(topic, partitions, 1)])
        created[topic].result(10)
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(first, last):
        producer.produce(topic, key=b"k%d" % i, value=b"%d" % i)
    assert producer.flush(10) == 0


def librdkafka(bootstrap: str, group: str, topic: str, **options: object) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
            **options,
        }
    )
    consumer.subscribe([topic])
    return consumer


def drain(consumer: Consumer, count: int) -> list[int]:
    seen: list[int] = []
    for _ in range(count + 200):
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            seen.append(int(message.value() or b""))
        if len(seen) >= count:
            break
    return seen


def poll_until(condition: Callable[[], bool], *consumers: Consumer) -> None:
    """Keep the members polling, as they must, until they have come to agree."""
    deadline = time.monotonic() + AGREEMENT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            consumer.poll(0.05)


def test_a_group_resumes_where_it_has_committed(broker: BrokerProcess) -> None:
    topic, group = fresh("topic"), fresh("group")
    fill(broker.bootstrap, topic, 0, COUNT)
    consumer = librdkafka(broker.bootstrap, group, topic)
    assert sorted(drain(consumer, COUNT)) == list(range(COUNT))
    consumer.commit(asynchronous=False)
    consumer.close()
    fill(broker.bootstrap, topic, COUNT, COUNT + 50)
    consumer = librdkafka(broker.bootstrap, group, topic)
    assert sorted(drain(consumer, 50)) == list(range(COUNT, COUNT + 50))
    consumer.close()


def test_two_members_share_the_partitions_and_one_takes_over(broker: BrokerProcess) -> None:
    topic, group = fresh("topic"), fresh("group")
    fill(broker.bootstrap, topic, 0, COUNT)
    first = librdkafka(broker.bootstrap, group, topic)
    assert sorted(drain(first, COUNT)) == list(range(COUNT))
    second = librdkafka(broker.bootstrap, group, topic)
    poll_until(lambda: bool(first.assignment() and second.assignment()), first, second)
    held = [{(p.topic, p.partition) for p in consumer.assignment()} for consumer in (first, second)]
    assert held[0]
    assert held[1]
    assert not held[0] & held[1]
    assert held[0] | held[1] == {(topic, index) for index in range(3)}
    first.close()
    poll_until(lambda: len(second.assignment()) == 3, second)
    second.close()


def test_a_static_member_comes_back_without_a_rebalance(broker: BrokerProcess) -> None:
    topic, group = fresh("topic"), fresh("group")
    fill(broker.bootstrap, topic, 0, COUNT)
    consumer = librdkafka(broker.bootstrap, group, topic, **{"group.instance.id": "one"})
    assert len(drain(consumer, COUNT)) == COUNT
    consumer.commit(asynchronous=False)
    consumer.close()
    consumer = librdkafka(broker.bootstrap, group, topic, **{"group.instance.id": "one"})
    fill(broker.bootstrap, topic, COUNT, COUNT + 10)
    assert sorted(drain(consumer, 10)) == list(range(COUNT, COUNT + 10))
    consumer.close()


def test_groups_and_offsets_survive_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker()
    fill(broker.bootstrap, "kept", 0, COUNT)
    consumer = librdkafka(broker.bootstrap, "readers", "kept")
    assert sorted(drain(consumer, COUNT)) == list(range(COUNT))
    consumer.commit(asynchronous=False)
    consumer.close()
    broker.stop(signal.SIGKILL)
    broker = start_broker(data=broker.data)
    fill(broker.bootstrap, "kept", COUNT, COUNT + 20)
    consumer = librdkafka(broker.bootstrap, "readers", "kept")
    assert sorted(drain(consumer, 20)) == list(range(COUNT, COUNT + 20))
    consumer.close()


def test_kafka_python_consumes_by_group(broker: BrokerProcess) -> None:
    topic, group = fresh("topic"), fresh("group")
    fill(broker.bootstrap, topic, 0, COUNT)
    for first, last in ((0, COUNT), (COUNT, COUNT + 30)):
        if first:
            fill(broker.bootstrap, topic, first, last)
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        seen: list[int] = []
        deadline = time.monotonic() + AGREEMENT_SECONDS_MAX
        while len(seen) < last - first and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=200).values():
                seen += [int(record.value) for record in records]
        consumer.commit()
        consumer.close()
        assert sorted(seen) == list(range(first, last))


def test_groups_are_listed_described_and_deleted(broker: BrokerProcess) -> None:
    topic, group = fresh("topic"), fresh("group")
    fill(broker.bootstrap, topic, 0, 10)
    consumer = librdkafka(broker.bootstrap, group, topic)
    assert len(drain(consumer, 10)) == 10
    consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    listing = admin.list_consumer_groups()
    assert group in [listed.group_id for listed in listing.result(10).valid]
    describing = admin.describe_consumer_groups([group])
    described = describing[group].result(10)
    assert described.state == ConsumerGroupState.STABLE
    assert len(described.members) == 1
    consumer.close()
    asking = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    assert sum(p.offset for p in asking[group].result(10).topic_partitions) == 10
    deleting = admin.delete_consumer_groups([group])
    deleting[group].result(10)
    listing = admin.list_consumer_groups()
    assert group not in [listed.group_id for listed in listing.result(10).valid]


def test_a_topic_made_again_has_no_offsets_of_the_old_one(broker: BrokerProcess) -> None:
    topic, group = fresh("topic"), fresh("group")
    fill(broker.bootstrap, topic, 0, 10)
    consumer = librdkafka(broker.bootstrap, group, topic)
    assert len(drain(consumer, 10)) == 10
    consumer.commit(asynchronous=False)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    deleting = admin.delete_topics([topic])
    deleting[topic].result(10)
    fill(broker.bootstrap, topic, 0, 5)
    consumer = librdkafka(broker.bootstrap, group, topic)
    assert sorted(drain(consumer, 5)) == list(range(5))
    consumer.close()
