"""A broker with two log dirs, one of which is left out at the next start, as librdkafka sees it."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .conftest import StartBroker

pytestmark = pytest.mark.e2e

TOPIC, PARTITIONS = "topic", 4


def produce(bootstrap: str, value: bytes, partitions: set[int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in partitions:
        producer.produce(TOPIC, value, partition=partition)
    assert producer.flush(20) == 0


def values(bootstrap: str, partitions: set[int]) -> dict[int, list[bytes | None]]:
    """The values in these partitions, up to their ends."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in partitions])
    result: dict[int, list[bytes | None]] = {partition: [] for partition in partitions}
    ended: set[int | None] = set()
    while ended != partitions:
        message: Message | None = consumer.poll(20)
        assert message is not None
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
        else:
            result[message.partition() or 0].append(message.value())
    consumer.close()
    return result


def test_partitions_of_a_lost_log_dir_stay_offline(start_broker: StartBroker, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    broker = start_broker(f"log.dirs={first},{second}")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(20)
    everything = set(range(PARTITIONS))
    produce(broker.bootstrap, b"before", everything)
    lost = {partition for partition in everything if (second / f"{TOPIC}-{partition}").is_dir()}
    assert 0 < len(lost) < PARTITIONS
    broker.stop()

    broker = start_broker(f"log.dirs={first}")
    client = {"bootstrap.servers": broker.bootstrap}
    admin = AdminClient(client)
    described = admin.list_topics(TOPIC, timeout=20).topics[TOPIC].partitions
    assert {partition: description.leader for partition, description in described.items()} == {
        partition: -1 if partition in lost else 1 for partition in everything
    }
    refused: list[KafkaError | None] = []
    producer = Producer({**client, "message.timeout.ms": 1500})
    producer.produce(TOPIC, b"x", partition=min(lost), on_delivery=lambda error, _: refused.append(error))
    producer.flush(20)
    assert [error is not None and error.code() for error in refused] == [KafkaError._MSG_TIMED_OUT]
    produce(broker.bootstrap, b"meanwhile", everything - lost)

    def elect(kind: ElectionType) -> dict[int, KafkaError | None]:
        requested = [TopicPartition(TOPIC, partition) for partition in sorted(lost)]
        return {
            place.partition: error for place, error in admin.elect_leaders(kind, requested).result(20).items()
        }

    for error in elect(ElectionType.PREFERRED).values():
        assert error is not None
        assert error.code() == KafkaError.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(ElectionType.UNCLEAN) == dict.fromkeys(lost)
    produce(broker.bootstrap, b"after", everything)
    assert values(broker.bootstrap, everything) == {
        partition: [b"after"] if partition in lost else [b"before", b"meanwhile", b"after"]
        for partition in everything
    }
