"""`python -m compat.mirror`: copiers are killed, and the brokers beside them, while records come.

The rule: acknowledged records count. Each is searched for in the target, read_committed, and its lag is the time from its
send to its first appearance there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat.matrix.brokers import Barnabas
from compat.mirror.copiers import COPIERS, TOPIC, Copier

PARTITIONS = 2
IDLE_SECONDS_MAX = 120.0
"""For how long nothing may come to the target before what is missing counts as lost."""
QUIET = {"log_level": 0}


@dataclass
class Figures:
    """Figures of one copier's run; lags in seconds."""

    copier: str
    copier_kills: int = 0
    broker_kills: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    lag_median: float = 0.0
    lag_p99: float = 0.0
    lag_max: float = 0.0


class Sender(threading.Thread):
    """Sends numbers at a rate until `stopping` is set."""

    def __init__(self, bootstrap: str, rate: float) -> None:
        super().__init__(daemon=True)
        self._servers, self._rate = bootstrap, rate
        self.stopping = threading.Event()
        self.sent_at: dict[int, float] = {}
        self.acknowledged: set[int] = set()
        self.errors: list[str] = []

    def run(self) -> None:
        """Send."""
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, **QUIET})
        began, number = time.monotonic(), 0
        while not self.stopping.wait(0.01):
            while number < (time.monotonic() - began) * self._rate:
                self.sent_at[number] = time.monotonic()
                producer.produce(
                    TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
                )
                number += 1
            producer.poll(0)
        producer.flush(120)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.add(int(message.value()))
        else:
            self.errors.append(str(error))


class Watcher(threading.Thread):
    """Notes when numbers are first seen in the target."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._servers, self._topic = bootstrap, topic
        self.stopping = threading.Event()
        self.seen_at: dict[int, float] = {}

    def run(self) -> None:
        """Read the target from its log start, also of partitions that are created later."""
        consumer = Consumer({
            "bootstrap.servers": self._servers, "group.id": "watcher", "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "fetch.wait.max.ms": 50, "enable.auto.commit": False, **QUIET,
        })  # fmt: skip
        consumer.assign([TopicPartition(self._topic, number, 0) for number in range(PARTITIONS)])
        while not self.stopping.is_set():
            for message in consumer.consume(1000, timeout=0.05):
                if message.error() is None:
                    self.seen_at.setdefault(int(message.value() or b""), time.monotonic())
        consumer.close()


def read(bootstrap: str, topic: str) -> dict[int, list[int]]:
    """Return the numbers of each partition, in order, as a consumer of committed records sees them."""
    by_partition: dict[int, list[int]] = {}
    for partition in range(PARTITIONS):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", **QUIET})
        place = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=20)
        consumer.assign([place])
        numbers: list[int] = []
        while consumer.position([place])[0].offset < end:
            messages = consumer.consume(1000, timeout=0.5)
            numbers += [int(message.value() or b"") for message in messages if message.error() is None]
        consumer.close()
        by_partition[partition] = numbers
    return by_partition


def run(kind: type[Copier], directory: Path, *, seconds: float, rate: float, every: float) -> Figures:
    """Run one copier between two brokers: each `every` seconds the next of copier, target, copier, source is killed."""
    sides = [Barnabas(directory / side) for side in ("source", "target")]
    for side in sides:
        side.directory.mkdir()
        side.start()
    copier = kind(sides[0].bootstrap, sides[1].bootstrap, directory)
    try:
        return between(sides, copier, seconds=seconds, rate=rate, every=every)
    finally:
        copier.kill()
        for side in sides:
            side.end()


def between(sides: list[Barnabas], copier: Copier, *, seconds: float, rate: float, every: float) -> Figures:
    """Send, copy, kill and look."""
    source, target = sides
    admin = AdminClient({"bootstrap.servers": source.bootstrap, **QUIET})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
    sender, watcher = Sender(source.bootstrap, rate), Watcher(target.bootstrap, copier.target_topic)
    figures = Figures(copier.name)
    copier.start()
    wait_for_topic(target.bootstrap, copier)
    watcher.start()
    sender.start()
    ends = time.monotonic() + seconds
    turn = 0
    while time.monotonic() + every < ends:
        time.sleep(every)
        if turn % 2 == 0:
            copier.kill()
            copier.start()
            figures.copier_kills += 1
        else:
            (target if turn % 4 == 1 else source).restart("kill")
            figures.broker_kills += 1
        turn += 1
    time.sleep(max(0.0, ends - time.monotonic()))
    sender.stopping.set()
    sender.join()
    wait_for(sender.acknowledged, watcher, copier)
    copier.kill()
    watcher.stopping.set()
    watcher.join()
    judge(figures, sender, watcher, read(target.bootstrap, copier.target_topic))
    return figures


def wait_for_topic(bootstrap: str, copier: Copier) -> None:
    """Wait until a copier has made its topic: from then on its start is no part of a lag."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    deadline = time.monotonic() + IDLE_SECONDS_MAX
    while copier.target_topic not in admin.list_topics(timeout=20).topics:
        assert time.monotonic() < deadline, f"{copier.name} has made no topic; see {copier.log}"
        time.sleep(0.2)


def wait_for(expected: set[int], watcher: Watcher, copier: Copier) -> None:
    """Wait until all numbers have arrived, or none for a while; a copier that has ended is started again."""
    last, count = time.monotonic(), len(watcher.seen_at)
    while not expected <= watcher.seen_at.keys() and time.monotonic() - last < IDLE_SECONDS_MAX:
        time.sleep(0.2)
        if copier.has_ended:
            copier.start()
        if len(watcher.seen_at) != count:
            last, count = time.monotonic(), len(watcher.seen_at)
    time.sleep(5)  # what a dead copier had under way may come now


def judge(figures: Figures, sender: Sender, watcher: Watcher, there: dict[int, list[int]]) -> None:
    """Count lost, duplicate and late records."""
    assert sender.errors == [], sender.errors[:3]
    times = Counter(number for numbers in there.values() for number in numbers)
    figures.acknowledged = len(sender.acknowledged)
    figures.lost = sum(number not in times for number in sender.acknowledged)
    figures.doubled = sum(count - 1 for count in times.values())
    for numbers in there.values():
        figures.out_of_order += sum(later <= earlier for earlier, later in pairwise(numbers))
    lags = sorted(
        watcher.seen_at[number] - sender.sent_at[number]
        for number in sender.acknowledged
        if number in watcher.seen_at
    )
    if lags:
        figures.lag_median = round(lags[len(lags) // 2], 2)
        figures.lag_p99 = round(lags[len(lags) * 99 // 100], 2)
        figures.lag_max = round(lags[-1], 2)


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 if our mirror has lost and doubled nothing."""
    parser = argparse.ArgumentParser(prog="python -m compat.mirror", description=__doc__)
    parser.add_argument("--copiers", default=",".join(COPIERS), help="of %(default)s")
    parser.add_argument("--seconds", type=float, default=120, help="for how long records come")
    parser.add_argument("--rate", type=float, default=500, help="records a second")
    parser.add_argument("--every", type=float, default=15, help="seconds between kills")
    options = parser.parse_args(argv)
    code = 0
    for name in options.copiers.split(","):
        directory = Path(tempfile.mkdtemp(prefix="barnabas-mirror-"))
        figures = run(
            COPIERS[name], directory, seconds=options.seconds, rate=options.rate, every=options.every
        )
        print(json.dumps(asdict(figures)), flush=True)
        if name == "ours" and (figures.lost or figures.doubled or figures.out_of_order):
            code = 1
        else:
            shutil.rmtree(directory)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
