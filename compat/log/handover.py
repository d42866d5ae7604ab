"""Handover of a log dir: written by us, adopted by Apache Kafka 3.9, and by us again; and one that Kafka began.

    python -m compat.log.handover [--version 3.9] [--writer barnabas|kafka|both] [--keep DIR]

The rule: a broker that opens the dir must serve the same records, committed offsets and transactions as the previous one,
and accept more; it must find a clean shutdown, so that no log is recovered. As a dir has logs but no metadata, its topics
are registered in ZooKeeper, as if Kafka's controller had created them.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from compat.kafka import RealKafka
from compat.log import workload
from compat.log.compare import SETTINGS, barnabas

COMPACTED = "handed-over-compacted"
GROUPS = ("compared-a", "compared-b")
TOPICS = {workload.TOPIC: workload.PARTITIONS, COMPACTED: 1}
TIMEOUT_S = 30
KAFKA_WRITERS = ("3.9", "4.x")
KAFKA_BROKER_ID = 1
PRODUCER_IDS_USED = 99_999  # or fewer, by us; Kafka must not give them to others
# Messages of Kafka's log manager about a dir with a clean shutdown, and about a log to recover.
TRUST = "since clean shutdown file was found"
DISTRUST = re.compile(
    r"recovering unflushed|corrupt|rebuilding index|found invalid|ERROR kafka.log", re.IGNORECASE
)


class Seen(NamedTuple):
    """The content as seen by clients: records by isolation level, and committed offsets by group."""

    uncommitted: list[tuple[object, ...]]
    committed: list[tuple[object, ...]]
    offsets: dict[str, dict[tuple[str, int], tuple[int, str]]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", default="3.9", help="the release that takes our dir on (default: 3.9)")
    parser.add_argument("--writer", default="both", choices=("barnabas", "kafka", "both"), help="who begins")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="leave everything there")
    options = parser.parse_args()
    directory = options.keep or Path(tempfile.mkdtemp(prefix="compat-handover-"))
    directory.mkdir(parents=True, exist_ok=True)
    differences: list[str] = []
    try:
        if options.writer in ("barnabas", "both"):
            differences += hand_over(directory / "logs", directory / "kafka", options.version)
        if options.writer in ("kafka", "both"):
            for version in KAFKA_WRITERS:
                differences += take_over(directory / f"kafka-{version}", version)
    finally:
        if not options.keep:
            shutil.rmtree(directory)
    for difference in differences:
        print(f"DIFFERENT  {difference}")
    return 1 if differences else 0


def hand_over(logs: Path, kafka_directory: Path, version: str) -> list[str]:
    """Run all handovers of a dir that we write; returns the problems."""
    with barnabas(logs) as bootstrap:
        workload.write(bootstrap)
        write_compacted(bootstrap)
        written = look(bootstrap)
    report("Barnabas wrote", written)

    topics = found_topics(logs)
    cluster_id = to_kafkas_meta_properties(logs)
    kafka = RealKafka(
        version,
        data=kafka_directory,
        mode="zookeeper",
        settings={**SETTINGS, "log.dirs": str(logs)},
        prepare=lambda broker: register(broker.zookeeper, cluster_id, topics),
    )
    with kafka:
        taken_on = look(kafka.bootstrap)
        add(kafka.bootstrap, "kafka")
        added = look(kafka.bootstrap)
    report(f"Kafka {kafka.release.version} took on", taken_on)
    report("... and wrote more", added)
    output = kafka.output.read_text().splitlines()

    with barnabas(logs) as bootstrap:
        taken_back = look(bootstrap)
        add(bootstrap, "barnabas")
        last = look(bootstrap)
    report("Barnabas took back", taken_back)
    report("... and wrote more", last)

    return [
        *different("Kafka sees other than was written", written, taken_on),
        *(f"Kafka's log: {line}" for line in output if DISTRUST.search(line)),
        *([] if any(TRUST in line for line in output) else ["Kafka found no clean end"]),
        *different("we see other than Kafka left", added, taken_back),
        *(
            f"what {who} added is not there"
            for who, all_seen in (("kafka", added), ("barnabas", last))
            if not has_added(all_seen, who)
        ),
    ]


def take_over(directory: Path, version: str) -> list[str]:
    """Adopt a dir that Kafka wrote; returns the problems."""
    with RealKafka(version, data=directory, settings=SETTINGS) as kafka:
        setting = workload.segment_setting(version)
        workload.write(kafka.bootstrap, segment_setting=setting)
        write_compacted(kafka.bootstrap, setting)
        written = look(kafka.bootstrap)
    report(f"Kafka {kafka.release.version} wrote", written)
    with barnabas(kafka.log_dir) as bootstrap:
        taken_on = look(bootstrap)
        add(bootstrap, "barnabas")
        added = look(bootstrap)
    with barnabas(kafka.log_dir) as bootstrap:
        again = look(bootstrap)
    report("Barnabas took on", taken_on)
    report("... and wrote more", added)
    return [
        *different(f"we see other than Kafka {version} wrote", written, taken_on),
        *different("we see other than we wrote", added, again),
        *([] if has_added(added, "barnabas") else ["what barnabas added is not there"]),
    ]


# --- the brokers ------------------------------------------------------------------------------------------------


class Topic(NamedTuple):
    """A topic as read from its logs: its id in Kafka's form, and leader epochs by partition."""

    topic_id: str
    epochs: dict[int, int]


