"""A broker with an advanced clock treats its clients and its data as if the time had passed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.tools.control.clock import VirtualClock
from tests.support.hosted import Hosted, hosted

pytestmark = pytest.mark.e2e

PATIENCE_S = 40.0
HOUR_S = 3600.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    settings = {"log.retention.check.interval.ms": "60000", "log.cleaner.backoff.ms": "1000"}
    with hosted(tmp_path_factory.mktemp("clock") / "data", settings, clock=VirtualClock()) as result:
        yield result


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline


def member_of(broker: Hosted, group: str, topic: str) -> tuple[Consumer, list[str]]:
    """A consumer with its partitions, and what it is told about them from then on."""
    told: list[str] = []
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 30_000,
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 200,
        }
    )
    consumer.subscribe(
        [topic],
        on_assign=lambda *_: told.append("assigned"),
        on_lost=lambda *_: told.append("lost"),
        on_revoke=lambda *_: told.append("revoked"),
    )
    until(lambda: consumer.poll(0.1) is None and "assigned" in told)
    told.clear()
    return consumer, told


def now_ms(broker: Hosted) -> int:
    assert broker.host.clock is not None
    return broker.do(broker.host.clock.wall_clock_ms)


def make_topic(broker: Hosted, name: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, config={k.replace("_", "."): v for k, v in settings.items()})])[
        name
    ].result(PATIENCE_S)


def test_a_session_ends_with_the_clock(broker: Hosted) -> None:
    make_topic(broker, "sessions")
    consumer, told = member_of(broker, "lost", "sessions")
    broker.advance(31)
    until(lambda: consumer.poll(0.1) is None and "lost" in told)
    consumer.close()


def test_sessions_of_clients_may_be_kept(broker: Hosted) -> None:
    make_topic(broker, "kept")
    consumer, told = member_of(broker, "kept", "kept")
    joined = len(broker.asked(api="JoinGroup", group="kept"))
    broker.advance(HOUR_S, is_kept=True)
    last = broker.asked(api="Heartbeat", group="kept")[-1].id
    for _ in range(3):
        beat = broker.wait_asked(api="Heartbeat", group="kept", since=last)
        assert not beat.error_codes
        last = beat.id
    consumer.poll(0.1)
    assert told == []
    assert len(broker.asked(api="JoinGroup", group="kept")) == joined
    consumer.close()


def test_a_transaction_times_out(broker: Hosted) -> None:
    make_topic(broker, "transactions")
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "slow", "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("transactions", b"open")
    producer.flush(PATIENCE_S)
    broker.advance(61)

    def commit() -> bool:
        try:
            producer.commit_transaction(PATIENCE_S)
        except KafkaException as error:
            return bool(
                error.args[0].code()
                in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
            )
        return False

    until(lambda: broker.asked(api="Produce", topic="transactions"))
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": "read_committed",
            "auto.offset.reset": "earliest", "enable.partition.eof": True,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition("transactions", 0, 0)])

    def at_end() -> bool:
        message = consumer.poll(0.2)
        if message is None:
            return False
        error = message.error()
        assert error is not None, "a record of a transaction that timed out was read"
        return (
            bool(error.code() == KafkaError._PARTITION_EOF)
            and consumer.position([TopicPartition("transactions", 0)])[0].offset == 2
        )

    until(at_end)
    assert commit()
    consumer.close()


def test_retention_removes_what_is_old(broker: Hosted) -> None:
    make_topic(broker, "old", retention_ms="3600000", segment_ms="60000")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("old", b"1", timestamp=now_ms(broker))
    producer.flush(PATIENCE_S)
    broker.advance(61, is_kept=True)
    producer.produce("old", b"2", timestamp=now_ms(broker))
    producer.flush(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "r"})

    def begins_at() -> int:
        return int(consumer.get_watermark_offsets(TopicPartition("old", 0), PATIENCE_S, False)[0])

    assert begins_at() == 0
    broker.advance(HOUR_S, is_kept=True)
    until(lambda: begins_at() >= 1 or broker.advance(61, is_kept=True))
    consumer.close()


def test_a_clock_that_stands_still_ends_nothing(broker: Hosted, tmp_path: Path) -> None:
    del tmp_path
    make_topic(broker, "still")
    consumer, told = member_of(broker, "still", "still")
    assert broker.host.clock is not None
    broker.do(broker.host.clock.freeze)
    try:
        first = broker.do(broker.host.clock.wall_clock_ms)
        last = broker.asked(api="Heartbeat", group="still")[-1].id
        broker.wait_asked(api="Heartbeat", group="still", since=last)
        assert broker.do(broker.host.clock.wall_clock_ms) == first
    finally:
        broker.do(broker.host.clock.resume)
    assert told == []
    consumer.close()
