"""A transactional producer that is killed: it commits, aborts, and keeps a journal of the outcomes.

    python -m compat.spark.sender SEED BOOTSTRAP NAME JOURNAL

The rule: a line of the journal is written before the action that it announces, or after the one that it states. The outcome
of a begun transaction without a second line is unknown: the broker decides it when the next sender fences this one.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "logins"
PARTITIONS = 4
BEGUN, COMMITTED, ABORTED = "begun", "committed", "aborted"
ABORTED_FRACTION = 0.2
BAD_FRACTION = 0.02
RECORDS_MAX = 200
PAUSE_SECONDS = 0.2
TIMEOUT_SECONDS = 60
HOUR_MS = 3_600_000


@dataclass
class Journal:
    """The transactions of a sender, by the keys of their records."""

    told: dict[str, set[str]] = field(
        default_factory=lambda: {BEGUN: set(), COMMITTED: set(), ABORTED: set()}
    )
    transactions: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys((BEGUN, COMMITTED, ABORTED), 0)
    )
    next: int = 0

    def read(self, path: Path, name: str) -> None:
        """Add what is in a file, of which the last line may be cut."""
        for line in path.read_text().splitlines(keepends=True) if path.exists() else []:
            if not line.endswith("\n"):
                continue
            what, first, last = line.split()
            self.told[what].update(key_of(name, number) for number in range(int(first), int(last)))
            self.transactions[what] += 1
            self.next = max(self.next, int(last))


def make_topic(bootstrap: str) -> None:
    """Make the topic that is sent to."""
    topic = NewTopic(TOPIC, PARTITIONS, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([topic])[TOPIC].result(30)


def key_of(name: str, number: int) -> str:
    """The key of a record, which no other has."""
    return f"{name}-{number}"


def send(bootstrap: str, name: str, journal: Path, seed: int, count: int = sys.maxsize) -> None:
    """Send `count` transactions, unless the process is killed before. Raises KafkaException."""
    earlier = Journal()
    earlier.read(journal, name)
    chosen = random.Random(f"{seed} {earlier.next}")
    producer = Producer({
        "bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 30_000, "linger.ms": 5,
        "metadata.recovery.strategy": "none", "log_level": 0,
    })  # fmt: skip
    producer.init_transactions(TIMEOUT_SECONDS)
    number = earlier.next
    with journal.open("a", buffering=1) as told:
        for _ in range(count):
            last = number + chosen.randint(1, RECORDS_MAX)
            told.write(f"{BEGUN} {number} {last}\n")
            is_kept = transaction(producer, records(name, range(number, last), chosen), chosen)
            told.write(f"{COMMITTED if is_kept else ABORTED} {number} {last}\n")
            number = last
            time.sleep(chosen.uniform(0, 2 * PAUSE_SECONDS))


def transaction(producer: Producer, records: Iterator[tuple[str, bytes]], chosen: random.Random) -> bool:
    """Send records in one transaction; returns whether it was committed. Raises KafkaException."""
    producer.begin_transaction()
    for key, value in records:
        producer.produce(TOPIC, value, key, partition=chosen.randrange(PARTITIONS))
    if chosen.random() >= ABORTED_FRACTION:
        producer.commit_transaction(TIMEOUT_SECONDS)
        return True
    producer.flush(TIMEOUT_SECONDS)  # so that the log has them
    producer.abort_transaction(TIMEOUT_SECONDS)
    return False


def records(name: str, numbers: range, chosen: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yield keys and values: logins of the last hours, and some that are none."""
    for number in numbers:
        key = key_of(name, number)
        ts = int(time.time() * 1000) - chosen.randrange(3) * HOUR_MS
        value = {"ts": ts, "member": key, "ip": "127.0.0.1", "ok": True}
        yield key, b"no JSON" if chosen.random() < BAD_FRACTION else json.dumps(value).encode()


if __name__ == "__main__":
    try:
        send(sys.argv[2], sys.argv[3], Path(sys.argv[4]), int(sys.argv[1]))
    except KafkaException as error:
        sys.exit(f"{sys.argv[3]}: {error}")
