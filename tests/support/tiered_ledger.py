"""Records of stock producers, with and without transactions, and the keys that a stock consumer reads of them."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

WAIT_S = 60
BATCH = 50


class Writer:
    """An idempotent producer, and a transactional one that aborts every third transaction; both survive leader changes."""

    def __init__(self, bootstrap: str, topic: str, value: bytes) -> None:
        shared = {"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 8_000}
        self._topic = topic
        self._value = value
        self._plain = Producer({**shared, "enable.idempotence": True})
        self._transactional = Producer({**shared, "transactional.id": f"writer-of-{topic}"})
        self._transactional.init_transactions(WAIT_S)
        self._transactions = 0
        self._number = 0
        self.failures: list[KafkaError] = []
        self.committed: list[bytes] = []

    def write(self, count: int) -> None:
        """Write `count` records, half of them in transactions. Raises AssertionError if a record fails."""
        for _ in range(count // (2 * BATCH)):
            self.committed += self._send(self._plain)
            self._transactional.begin_transaction()
            keys = self._send(self._transactional)
            self._transactions += 1
            if self._transactions % 3:
                self._transactional.commit_transaction(WAIT_S)
                self.committed += keys
            else:
                self._transactional.abort_transaction(WAIT_S)
        assert self.failures == [], self.failures[:3]

    def _send(self, producer: Producer) -> list[bytes]:
        keys = [b"%d" % number for number in range(self._number, self._number + BATCH)]
        self._number += BATCH
        for key in keys:
            producer.produce(
                self._topic, key=key, value=self._value, partition=0, on_delivery=self._delivered
            )
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0
        return keys

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.failures.append(error)


def read_keys(bootstrap: str, topic: str, count: int, **options: Any) -> list[bytes]:
    """Return the keys of committed records from the log start to the log end, at least `count` of them."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True, **options,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    keys: list[bytes] = []
    is_at_end = False
    while not (is_at_end and len(keys) >= count):
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{len(keys)} of {count} records came"
        error = message.error()
        is_at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
        assert error is None or is_at_end, error
        if error is None:
            keys.append(message.key() or b"")
    consumer.close()
    return keys
