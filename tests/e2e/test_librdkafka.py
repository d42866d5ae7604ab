"""librdkafka through confluent-kafka, used as its documentation shows."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

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


def read(bootstrap: str, topic: str, partitions: int, count: int) -> list[int]:
    """Read a topic from its beginning, without a group (the client wants a group's name all the same)."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    seen: list[int] = []
    for _ in range(count + 100):
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
    consumer.close()
    return seen


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_what_is_produced_is_read(broker: BrokerProcess, codec: str, idempotent: bool) -> None:
    topic = fresh("topic")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])[topic].result(10)
    options = {"compression.type": codec, "enable.idempotence": idempotent, "acks": "all"}
    produce(broker.bootstrap, topic, COUNT, **options)
    assert sorted(read(broker.bootstrap, topic, 3, COUNT)) == list(range(COUNT))


def test_the_records_of_one_key_keep_their_order(broker: BrokerProcess) -> None:
    topic = fresh("topic")
    produce(broker.bootstrap, topic, COUNT)
    numbers = read(broker.bootstrap, topic, 1, COUNT)
    assert numbers == sorted(numbers)


def test_settings_are_described_and_altered(broker: BrokerProcess) -> None:
    topic = fresh("topic")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    created = admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "1000000"})])
    created[topic].result(10)
    resource = ConfigResource("topic", topic)
    append = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    resource.add_incremental_config(append)
    altered = admin.incremental_alter_configs([resource])
    altered[resource].result(10)
    plain = ConfigResource("topic", topic)
    described = admin.describe_configs([plain])
    settings = described[plain].result(10)
    assert settings["retention.ms"].value == "1000000"
    assert settings["cleanup.policy"].value == "delete,compact"
    assert settings["segment.bytes"].is_default
    assert list(settings["segment.bytes"].synonyms) == ["log.segment.bytes"]
    # log.retention.ms has no default of its own: log.retention.hours has.
    assert list(settings["retention.ms"].synonyms) == ["retention.ms"]


def test_records_are_deleted_and_partitions_added(broker: BrokerProcess) -> None:
    topic = fresh("topic")
    produce(broker.bootstrap, topic, 100)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    partition = TopicPartition(topic, 0, 40)
    deleted = admin.delete_records([partition])
    assert deleted[partition].result(10).low_watermark == 40
    grown = admin.create_partitions([NewPartitions(topic, 4)])
    grown[topic].result(10)
    metadata = admin.list_topics(topic, 10)
    assert sorted(metadata.topics[topic].partitions) == [0, 1, 2, 3]


def test_a_topic_that_cannot_be_is_refused_with_the_reason(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for new_topic, code in [
        (NewTopic("not a name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic(fresh("topic"), 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic(fresh("topic"), 1, 1, config={"no.such.setting": "1"}), KafkaError.INVALID_CONFIG),
    ]:
        refused = admin.create_topics([new_topic])
        with pytest.raises(KafkaException) as caught:
            refused[new_topic.topic].result(10)
        assert caught.value.args[0].code() == code


def test_a_client_prints_nothing(broker: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    topic = fresh("quiet")
    produce(broker.bootstrap, topic, 10)
    assert sorted(read(broker.bootstrap, topic, 1, 10)) == list(range(10))
    assert capfd.readouterr().err == ""


def test_a_transaction_in_a_topic_with_the_brokers_timestamps(broker: BrokerProcess) -> None:
    topic = fresh("stamped")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {"message.timestamp.type": "LogAppendTime"}
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(30)
    kinds: list[int] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for i in range(2):
        producer.begin_transaction()
        producer.produce(
            topic,
            key=b"k%d" % i,
            value=b"v%d" % i,
            headers=[("h", b"%d" % i)],
            on_delivery=lambda _, message: kinds.append(message.timestamp()[0]),
        )
        producer.commit_transaction(30)
    assert kinds == [TIMESTAMP_LOG_APPEND_TIME] * 2
    assert read(broker.bootstrap, topic, 1, 2) == [0, 1]
