"""A stock client that logs in over TLS."""

from confluent_kafka import Producer

from barnabas.testing import secured


def test_orders(kafka_start, tmp_path):
    security = secured("SASL_SSL", tmp_path)
    broker = kafka_start(security.settings)
    broker.create_topic("orders")
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": security.protocol,
        "ssl.ca.location": str(security.authority),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": security.passwords["alice"],
    }
    producer = Producer(settings)
    producer.produce("orders", b"first")
    producer.flush()
    assert [request.principal for request in broker.requests("Produce")] == ["User:alice"]
