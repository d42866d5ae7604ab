"""`python -m bench.clusters`: three brokers of ours, three Apache Kafka 3.9 on ZooKeeper, three Kafka 4 with KRaft.

`--kinds barnabas-quorum,kafka-quorum`: three brokers of ours, or of Kafka 4, under one controller of Kafka 4.

The rule: one cluster runs at a time, on empty directories of the same disk, with the same client; each round measures all
kinds in turn; a run in which a record failed or is missing is an error, not a number.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench.cluster_kinds import ALONE, BROKERS, JOINING, KINDS, SESSION_S, SETTINGS
from bench.peers.base import Running
from bench.procfs import back_memory, cpu_s, describe_machine, rss_bytes
from bench.scenarios.throughput import QUEUE
from bench.tools import ROOT, BenchError, build, loadgen
from bench.transactions import transactions
from compat.kafka import ZooKeeperServer
from compat.kafka.releases import release
from compat.metadata.quorum import Quorum

MANY = 2_000
MANY_PER_REQUEST = 500
TOPICS = 10_000
"""Topics of a cluster that a broker joins, one partition with one replica each."""
CREATED, SINGLE = 1_000, 30
"""Topics created in one request, and one after the other."""
PARTITIONS = 6
ENDED = 24
"""Partitions of a transaction that has several."""
WAIT_S = 90.0
POLL_S = 0.05
Values = dict[str, float]


class Cluster:
    """Three running brokers, and their ZooKeeper if they need one; a context manager."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        self.zookeeper = (
            ZooKeeperServer(release("3.9"), directory / "zookeeper", syncs=True)
            if kind in ("barnabas", "kafka-3.9")
            else None
        )
        self.quorum: Quorum | None = None
        connect = self.zookeeper.address if self.zookeeper else ""
        if kind.endswith("-quorum"):
            session = {"broker.session.timeout.ms": str(int(SESSION_S * 1000))}
            self.quorum = Quorum("4.x", directory, 1, is_dynamic=True, settings={**SETTINGS, **session})
            connect = f"127.0.0.1:{self.quorum.nodes[0].port}"
        self.peers = KINDS[kind](directory, connect)
        self.brokers: dict[int, Running] = {}
        self.ready_s = 0.0

    def __enter__(self) -> Cluster:
        try:
            if self.zookeeper:
                self.zookeeper.start()
            if self.quorum:
                self.quorum.start()
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda broker_id: self.peers[broker_id].format(self._data(broker_id)), BROKERS))
                begun = time.monotonic()
                self.brokers = dict(zip(BROKERS, pool.map(self._started, BROKERS), strict=True))
            self.wait(
                "all brokers know each other", lambda: len(self.admin.list_topics(timeout=10).brokers) == 3
            )
            self.ready_s = time.monotonic() - begun
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _data(self, broker_id: int) -> Path:
        return self.directory / f"data-{broker_id}"

    def _started(self, broker_id: int) -> Running:
        return self.peers[broker_id].start(self._data(broker_id))

    @property
    def bootstrap(self) -> str:
        return ",".join(running.bootstrap for running in self.brokers.values())

    @cached_property
    def admin(self) -> AdminClient:
        """A client of all brokers."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def close(self) -> None:
        """End all processes; the data are discarded."""
        for running in self.brokers.values():
            running.process.kill()
            running.process.wait()
        if self.zookeeper:
            self.zookeeper.kill()
        if self.quorum:
            self.quorum.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def cpu_s(self) -> float:
        """CPU seconds of all brokers."""
        return sum(cpu_s(running.pid) for running in self.brokers.values())

    def rss_mb(self) -> float:
        """Resident memory of all brokers, without ZooKeeper."""
        return sum(rss_bytes(running.pid) for running in self.brokers.values()) / 1e6

    def zookeeper_mb(self) -> float:
        """Resident memory of ZooKeeper, 0 without one."""
        return rss_bytes(self.zookeeper.pid) / 1e6 if self.zookeeper and self.zookeeper.pid else 0.0

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic with three replicas, and wait until all are in sync."""
        self.admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(WAIT_S)
        self.wait(f"the replicas of {topic} are in sync", lambda: self.in_sync(topic))

    def create_many(self, topics: Sequence[str], replicas: int) -> None:
        """Create topics of one partition, without waiting for their replicas."""
        for start in range(0, len(topics), MANY_PER_REQUEST):
            some = [NewTopic(topic, 1, replicas) for topic in topics[start : start + MANY_PER_REQUEST]]
            for created in self.admin.create_topics(some, request_timeout=WAIT_S).values():
                created.result(WAIT_S)

    def in_sync(self, *topics: str) -> bool:
        """Return whether all partitions of these topics have three in-sync replicas in a broker's metadata."""
        described = self.admin.list_topics(timeout=10).topics
        return all(
            topic in described
            and described[topic].partitions
            and all(len(partition.isrs) == 3 for partition in described[topic].partitions.values())
            for topic in topics
        )

    @staticmethod
    def wait(what: str, is_so: Callable[[], bool]) -> float:
        """Wait for a condition; returns after how many seconds it held. Raises BenchError."""
        begun = time.monotonic()
        while time.monotonic() - begun < WAIT_S:
            with suppress(KafkaException):
                if is_so():
                    return time.monotonic() - begun
            time.sleep(POLL_S)
        raise BenchError(f"not in {WAIT_S:.0f} s: {what}")


