"""A broker in a process of its own, asked by librdkafka."""

from confluent_kafka import Consumer, Producer

from barnabas.testing import RunningBroker

with RunningBroker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("greetings", b"hello")
    producer.flush()
    group = {"group.id": "test", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **group})
    consumer.subscribe(["greetings"])
    print(consumer.poll(10).value())
    consumer.close()
