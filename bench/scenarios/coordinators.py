"""What coordinators do in a second: transactions one after the other, and commits of offsets that are waited for.

The client is confluent-kafka in this process: it waits for the broker nearly all of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.arms import Arm
from bench.scenarios.base import Metric, Scenario, Target

TIMEOUT_S = 30
RECORDS = 10


class _OneAfterTheOther(Scenario):
    """Calls what `begin` returns for a while; the number of calls in a second."""

    metrics = (
        Metric("rate", "throughput", "1/s", more_is_better=True, targets=(Target(1.0, "kafka", 2.0),)),
    )

    def serves(self, arm: Arm) -> bool:
        return arm.peer.keeps_data

    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        topic = f"{self.name}-{round_number}"
        arm.running.create_topic(topic)
        step = self.begin(arm.running.bootstrap, topic)
        seconds = 1.0 if arm.quick else 5.0
        count, start = 0, time.monotonic()
        while time.monotonic() - start < seconds:
            step()
            count += 1
        rate = count / (time.monotonic() - start)
        arm.running.delete_topic(topic)
        return {"rate": rate}

    def begin(self, bootstrap: str, topic: str) -> Callable[[], None]:
        """Set up the client; returns one step."""
        raise NotImplementedError


class Transactions(_OneAfterTheOther):
    name = "transactions"
    title = f"transactions of {RECORDS} records, one after the other"

    def begin(self, bootstrap: str, topic: str) -> Callable[[], None]:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0})
        producer.init_transactions(TIMEOUT_S)

        def step() -> None:
            producer.begin_transaction()
            for _ in range(RECORDS):
                producer.produce(topic, b"x" * 100, partition=0)
            producer.commit_transaction(TIMEOUT_S)

        step()
        return step


class Commits(_OneAfterTheOther):
    name = "commits"
    title = "commits of an offset, one after the other"

    def begin(self, bootstrap: str, topic: str) -> Callable[[], None]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0)])
        offset = 0

        def step() -> None:
            nonlocal offset
            offset += 1
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)

        step()
        return step


SCENARIOS: list[Scenario] = [Transactions(), Commits()]