def load(cluster: Cluster, bytes_: int, count: int) -> Values:
    """Measure throughput and latency with acks=all, three replicas and min.insync.replicas=2."""
    values = {"ready_s": cluster.ready_s, "rss_idle_mb": cluster.rss_mb()}
    cluster.create("warm", PARTITIONS)
    client = {**QUEUE, "acks": "all"}
    loadgen(
        "produce",
        cluster.bootstrap,
        client=client,
        topic="warm",
        size=1024,
        count=bytes_ // 1024,
        partitions=PARTITIONS,
    )
    for name, size, partitions in (("100", 100, PARTITIONS), ("1k", 1024, PARTITIONS), ("1k_one", 1024, 1)):
        cluster.create(f"load-{name}", partitions)
        back_memory(bytes_ * 4)
        before = cluster.cpu_s()
        result = loadgen(
            "produce", cluster.bootstrap, client=client, topic=f"load-{name}", size=size,
            count=bytes_ // size // (2 if size < 1000 else 1),
            partitions=partitions,
        )  # fmt: skip
        values[f"produce_{name}_mb_s"] = result["bytes_per_s"] / 1e6
        values[f"produce_{name}_cpu_s_per_gb"] = (cluster.cpu_s() - before) / (
            result["messages"] * size / 1e9
        )
    cluster.create("latency", 1)
    result = loadgen(
        "latency",
        cluster.bootstrap,
        client={"acks": "all"},
        topic="latency",
        size=100,
        count=count,
        warmup=count // 2,
    )
    values |= {"latency_p50_us": result["p50_us"], "latency_p99_us": result["p99_us"]}
    values |= {"rss_loaded_mb": cluster.rss_mb(), "zookeeper_mb": cluster.zookeeper_mb()}
    return values


