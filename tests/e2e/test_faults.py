"""Stock clients under each fault: librdkafka (confluent-kafka) and kafka-python."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Partition

from tests.support.hosted import Hosted, hosted

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PATIENCE_S = 40.0


@pytest.fixture(scope="module")
def module_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    with hosted(tmp_path_factory.mktemp("faults") / "data") as result:
        yield result


@pytest.fixture
def broker(module_broker: Hosted) -> Iterator[Hosted]:
    yield module_broker
    module_broker.clear()


@pytest.fixture
def topic(broker: Hosted) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 2)])[name].result(PATIENCE_S)
    return name


def produced(broker: Hosted, topic: str, values: list[bytes], **settings: Any) -> list[KafkaError | None]:
    """Produce with librdkafka; returns what each was acknowledged with."""
    errors: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        del message
        errors.append(error)

    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "retry.backoff.ms": 20, **settings}
    )
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        producer.flush(PATIENCE_S)
    return errors


def consumer_of(broker: Hosted, topic: str, **settings: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"g-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.ms": 20,
            "fetch.error.backoff.ms": 20,
            "fetch.wait.max.ms": 50,
            **settings,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def consumed(consumer: Consumer, count: int) -> tuple[list[bytes], list[KafkaError]]:
    """Read until so many records are there; returns their values and the errors on the way."""
    values: list[bytes] = []
    errors: list[KafkaError] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            errors.append(error)
        else:
            values.append(message.value() or b"")
    return values, errors


VALUES = [b"%d" % number for number in range(6)]


@pytest.mark.parametrize(
    "rule",
    [
        "Produce topic={t} times=2 -> error=NOT_LEADER_OR_FOLLOWER",
        "Produce topic={t} times=2 -> error_after=REQUEST_TIMED_OUT",
        "Produce topic={t} nth=2 -> reset=after",
        "Produce topic={t} nth=2 -> close=before",
        "Produce topic={t} nth=2 -> cut=reset",
        "Produce topic={t} nth=2 -> cut=close bytes=6",
        "Produce topic={t} nth=2 -> correlation_id=wrong",
        "Produce topic={t} nth=2 -> garbage=frame",
        "Produce topic={t} nth=2,4 -> twice",
        "Produce topic={t} every=2 -> delay_us_per_byte=500",
        "Produce topic={t} nth=2 -> drop=answer",
        "Produce topic={t} nth=2 -> drop=request",
        "Produce topic={t} every=2 -> delay_ms=20..60",
        "Produce topic={t} every=2 -> hold_ms=20 throttle_ms=30",
        "Produce topic={t} nth=2 -> swap",
    ],
)
def test_idempotent_librdkafka_loses_and_repeats_nothing(broker: Hosted, topic: str, rule: str) -> None:
    name = broker.fault(rule.format(t=topic))
    errors = produced(
        broker,
        topic,
        VALUES,
        **{"enable.idempotence": True, "request.timeout.ms": 500, "socket.timeout.ms": 500},
    )
    assert errors == [None] * len(VALUES)
    assert broker.hits(name) > 0
    consumer = consumer_of(broker, topic)
    assert consumed(consumer, len(VALUES)) == (VALUES, [])
    assert consumer.poll(0.3) is None, "something was appended twice"
    consumer.close()


@pytest.mark.parametrize("how", ["swap", "twice", "garbage=frame", "correlation_id=wrong"])
def test_pipelining_producer_survives_unmatched_responses(broker: Hosted, topic: str, how: str) -> None:
    """Five requests in flight, so that an answer may come after a later one's."""
    name = broker.fault(f"Produce topic={topic} nth=3 -> {how}")
    late = broker.fault(
        f"Produce topic={topic} nth=2,3 -> hold_ms=100"
    )  # until the next ones are on their way
    outcomes: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1,
            "retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "request.timeout.ms": 1000, "socket.timeout.ms": 1000,
        }
    )  # fmt: skip
    values = [b"%d" % number for number in range(20)]
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert outcomes == [None] * len(values)
    assert broker.hits(name) == 1
    assert broker.hits(late) == 2
    consumer = consumer_of(broker, topic)
    assert consumed(consumer, len(values)) == (values, [])
    assert consumer.poll(0.3) is None, "something was appended twice"
    consumer.close()