def found_topics(logs: Path) -> dict[str, Topic]:
    """The topics with logs in a dir."""
    topics: dict[str, Topic] = {}
    for path in sorted(logs.glob("*-*/partition.metadata")):
        name, _, partition = path.parent.name.rpartition("-")
        topic_id = re.search(r"topic_id: (\S+)", path.read_text())
        assert topic_id, path
        checkpoint = path.parent / "leader-epoch-checkpoint"  # not there before the first record
        lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
        epochs = [int(line.split()[0]) for line in lines]
        topic = topics.setdefault(name, Topic(topic_id[1], {}))
        topic.epochs[int(partition)] = max(epochs, default=0)
    return topics


def to_kafkas_meta_properties(logs: Path) -> str:
    """Write the dir's `meta.properties` as a broker with ZooKeeper has it; returns the cluster id."""
    path = logs / "meta.properties"
    cluster_id = re.search(r"cluster.id=(\S+)", path.read_text())
    assert cluster_id, path
    path.write_text(f"version=0\nbroker.id={KAFKA_BROKER_ID}\ncluster.id={cluster_id[1]}\n")
    return cluster_id[1]


def register(address: str, cluster_id: str, topics: dict[str, Topic]) -> None:
    """Register the cluster and its topics in an empty ZooKeeper, as Kafka's controller would."""
    zookeeper = KazooClient(address)
    zookeeper.start(TIMEOUT_S)

    def put(path: str, value: object) -> None:
        zookeeper.create(path, json.dumps(value).encode(), makepath=True)

    try:
        put("/cluster/id", {"version": "1", "id": cluster_id})
        block = {
            "version": 1,
            "broker": KAFKA_BROKER_ID,
            "block_start": "0",
            "block_end": str(PRODUCER_IDS_USED),
        }
        put("/latest_producer_id_block", block)
        for name, topic in topics.items():
            is_compacted = name in (COMPACTED, "__consumer_offsets", "__transaction_state")
            config = {"cleanup.policy": "compact"} if is_compacted else {}
            put(f"/config/topics/{name}", {"version": 1, "config": config})
            replicas = {str(partition): [KAFKA_BROKER_ID] for partition in topic.epochs}
            put(
                f"/brokers/topics/{name}",
                {
                    "version": 3,
                    "topic_id": topic.topic_id,
                    "partitions": replicas,
                    "adding_replicas": {},
                    "removing_replicas": {},
                },
            )
            for partition, epoch in topic.epochs.items():
                put(
                    f"/brokers/topics/{name}/partitions/{partition}/state",
                    {
                        "controller_epoch": 0,
                        "leader": KAFKA_BROKER_ID,
                        "version": 1,
                        "leader_epoch": epoch,
                        "isr": [KAFKA_BROKER_ID],
                    },
                )
    finally:
        zookeeper.stop()
        zookeeper.close()


# --- records and offsets of clients -----------------------------------------------------------------------------


