"""One worker of the transfers: reads orders, writes their two records and its offsets in a transaction, tells of commits.

    python -m compat.soak.worker BOOTSTRAP NAME ACKNOWLEDGED-FILE

The rule: any error ends the process. Its parent starts it again, and the new instance fences this one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer

ORDERS = "orders"
LEDGER = "ledger"
GROUP = "clerks"
ORDERS_PER_TRANSACTION = 20
TIMEOUT_S = 30
# librdkafka 2.16 can hang for good when it re-bootstraps (KIP-899) in the middle of a transaction: its coordinator request
# then waits on a connection that it has taken out of service.
NO_REBOOTSTRAP = {"metadata.recovery.strategy": "none"}


def work(bootstrap: str, name: str, acknowledged: Path) -> None:
    """Process orders until the process is ended. Raises KafkaException."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 20_000,
            **NO_REBOOTSTRAP,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "group.instance.id": name,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "range",  # all clients have it
            **NO_REBOOTSTRAP,
        }
    )
    consumer.subscribe([ORDERS])
    with acknowledged.open("a", buffering=1) as told:
        while True:
            messages = consumer.consume(ORDERS_PER_TRANSACTION, timeout=0.2)
            if messages:
                numbers = transfer(consumer, producer, messages)
                told.write(" ".join(numbers) + "\n")


def transfer(consumer: Consumer, producer: Producer, messages: list[Message]) -> list[str]:
    """One transaction; returns the numbers of its orders. Raises KafkaException."""
    numbers = []
    producer.begin_transaction()
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
        number, giver, taker, amount = (message.value() or b"").decode().split()
        producer.produce(LEDGER, key=giver, value=f"{number} -{amount}")
        producer.produce(LEDGER, key=taker, value=f"{number} {amount}")
        numbers.append(number)
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(
        [position for position in positions if position.offset >= 0],
        consumer.consumer_group_metadata(),
        TIMEOUT_S,
    )
    producer.commit_transaction(TIMEOUT_S)
    return numbers


if __name__ == "__main__":
    try:
        work(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    except KafkaException as error:
        sys.exit(f"{sys.argv[2]}: {error}")