@pytest.mark.parametrize(
    "how", ["swap", "twice", "garbage=frame", "correlation_id=wrong", "delay_us_per_byte=500", "cut=reset"]
)
def test_a_producer_of_kafka_python_gets_over_it(broker: Hosted, topic: str, how: str) -> None:
    name = broker.fault(f"Produce topic={topic} nth=2,5 -> {how}")
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, linger_ms=0, request_timeout_ms=1000, retry_backoff_ms=20,
        reconnect_backoff_ms=20,
    )  # fmt: skip
    values = [b"%d" % number for number in range(6)]
    for value in values:
        producer.send(topic, value, partition=0).get(PATIENCE_S)
    producer.close()
    assert broker.hits(name) == 2
    consumer = consumer_of(broker, topic)
    assert consumed(consumer, len(values)) == (values, [])
    consumer.close()


@pytest.mark.parametrize("how", ["twice", "swap", "garbage=body", "delay_us_per_byte=20"])
def test_consumers_survive_malformed_fetch_responses(broker: Hosted, topic: str, how: str) -> None:
    produced(broker, topic, VALUES)
    name = broker.fault(f"Fetch topic={topic} times=2 -> {how}")
    consumer = consumer_of(broker, topic, **{"socket.timeout.ms": 1100})
    assert consumed(consumer, len(VALUES))[0] == VALUES
    consumer.close()
    until(lambda: broker.hits(name) > 0)
    again = broker.fault(f"Fetch topic={topic} times=2 -> {how}")
    other = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", request_timeout_ms=1000,
        consumer_timeout_ms=int(PATIENCE_S * 1000), group_id=None,
    )  # fmt: skip
    other.assign([Partition(topic, 0)])
    other.seek_to_beginning()
    assert [next(other).value for _ in VALUES] == VALUES
    other.close()
    assert broker.hits(again) > 0


def test_an_answer_of_garbage_is_an_error_for_its_record_alone(broker: Hosted, topic: str) -> None:
    """librdkafka does not repeat a request that may have been written, and has an unreadable answer."""
    name = broker.fault(f"Produce topic={topic} nth=2 -> garbage=body")
    errors = produced(broker, topic, VALUES, **{"socket.timeout.ms": 2000})
    assert [error is None for error in (errors[0], *errors[2:])] == [True] * (len(VALUES) - 1)
    assert broker.hits(name) == 1
    consumer = consumer_of(broker, topic)
    assert consumed(consumer, len(VALUES)) == (VALUES, [])
    consumer.close()


def test_plain_producer_repeats_unacknowledged_records(broker: Hosted, topic: str) -> None:
    name = broker.fault(f"Produce topic={topic} nth=2 -> reset=after")
    assert produced(broker, topic, VALUES) == [None] * len(VALUES)
    assert broker.hits(name) == 1
    consumer = consumer_of(broker, topic)
    values, _ = consumed(consumer, len(VALUES) + 1)
    assert values == [b"0", b"1", b"1", *VALUES[2:]]
    consumer.close()


def test_an_error_that_is_final_reaches_the_application(broker: Hosted, topic: str) -> None:
    broker.fault(f"Produce topic={topic} partition=0 times=1 -> error=POLICY_VIOLATION")
    errors = produced(broker, topic, VALUES[:3])
    assert [error.code() if error is not None else None for error in errors] == [
        KafkaError.POLICY_VIOLATION,
        None,
        None,
    ]


