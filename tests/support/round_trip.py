"""`python round_trip.py BOOTSTRAP TOPIC`: send one record with librdkafka and read it back; prints "ok" or the error."""

import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

bootstrap, topic = sys.argv[1:]
client = {"bootstrap.servers": bootstrap, "broker.address.family": "v4", "socket.timeout.ms": 3000}
failures = []
producer = Producer({**client, "message.timeout.ms": 3000, "linger.ms": 0})
producer.produce(topic, b"value", on_delivery=lambda error, _: failures.append(error) if error else None)
if producer.flush(15) or failures:
    sys.exit(f"not delivered: {failures}")
consumer = Consumer({**client, "group.id": topic, "auto.offset.reset": "earliest"})
try:
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(15)
    if message is None or message.error() or message.value() != b"value":
        sys.exit(f"not read: {message and message.error()}")
    consumer.commit(message=message, asynchronous=False)
except KafkaException as error:
    sys.exit(str(error))
finally:
    consumer.close()
print("ok")
