"""Two stock clients and one broker for a test."""

from confluent_kafka import Producer
from kafka import KafkaConsumer


def test_orders(kafka_broker):
    kafka_broker.create_topic("orders", partitions=3, records=["first"])
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    producer.produce("orders", b"second")
    producer.flush()
    consumer = KafkaConsumer("orders", bootstrap_servers=kafka_broker.bootstrap, auto_offset_reset="earliest")
    assert {next(consumer).value for _ in range(2)} == {b"first", b"second"}
    assert kafka_broker.requests("Produce")[0].client_id == "rdkafka"