def test_only_the_partition_that_is_named_fails(broker: Hosted, topic: str) -> None:
    broker.fault(f"Produce topic={topic} partition=1 -> error=TOPIC_AUTHORIZATION_FAILED")
    outcomes = {}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 100})
    for partition in (0, 1):
        producer.produce(
            topic, b"x", partition=partition,
            on_delivery=lambda error, message: outcomes.update({message.partition(): error}),
        )  # fmt: skip
    producer.flush(PATIENCE_S)
    assert outcomes[0] is None
    assert outcomes[1].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    "how", ["crc", "byte", "length", "compression", "count", "count-negative", "count-huge", "truncate"]
)
def test_librdkafka_delivers_nothing_that_is_damaged(broker: Hosted, topic: str, how: str) -> None:
    produced(broker, topic, VALUES[:3])
    name = broker.fault(f"Fetch topic={topic} times=2 -> corrupt={how}")
    consumer = consumer_of(broker, topic, **{"check.crcs": True})
    values: list[bytes] = []
    errors: list[KafkaError] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(values) < 3 and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is None:
            values.append(message.value() or b"")
        else:
            errors.append(error)
    assert broker.hits(name) > 0
    assert set(values) <= set(VALUES), "a damaged record was delivered"
    consumer.close()


def test_answers_without_records_do_not_count_as_damaged(broker: Hosted, topic: str) -> None:
    name = broker.fault("Fetch times=1 -> corrupt=byte")
    since = max((entry.id for entry in broker.asked()), default=0)
    consumer = consumer_of(broker, topic, **{"check.crcs": True})
    consumer.poll(0.1)
    broker.wait_asked(api="Fetch", since=since)
    assert broker.hits(name) == 0
    produced(broker, topic, VALUES[:1])
    deadline = time.monotonic() + PATIENCE_S
    while not broker.hits(name):
        assert time.monotonic() < deadline
        consumer.poll(0.2)
    consumer.close()


@pytest.mark.parametrize("how", ["crc", "byte"])
def test_kafka_python_says_that_a_batch_is_damaged(broker: Hosted, topic: str, how: str) -> None:
    produced(broker, topic, VALUES[:1])
    name = broker.fault(f"Fetch topic={topic} -> corrupt={how}")
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", check_crcs=True,
        consumer_timeout_ms=int(PATIENCE_S * 1000),
    )  # fmt: skip
    with pytest.raises(Exception, match=r"(?i)crc|corrupt"):
        next(consumer)
    assert broker.hits(name) >= 1
    consumer.close()


def test_a_member_that_was_forgotten_joins_again(broker: Hosted, topic: str) -> None:
    produced(broker, topic, VALUES[:1])
    group = f"members-{topic}"
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 100,
            "enable.auto.commit": False,
        }
    )
    revoked: list[str] = []
    consumer.subscribe(
        [topic], on_lost=lambda *_: revoked.append("lost"), on_revoke=lambda *_: revoked.append("revoked")
    )
    values, _ = consumed(consumer, 1)
    assert values == VALUES[:1]
    before = len(broker.asked(api="JoinGroup", group=group))
    name = broker.fault(f"Heartbeat group={group} times=1 -> expire")
    until(lambda: consumer.poll(0.1) is not None or len(broker.asked(api="SyncGroup", group=group)) > 1)
    assert broker.asked(api="Heartbeat", group=group, error_code=25)
    assert broker.hits(name) == 1
    assert len(broker.asked(api="JoinGroup", group=group)) > before
    assert revoked == ["lost"]
    consumer.close()


def test_commit_is_retried_at_the_new_coordinator(broker: Hosted, topic: str) -> None:
    consumer = consumer_of(broker, topic, **{"client.id": f"c-{topic}"})
    group = f"g-{topic}"
    broker.do(lambda: broker.host.faulting.faults.use("moved-coordinator", {"group": group, "times": 1}))
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
            break
        except KafkaException as error:
            is_passing = error.args[0].retriable() or error.args[0].code() == KafkaError.NOT_COORDINATOR
            if not is_passing or time.monotonic() > deadline:
                raise
    result = broker.wait_asked(api="OffsetCommit", group=group, client_id=f"c-{topic}", error_code=16)
    committed = [entry for entry in broker.asked(api="OffsetCommit", group=group) if not entry.error_codes]
    assert committed
    assert committed[-1].id > result.id
    assert committed[-1].request["topics"][0]["partitions"][0]["committed_offset"] == 5
    assert len(broker.asked(api="FindCoordinator", group=group)) > 1
    consumer.close()


