"""Idempotent producers of two libraries, which send numbers until they are stopped, and record acknowledgements.

The rule: an error reported by a producer is a failure, as the producer's own retries must cover kills.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import Any

DELIVERY_TIMEOUT_MS = 120_000
OUTSTANDING_MAX = 500
PAD_BYTES = 64


def key_of(partition: int, number: int) -> bytes:
    """Return the key of a record."""
    return b"%d-%d" % (partition, number)


def value_of(number: int) -> bytes:
    """Return the value of a record."""
    return b"%d " % number + b"x" * (number % PAD_BYTES)


class Load(ABC):
    """Sends 0, 1, 2, ... to one partition in a separate thread; `acknowledged` has (number, offset)."""

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partition = partition
        self.sent = 0
        self.acknowledged: list[tuple[int, int]] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, and wait until all records are acknowledged or abandoned."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            producer = self.connect()
            while not self._stop.is_set() and not self.errors:
                if self.sent - len(self.acknowledged) < OUTSTANDING_MAX:
                    self.send(producer, self.sent)
                    self.sent += 1
                else:
                    self.wait(producer)
            self.finish(producer)
        except Exception as error:
            self.errors.append(f"{type(error).__name__}: {error}")

    @abstractmethod
    def connect(self) -> Any:
        """Make the client."""

    @abstractmethod
    def send(self, producer: Any, number: int) -> None:
        """Enqueue a record."""

    @abstractmethod
    def wait(self, producer: Any) -> None:
        """Poll for acknowledgements."""

    @abstractmethod
    def finish(self, producer: Any) -> None:
        """Wait for all acknowledgements."""


class Librdkafka(Load):
    """confluent-kafka."""

    def connect(self) -> Any:
        from confluent_kafka import Producer

        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 20,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,  # an unavailable broker is expected
                "error_cb": lambda error: self.errors.append(str(error)) if error.fatal() else None,
            }
        )

    def send(self, producer: Any, number: int) -> None:
        def told(error: Any, message: Any) -> None:
            if error is not None:
                self.errors.append(f"record {number}: {error}")
            else:
                self.acknowledged.append((number, message.offset()))

        key, value = key_of(self.partition, number), value_of(number)
        producer.produce(self.topic, value, key, self.partition, on_delivery=told)
        producer.poll(0)

    def wait(self, producer: Any) -> None:
        producer.poll(0.05)

    def finish(self, producer: Any) -> None:
        unsent = producer.flush(DELIVERY_TIMEOUT_MS / 1000)
        if unsent:
            self.errors.append(f"{unsent} records were neither acknowledged nor refused")


class KafkaPython(Load):
    """kafka-python."""

    def connect(self) -> Any:
        from kafka import KafkaProducer

        return KafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            linger_ms=1,
            batch_size=2_000,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=100,
            retry_backoff_ms=20,
        )

    def send(self, producer: Any, number: int) -> None:
        key, value = key_of(self.partition, number), value_of(number)
        future = producer.send(self.topic, value, key, partition=self.partition)
        future.add_callback(lambda metadata: self.acknowledged.append((number, metadata.offset)))
        future.add_errback(lambda error: self.errors.append(f"record {number}: {error!r}"))

    def wait(self, producer: Any) -> None:
        time.sleep(0.01)

    def finish(self, producer: Any) -> None:
        producer.flush(DELIVERY_TIMEOUT_MS / 1000)
        producer.close()
