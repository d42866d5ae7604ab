"""A test whose topics its marker creates."""

import pytest
from confluent_kafka import Producer


@pytest.mark.kafka(topics={"orders": 3})
def test_orders(kafka_broker):
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    producer.produce("orders", b"first")
    assert producer.flush(10) == 0
    kafka_broker.wait_for_records("orders", 1)
    assert [record.value for record in kafka_broker.records("orders")] == [b"first"]
