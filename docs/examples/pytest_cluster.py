"""A cluster whose leader is killed while a stock client produces."""

from confluent_kafka import Producer


def test_orders_arrive_without_the_leader(kafka_cluster):
    kafka_cluster.create_topic("orders", partitions=1)
    kafka_cluster.move_leader("orders", 0, leader=2)
    kafka_cluster.kill(2)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap, "acks": "all"})
    producer.produce("orders", b"first")
    assert producer.flush(30) == 0
    assert kafka_cluster.leaders("orders")[0] in (1, 3)
