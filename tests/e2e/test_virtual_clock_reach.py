"""The clock of a broker reaches locks, tokens, logins, offsets, producer ids, compaction, quotas, members."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.tools.control.clock import VirtualClock
from barnabas.wire.generated.alter_client_quotas import AlterClientQuotasRequest
from barnabas.wire.generated.create_delegation_token import CreateDelegationTokenRequest
from barnabas.wire.generated.describe_delegation_token import DescribeDelegationTokenRequest
from barnabas.wire.generated.describe_producers import DescribeProducersRequest
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest
from tests.support.hosted import Hosted, hosted
from tests.support.raw_client import RawClient

from .test_share_groups import Connection, acquired

pytestmark = pytest.mark.e2e

PATIENCE_S = 60.0
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
PREFIX = "listener.name.sasl_plaintext"
SETTINGS = {
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "60000",
    "offsets.retention.minutes": "60",
    "offsets.retention.check.interval.ms": "60000",
    "group.share.record.lock.duration.ms": "30000",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    with hosted(tmp_path_factory.mktemp("reach") / "data", SETTINGS, clock=VirtualClock()) as result:
        yield result


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def create(broker: Hosted, name: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = NewTopic(name, 1, config={key.replace("_", "."): value for key, value in settings.items()})
    admin.create_topics([topic])[name].result(PATIENCE_S)


def now_ms(broker: Hosted) -> int:
    assert broker.host.clock is not None
    return broker.do(broker.host.clock.wall_clock_ms)


# --- share groups -----------------------------------------------------------------------------------------------------


def test_the_lock_of_records_of_a_share_group_ends(broker: Hosted, name: str) -> None:
    taker, other = Connection(broker.bootstrap), Connection(broker.bootstrap)
    topic = taker.create(name)
    taker.configure(name, share_auto_offset_reset="earliest")
    for member, connection in (("taker", taker), ("other", other)):
        assert connection.join(name, member, name).error_code == 0
    taker.produce(name, 3)
    assert acquired(taker.fetch(name, "taker", 0, topic)) == [(0, 2, 1)]
    assert acquired(other.fetch(name, "other", 0, topic, max_wait_ms=0)) == []
    broker.advance(31, is_kept=True)
    assert acquired(other.fetch(name, "other", 1, topic, max_wait_ms=20_000)) == [(0, 2, 2)]
    for connection in (taker, other):
        connection.close()


# --- logins and tokens ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        f"{PREFIX}.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonder land";'
        ),
        f"{PREFIX}.plain.connections.max.reauth.ms": "600000",
        "delegation.token.secret.key": "a secret",
        "connections.max.idle.ms": "86400000",
    }
    with hosted(tmp_path_factory.mktemp("secured") / "data", settings, clock=VirtualClock()) as result:
        yield result


def log_in(client: RawClient) -> int:
    """Log in, or log in once more; returns the session's life in ms."""
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonder land"), 1)
    assert answer.error_code == 0
    return int(answer.session_lifetime_ms)


def test_a_login_ends_with_the_clock_unless_clients_are_kept(secured: Hosted) -> None:
    with RawClient(secured.bootstrap) as client:
        assert log_in(client) == 600_000
        secured.advance(HOUR_S, is_kept=True)
        assert client.ask(MetadataRequest(topics=[]), 1).brokers
        secured.advance(599, is_kept=False)
        assert log_in(client) == 600_000, "a new login before the last one ends"
        secured.advance(601, is_kept=False)
        assert client.ask(MetadataRequest(topics=[]), 1) is None


def test_librdkafka_logs_in_again_after_its_login_has_ended(secured: Hosted) -> None:
    producer = Producer(
        {
            "bootstrap.servers": secured.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
            "sasl.username": "alice", "sasl.password": "wonder land", "reconnect.backoff.ms": 20,
        }
    )  # fmt: skip
    outcomes: list[KafkaError | None] = []
    for _ in range(2):
        producer.produce("logins", b"x", on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(PATIENCE_S) == 0
        secured.advance(HOUR_S, is_kept=False)
    assert outcomes == [None, None]


def test_a_delegation_token_ends(secured: Hosted) -> None:
    with RawClient(secured.bootstrap) as client:
        log_in(client)
        created = client.ask(CreateDelegationTokenRequest(max_lifetime_ms=int(DAY_S * 1000)), 2)
        assert created.error_code == 0
        assert created.expiry_timestamp_ms - created.issue_timestamp_ms == DAY_S * 1000

        def tokens() -> list[str]:
            return [row.token_id for row in client.ask(DescribeDelegationTokenRequest(owners=None), 2).tokens]

        assert created.token_id in tokens()
        secured.advance(DAY_S + 1, is_kept=True)
        log_in(client)
        until(lambda: created.token_id not in tokens())


# --- what is forgotten ------------------------------------------------------------------------------------------------


def test_offsets_of_a_group_without_members_expire(broker: Hosted, name: str) -> None:
    create(broker, name)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": name, "enable.auto.commit": False}
    )
    partition = TopicPartition(name, 0)
    consumer.commit(offsets=[TopicPartition(name, 0, 5)], asynchronous=False)

    def committed() -> int:
        return int(consumer.committed([partition], PATIENCE_S)[0].offset)

    assert committed() == 5
    broker.advance(59 * MINUTE_S, is_kept=True)
    assert committed() == 5
    broker.advance(2 * MINUTE_S, is_kept=True)
    until(lambda: committed() < 0 or broker.advance(MINUTE_S, is_kept=True))
    consumer.close()


