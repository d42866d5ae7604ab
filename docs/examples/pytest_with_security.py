"""A stock client that logs in over TLS."""

import pytest
from confluent_kafka import Producer

from barnabas.testing import secured


@pytest.fixture(scope="session")
def security(tmp_path_factory):
    return secured("SASL_SSL", tmp_path_factory.mktemp("security"))


@pytest.fixture(scope="session")
def kafka_settings(security):
    return security.settings


def test_orders(kafka_broker, security):
    kafka_broker.create_topic("orders")
    settings = {
        "bootstrap.servers": kafka_broker.bootstrap,
        "security.protocol": security.protocol,
        "ssl.ca.location": str(security.authority),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": security.passwords["alice"],
    }
    producer = Producer(settings)
    producer.produce("orders", b"first")
    producer.flush()
    assert [request.principal for request in kafka_broker.requests("Produce")] == ["User:alice"]
