"""Client quotas, as stock clients see them: librdkafka, kafka-python, and connections over bare sockets."""

from __future__ import annotations

import json
import select
import socket
import urllib.request
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Partition
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient

from barnabas.wire.generated.alter_client_quotas import AlterClientQuotasRequest
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.describe_client_quotas import DescribeClientQuotasRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.support.raw_client import RawClient

from .conftest import BrokerProcess, StartBroker

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore")]

QUOTA = 20_000
RECORD = bytes(QUOTA * 13)
"""By itself more than a client may send or fetch at once: ten seconds' worth."""
SECONDS_MAX = 60


def limit(bootstrap: str, kind: str, name: str | None, **quotas: float) -> None:
    """Set quotas of one entity, None for the default one."""
    entry = AlterClientQuotasRequest.EntryData(
        entity=[AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name)],
        ops=[AlterClientQuotasRequest.OpData(key=key, value=value) for key, value in quotas.items()],
    )
    with RawClient(bootstrap) as client:
        answer = client.ask(AlterClientQuotasRequest(entries=[entry]), 1)
    assert [entry.error_code for entry in answer.entries] == [0]


def name_of(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


class Throttled:
    """Throttling as librdkafka tells of it: to its callback, and in its statistics."""

    def __init__(self) -> None:
        self.times_s: list[float] = []
        self.statistics_ms = 0

    def settings(self, broker: BrokerProcess, client_id: str) -> dict[str, object]:
        return {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "statistics.interval.ms": 100,
            "throttle_cb": lambda event: self.times_s.append(event.throttle_time),
            "stats_cb": self._read,
        }

    def _read(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self.statistics_ms = max(self.statistics_ms, *(broker["throttle"]["max"] for broker in brokers))

    def wait(self, poll: Callable[[float], object]) -> None:
        """Poll until both have said so."""
        for _ in range(SECONDS_MAX * 10):
            if self.times_s and max(self.times_s) > 0 and self.statistics_ms > 0:
                return
            poll(0.1)
        raise AssertionError(f"callback: {self.times_s} s, statistics: {self.statistics_ms} ms")


def test_librdkafka_reports_throttling_of_produce_and_fetch(broker: BrokerProcess) -> None:
    client_id, topic = name_of("rdkafka"), name_of("t")
    limit(broker.bootstrap, "client-id", client_id, producer_byte_rate=QUOTA, consumer_byte_rate=QUOTA)
    seen = Throttled()
    producer = Producer(seen.settings(broker, client_id))
    producer.produce(topic, RECORD)
    assert producer.flush(SECONDS_MAX) == 0
    seen.wait(producer.poll)

    seen = Throttled()
    consumer = Consumer({**seen.settings(broker, client_id), "group.id": topic})
    consumer.assign([Partition(topic, 0, 0)])
    message = consumer.poll(SECONDS_MAX)
    assert message is not None
    assert message.value() == RECORD
    seen.wait(consumer.poll)
    consumer.close()


def test_client_over_its_request_quota_is_throttled(broker: BrokerProcess) -> None:
    client_id, topic = name_of("busy"), name_of("t")
    limit(broker.bootstrap, "client-id", client_id, request_percentage=0.01)
    seen = Throttled()
    producer = Producer(seen.settings(broker, client_id))
    for _ in range(1000):
        producer.produce(topic, b"one")
        assert producer.flush(SECONDS_MAX) == 0
        if any(seen.times_s):
            break
    seen.wait(producer.poll)


def test_kafka_python_shows_throttle_times_in_its_metrics(broker: BrokerProcess) -> None:
    client_id, topic = name_of("python"), name_of("t")
    limit(broker.bootstrap, "client-id", client_id, producer_byte_rate=QUOTA, consumer_byte_rate=QUOTA)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, client_id=client_id, linger_ms=0)
    producer.send(topic, RECORD).get(SECONDS_MAX)
    assert producer.metrics()["producer-metrics"]["throttle-time-max"] > 0
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, client_id=client_id)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    assert consumer.poll(timeout_ms=SECONDS_MAX * 1000)
    assert consumer.metrics()["consumer-metrics"]["throttle-time-max"] > 0
    consumer.close()


def test_topics_beyond_the_quota_are_refused_until_there_is_room(broker: BrokerProcess) -> None:
    client_id = name_of("admin")
    settings = {"bootstrap_servers": broker.bootstrap, "client_id": client_id}
    limit(broker.bootstrap, "client-id", client_id, controller_mutation_rate=2)

    def code_of(admin: KafkaAdminClient, name: str, partitions: int = 1) -> int:
        topic = {name: {"num_partitions": partitions, "replication_factor": 1}}
        (result,) = admin.create_topics(topic, raise_errors=False)["topics"]
        code: int = result["error_code"]
        return code

    admin = KafkaAdminClient(**settings)
    assert code_of(admin, name_of("t"), 200) == 0  # more than there is room for, and the bucket was full
    refused = name_of("t")
    assert code_of(admin, refused) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    admin.close()
    limit(broker.bootstrap, "client-id", client_id, controller_mutation_rate=1_000_000)
    again = KafkaAdminClient(**settings)  # the connection before is muted for as long as it was throttled
    assert code_of(again, refused) == 0
    again.close()


def test_metrics_show_throttling_and_quotas_survive_restart(start_broker: StartBroker) -> None:
    broker = start_broker("metrics.listener=127.0.0.1:0")
    limit(broker.bootstrap, "user", "ANONYMOUS", producer_byte_rate=1000)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "p"})
    producer.produce("t", bytes(11_000))
    assert producer.flush(SECONDS_MAX) == 0
    with urllib.request.urlopen(broker.metrics_url) as answer:
        lines = answer.read().decode().splitlines()
    assert any(
        line.startswith("kafka_server_produce_throttles_total{")
        and 'user="ANONYMOUS"' in line
        and float(line.rpartition(" ")[2]) == 1
        for line in lines
    ), [line for line in lines if "throttle" in line]
    broker.stop()
    again = start_broker(data=broker.data)
    with RawClient(again.bootstrap) as client:
        answer = client.ask(DescribeClientQuotasRequest(components=[], strict=False), 1)
    (entry,) = answer.entries
    assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("user", "ANONYMOUS")]
    assert [(value.key, value.value) for value in entry.values] == [("producer_byte_rate", 1000.0)]


def test_connections_beyond_the_quota_of_an_address_are_closed(start_broker: StartBroker) -> None:
    broker = start_broker()  # ten seconds' worth at once
    limit(broker.bootstrap, "ip", "127.0.0.1", connection_creation_rate=1)
    host, _, port = broker.bootstrap.rpartition(":")
    waiting = {socket.create_connection((host, int(port)), SECONDS_MAX) for _ in range(30)}
    closed = 0
    while closed < 10:
        readable, _, _ = select.select(waiting, [], [], SECONDS_MAX)
        assert readable, f"{closed} connections were closed"
        for sock in readable:
            with sock:
                assert sock.recv(1) == b""
            waiting.remove(sock)
            closed += 1
    served = 0
    for sock in waiting:
        with RawClient(broker.bootstrap, sock) as client:
            served += client.ask(ApiVersionsRequest(), 0) is not None
    assert 9 <= served <= 20
    assert "come faster than its quota allows" in broker.said()