def test_metadata_may_be_of_the_past(broker: Hosted, topic: str) -> None:
    past = broker.fault("Metadata -> stale")
    newer = f"{topic}-newer"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(newer, 1)])[newer].result(PATIENCE_S)
    topics = admin.list_topics(timeout=PATIENCE_S).topics
    assert topic in topics
    assert newer not in topics
    assert broker.hits(past) > 0
    broker.clear()
    assert newer in admin.list_topics(timeout=PATIENCE_S).topics


def test_connections_are_refused_and_hang(broker: Hosted, topic: str) -> None:
    refused = broker.fault("connect times=2 -> refuse")
    assert produced(broker, topic, VALUES[:1], **{"reconnect.backoff.ms": 10}) == [None]
    assert broker.hits(refused) == 2
    hung = broker.fault("connect times=1 -> hang")
    settings = {"socket.timeout.ms": 1000, "reconnect.backoff.ms": 10, "api.version.request.timeout.ms": 500}
    assert produced(broker, topic, VALUES[:1], **settings) == [None]
    assert broker.hits(hung) == 1


def test_fields_of_answers_are_set(broker: Hosted, topic: str) -> None:
    broker.fault(
        {
            "on": {"api": "Metadata"},
            "do": {"set": {f"topics[name={topic}].partitions[partition_index=1].error_code": 5}},
        }
    )
    partitions = (
        AdminClient({"bootstrap.servers": broker.bootstrap})
        .list_topics(timeout=PATIENCE_S)
        .topics[topic]
        .partitions
    )
    assert partitions[0].error is None
    assert partitions[1].error is not None
    assert partitions[1].error.code() == KafkaError.LEADER_NOT_AVAILABLE


def test_producer_survives_restart_and_crash_before_response(tmp_path: Path) -> None:
    with hosted(tmp_path / "data") as broker:
        broker.host.faulting.kill = lambda: broker.host.restart_soon(is_clean=False)
        restarted = broker.fault("Produce nth=3 -> restart=after")
        killed = broker.fault("Produce nth=6 -> kill=after")
        settings = {"enable.idempotence": True, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
        assert produced(broker, "t", VALUES, **settings) == [None] * len(VALUES)
        assert broker.hits(restarted) == broker.hits(killed) == 1
        assert broker.host.starts == 3
        consumer = consumer_of(broker, "t")
        assert consumed(consumer, len(VALUES)) == (VALUES, [])
        assert consumer.poll(0.3) is None
        consumer.close()


def test_a_full_disk_is_what_clients_of_a_full_disk_see(tmp_path: Path) -> None:
    with hosted(tmp_path / "data") as broker:
        assert produced(broker, "t", VALUES[:1]) == [None]
        name = broker.fault("disk.write topic=t times=1 -> errno=ENOSPC")
        settings = {"message.timeout.ms": 2000}
        errors = produced(broker, "t", VALUES[1:2], **settings)
        assert broker.hits(name) == 1
        assert errors[0] is None or errors[0].code() in (
            KafkaError._MSG_TIMED_OUT, KafkaError.KAFKA_STORAGE_ERROR, KafkaError.UNKNOWN,
        )  # fmt: skip


def test_a_slow_disk_makes_answers_late(broker: Hosted, topic: str) -> None:
    name = broker.fault(f"disk.write topic={topic} times=1 -> delay_ms=300")
    began = time.monotonic()
    assert produced(broker, topic, VALUES[:1]) == [None]
    assert time.monotonic() - began >= 0.3
    assert broker.hits(name) == 1


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