def ends(cluster: Cluster, count: int) -> Values:
    """Measure successive transactions, of one partition and of several."""
    values: Values = {}
    for partitions in (1, ENDED):
        topic = f"transacted-{partitions}"
        cluster.create(topic, partitions)
        end_ms, whole_ms = transactions(cluster.bootstrap, topic, partitions, count // 10)
        values |= {f"end_{partitions}_ms": end_ms, f"transaction_{partitions}_ms": whole_ms}
    return values


def failover(cluster: Cluster, partitions: int) -> Values:
    """Kill a broker that leads a third of the partitions, start it again, and restart it cleanly."""
    topics = [f"many-{number}" for number in range(partitions // MANY_PER_REQUEST)]
    begun = time.monotonic()
    for topic in topics:
        cluster.create(topic, MANY_PER_REQUEST)
    values = {"create_s": time.monotonic() - begun, "rss_many_mb": cluster.rss_mb()}
    controller = cluster.admin.list_topics(timeout=10).controller_id
    victim = next(id for id in reversed(BROKERS) if id != controller)
    others = ",".join(node.bootstrap for broker_id, node in cluster.brokers.items() if broker_id != victim)
    watcher = AdminClient({"bootstrap.servers": others, "log_level": 0})

    def all_led() -> bool:
        described = watcher.list_topics(timeout=10).topics
        return all(  # a broker may not have heard of all topics yet
            topic in described
            and described[topic].partitions
            and all(part.leader not in (-1, victim) for part in described[topic].partitions.values())
            for topic in topics
        )

    os.kill(cluster.brokers[victim].pid, signal.SIGKILL)
    cluster.brokers[victim].process.wait()
    values["failover_s"] = cluster.wait("all partitions are led again", all_led)
    begun = time.monotonic()
    cluster.brokers[victim] = cluster._started(victim)
    cluster.wait("the killed broker is in sync", lambda: cluster.in_sync(*topics))
    values["back_after_kill_s"] = time.monotonic() - begun
    begun = time.monotonic()
    cluster.brokers[victim].stop()
    values["stop_s"] = time.monotonic() - begun
    cluster.brokers[victim] = cluster._started(victim)
    cluster.wait("the restarted broker is in sync", lambda: cluster.in_sync(*topics))
    values["restart_s"] = time.monotonic() - begun
    return values


def creations(cluster: Cluster, count: int) -> Values:
    """Measure the creation of `count` topics with three replicas, and of single topics."""
    begun = time.monotonic()
    cluster.create_many([f"made-{number}" for number in range(count)], 3)
    values = {"create_1000_s": time.monotonic() - begun}
    times = []
    for number in range(SINGLE):
        begun = time.monotonic()
        name = f"single-{number}"
        cluster.admin.create_topics([NewTopic(name, 1, 3)])[name].result(WAIT_S)
        times.append(time.monotonic() - begun)
    return values | {"create_p50_ms": statistics.median(times) * 1000}


def join(cluster: Cluster, count: int) -> Values:
    """Measure the time until a broker with an empty disk that joins a quorum serves the metadata of `count` topics."""
    begun = time.monotonic()
    cluster.create_many([f"joined-{number}" for number in range(count)], 1)
    values = {"create_topics_s": time.monotonic() - begun}
    cluster.wait(
        "the brokers know all topics", lambda: len(cluster.admin.list_topics(timeout=30).topics) >= count
    )
    cluster.peers[JOINING].format(cluster._data(JOINING))
    begun = time.monotonic()
    running = cluster.brokers[JOINING] = cluster._started(JOINING)
    client = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})

    def has_joined() -> bool:
        described = client.list_topics(timeout=30)
        return len(described.brokers) == 4 and len(described.topics) >= count

    cluster.wait("the broker has joined", has_joined)
    return values | {"join_s": time.monotonic() - begun, "join_rss_mb": rss_bytes(running.pid) / 1e6}


METRICS = {
    "ready_s": "three brokers started, s",
    "rss_idle_mb": "RSS of three, nothing to do, MB",
    "rss_loaded_mb": "RSS of three after the load, MB",
    "zookeeper_mb": "RSS of ZooKeeper beside them, MB",
    "produce_100_mb_s": f"produce 100 B, {PARTITIONS} partitions, MB/s",
    "produce_100_cpu_s_per_gb": "  CPU of the brokers, s/GB",
    "produce_1k_mb_s": f"produce 1 KB, {PARTITIONS} partitions, MB/s",
    "produce_1k_cpu_s_per_gb": "  CPU of the brokers, s/GB",
    "produce_1k_one_mb_s": "produce 1 KB, one partition, MB/s",
    "produce_1k_one_cpu_s_per_gb": "  CPU of the brokers, s/GB",
    "latency_p50_us": "one in flight, 100 B, p50, us",
    "latency_p99_us": "one in flight, 100 B, p99, us",
    "end_1_ms": "EndTxn, one partition, p50, ms",
    "transaction_1_ms": "  a whole transaction, mean, ms",
    f"end_{ENDED}_ms": f"EndTxn, {ENDED} partitions, p50, ms",
    f"transaction_{ENDED}_ms": "  a whole transaction, mean, ms",
    "create_s": f"{MANY:,} partitions made and in sync, s",
    "rss_many_mb": f"RSS of three with {MANY:,} partitions each, MB",
    "failover_s": f"killed, until {MANY:,} partitions are led again, s",
    "back_after_kill_s": "started again, until in sync, s",
    "create_1000_s": f"{CREATED:,} topics with three replicas made, s",
    "create_p50_ms": "  one topic made, p50, ms",
    "create_topics_s": f"{TOPICS:,} topics made, s",
    "join_s": f"a new broker, until it tells of {TOPICS:,} topics, s",
    "join_rss_mb": "  RSS of that broker, MB",
    "stop_s": "clean stop of a broker, s",
    "restart_s": "clean stop and start, until in sync, s",
}


def table(results: dict[str, list[Values]]) -> str:
    """Return a table of medians, and of the first kind's medians divided by those of each other kind."""
    kinds = list(results)
    heads = ["metric", *kinds, *(f"{kinds[0]} / {other}" for other in kinds[1:])]
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for key, title in METRICS.items():
        measured = {kind: [result[key] for result in results[kind] if key in result] for kind in kinds}
        medians = {kind: statistics.median(values) for kind, values in measured.items() if values}
        if not medians:
            continue
        cells = [
            _number(medians[kind]) + f" ({len(measured[kind])})" if kind in medians else "-" for kind in kinds
        ]
        first = medians.get(kinds[0])
        ratios = [
            f"{first / medians[kind]:.2f}" if first is not None and medians.get(kind, 0) > 0 else "-"
            for kind in kinds[1:]
        ]
        lines.append("| " + " | ".join([title, *cells, *ratios]) + " |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def earlier(path: Path) -> tuple[dict[str, list[Values]], dict[str, str]]:
    """Return the values and descriptions of earlier runs, by kind. Raises BenchError."""
    if not path.exists():
        return {}, {}
    try:
        results = json.loads(path.read_text())
        return dict(results["values"]), dict(results["kinds"])
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path} has no values of an earlier run") from error


def main(argv: list[str] | None = None) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.clusters", description=__doc__)
    parser.add_argument(
        "--kinds", default=",".join(ALONE), help="in this order; ratios are those of the first"
    )
    parser.add_argument(
        "--parts",
        default="load,transactions,failover",
        help="which of load, transactions, failover, creations, join",
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--mb", type=int, default=300, help="megabytes for each throughput")
    parser.add_argument("--count", type=int, default=2_000, help="requests for the latencies")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"little of everything ({MANY_PER_REQUEST} partitions): to see that it works",
    )
    parser.add_argument("--data", type=Path, default=ROOT / ".data", metavar="DIR")
    parser.add_argument(
        "--json", type=Path, metavar="FILE",
        help="add every value to those that are there, and print the medians of all: a measurement in short pieces",
    )  # fmt: skip
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: terminated"))
    build()
    kinds = options.kinds.split(",")
    many, topics = MANY, TOPICS
    if options.quick:
        if options.json:
            parser.error("--quick measures nothing that belongs to --json's values")
        options.mb, options.count = min(options.mb, 20), min(options.count, 200)
        many, topics = MANY_PER_REQUEST, MANY_PER_REQUEST
    results: dict[str, list[Values]] = {}
    described: dict[str, str] = {}
    if options.json:
        try:
            results, described = earlier(options.json)
        except BenchError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    results = {kind: results.get(kind, []) for kind in (*KINDS, *kinds) if kind in kinds or kind in results}
    directory = options.data.resolve() / f"clusters-{os.getpid()}"
    try:
        for number in range(options.rounds):
            for kind in kinds:
                begun = time.monotonic()
                values: Values = {}
                with Cluster(kind, directory / f"{kind}-{number}") as cluster:
                    described[kind] = cluster.peers[BROKERS[0]].describe()
                    if "load" in options.parts:
                        values |= load(cluster, options.mb * 1_000_000, options.count)
                    if "transactions" in options.parts:
                        values |= ends(cluster, options.count)
                    if "failover" in options.parts:
                        values |= failover(cluster, many)
                    if "creations" in options.parts:
                        values |= creations(cluster, CREATED)
                    if "join" in options.parts:
                        values |= join(cluster, topics)
                results[kind].append(values)
                print(f"{kind}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    except (BenchError, OSError, subprocess.SubprocessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if options.json:
            options.json.write_text(
                json.dumps({"machine": describe_machine(), "kinds": described, "values": results}, indent=1)
            )
    print(", ".join(f"{name} {value}" for name, value in describe_machine().items()))
    for kind, text in described.items():
        print(f"- {kind}: {text}")
    print(f"\nMedians; how many rounds is in parentheses.\n\n{table(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
