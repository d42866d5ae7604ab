"""Save the payments of a topic, each once, read by a group of confluent-kafka."""

import sys

from confluent_kafka import Consumer, KafkaException
from ledger import Ledger

bootstrap, path = sys.argv[1:]
ledger = Ledger(path)


def begin(consumer, partitions):
    for partition in partitions:
        partition.offset = ledger.next_offset(partition.partition)
    consumer.assign(partitions)


consumer = Consumer({
    "bootstrap.servers": bootstrap, "group.id": "ledger", "enable.auto.commit": False,
    "auto.offset.reset": "earliest", "isolation.level": "read_committed", "session.timeout.ms": 6000,
})  # fmt: skip
consumer.subscribe(["payments"], on_assign=begin)
while True:
    messages = consumer.consume(500, timeout=1)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    ledger.save([(m.partition(), m.offset(), m.value()) for m in messages])
