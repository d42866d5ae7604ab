"""A producer that sends numbers with acks=all while brokers come and go, and a reader that counts them.

The rule: a record must survive once it is acknowledged; a record without a response may exist or not, but not twice.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from typing import Any

from confluent_kafka import Producer

from compat.cluster.nodes import ClusterError
from compat.kit.reading import read_to_end

DELIVERY_MS = 60_000
OUTSTANDING_MAX = 1000
READ_S = 60.0
QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.interval.ms": 1000,
    "log_level": 0,  # an unavailable broker is expected
}


class Load:
    """Sends 0, 1, 2, ... to a topic's partitions in turn, in a separate thread, idempotent and with acks=all."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: float = 2000.0) -> None:
        """`rate` is in records per second."""
        self.topic = topic
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """Partition and offset by number."""
        self.times: list[float] = []
        """Time of each acknowledgement (`time.monotonic`), in order."""
        self.errors: list[str] = []
        self.sent = 0
        self._partitions = partitions
        self._rate = rate
        self._stop = threading.Event()
        self._producer = Producer(
            {
                **QUICK,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": DELIVERY_MS,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop sending, and wait until all records are acknowledged or refused."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        begun = time.monotonic()
        while not self._stop.is_set():
            due = (time.monotonic() - begun) * self._rate
            if self.sent < due and self.sent - len(self.acknowledged) < OUTSTANDING_MAX:
                self._send()
            else:
                self._producer.poll(0.002)
        unsent = self._producer.flush(DELIVERY_MS / 1000)
        if unsent:
            self.errors.append(f"{unsent} records were neither acknowledged nor refused")

    def _send(self) -> None:
        number = self.sent
        self.sent += 1

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.errors.append(f"record {number}: {error}")
            else:
                self.acknowledged[number] = (message.partition(), message.offset())
                self.times.append(time.monotonic())

        value = b"%d " % number + b"x" * (number % 100)
        self._producer.produce(self.topic, value, partition=number % self._partitions, on_delivery=delivered)
        self._producer.poll(0)

    def longest_pause(self, since: float) -> float:
        """The longest time (s) without any acknowledgement since a moment."""
        times = [since, *(moment for moment in self.times if moment >= since)]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)


def read_all(
    bootstrap: str, topic: str, partitions: int, *, committed: bool = True
) -> dict[int, list[bytes]]:
    """All values of each partition up to its end. Raises ClusterError."""
    settings = {
        **QUICK,
        "bootstrap.servers": bootstrap,
        "group.id": f"reader-{time.monotonic_ns()}",
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "auto.offset.reset": "earliest",
    }
    values: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
    try:
        for message in read_to_end(settings, topic, partitions, seconds=READ_S):
            if message.error() is None:  # others are temporary: brokers come and go
                values[message.partition()].append(message.value())
    except TimeoutError as error:
        raise ClusterError(str(error)) from error
    return values


def check(load: Load, records: dict[int, list[bytes]]) -> None:
    """Check that every acknowledged number exists, and no number twice. Raises ClusterError."""
    if load.errors:
        raise ClusterError(f"{len(load.errors)} records were refused, the first: {load.errors[0]}")
    numbers = Counter(int(value.split()[0]) for values in records.values() for value in values)
    missing = sorted(load.acknowledged.keys() - numbers.keys())
    if missing:
        where = load.acknowledged[missing[0]]
        raise ClusterError(
            f"{len(missing)} acknowledged records are lost, the first: number {missing[0]} at {where}"
        )
    twice = [number for number, count in numbers.items() if count > 1]
    if twice:
        raise ClusterError(f"{len(twice)} records are there twice, the first: number {min(twice)}")