def write_compacted(bootstrap: str, segment_setting: str = "internal.segment.bytes") -> None:
    """Write a topic and wait until it is compacted: few keys, many values, tombstones, small segments."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {
        "cleanup.policy": "compact",
        segment_setting: "4096",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    }
    topic = NewTopic(COMPACTED, num_partitions=1, replication_factor=1, config=config)
    admin.create_topics([topic])[COMPACTED].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 8, "enable.idempotence": True})
    for n in range(2_000):
        value = None if n % 23 == 0 else b"%d" % n
        producer.produce(COMPACTED, key=b"key-%d" % (n * 7 % 50), value=value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    wait_until(lambda: len(read(bootstrap, COMPACTED, 1, "read_committed")) < 1_000, "compacted")


def add(bootstrap: str, who: str) -> None:
    """Write more, by an idempotent producer, by the transactional id that was there before, and by a commit."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for n in range(100):
        producer.produce(workload.TOPIC, key=b"%d" % n, value=b"added by " + who.encode(), partition=n % 2)
    producer.produce(COMPACTED, key=b"key-1", value=b"added by " + who.encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "compared"})
    producer.init_transactions(TIMEOUT_S)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(workload.TOPIC, value=f"{end.__name__} by {who}".encode(), partition=0)
        producer.flush(TIMEOUT_S)
        end(TIMEOUT_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUPS[1]})
    at = TopicPartition(workload.TOPIC, 1, 7 if who == "kafka" else 8, metadata=f"committed by {who}")
    consumer.commit(offsets=[at], asynchronous=False)
    consumer.close()


def has_added(seen: Seen, who: str) -> bool:
    """Return whether the records of `add` are there, and those that it aborts are not seen as committed."""
    values = [record[3] for record in seen.committed]
    everything = [record[3] for record in seen.uncommitted]
    return (
        values.count(f"added by {who}".encode()) == 101
        and values.count(f"commit_transaction by {who}".encode()) == 1
        and f"abort_transaction by {who}".encode() not in values
        and everything.count(f"abort_transaction by {who}".encode()) == 1
        and seen.offsets[GROUPS[1]][workload.TOPIC, 1][1] == f"committed by {who}"
    )


def look(bootstrap: str) -> Seen:
    """Read all records and committed offsets."""
    uncommitted: list[tuple[object, ...]] = []
    committed: list[tuple[object, ...]] = []
    for topic, partitions in TOPICS.items():
        uncommitted += read(bootstrap, topic, partitions, "read_uncommitted")
        committed += read(bootstrap, topic, partitions, "read_committed")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    offsets = {}
    for group in GROUPS:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        described = asked[group].result(TIMEOUT_S).topic_partitions
        offsets[group] = {(at.topic, at.partition): (at.offset, at.metadata or "") for at in described}
    return Seen(uncommitted, committed, offsets)


def read(bootstrap: str, topic: str, partitions: int, isolation: str) -> list[tuple[object, ...]]:
    """All records of a topic from its beginning to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "handover-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    records: list[tuple[object, ...]] = []
    at_end: set[int] = set()
    while len(at_end) < partitions:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"{topic} did not end in {TIMEOUT_S} s"
        if message.error() is None:
            records.append(shown(message))
        else:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            at_end.add(message.partition())
    consumer.close()
    return sorted(records, key=lambda record: (record[0], record[1]))  # type: ignore[arg-type, return-value]


def shown(message: Message) -> tuple[object, ...]:
    """Return all fields of a record that a client sees."""
    return (
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.timestamp(),
        message.headers(),
        message.leader_epoch(),
    )


# --- the comparison ---------------------------------------------------------------------------------------------


def different(what: str, before: Seen, after: Seen) -> Iterator[str]:
    """The differences, a line each; leader epochs of records that are there stay as well."""
    for name, old, new in zip(("read_uncommitted", "read_committed"), before[:2], after[:2], strict=True):
        if old != new:
            first = next((pair for pair in zip(old, new, strict=False) if pair[0] != pair[1]), None)
            yield f"{what}: {name}: {len(old)} and {len(new)} records, first difference {first}"
    if before.offsets != after.offsets:
        yield f"{what}: offsets {before.offsets} and {after.offsets}"


def report(who: str, seen: Seen) -> None:
    commits = sum(map(len, seen.offsets.values()))
    print(
        f"{who}: {len(seen.uncommitted)} records, {len(seen.committed)} of them committed, {commits} offsets",
        flush=True,
    )


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + 3 * TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not {what}")
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
