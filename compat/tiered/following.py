"""Apache Kafka and ours in one cluster with one store: each follows the other from the end of the tiered segments on.

    python -m compat.tiered.following [--zookeeper]

A broker of each kind, and a controller of ours, or Kafka 3.9 on ZooKeeper. While one broker is away the other takes
records, stores them and deletes them locally. The returning broker begins its log after the stored segments, joins the ISR,
and leads when the other one stops: the same producers continue, and a stock consumer reads every committed record in order,
most of them from the store.

A follower of Kafka 4.3.1 that begins after the store loses the snapshot of producers that it has fetched. Where a
transaction was open at that offset and is aborted later, its records before the offset are read as committed ones as long
as that broker leads. Such records are counted, and are no failure of these checks.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka.admin import AdminClient, NewTopic

from compat.cluster.nodes import KAFKA, OURS, Brokers, wait_until
from compat.tiered.pair import SEGMENT_BYTES, pair
from tests.support.tiered_ledger import BATCH, Writer, read_keys

VALUE = b"x" * 4000
RECORDS = 1500
BY_KAFKA, BY_OURS = "led-by-kafka", "led-by-ours"
INTERNAL = ("__remote_log_metadata", "__transaction_state")


class Checks:
    """The steps; each yields what goes wrong."""

    def __init__(self, cluster: Brokers) -> None:
        self.cluster = cluster
        self.writers: dict[str, Writer] = {}

    def run(self) -> Iterator[str]:
        """Yield what goes wrong, of all steps."""
        theirs, ours = sorted(self.cluster.kinds)
        self._create(BY_KAFKA, [theirs, ours])
        self._create(BY_OURS, [ours, theirs])
        for topic in (BY_KAFKA, BY_OURS):
            self.writers[topic] = Writer(self.cluster.bootstrap, topic, VALUE)
            self.writers[topic].write(100)
        self._wait_in_sync()
        yield from self._left_behind(ours, theirs, BY_KAFKA)
        yield from self._leads(ours, theirs, BY_KAFKA)
        yield from self._left_behind(theirs, ours, BY_OURS)
        yield from self._leads(theirs, ours, BY_OURS)
        yield from self._compare(BY_KAFKA, theirs)

    def _create(self, topic: str, replicas: list[int]) -> None:
        config = {
            "remote.storage.enable": "true",
            "local.retention.bytes": "1",
            "segment.bytes": str(SEGMENT_BYTES),
            "file.delete.delay.ms": "100",
        }
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        new_topic = NewTopic(topic, 1, replica_assignment=[replicas], config=config)
        admin.create_topics([new_topic])[topic].result(60)

    def _wait_in_sync(self) -> None:
        for topic in (BY_KAFKA, BY_OURS, *INTERNAL):
            self.cluster.wait_in_sync(topic, 2)

    def _local_start(self, broker: int, topic: str) -> int:
        folder = self.cluster.nodes[broker].log_dir / f"{topic}-0"
        return min((int(path.name[:20]) for path in folder.glob("*.log")), default=-1)

    def _left_behind(self, follower: int, leader: int, topic: str) -> Iterator[str]:
        """Keep a broker stopped until the records that it lacks are only in the store."""
        self.cluster.nodes[follower].stop()
        wait_until(lambda: self.cluster.states(topic)[0]["leader"] == leader, f"{leader} leads {topic}")
        self.writers[topic].write(RECORDS)
        wait_until(lambda: self._local_start(leader, topic) > 200, f"local segments of {topic} go")
        begun = time.monotonic()
        self.cluster.start(follower)
        self._wait_in_sync()
        start = self._local_start(follower, topic)
        print(
            f"  {topic}: {self.cluster.kinds[follower]} begins at {start}, in sync after {time.monotonic() - begun:.1f} s",
            flush=True,
        )
        if start <= 200:
            yield f"{topic}: broker {follower} has copied records from {start} on, and did not begin after the store"

    def _leads(self, broker: int, other: int, topic: str) -> Iterator[str]:
        """Have a broker lead alone: producers go on, and all that is committed is read from it."""
        self.cluster.nodes[other].stop()
        wait_until(lambda: self.cluster.states(topic)[0]["leader"] == broker, f"{broker} leads {topic}")
        writer = self.writers[topic]
        writer.write(300)
        yield from self._compare(topic, broker)
        self.cluster.start(other)
        self._wait_in_sync()

    def _compare(self, topic: str, broker: int) -> Iterator[str]:
        committed = self.writers[topic].committed
        keys = read_keys(self.cluster.bootstrap, topic, len(committed))
        kind = self.cluster.kinds[broker]
        print(f"  {topic}: {len(keys)} records are read from {kind}", flush=True)
        if keys == committed:
            return
        more = sorted(map(int, set(keys) - set(committed)))
        less = sorted(map(int, set(committed) - set(keys)))
        is_in_order = keys == sorted(keys, key=int)
        if kind == KAFKA and is_in_order and not less and len(more) < BATCH:
            print(
                f"  {topic}: {len(more)} of these are of a transaction that was aborted, as Kafka forgets producers",
                flush=True,
            )
            return
        yield (
            f"{topic} as {kind} leads it: {len(keys)} records are read, not the {len(committed)} that were committed; too "
            f"many: {more}, missing: {less}, {'in order' if is_in_order else 'out of order'}"
        )


def main() -> int:
    """Run the checks, and say what goes wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--last", action="store_true", help="follower.fetch.last.tiered.offset.enable (KIP-1023)"
    )
    parser.add_argument("--zookeeper", action="store_true", help="Kafka 3.9 on ZooKeeper instead of a quorum")
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="tiered-cluster-") as name:
        settings = {"follower.fetch.last.tiered.offset.enable": str(arguments.last).lower()}
        with pair(Path(name), OURS, has_zookeeper=arguments.zookeeper, settings=settings) as cluster:
            problems = list(Checks(cluster).run())
            problems += [
                f"broker {broker}: {line}" for broker, lines in cluster.complaints().items() for line in lines
            ]
    for problem in problems:
        print(problem)
    print("tiered storage of both kinds in one cluster:", "failed" if problems else "as it must be")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
