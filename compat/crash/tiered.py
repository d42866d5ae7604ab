"""Kill -9 with tiered storage: `python -m compat.crash.tiered`, in a cluster with `--brokers 3`.

Producers send numbers while brokers are killed and the store fails, and three stock clients read the log from its beginning
repeatedly. At the end most of the log is only in the store, and every number is present, in order, once.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from confluent_kafka.admin import AdminClient, NewTopic

from compat.cluster.nodes import OURS
from compat.cluster.quorum_nodes import QuorumCluster
from compat.crash.producers import Librdkafka
from compat.crash.readers import READERS, Reader
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
TIER_SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "remote.log.manager.task.interval.ms": "100",
    "log.retention.check.interval.ms": "300",
}
CLUSTER_SETTINGS = {
    "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
}
PARTITIONS = 2
ROUND_S = (0.5, 4.0)
AWAY_S = (0.0, 2.0)
"""For so long a broker of several stays away after its kill."""
WAIT_S = 120
TIMES = 20
"""Smallest size of the log, in multiples of its local retention."""


@dataclass
class Figures:
    """Counters of a run."""

    kills: int = 0
    failures: int = 0
    sent: int = 0
    stored: int = 0
    read: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


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


class Target(Protocol):
    """The brokers that are killed."""

    bootstrap: str
    replicas: int

    def kill(self, choose: random.Random) -> None:
        """Kill a broker, and start it again."""

    def data(self) -> list[Path]:
        """Return the log dir of each broker."""


class Alone:
    """One broker."""

    replicas = 1

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self._broker = Barnabas(directory, settings)
        self._broker.start()
        self.bootstrap = self._broker.bootstrap

    def kill(self, choose: random.Random) -> None:
        """Kill it, and start it again."""
        self._broker.restart("kill")

    def data(self) -> list[Path]:
        """Return its log dir."""
        return [self._broker.directory / "data"]

    def close(self) -> None:
        """End it."""
        self._broker.stop("kill")


class Several:
    """Brokers with a controller, all of ours."""

    def __init__(self, directory: Path, settings: dict[str, str], count: int) -> None:
        self.replicas = min(count, 3)
        self._cluster = QuorumCluster(
            directory,
            [OURS] * count,
            our_controllers=(1,),
            settings={**CLUSTER_SETTINGS, **settings},
            controller_settings={"remote.log.storage.system.enable": "true"},
        )
        self._cluster.__enter__()
        self.bootstrap = self._cluster.bootstrap

    def kill(self, choose: random.Random) -> None:
        """Kill a broker, and start it again after a while, once the others have all that is replicated."""
        broker_id = choose.choice(sorted(self._cluster.nodes))
        self._cluster.nodes[broker_id].kill()
        time.sleep(choose.uniform(*AWAY_S))
        self._cluster.start(broker_id)
        self._cluster.wait_in_sync(TOPIC, self.replicas)

    def data(self) -> list[Path]:
        """Return the log dir of each broker."""
        return [node.log_dir for node in self._cluster.nodes.values()]

    def close(self) -> None:
        """End all."""
        for node in self._cluster.nodes.values():
            node.kill()
        self._cluster.close()


def run(directory: Path, *, seed: int, seconds: float, brokers: int) -> Figures:
    """Load, kill and fail for so long, at moments drawn from `seed`, and check. Raises LostError."""
    figures = Figures()
    store = Store(directory / "tier" / "kafka-tiered-storage")
    settings = {**TIER_SETTINGS, "rsm.config.dir": str(directory / "tier")}
    target = Several(directory, settings, brokers) if brokers > 1 else Alone(directory, settings)
    try:
        load_and_fail(target, store, figures, random.Random(seed), seconds)
    finally:
        target.close()
    return figures


def load_and_fail(
    target: Target, store: Store, figures: Figures, choose: random.Random, seconds: float
) -> None:
    """Load, kill and fail for a number of seconds, then check the records. Raises LostError."""
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    new_topic = NewTopic(TOPIC, PARTITIONS, target.replicas, config=TOPIC_SETTINGS)
    admin.create_topics([new_topic])[TOPIC].result(30)
    loads = [Librdkafka(target.bootstrap, TOPIC, partition) for partition in range(PARTITIONS)]
    readers = [reader(target.bootstrap, TOPIC, PARTITIONS) for reader in READERS]
    for load in loads:
        load.start()
    for reader in readers:
        reader.start()
    begun = time.monotonic()
    while time.monotonic() < begun + seconds and not any(reader.errors for reader in readers):
        time.sleep(choose.uniform(*ROUND_S))
        store.mend()
        if choose.random() < 0.3 and store.path.is_dir():
            store.fail()
            figures.failures += 1
        else:
            target.kill(choose)
            figures.kills += 1
    store.mend()
    for load in loads:
        load.stop()
        figures.sent += load.sent
    for reader in readers:
        figures.read[reader.name] = finished(reader, figures.sent)
    for data in target.data():
        wait(
            lambda data=data: local_bytes(data) <= PARTITIONS * 3 * SEGMENT_BYTES, f"segments stay in {data}"
        )
    figures.stored = store.segments()
    if figures.stored < TIMES * PARTITIONS:
        raise LostError(f"only {figures.stored} segments are stored: run for longer")
    for load in loads:
        check(load, read(target.bootstrap, load.partition))
    figures.seconds = round(time.monotonic() - begun, 1)


def finished(reader: Reader, sent: int) -> str:
    """End a reader with a last reading, of all that was sent; return its figures. Raises LostError."""
    reader.stop()
    if reader.errors:
        raise LostError(f"{reader.name}: {reader.errors[0]}")
    if reader.readings[-1] != sent:
        raise LostError(f"{reader.name}: {reader.readings[-1]} records at the end, {sent} were sent")
    return f"{sum(reader.readings)} in {len(reader.readings)} readings"


def local_bytes(data: Path) -> int:
    """Return the bytes of the topic's segments on the broker's disk."""
    total = 0
    for path in data.glob(f"{TOPIC}-*/*.log"):
        with suppress(FileNotFoundError):  # it has just ended
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
        "--seconds", type=float, default=60.0, help="for how long brokers are killed and the store fails"
    )
    parser.add_argument(
        "--brokers", type=int, default=1, help="with more than one, a controller is beside them"
    )
    options = parser.parse_args(argv)
    directory = Path(tempfile.mkdtemp(prefix="barnabas-tiered-"))
    print(f"seed {options.seed}, {options.seconds} s, logs in {directory}", flush=True)
    return judge(
        directory,
        options.seed,
        lambda: run(directory, seed=options.seed, seconds=options.seconds, brokers=options.brokers),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