def test_a_producer_id_that_is_not_used_is_forgotten(broker: Hosted, name: str) -> None:
    create(broker, name)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    outcomes: list[KafkaError | None] = []

    def produce() -> None:
        producer.produce(name, b"x", on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(PATIENCE_S) == 0

    def known() -> int:
        topic = DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0])
        with RawClient(broker.bootstrap) as client:
            answer = client.ask(DescribeProducersRequest(topics=[topic]), 0)
        return len(answer.topics[0].partitions[0].active_producers)

    produce()
    assert known() == 1
    broker.advance(DAY_S + 1, is_kept=True)
    until(lambda: known() == 0 or broker.advance(61, is_kept=True))
    produce()
    assert outcomes == [None, None], "and it goes on"


def test_records_are_compacted_when_they_are_old_enough(broker: Hosted, name: str) -> None:
    create(
        broker, name, cleanup_policy="compact", min_compaction_lag_ms="3600000", segment_ms="1000",
        min_cleanable_dirty_ratio="0.0",
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def produce(value: bytes) -> None:
        producer.produce(name, value, key=b"k", timestamp=now_ms(broker))
        assert producer.flush(PATIENCE_S) == 0
        broker.advance(2, is_kept=True)  # each in a segment of its own

    for value in (b"1", b"2", b"3"):
        produce(value)

    def values() -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap, "group.id": "any", "enable.partition.eof": True,
                "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50,
            }
        )  # fmt: skip
        consumer.assign([TopicPartition(name, 0, 0)])
        result: list[bytes] = []
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                consumer.close()
                return result
            result.append(message.value() or b"")

    broker.advance(60, is_kept=True)
    assert values() == [b"1", b"2", b"3"]
    broker.advance(HOUR_S, is_kept=True)
    produce(b"4")
    until(lambda: values() == [b"3", b"4"] or broker.advance(5, is_kept=True))


# --- quotas -----------------------------------------------------------------------------------------------------------


def test_a_quota_is_over_when_its_windows_are(broker: Hosted, name: str) -> None:
    def limit(client: RawClient, value: float, *, remove: bool = False) -> None:
        entity = AlterClientQuotasRequest.EntityData(entity_type="client-id", entity_name="raw")
        change = AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=value, remove=remove)
        entry = AlterClientQuotasRequest.EntryData(entity=[entity], ops=[change])
        assert client.ask(AlterClientQuotasRequest(entries=[entry]), 1).entries[0].error_code == 0

    def produce(client: RawClient, size: int) -> int:
        """Returns for how many ms the client is asked to wait; it is not heard for so long."""
        batch = encode_batch([Record(0, now_ms(broker), None, bytes(size))])
        data = ProduceRequest.PartitionProduceData(index=0, records=batch)
        topic = ProduceRequest.TopicProduceData(name=name, partition_data=[data])
        answer = client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        return int(answer.throttle_time_ms)

    create(broker, name)
    with RawClient(broker.bootstrap) as client, RawClient(broker.bootstrap) as other:
        limit(other, 1000)
        assert produce(client, 100_000) > 5000
        broker.advance(HOUR_S, is_kept=True)
        assert produce(client, 10) == 0
        limit(other, 0, remove=True)


# --- members that are kept --------------------------------------------------------------------------------------------


def test_a_member_of_a_consumer_group_is_kept(broker: Hosted, name: str) -> None:
    """KIP-848: the broker assigns, and counts the member's heartbeats."""
    create(broker, name)
    arguments: list[str] = []
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": name, "group.protocol": "consumer"}
    )
    consumer.subscribe(
        [name], on_assign=lambda *_: arguments.append("assigned"), on_lost=lambda *_: arguments.append("lost"),
        on_revoke=lambda *_: arguments.append("revoked"),
    )  # fmt: skip
    until(lambda: consumer.poll(0.1) is None and "assigned" in arguments)
    broker.advance(DAY_S, is_kept=True)
    last = broker.asked(api="ConsumerGroupHeartbeat", group=name)[-1].id
    result = broker.wait_asked(api="ConsumerGroupHeartbeat", group=name, since=last)
    assert not result.error_codes
    assert arguments == ["assigned"]
    consumer.close()
