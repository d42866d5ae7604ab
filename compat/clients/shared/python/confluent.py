"""confluent-kafka (librdkafka): producer, consumer and admin client as its documentation shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from harness import (
    COUNT,
    PARTITIONS,
    TIME_ZERO_MS,
    Cases,
    Check,
    becomes,
    interop_topics,
    outlive_broker,
    records,
    share_topic_in_group,
    until,
)
from secured import confluent as security

TIMEOUT_S = 30
VERSION = tuple(map(int, confluent_kafka.libversion()[0].split(".")[:2]))
LACKS = {}
if VERSION < (2, 10):
    LACKS["consume-group-848"] = "librdkafka knows KIP-848 since 2.10"
# Errors of a partition without a leader, or with a leader that the client does not know yet.
NOT_YET = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
}
cases = Cases(lacks=LACKS)
Client = TypeVar("Client", AdminClient, Consumer)


def connection() -> dict[str, object]:
    """Settings with which each client connects."""
    return {"bootstrap.servers": cases.bootstrap, **security()}


def with_token(client: Client) -> Client:
    """Return a client that has its token: only poll calls `oauth_cb` (confluent-kafka-python issue 1713)."""
    if "oauth_cb" in connection():
        client.poll(0)
    return client


def admin_client() -> AdminClient:
    return with_token(AdminClient({**connection()}))


def create(topic: str, partitions: int = PARTITIONS) -> str:
    admin = admin_client()  # must outlive the future, or librdkafka cancels it
    created = admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    created[topic].result(TIMEOUT_S)
    _wait_until_led(topic, partitions)
    return topic


def _wait_until_led(topic: str, partitions: int) -> None:
    """Kafka answers NOT_LEADER for a moment after the creation; a retry then may reorder records."""
    consumer = group_consumer(cases.topic("unused"))
    waiting = set(range(partitions))

    def look() -> None:
        try:
            number = min(waiting)
            consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)
            waiting.remove(number)
        except KafkaException as error:
            if error.args[0].code() not in NOT_YET:
                raise

    until(lambda: not waiting, look, f"leaders for {topic}")
    consumer.close()


def send(
    producer: Producer, topic: str, first: int, last: int, *, timestamps: bool = False
) -> Callable[[], None]:
    """Queue records; the returned function checks that each was reported as delivered."""
    delivered: list[Message] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        delivered.append(message)

    for record in records(first, last):
        when = {"timestamp": TIME_ZERO_MS + record.number * 1000} if timestamps else {}
        producer.produce(
            topic, key=record.key, value=record.value, headers=record.headers, on_delivery=report, **when
        )
        producer.poll(0)

    def check() -> None:
        assert producer.flush(TIMEOUT_S) == 0, "not everything was sent"
        assert len(delivered) == last - first, f"{len(delivered)} of {last - first} were delivered"

    return check


def produce(topic: str, first: int, last: int, *, timestamps: bool = False, **options: object) -> None:
    settings = {name.replace("_", "."): value for name, value in options.items()}
    producer = Producer({**connection(), **settings})
    send(producer, topic, first, last, timestamps=timestamps)()


def content(message: Message) -> tuple[object, ...]:
    if message.error() is not None:
        raise KafkaException(message.error())
    return message.partition(), message.offset(), message.key(), message.value(), message.headers()


def consume(consumer: Consumer, most: int = 500, seconds: float = 0.5) -> list[Message]:
    return consumer.consume(most, seconds)


def group_consumer(group: str, **options: object) -> Consumer:
    settings = {name.replace("_", "."): value for name, value in options.items()}
    consumer = Consumer(
        {
            **connection(),
            "group.id": group,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    return with_token(consumer)


def read(topic: str, count: int, *, headers: bool = True, **options: object) -> Check:
    """Read a whole topic with its partitions assigned by hand."""
    check = Check(headers)
    consumer = group_consumer(cases.topic("unused"), enable_auto_commit=False, **options)
    partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])

    def poll() -> None:
        for message in consume(consumer, 2000):
            check.add(*content(message))

    until(lambda: len(check.placed) >= count, poll, f"{count} records of {topic}")
    consumer.close()
    return check


@cases.case("create-topic")
def create_topic() -> str:
    topic = create(cases.topic("create-topic"))
    described = admin_client().list_topics(topic, TIMEOUT_S).topics[topic]
    assert described.error is None, described.error
    assert sorted(described.partitions) == list(range(PARTITIONS)), described.partitions
    try:
        create(topic)
        raise AssertionError("a topic was created twice")
    except KafkaException as error:
        assert error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS, error
    return f"{PARTITIONS} partitions"


def produce_case(codec: str) -> str:
    topic = create(cases.topic(f"produce-{codec}"))
    produce(topic, 0, COUNT, compression_type=codec)
    read(topic, COUNT).finish(range(COUNT))
    return f"{COUNT} records"


for _codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    cases.case(f"produce-{_codec}")(lambda codec=_codec: produce_case(codec))


class Member:
    """A consumer that subscribes and lets the client commit for it."""

    def __init__(self, topic: str, group: str, **options: object) -> None:
        self.consumer = group_consumer(group, **options)
        self.consumer.subscribe([topic])

    def poll(self) -> Iterable[tuple[object, ...]]:
        return [content(message) for message in consume(self.consumer, seconds=0.2)]

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


def group_case(name: str, **options: object) -> str:
    topic, group = create(cases.topic(name)), cases.topic(f"{name}-group")
    return share_topic_in_group(
        lambda: Member(topic, group, **options), lambda first, last: produce(topic, first, last)
    )


@cases.case("consume-group")
def consume_group() -> str:
    return group_case("consume-group", heartbeat_interval_ms=300)


if "consume-group-848" not in LACKS:

    @cases.case("consume-group-848")
    def consume_group_848() -> str:
        return group_case("consume-group-848", group_protocol="consumer")


def read_and_commit(topic: str, group: str, check: Check, goal: int) -> None:
    consumer = group_consumer(group, enable_auto_commit=False)
    consumer.subscribe([topic])

    def poll() -> None:
        for message in consume(consumer):
            check.add(*content(message))

    until(lambda: len(check.placed) >= goal, poll, f"{goal} records")
    for partition in consumer.commit(asynchronous=False):
        assert partition.error is None, partition
    # Where this consumer has read nothing it has no position yet (-1001).
    reached = [place for place in consumer.position(consumer.assignment()) if place.offset >= 0]
    read_so_far = {place.partition: place.offset for place in reached}
    committed = {place.partition: place.offset for place in consumer.committed(reached, TIMEOUT_S)}
    assert committed == read_so_far, (committed, read_so_far)
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
        self.producer = Producer({**connection(), "max.in.flight.requests.per.connection": 1})

    def send(self, first: int, last: int) -> None:
        send(self.producer, self.topic, first, last)()

    def close(self) -> None:
        """Nothing to do: everything was flushed."""


class LastingMember(Member):
    """A member that outlives its broker: the client may report broken connections, but no other error."""

    def poll(self) -> Iterable[tuple[object, ...]]:
        messages = consume(self.consumer, seconds=0.2)
        return [content(message) for message in messages if not _is_about_connections(message)]


def _is_about_connections(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() in {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}


def broker_case(how: str) -> str:
    topic, group = create(cases.topic(f"broker-{how}")), cases.topic(f"broker-{how}-group")
    return outlive_broker(
        how,
        OpenProducer(topic),
        lambda: LastingMember(topic, f"{group}-stays", heartbeat_interval_ms=300),
        lambda check, goal: read_and_commit(topic, group, check, goal),
    )


cases.case("broker-restart")(lambda: broker_case("term"))
cases.case("broker-kill")(lambda: broker_case("kill"))


@cases.case("read-by-timestamp")
def read_by_timestamp() -> str:
    topic = create(cases.topic("read-by-timestamp"))
    produce(topic, 0, 1000, timestamps=True)
    consumer = group_consumer(cases.topic("unused"), enable_auto_commit=False)

    def lookup(timestamp_ms: int) -> list[TopicPartition]:
        lookups = [TopicPartition(topic, number, timestamp_ms) for number in range(PARTITIONS)]
        return consumer.offsets_for_times(lookups, TIMEOUT_S)

    # -1 (OFFSET_END): nothing is that young.
    assert [place.offset for place in lookup(TIME_ZERO_MS + 1000 * 1000)] == [-1] * PARTITIONS
    consumer.assign(lookup(TIME_ZERO_MS + 500 * 1000 - 1))
    check = Check()

    def poll() -> None:
        for message in consume(consumer):
            number = check.add(*content(message))
            assert message.timestamp()[1] == TIME_ZERO_MS + number * 1000, message.timestamp()

    until(lambda: len(check.placed) >= 500, poll, "the younger half")
    consumer.close()
    check.finish(range(500, 1000))
    return "offsets of the 501st record on, read from there"


@cases.case("acks")
def acks() -> str:
    for level in ("0", "1", "all"):
        topic = create(cases.topic(f"acks-{level}"))
        produce(topic, 0, 500, acks=level)
        read(topic, 500).finish(range(500))
    return "500 records with each of 0, 1, all"


@cases.case("idempotent-produce")
def idempotent_produce() -> str:
    topic = create(cases.topic("idempotent"))
    produce(topic, 0, COUNT, enable_idempotence=True)
    read(topic, COUNT).finish(range(COUNT))
    return f"{COUNT} records"


@cases.case("transactions")
def transactions() -> str:
    topic = create(cases.topic("transactions"))
    producer = Producer({**connection(), "transactional.id": cases.topic("txn")})
    producer.init_transactions(TIMEOUT_S)
    for first, last, commit in ((0, 500, True), (500, 1000, False), (1000, 1500, True)):
        producer.begin_transaction()
        send(producer, topic, first, last)()
        if commit:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
    committed = read(topic, 1000)  # librdkafka reads committed unless told otherwise
    committed.finish([*range(500), *range(1000, 1500)])
    read(topic, 1500, isolation_level="read_uncommitted").finish(range(1500))
    return f"two committed, one aborted, of 500 records each; 1000 copied exactly once, {_copy()} aborts"


def _copy() -> int:
    """Copy a topic, offsets and records in one transaction, every third one aborted and done again."""
    source, target = create(cases.topic("copy-source")), create(cases.topic("copy-target"))
    group = cases.topic("copy-group")
    produce(source, 0, 1000)
    producer = Producer({**connection(), "transactional.id": cases.topic("copy")})
    producer.init_transactions(TIMEOUT_S)
    consumer = group_consumer(group, enable_auto_commit=False)
    consumer.subscribe([source])
    copied = batches = aborts = 0

    def step() -> None:
        nonlocal copied, batches, aborts
        batch = consume(consumer, 100)
        if not batch:
            return
        producer.begin_transaction()
        for message in batch:
            producer.produce(target, key=message.key(), value=message.value(), headers=message.headers())
        ends = {message.partition(): message.offset() + 1 for message in batch}
        offsets = [TopicPartition(source, number, offset) for number, offset in ends.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
        batches += 1
        if batches % 3 == 2:
            aborts += 1
            producer.abort_transaction(TIMEOUT_S)
            for message in reversed(batch):
                consumer.seek(TopicPartition(source, message.partition(), message.offset()))
        else:
            producer.commit_transaction(TIMEOUT_S)
            copied += len(batch)

    until(lambda: copied == 1000, step, "1000 records copied")
    committed = consumer.committed(
        [TopicPartition(source, number) for number in range(PARTITIONS)], TIMEOUT_S
    )
    assert sum(max(place.offset, 0) for place in committed) == 1000, committed
    consumer.close()
    read(target, 1000).finish(range(1000))
    return aborts


@cases.case("admin")
def administer() -> str:
    topic, group = create(cases.topic("admin")), cases.topic("admin-group")
    produce(topic, 0, 300)
    admin = admin_client()
    _change_configs(admin, topic)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(TIMEOUT_S)
    until(
        lambda: len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) == 5,
        lambda: None,
        "five partitions",
    )
    consumer = group_consumer(group)
    consumer.subscribe([topic])
    seen: list[Message] = []
    until(lambda: bool(seen), lambda: seen.extend(consume(consumer)), "something read")
    done = "configs, partitions, groups"
    if VERSION >= (2, 6):
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 1), TIMEOUT_S)
        place = TopicPartition(topic, 1, end - 2)
        admin.delete_records([place])[place].result(TIMEOUT_S)
        assert consumer.get_watermark_offsets(TopicPartition(topic, 1), TIMEOUT_S) == (end - 2, end)
        done += ", records"
    consumer.close()
    _delete_group(admin, group)
    if VERSION >= (2, 3):
        cluster = admin.describe_cluster().result(TIMEOUT_S)
        assert cluster.cluster_id, cluster
        assert len(cluster.nodes) >= 1, cluster
        done += ", cluster"
    return done


def _change_configs(admin: AdminClient, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def configs() -> dict[str, str]:
        entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        return {name: entry.value for name, entry in entries.items()}

    def alter(value: str | None) -> None:
        if VERSION >= (2, 2):
            _alter_incrementally(admin, topic, value)
        else:
            values = {"retention.ms": value} if value else {}
            change = ConfigResource(ResourceType.TOPIC, topic, set_config=values)
            admin.alter_configs([change])[change].result(TIMEOUT_S)

    before = configs()
    assert (before["cleanup.policy"], before["retention.ms"]) == ("delete", "604800000"), before
    alter("12345678")
    becomes(configs, {**before, "retention.ms": "12345678"}, "a changed topic config")
    alter(None)
    becomes(configs, before, "the config that was set back")


def _alter_incrementally(admin: AdminClient, topic: str, value: str | None) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry("retention.ms", value, incremental_operation=operation)
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(TIMEOUT_S)


def _delete_group(admin: AdminClient, group: str) -> None:
    def groups() -> set[str]:
        listing = admin.list_consumer_groups().result(TIMEOUT_S)
        assert not listing.errors, listing.errors
        return {entry.group_id for entry in listing.valid}

    assert group in groups()
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert described.state.name == "EMPTY", described.state
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert group not in groups()


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
    admin = admin_client()
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    until(
        lambda: topic not in admin.list_topics(timeout=TIMEOUT_S).topics,
        lambda: None,
        "the topic is gone",
        20,
    )
    return "gone"


if __name__ == "__main__":
    cases.main()
