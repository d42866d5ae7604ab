"""Stock clients push their metrics (KIP-714), and Prometheus' own parser finds them at the metrics endpoint."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer

from compat.kit.sides import Side
from compat.telemetry.scenarios import subscribe

from .conftest import BrokerProcess, StartBroker

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")
pytest.importorskip("h11", reason="h11 is not installed")
pytest.importorskip(
    "opentelemetry.proto.metrics.v1.metrics_pb2", reason="opentelemetry-proto is not installed"
)

pytestmark = [pytest.mark.e2e]

PATIENCE_SECONDS = 30
RECORDS = 500
Sample = tuple[str, dict[str, str], float]


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker("metrics.listener=127.0.0.1:0", "num.partitions=1")


def samples(broker: BrokerProcess) -> Iterator[Sample]:
    with urllib.request.urlopen(broker.metrics_url, timeout=PATIENCE_SECONDS) as answer:
        text = answer.read().decode()
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def pushed(broker: BrokerProcess) -> list[Sample]:
    return [sample for sample in samples(broker) if sample[0].startswith("org_apache_kafka_")]


def until(is_met: Callable[[], bool], step: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_met():
        assert time.monotonic() < deadline
        step()


def side(broker: BrokerProcess) -> Side:
    return Side("Barnabas", int(broker.bootstrap.rpartition(":")[2]))


PRODUCES = """
import sys, time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1]})
producer.produce("letters", b"x")
assert producer.flush(20) == 0
time.sleep(2)  # telemetry is asked for by a timer
"""


@pytest.mark.parametrize(("option", "is_told"), [("--console", False), ("--metrics", True)])
def test_a_stock_client_is_silent_unless_metrics_are_asked_for(
    start_broker: StartBroker, option: str, is_told: bool
) -> None:
    """librdkafka prints a line for each broker that gives it an id for telemetry, Apache Kafka's with a receiver too."""
    command = [sys.executable, "-c", PRODUCES, start_broker(options=[option, "127.0.0.1:0"]).bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    assert ("GETSUBSCRIPTIONS" in done.stderr) == is_told, done.stderr
    if not is_told:
        assert done.stderr == ""


def test_what_librdkafka_pushes_is_shown(broker: BrokerProcess) -> None:
    assert subscribe(side(broker), "all", {"metrics": "*", "interval.ms": "300"}) == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "klamm"})
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "olga",
            "group.id": "inn",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["letters"])
    expected = {
        ("org_apache_kafka_producer_request_latency_avg", "klamm"),
        ("org_apache_kafka_consumer_fetch_manager_fetch_latency_avg", "olga"),
    }

    def measured() -> set[tuple[str, str]]:
        return {(name, labels["client_id"]) for name, labels, value in pushed(broker) if value > 0}

    def work() -> None:
        producer.produce("letters", value=b"a letter")
        producer.poll(0)
        consumer.poll(0.1)

    until(lambda: measured() >= expected, work)
    for name, labels, _ in pushed(broker):
        assert labels["client_id"] == ("klamm" if "_producer_" in name else "olga")
        assert labels["client_software_name"] == "confluent-kafka-python"
        assert len(labels["client_instance_id"]) == 22
    described = {labels["client_id"] for name, labels, _ in samples(broker) if name.endswith("instance_info")}
    assert described == {"klamm", "olga"}
    consumer.close()


def test_only_what_is_subscribed_to_is_pushed(broker: BrokerProcess) -> None:
    requested = {
        "metrics": "org.apache.kafka.producer.connection",
        "interval.ms": "300",
        "match": "client_id=kla.*",
    }
    assert subscribe(side(broker), "some", requested) == 0
    clients = [
        Producer({"bootstrap.servers": broker.bootstrap, "client.id": name}) for name in ("klamm", "frieda")
    ]

    until(lambda: bool(pushed(broker)), lambda: [client.poll(0.1) for client in clients])
    for name, labels, _ in pushed(broker):
        assert name.startswith("org_apache_kafka_producer_connection")
        assert labels["client_id"] == "klamm"


def test_the_broker_counts_what_clients_do(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 50})
    for number in range(RECORDS):
        producer.produce("letters", value=b"%d" % number)
    assert producer.flush(PATIENCE_SECONDS) == 0
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "inn", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["letters"])
    read: list[object] = []
    until(lambda: len(read) >= RECORDS, lambda: read.extend(consumer.consume(RECORDS, 0.2)))
    consumer.commit(asynchronous=False)
    values = {(name, *sorted(labels.items())): value for name, labels, value in samples(broker)}
    topic = ("topic", "letters")
    assert values["kafka_server_brokertopicmetrics_messagesin_total", topic] == RECORDS
    size = values["kafka_server_brokertopicmetrics_bytesin_total", topic]
    assert size == values["kafka_log_log_size", ("partition", "0"), topic]
    assert values["kafka_server_brokertopicmetrics_bytesout_total", topic] >= size
    assert values["kafka_log_log_logendoffset", ("partition", "0"), topic] == RECORDS
    assert (
        values["kafka_network_requestmetrics_errors_total", ("error", "NONE"), ("request", "Produce")] >= 10
    )
    assert values["kafka_coordinator_group_groupmetadatamanager_numgroupsstable",] == 1
    assert values["kafka_coordinator_group_groupmetadatamanager_numoffsets",] == 1
    assert values["kafka_server_socket_server_metrics_connection_count", ("listener", "PLAINTEXT")] >= 2
    requests = sum(
        value for (name, *_), value in values.items() if name == "kafka_network_requestmetrics_requests_total"
    )
    times = sum(
        value
        for (name, *_), value in values.items()
        if name == "kafka_network_requestmetrics_totaltimems_count"
    )
    assert requests == times > 20
    consumer.close()
