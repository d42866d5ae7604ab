"""kafka-python from 1.4 to 3: producer, consumer and admin client as its documentation shows them."""

from __future__ import annotations

import kafka
from harness import (
    COUNT,
    PARTITIONS,
    TIME_ZERO_MS,
    Cases,
    Check,
    interop_topics,
    outlive_broker,
    records,
    share_topic_in_group,
    until,
)
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError
from secured import kafka_python as security

MAJOR = int(kafka.__version__.split(".")[0])
LACKS = {"consume-group-848": "kafka-python knows the classic group protocol only"}
if MAJOR < 2:
    LACKS["produce-zstd"] = "kafka-python 1.4 does not know zstd"
if MAJOR < 3:
    LACKS["idempotent-produce"] = "kafka-python has an idempotent producer since 2.1"
    LACKS["transactions"] = "kafka-python has transactions since 2.1"
cases = Cases(lacks=LACKS)


def token_provider(token: str) -> object:
    """The object that gives kafka-python a token."""
    if MAJOR < 3:
        from kafka.oauth import AbstractTokenProvider
    else:
        from kafka.net.sasl.oauth import AbstractTokenProvider

    class Given(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token

    return Given()


def connection() -> dict[str, object]:
    """Settings with which each client connects."""
    return {"bootstrap_servers": cases.bootstrap, **security(token_provider)}


def create(topic: str, partitions: int = PARTITIONS) -> str:
    admin = KafkaAdminClient(**connection())
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    admin.close()
    # Kafka answers NOT_LEADER for a moment after the creation; a retry then may reorder records.
    consumer = KafkaConsumer(**connection())
    consumer.end_offsets([TopicPartition(topic, number) for number in range(partitions)])
    consumer.close()
    return topic


def send(producer: KafkaProducer, topic: str, first: int, last: int, *, timestamps: bool = False) -> None:
    sent = []
    for record in records(first, last):
        when = {"timestamp_ms": TIME_ZERO_MS + record.number * 1000} if timestamps else {}
        sent.append(producer.send(topic, key=record.key, value=record.value, headers=record.headers, **when))
    producer.flush()
    for future in sent:
        metadata = future.get(timeout=30)
        assert metadata.topic == topic


def produce(topic: str, first: int, last: int, *, timestamps: bool = False, **options: object) -> None:
    producer = KafkaProducer(**connection(), **options)
    send(producer, topic, first, last, timestamps=timestamps)
    producer.close()


def read(topic: str, count: int, *, headers: bool = True, **options: object) -> Check:
    """Read a whole topic without a group."""
    check = Check(headers)
    consumer = KafkaConsumer(topic, **connection(), auto_offset_reset="earliest", group_id=None, **options)

    def poll() -> None:
        for batch in consumer.poll(timeout_ms=500).values():
            for message in batch:
                check.add(message.partition, message.offset, message.key, message.value, message.headers)

    until(lambda: len(check.placed) >= count, poll, f"{count} records of {topic}")
    consumer.close()
    return check


@cases.case("create-topic")
def create_topic() -> str:
    topic = create(cases.topic("create-topic"))
    consumer = KafkaConsumer(**connection())
    until(
        lambda: consumer.partitions_for_topic(topic) == set(range(PARTITIONS)),
        lambda: consumer.poll(100),
        "the new topic is in the metadata",
    )
    consumer.close()
    return f"{PARTITIONS} partitions"


def produce_case(codec: str) -> str:
    topic = create(cases.topic(f"produce-{codec}"))
    produce(topic, 0, COUNT, compression_type=None if codec == "none" else codec)
    read(topic, COUNT).finish(range(COUNT))
    return f"{COUNT} records"


for _codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    cases.case(f"produce-{_codec}")(lambda codec=_codec: produce_case(codec))


class Member:
    """A consumer that subscribes and lets the client commit for it."""

    def __init__(self, topic: str, group: str) -> None:
        self.consumer = KafkaConsumer(
            topic,
            **connection(),
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=300,
        )

    def poll(self) -> list[tuple[object, ...]]:
        # A second: 3.0 forgets an assignment that comes just when the time of a poll is over (FINDINGS.md).
        batches = self.consumer.poll(timeout_ms=1000)
        return [
            (m.partition, m.offset, m.key, m.value, m.headers) for batch in batches.values() for m in batch
        ]

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


@cases.case("consume-group")
def consume_group() -> str:
    topic, group = create(cases.topic("consume-group")), cases.topic("group")
    return share_topic_in_group(lambda: Member(topic, group), lambda first, last: produce(topic, first, last))


def read_and_commit(topic: str, group: str, check: Check, goal: int) -> None:
    consumer = KafkaConsumer(
        topic,
        **connection(),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )

    def poll() -> None:
        for batch in consumer.poll(timeout_ms=500, max_records=500).values():
            for m in batch:
                check.add(m.partition, m.offset, m.key, m.value, m.headers)

    until(lambda: len(check.placed) >= goal, poll, f"{goal} records")
    consumer.commit()
    for partition in consumer.assignment():
        assert consumer.committed(partition) == consumer.position(partition), partition
    consumer.close()


@cases.case("commit-resume")
def commit_resume() -> str:
    topic, group = create(cases.topic("commit-resume")), cases.topic("resume")
    produce(topic, 0, COUNT)
    check = Check()
    read_and_commit(topic, group, check, COUNT // 3)
    before = len(check.placed)
    read_and_commit(topic, group, check, COUNT)
    check.finish(range(COUNT))
    return f"{before} records, commit, restart, {COUNT - before} more"


class OpenProducer:
    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.producer = KafkaProducer(**connection(), max_in_flight_requests_per_connection=1, acks="all")

    def send(self, first: int, last: int) -> None:
        send(self.producer, self.topic, first, last)

    def close(self) -> None:
        self.producer.close()


class LastingMember(Member):
    """A member that outlives its broker: `poll` may raise errors that are marked as retriable meanwhile."""

    def poll(self) -> list[tuple[object, ...]]:
        try:
            return super().poll()
        except KafkaError as error:
            if not error.retriable:
                raise
            return []


def broker_case(how: str) -> str:
    topic, group = create(cases.topic(f"broker-{how}")), cases.topic(f"broker-{how}-group")
    return outlive_broker(
        how,
        OpenProducer(topic),
        lambda: LastingMember(topic, f"{group}-stays"),
        lambda check, goal: read_and_commit(topic, group, check, goal),
    )


cases.case("broker-restart")(lambda: broker_case("term"))
cases.case("broker-kill")(lambda: broker_case("kill"))


@cases.case("read-by-timestamp")
def read_by_timestamp() -> str:
    topic = create(cases.topic("read-by-timestamp"))
    produce(topic, 0, 1000, timestamps=True)
    consumer = KafkaConsumer(**connection())
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    consumer.assign(partitions)
    assert consumer.offsets_for_times(dict.fromkeys(partitions, TIME_ZERO_MS + 1000 * 1000)) == dict.fromkeys(
        partitions
    )
    offsets = consumer.offsets_for_times(dict.fromkeys(partitions, TIME_ZERO_MS + 500 * 1000 - 1))
    for partition, place in offsets.items():
        assert place.timestamp >= TIME_ZERO_MS + 500 * 1000, place
        consumer.seek(partition, place.offset)
    check = Check()

    def poll() -> None:
        for batch in consumer.poll(timeout_ms=500).values():
            for m in batch:
                number = check.add(m.partition, m.offset, m.key, m.value, m.headers)
                assert m.timestamp == TIME_ZERO_MS + number * 1000, m

    until(lambda: len(check.placed) >= 500, poll, "the younger half")
    consumer.close()
    check.finish(range(500, 1000))
    return "offsets of the 501st record on, read from there"


@cases.case("acks")
def acks() -> str:
    for level in (0, 1, "all"):
        topic = create(cases.topic(f"acks-{level}"))
        produce(topic, 0, 500, acks=level, **({"enable_idempotence": False} if MAJOR > 2 else {}))
        read(topic, 500).finish(range(500))
    return "500 records with each of 0, 1, all"


if MAJOR > 2:

    @cases.case("idempotent-produce")
    def idempotent_produce() -> str:
        topic = create(cases.topic("idempotent"))
        produce(topic, 0, COUNT, enable_idempotence=True, acks="all")
        read(topic, COUNT).finish(range(COUNT))
        return f"{COUNT} records"

    @cases.case("transactions")
    def transactions() -> str:
        topic = create(cases.topic("transactions"))
        producer = KafkaProducer(**connection(), transactional_id=cases.topic("txn"))
        producer.init_transactions()
        for first, last, commit in ((0, 500, True), (500, 1000, False), (1000, 1500, True)):
            producer.begin_transaction()
            for record in records(first, last):
                producer.send(topic, key=record.key, value=record.value, headers=record.headers)
            if commit:
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()
        producer.close()
        committed = read(topic, 1000, isolation_level="read_committed")
        committed.finish([*range(500), *range(1000, 1500)])
        read(topic, 1500).finish(range(1500))
        return "two committed, one aborted, of 500 records each"


@cases.case("admin")
def administer() -> str:
    if MAJOR > 2:
        from kafka_python_admin import administer
    else:
        from kafka_python_admin_old import administer
    topic, group = create(cases.topic("admin")), cases.topic("admin-group")
    produce(topic, 0, 300)
    consumer = KafkaConsumer(topic, **connection(), group_id=group, auto_offset_reset="earliest")
    batches: list[object] = []
    until(lambda: bool(batches), lambda: batches.extend(consumer.poll(timeout_ms=300)), "something read")
    consumer.close()
    return administer(connection(), topic, group)


@cases.case("interop")
def interop() -> str:
    topics = interop_topics()
    for topic, count, headers in topics:
        try:
            read(topic, count, headers=headers).finish(range(count))
        except AssertionError as error:
            raise AssertionError(f"{topic}: {error}") from error
    return f"{len(topics)} topics of other clients"


@cases.case("delete-topic")
def delete_topic() -> str:
    topic = create(cases.topic("delete-topic"))
    produce(topic, 0, 100)
    admin = KafkaAdminClient(**connection())
    admin.delete_topics([topic])
    admin.close()
    consumer = KafkaConsumer(**connection())
    until(lambda: topic not in consumer.topics(), lambda: None, "the topic is gone", 20)
    consumer.close()
    return "gone"


if __name__ == "__main__":
    cases.main()
