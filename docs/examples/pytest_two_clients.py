"""A test that produces by librdkafka beside a record of the fixture."""

from confluent_kafka import Producer


def test_orders(kafka_broker):
    kafka_broker.create_topic("orders", partitions=3, records=["first"])
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    producer.produce("orders", b"second")
    producer.flush()
    kafka_broker.wait_for_records("orders", 2)
    assert {record.value for record in kafka_broker.records("orders")} == {b"first", b"second"}
