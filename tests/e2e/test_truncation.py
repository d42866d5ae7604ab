"""Log truncation under a stock client: a consumer that has read what a kill and a cut have taken learns of it (KIP-320)."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from barnabas.records.batch import iter_batches

from .conftest import BrokerProcess, StartBroker

pytestmark = pytest.mark.e2e

READ, LOST, NEW = 20, 5, 10
WAIT_SECONDS = 30


def produce(bootstrap: str, *values: str) -> None:
    """Send values as one batch, more or less."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100})
    for value in values:
        producer.produce("t", value.encode(), partition=0)
    assert producer.flush(WAIT_SECONDS) == 0


def cut_last_batches(data: Path, first_lost: int) -> None:
    """Cut off all batches from an offset on."""
    (path,) = (data / "t-0").glob("*.log")
    (position,) = (at for at, header in iter_batches(path.read_bytes()) if header.base_offset == first_lost)
    os.truncate(path, position)


def consumer_at_end(bootstrap: str, reset: str) -> Consumer:
    """A consumer that has read all that there is."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
            "topic.metadata.refresh.interval.ms": 200,
            "reconnect.backoff.max.ms": 200,
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    assert len(read(consumer, READ)) == READ
    return consumer


def read(consumer: Consumer, count: int) -> dict[int, str]:
    """Read so many records; the values by offset. An error of the partition is raised."""
    result: dict[int, str] = {}
    until = time.monotonic() + WAIT_SECONDS
    while len(result) < count and time.monotonic() < until:
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            if error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                continue
            raise PartitionError(error)
        result[message.offset() or 0] = (message.value() or b"").decode()
    return result


class PartitionError(Exception):
    """The consumer has met an error of its partition."""


def lose_tail(broker: BrokerProcess, start: StartBroker) -> BrokerProcess:
    """Kill the broker, cut off what was written last, start it again and write other records there."""
    broker.stop(signal.SIGKILL)
    cut_last_batches(broker.data, READ - LOST)
    again = start(data=broker.data, listen=broker.bootstrap)
    produce(again.bootstrap, *(f"new {n}" for n in range(NEW)))
    return again


@pytest.mark.parametrize("reset", ["earliest", "error"])
def test_librdkafka_learns_that_what_it_has_read_is_lost(start_broker: StartBroker, reset: str) -> None:
    broker = start_broker()
    for at in range(0, READ, LOST):
        produce(broker.bootstrap, *(f"old {at + n}" for n in range(LOST)))
    consumer = consumer_at_end(broker.bootstrap, reset)
    try:
        lose_tail(broker, start_broker)
        if reset == "error":
            with pytest.raises(PartitionError) as met:
                read(consumer, 1)
            assert "truncation detected at offset 20" in str(met.value)
            assert "broker end offset is 15" in str(met.value)
        else:  # it goes back to where the logs part
            assert read(consumer, NEW) == {READ - LOST + n: f"new {n}" for n in range(NEW)}
    finally:
        consumer.close()
