"""Kill -9 with tiered storage: `python -m compat.crash.tiered`.

Producers send numbers while the broker is killed and its store fails, and a consumer reads the log from its beginning over
and over. At the end all but a little of it is in the store only, and every number is there, in order, once.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat.crash.producers import Librdkafka
from compat.crash.rounds import TOPIC, LostError, check, judge, read
from compat.matrix.brokers import Barnabas

SEGMENT_BYTES = 64 << 10
TOPIC_SETTINGS = {
    "remote.storage.enable": "true",
    "local.retention.bytes": str(SEGMENT_BYTES),
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "index.interval.bytes": "512",
    "file.delete.delay.ms": "200",
}
PARTITIONS = 2
ROUND_S = (0.5, 4.0)
WAIT_S = 120
TIMES = 20
"""So many times its local retention is what the log has at the least."""


@dataclass
class Figures:
    """Counters of a run."""

    kills: int = 0
    failures: int = 0
    sent: int = 0
    read: int = 0
    stored: int = 0
    seconds: float = 0.0


class Reader(threading.Thread):
    """Reads a partition from its beginning, again and again; `errors` says where a number is not in its place."""

    def __init__(self, bootstrap: str, partition: int) -> None:
        super().__init__(daemon=True)
        self._address = bootstrap
        self._partition = partition
        self._stop_it = threading.Event()
        self.read = 0
        self.errors: list[str] = []

    def stop(self) -> None:
        """Return when it reads no more."""
        self._stop_it.set()
        self.join()

    def run(self) -> None:
        """Read until it is stopped."""
        options = {
            "bootstrap.servers": self._address,
            "group.id": "again",
            "log_level": 0,
            "auto.offset.reset": "error",
        }
        while not self._stop_it.is_set():
            consumer = Consumer(options)
            consumer.assign([TopicPartition(TOPIC, self._partition, 0)])
            expected = 0
            last = time.monotonic()
            while not self._stop_it.is_set() and time.monotonic() - last < 3:
                for message in consumer.consume(1000, timeout=0.2):
                    if message.error() is not None:  # the store or the broker is gone for a while
                        continue
                    number = int((message.value() or b"").split()[0])
                    if number != expected:
                        self.errors.append(
                            f"{number} in the place of {expected} on partition {self._partition}"
                        )
                    expected, last = number + 1, time.monotonic()
                    self.read += 1
            consumer.close()


class Store:
    """The directory of the store; it fails while a file is in its place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._away = path.with_name(f"{path.name}.away")

    def fail(self) -> None:
        """Fail from now on."""
        self.path.rename(self._away)
        self.path.write_bytes(b"")

    def mend(self) -> None:
        """Work again."""
        if self._away.exists():
            self.path.unlink()
            self._away.rename(self.path)

    def segments(self) -> int:
        """Return the number of segments."""
        return len(list(self.path.rglob("*.log")))


def run(directory: Path, *, seed: int, seconds: float) -> Figures:
    """Load, kill and fail for so long, at moments drawn from `seed`, and check. Raises LostError."""
    choose, begun, figures = random.Random(seed), time.monotonic(), Figures()
    store = Store(directory / "tier" / "kafka-tiered-storage")
    broker = Barnabas(
        directory,
        {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
            "rsm.config.dir": str(directory / "tier"),
            "remote.log.manager.task.interval.ms": "100",
            "log.retention.check.interval.ms": "300",
        },
    )
    broker.start()
    try:
        load_and_fail(broker, store, figures, choose, begun + seconds)
    finally:
        broker.stop("kill")
    figures.seconds = round(time.monotonic() - begun, 1)
    return figures


def load_and_fail(
    broker: Barnabas, store: Store, figures: Figures, choose: random.Random, end: float
) -> None:
    """Load, kill and fail until `end`, a monotonic time, and check what there is. Raises LostError."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=TOPIC_SETTINGS)])[TOPIC].result(30)
    loads = [Librdkafka(broker.bootstrap, TOPIC, partition) for partition in range(PARTITIONS)]
    readers = [Reader(broker.bootstrap, partition) for partition in range(PARTITIONS)]
    for load in loads:
        load.start()
    for reader in readers:
        reader.start()
    while time.monotonic() < end:
        time.sleep(choose.uniform(*ROUND_S))
        store.mend()
        if choose.random() < 0.3 and store.path.is_dir():
            store.fail()
            figures.failures += 1
        else:
            broker.restart("kill")
            figures.kills += 1
    store.mend()
    for load in loads:
        load.stop()
        figures.sent += load.sent
    for reader in readers:
        reader.stop()
        figures.read += reader.read
        if reader.errors:
            raise LostError(reader.errors[0])
    wait(
        lambda: local_bytes(broker.directory / "data") <= PARTITIONS * 3 * SEGMENT_BYTES,
        "segments stay on the disk",
    )
    figures.stored = store.segments()
    if figures.stored < TIMES * PARTITIONS:
        raise LostError(f"only {figures.stored} segments are stored: run for longer")
    for load in loads:
        check(load, read(broker.bootstrap, load.partition))


def local_bytes(data: Path) -> int:
    """Return the bytes of the topic's segments on the broker's disk."""
    total = 0
    for path in data.glob(f"{TOPIC}-*/*.log"):
        with suppress(FileNotFoundError):  # it has just gone
            total += path.stat().st_size
    return total


def wait(condition: Callable[[], bool], failure: str) -> None:
    """Wait for a condition. Raises LostError."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise LostError(failure)
        time.sleep(0.2)


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 when every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m compat.crash.tiered", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="for how long the broker is killed and its store fails"
    )
    options = parser.parse_args(argv)
    directory = Path(tempfile.mkdtemp(prefix="barnabas-tiered-"))
    print(f"seed {options.seed}, {options.seconds} s, logs in {directory}", flush=True)
    return judge(directory, options.seed, lambda: run(directory, seed=options.seed, seconds=options.seconds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
