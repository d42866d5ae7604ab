"""More partitions and connections than there may be open files: nothing is lost, and nobody is told lies."""

from __future__ import annotations

import signal
import socket
from contextlib import ExitStack

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .conftest import PROGRAM, BrokerProcess, StartBroker

pytestmark = pytest.mark.e2e

FILES_MAX = 256
PARTITIONS = 150
FEW_FILES = ("bash", "-c", f'ulimit -n {FILES_MAX}; exec "$@"', "-", *PROGRAM)


def produce_to_all(producer: Producer, topic: str, value: bytes) -> None:
    """A record to each partition; each must be acknowledged at the first attempt."""
    errors: list[KafkaError] = []
    delivered: list[int] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            delivered.append(message.partition() or 0)

    for partition in range(PARTITIONS):
        producer.produce(topic, value, partition=partition, on_delivery=report)
    assert producer.flush(60) == 0
    assert errors == []
    assert sorted(delivered) == list(range(PARTITIONS))


def read_all(bootstrap: str, topic: str, count: int) -> dict[int, list[bytes]]:
    """The values of each partition, in order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    seen: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
    for _ in range(count):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None, message.error()
        seen[message.partition() or 0].append(message.value() or b"")
    consumer.close()
    return seen


def crowd(broker: BrokerProcess, count: int, stack: ExitStack) -> None:
    """So many connections that say nothing."""
    host, port = broker.bootstrap.rsplit(":", 1)
    for _ in range(count):
        stack.enter_context(socket.create_connection((host, int(port)), timeout=10))


def test_few_open_files_are_enough_for_many_partitions_and_connections(start_broker: StartBroker) -> None:
    broker = start_broker(program=FEW_FILES)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "retries": 0})
    produce_to_all(producer, "t", b"before")
    with ExitStack() as stack:
        crowd(broker, FILES_MAX, stack)
        produce_to_all(producer, "t", b"x" * 100_000)  # each answer of a fetch is a region of a file
        assert "the system allows" in broker.said()
    values = [b"before", b"x" * 100_000]
    assert read_all(broker.bootstrap, "t", 2 * PARTITIONS) == dict.fromkeys(range(PARTITIONS), values)
    assert "offline" not in broker.said()
    broker.stop(signal.SIGKILL)

    again = start_broker(data=broker.data, program=FEW_FILES)
    assert read_all(again.bootstrap, "t", 2 * PARTITIONS) == dict.fromkeys(range(PARTITIONS), values)
    assert again.stop() == 0
