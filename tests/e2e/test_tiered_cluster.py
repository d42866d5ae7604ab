"""Tiered storage in a cluster of three brokers: a follower that has to begin after the store, and then leads."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata

from tests.support.tiered_ledger import Writer, read_keys

from .conftest import PROGRAM
from .test_quorum import WAIT_SECONDS_MAX, Node, environment, until

pytestmark = pytest.mark.e2e

BROKERS = (4, 5, 6)
TOPIC = "ledger"
SEGMENT_BYTES = 32 << 10
VALUE = b"x" * 1000
STORE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
NO_SETTINGS: Mapping[str, str] = {}


class Cluster:
    """A controller and three brokers with one store."""

    def __init__(self, directory: Path, last: Mapping[str, str] = NO_SETTINGS) -> None:
        """`last` are settings of the last broker."""
        tiered = {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": STORE,
            "rsm.config.dir": str(directory / "tier"),
        }
        elsewhere = {
            "controller.quorum.bootstrap.servers": "127.0.0.1:1",
            "broker.session.timeout.ms": "2000",
        }
        self.controller = Node(directory, 1, "controller", elsewhere | tiered)
        shared = {
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller.port}",
            "broker.heartbeat.interval.ms": "400",
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.min.isr": "1",
            "replica.lag.time.max.ms": "3000",
            "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
            "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
            "rlmm.config.remote.log.metadata.topic.min.isr": "1",
            "remote.log.manager.task.interval.ms": "200",
            "log.retention.check.interval.ms": "300",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "broker.rack": "near",
            **tiered,
        }
        self.brokers = {
            number: Node(directory, number, "broker", shared | (dict(last) if number == BROKERS[-1] else {}))
            for number in BROKERS
        }
        self.bootstrap = ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def start(self) -> None:
        self.controller.format("--standalone").start()
        for broker in self.brokers.values():
            broker.format().start()

    def end(self) -> None:
        for node in (*self.brokers.values(), self.controller):
            node.end(signal.SIGKILL)

    def create(self, replicas: list[int]) -> None:
        config = {
            "remote.storage.enable": "true",
            "local.retention.bytes": "1",
            "internal.segment.bytes": str(SEGMENT_BYTES),
            "file.delete.delay.ms": "100",
        }
        topic = NewTopic(TOPIC, 1, replica_assignment=[replicas], config=config)
        self.admin.create_topics([topic])[TOPIC].result(WAIT_SECONDS_MAX)

    def topics(self, topic: str | None = None) -> Mapping[str, TopicMetadata]:
        """Return a topic or all, by a new client: a connected one may wait for a broker that has just died."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return admin.list_topics(topic, timeout=WAIT_SECONDS_MAX).topics

    def isr(self) -> set[int]:
        partitions = self.topics(TOPIC)[TOPIC].partitions
        return set(partitions[0].isrs) if partitions else set()

    def is_in_sync(self) -> bool:
        """Say whether all replicas of all topics are in sync, those of internal ones too."""
        topics = self.topics().values()
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        return all(set(partition.isrs) == set(partition.replicas) for partition in partitions)

    def leader(self) -> int:
        partitions = self.topics(TOPIC)[TOPIC].partitions
        return partitions[0].leader if partitions else -1

    def local_start(self, broker: int) -> int:
        """Return where the records of a broker's log begin."""
        folder = self.brokers[broker].data / f"{TOPIC}-0"
        return min(int(path.name[:20]) for path in folder.glob("*.log"))

    def reassign(self, replicas: str) -> None:
        command = [*PROGRAM, "brokers", "reassign", "start", f"{TOPIC}:0={replicas}", "--yes"]
        command += ["--bootstrap", self.bootstrap]
        subprocess.run(command, check=True, env=environment(), timeout=WAIT_SECONDS_MAX)


@pytest.fixture
def clusters() -> Iterator[list[Cluster]]:
    """Clusters that a test starts."""
    started: list[Cluster] = []
    yield started
    for cluster in started:
        cluster.end()


def started(clusters: list[Cluster], directory: Path, last: Mapping[str, str] = NO_SETTINGS) -> Cluster:
    clusters.append(Cluster(directory, last))
    clusters[0].start()
    return clusters[0]


def leads_alone(cluster: Cluster, writer: Writer, broker: int) -> None:
    """Have a broker lead without the others, and see that all is read from it, and written to it."""
    until(cluster.is_in_sync)
    for other in BROKERS:
        if other != broker:
            cluster.brokers[other].end(signal.SIGKILL)
    until(lambda: cluster.leader() == broker)
    writer.write(300)
    assert read_keys(cluster.bootstrap, TOPIC, len(writer.committed)) == writer.committed


def test_follower_that_was_away_joins_the_isr_and_leads(tmp_path: Path, clusters: list[Cluster]) -> None:
    cluster = started(clusters, tmp_path)
    cluster.create([4, 5, 6])
    writer = Writer(cluster.bootstrap, TOPIC, VALUE)
    writer.write(200)
    until(lambda: cluster.isr() == {4, 5, 6})
    cluster.brokers[6].end(signal.SIGKILL)
    until(lambda: 6 not in cluster.isr())
    writer.write(1500)
    until(lambda: min(cluster.local_start(4), cluster.local_start(5)) > 500)
    cluster.brokers[6].start()
    until(lambda: cluster.isr() == {4, 5, 6})
    assert "after what is in tiered storage from 0 on" in cluster.brokers[6].log.read_text()
    assert cluster.local_start(6) > 500
    leads_alone(cluster, writer, 6)


def test_new_replica_begins_after_the_tier_and_leads(tmp_path: Path, clusters: list[Cluster]) -> None:
    cluster = started(clusters, tmp_path, {"follower.fetch.last.tiered.offset.enable": "true"})
    cluster.create([4, 5])
    writer = Writer(cluster.bootstrap, TOPIC, VALUE)
    writer.write(1500)
    until(lambda: cluster.local_start(4) > 500)
    local_start = cluster.local_start(4)
    cluster.reassign("4,5,6")
    until(lambda: cluster.isr() == {4, 5, 6})
    assert cluster.local_start(6) >= local_start
    leads_alone(cluster, writer, 6)


def test_consumer_reads_remote_records_from_a_follower(tmp_path: Path, clusters: list[Cluster]) -> None:
    """A consumer in the rack of a follower reads there, also what is in the store only (KIP-392)."""
    cluster = started(clusters, tmp_path, {"broker.rack": "far"})
    cluster.create([4, 6])
    writer = Writer(cluster.bootstrap, TOPIC, VALUE)
    writer.write(1500)
    until(lambda: min(cluster.local_start(4), cluster.local_start(6)) > 500)
    sources: set[int] = set()

    def note(text: str) -> None:
        partitions = json.loads(text)["topics"].get(TOPIC, {}).get("partitions", {})
        sources.update({partitions["0"]["broker"]} if "0" in partitions else ())

    keys = read_keys(
        cluster.bootstrap,
        TOPIC,
        len(writer.committed),
        **{"client.rack": "far", "statistics.interval.ms": 50, "stats_cb": note},
    )
    assert keys == writer.committed
    assert 6 in sources
