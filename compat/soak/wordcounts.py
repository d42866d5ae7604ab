"""A word count by Kafka Streams with exactly_once_v2, while its instances and the broker are killed.

Each change of a count is a record, so that under read_committed a word that was sent n times has the counts 1, 2, ... n, in
this order, each once: lost words, duplicates, and words of aborted transactions are detected.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat.kafka.process import LIGHT_JVM
from compat.kit.java import built
from compat.matrix.brokers import Broker
from compat.soak.transfers import Figures, LostError

SOURCE = Path(__file__).resolve().parent / "wordcount"
WORDS, COUNTS = "words", "counts"
VOCABULARY = 200
PARTITIONS = 4
DONE_TIMEOUT_S = 240
ROUND_S = (3.0, 8.0)
SETTINGS = {
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "1000",
}
"""Of the broker: an instance that was killed is missed while the others still have words to count."""


@dataclass
class Instance:
    """One instance, with a directory for its state that outlives it."""

    number: int
    bootstrap: str
    directory: Path
    class_path: str
    protocol: str
    process: subprocess.Popen[bytes] | None = None
    failures: int = 0

    def keep_alive(self) -> None:
        """Start it, unless it is running."""
        if self.process is not None and self.process.poll() is None:
            return
        if self.process is not None:
            self.failures += 1
        state = self.directory / f"state-{self.number}"
        command = [
            "java",
            *LIGHT_JVM,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            self.class_path,
        ]
        with (self.directory / f"instance-{self.number}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "WordCount", self.bootstrap, str(state), self.protocol], stdout=log, stderr=log
            )

    def kill(self) -> None:
        """End it without warning."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def run(
    broker: Broker,
    directory: Path,
    *,
    seed: int,
    rounds: int,
    words: int,
    instances: int,
    protocol: str = "classic",
) -> Figures:
    """Kill at random while words come in, let the instances end their work, and check. Raises LostError."""
    choose = random.Random(seed)
    begun = time.monotonic()
    figures = Figures(orders=words)
    class_path = built(SOURCE, "wordcount")
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (WORDS, COUNTS)]).values():
        created.result(30)
    expected: Counter[str] = Counter()
    crew = [
        Instance(number, broker.bootstrap, directory, class_path, protocol) for number in range(instances)
    ]
    try:
        for number in range(rounds):
            for instance in crew:
                instance.keep_alive()
            expected += send(broker.bootstrap, choose, words // rounds)
            time.sleep(choose.uniform(*ROUND_S))
            if number % 4 == 3:
                broker.restart("kill")
                figures.brokers_killed += 1
            else:
                choose.choice(crew).kill()
                figures.workers_killed += 1
        check(broker.bootstrap, crew, expected)
    finally:
        for instance in crew:
            instance.kill()
            figures.workers_failed += instance.failures
    broker.stop()
    figures.acknowledged = expected.total()
    figures.seconds = time.monotonic() - begun
    return figures


def send(bootstrap: str, choose: random.Random, count: int) -> Counter[str]:
    """Send words, each acknowledged; returns how often each was sent."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    sent: Counter[str] = Counter()
    for _ in range(count):
        word = f"word-{min(int(choose.expovariate(0.03)), VOCABULARY - 1)}"
        producer.produce(WORDS, word)
        sent[word] += 1
    if producer.flush(60):
        raise LostError("the words could not be sent")
    return sent


def check(bootstrap: str, crew: list[Instance], expected: Counter[str]) -> None:
    """Read the counts, as committed, until all have come. Raises LostError at the first that is out of its order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditor",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "metadata.recovery.strategy": "none",
        }
    )
    consumer.assign([TopicPartition(COUNTS, partition, 0) for partition in range(PARTITIONS)])
    seen: dict[str, int] = defaultdict(int)
    deadline = time.monotonic() + DONE_TIMEOUT_S
    while seen != expected:
        for instance in crew:
            instance.keep_alive()
        if time.monotonic() > deadline:
            behind = expected.total() - sum(seen.values())
            raise LostError(f"after {DONE_TIMEOUT_S} s {behind} of {expected.total()} words are not counted")
        for message in consumer.consume(1000, 0.5):
            if message.error():
                if message.error().code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                    continue
                raise LostError(str(message.error()))
            word, count = (message.key() or b"").decode(), int(message.value() or b"")
            seen[word] += 1
            if count != seen[word]:
                raise LostError(f"{word} has the count {count} where {seen[word]} must be")
    consumer.close()
