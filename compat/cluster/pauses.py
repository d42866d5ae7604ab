"""`python -m compat.cluster.pauses [--kinds ours,kafka] [--stops 6]`: how long a producer waits while a broker is stopped.

Three brokers of a kind on one ZooKeeper; a librdkafka producer with its defaults sends a record each 10 ms with acks=all to
partitions that all brokers lead, while one broker after the other is stopped (SIGTERM) and started again. Prints the
longest latency of a record around each stop, side by side.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat.cluster.nodes import Cluster, wait_until

PARTITIONS = 12
INTERVAL_S = 0.01


class Steady:
    """A producer of a record each 10 ms; `worst_s` returns the longest latency since its last call."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
        self._worst_s = 0.0
        self.failures: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Steady:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._producer.flush(30)

    def worst_s(self) -> float:
        """Return the longest latency of a record that was delivered since the last call, in seconds."""
        worst, self._worst_s = self._worst_s, 0.0
        return worst

    def _run(self) -> None:
        number = 0
        while not self._ends.is_set():
            self._producer.produce("t", b"v", partition=number % PARTITIONS, on_delivery=self._delivered)
            number += 1
            self._producer.poll(INTERVAL_S)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self._worst_s = max(self._worst_s, message.latency() or 0.0)  # type: ignore[attr-defined]


def pauses(kind: str, stops: int, directory: Path) -> list[float]:
    """Stop brokers of a kind one after the other; return the longest latency around each stop, in seconds."""
    longest = []
    with Cluster(directory, [kind] * 3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 3)])["t"].result(30)
        with Steady(cluster.bootstrap) as producer:
            for number in range(stops):
                broker_id = number % 3 + 1
                time.sleep(5)  # all replicas are in sync, and clients have recovered from the previous stop
                producer.worst_s()
                cluster.nodes[broker_id].stop()
                wait_until(lambda gone=broker_id: gone not in cluster.live(), "the broker goes")
                time.sleep(3)
                longest.append(producer.worst_s())
                cluster.start(broker_id)
        if producer.failures:
            raise SystemExit(f"{kind}: records were refused: {producer.failures[:3]}")
    return longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default="ours,kafka")
    parser.add_argument("--stops", type=int, default=6)
    options = parser.parse_args()
    for kind in options.kinds.split(","):
        with tempfile.TemporaryDirectory(prefix="pauses-") as directory:
            longest = pauses(kind, options.stops, Path(directory))
        each = ", ".join(f"{pause:.2f}" for pause in longest)
        print(
            f"{kind}: longest latency around a stop: median {statistics.median(longest):.2f} s, each {each}"
        )


if __name__ == "__main__":
    main()
