"""Apache Kafka's brokers and ours in one cluster, with one store: `python -m compat.tiered.cluster [--zookeeper]`.

Each leads a tiered partition in turn, reads and deletes what the other has stored, and answers the same about it. The rule:
a store holds one history: at no record of `__remote_log_metadata` do finished copies of a partition overlap.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.tiered.lineage import LineageError, PartitionSegments
from barnabas.tiered.metadata import METADATA_TOPIC, PartitionDelete, decode, metadata_partition
from barnabas.tiered.segment import SegmentState, TopicIdPartition
from compat.cluster.nodes import KAFKA, OURS, Cluster, ClusterError, in_directory, wait_until
from compat.kit.wire import Connection
from compat.tiered.answers import LIST_OFFSETS, REFUSED, Side
from compat.tiered.java import Oracle, fields_of
from compat.tiered.pair import KINDS, METADATA_PARTITIONS, SEGMENT_BYTES, kafka_version, pair

TOPIC = "tiered"
VALUE_BYTES = 100_000
RECORDS_PER_TURN = 45
STEP_MS = 1000
WAIT_S = 60
LIST_OFFSETS_OF_3_9, PENDING_UPLOAD_SINCE = 9, 11
SPECIAL_OFFSETS = (-1, -2, -3, -5)
PENDING_UPLOAD = -6
"""Timestamps of ListOffsets: log end, log start, largest timestamp, end of the store; first offset that is not stored."""
TOPIC_SETTINGS = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": "1",
    "retention.ms": "-1",
}
INVALID_CONFIG = 40
SWITCHED_OFF = {"remote.storage.enable": "false"}
"""Kafka 3.9 on ZooKeeper does so and leaves what is stored, which nothing reads or deletes then; ours refuses it."""
SWITCHES: tuple[dict[str, str], ...] = (
    SWITCHED_OFF,
    {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"},
    {"remote.log.delete.on.disable": "true"},
    {"remote.log.copy.disable": "true"},
    {"remote.log.copy.disable": "true", "local.retention.ms": "-2", "local.retention.bytes": "-2"},
    {"local.retention.ms": "1", "local.retention.bytes": "1"},
)
"""Switching off (KIP-950), and what belongs to it."""


class Tiers:
    """The cluster, and what was produced."""

    def __init__(self, directory: Path, controller: str, *, has_zookeeper: bool) -> None:
        self.store = directory / "store"
        self.cluster = pair(directory, controller, has_zookeeper=has_zookeeper)
        self.is_on_zookeeper = has_zookeeper
        self.list_offsets = LIST_OFFSETS_OF_3_9 if has_zookeeper else LIST_OFFSETS
        self.values: list[bytes] = []
        self.first_ms = int(time.time() * 1000) - 3_600_000

    # --- the cluster --------------------------------------------------------------------------------------------

    def create(self, topic: str, **settings: str) -> None:
        """Make a topic of one partition with a replica on each broker."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        texts = {**TOPIC_SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
        assignment = [sorted(self.cluster.kinds)]
        admin.create_topics([NewTopic(topic, 1, replica_assignment=assignment, config=texts)])[topic].result(
            30
        )
        self.cluster.wait_in_sync(topic, len(KINDS))

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until nothing of it is stored."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        admin.delete_topics([topic])[topic].result(30)
        wait_until(lambda: not self.stored(topic), "nothing is stored of a deleted topic", seconds=WAIT_S)

    def stored(self, topic: str) -> list[Path]:
        """Return the segments of a topic in the store."""
        return sorted(path for path in self.store.rglob("*.log") if path.parent.name.startswith(f"{topic}-"))

    def lead(self, topic: str, broker_id: int) -> None:
        """Make a broker the leader of a topic's partition."""
        others = [number for number in sorted(self.cluster.kinds) if number != broker_id]
        partition = {"PartitionIndex": 0, "Replicas": [broker_id, *others]}
        self._ask(
            "AlterPartitionReassignments", 0,
            {"TimeoutMs": 10_000, "Topics": [{"Name": topic, "Partitions": [partition]}]},
        )  # fmt: skip
        wait_until(
            lambda: self.cluster.assignment(topic)[0][0] == broker_id, "the replicas are in another order"
        )
        self.cluster.wait_in_sync(topic, len(KINDS))

        def is_led() -> bool:
            asked = {"Topic": topic, "Partitions": [0]}
            self._ask("ElectLeaders", 2, {"ElectionType": 0, "TopicPartitions": [asked], "TimeoutMs": 10_000})
            return bool(self.cluster.states(topic)[0]["leader"] == broker_id)

        wait_until(is_led, f"broker {broker_id} leads {topic}")

    def _ask(self, api: str, version: int, request: dict[str, Any]) -> None:
        """Send a request to the controller, if it is a broker (on ZooKeeper), else to the first broker."""
        nodes = self.cluster.nodes
        host, _, port = nodes.get(self.cluster.controller(), nodes[min(nodes)]).bootstrap.rpartition(":")
        connection = Connection(host, int(port))
        connection.ask(api, version, request)
        connection.close()

    @contextmanager
    def side(self, broker_id: int) -> Iterator[Side]:
        """Ask one broker."""
        side = Side(self.cluster.nodes[broker_id].bootstrap, self.list_offsets)
        try:
            yield side
        finally:
            side.close()

    # --- records ------------------------------------------------------------------------------------------------

    def produce(self, topic: str) -> None:
        """Write records, each in a batch of its own."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "linger.ms": 0, "acks": "all"})
        for _ in range(RECORDS_PER_TURN):
            number = len(self.values)
            value = b"%d " % number + bytes([97 + number % 26]) * VALUE_BYTES
            producer.produce(topic, value, partition=0, timestamp=self.first_ms + number * STEP_MS)
            if producer.flush(30):
                raise ClusterError(f"record {number} is not acknowledged")
            self.values.append(value)

    def read(self, topic: str, start: int = 0) -> list[bytes]:
        """Read a topic to its end."""
        consumer = Consumer(
            {"bootstrap.servers": self.cluster.bootstrap, "group.id": "reader", "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(topic, 0, start)])
        values: list[bytes] = []
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                break
            else:
                raise ClusterError(f"{topic} cannot be read: {error}")
        consumer.close()
        return values


def answers(tiers: Tiers, broker_id: int) -> list[tuple[str, Any]]:
    """Return what a leader answers about the log: offsets, times, records."""
    with tiers.side(broker_id) as side:
        count = len(tiers.values)
        is_newer = tiers.list_offsets >= PENDING_UPLOAD_SINCE
        timestamps = (*SPECIAL_OFFSETS, PENDING_UPLOAD) if is_newer else SPECIAL_OFFSETS
        results: list[tuple[str, Any]] = [
            (f"offset {timestamp}", _without_epoch(side.offset(timestamp))) for timestamp in timestamps
        ]
        for number in range(0, count, 7):
            time_ms = tiers.first_ms + number * STEP_MS
            results.append((f"time {number}", _without_epoch(side.offset(time_ms))))
        for offset in range(0, count, 5):
            answer = side.fetch(offset, 1)
            records = answer["Records"]
            results.append((f"fetch {offset}", (answer["ErrorCode"], bytes(records) if records else b"")))
        return results


def _without_epoch(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without the epoch of the log end, which is another one for each leader."""
    return {name: value for name, value in answer.items() if name != "LeaderEpoch" or answer["Offset"] < 0}


def turns(tiers: Tiers) -> Iterator[str]:
    """Yield the differences while each broker leads in turn."""
    ids = sorted(tiers.cluster.kinds)
    tiers.create(TOPIC)
    for broker_id in (*ids, *ids):
        kind = tiers.cluster.kinds[broker_id]
        tiers.lead(TOPIC, broker_id)
        tiers.produce(TOPIC)
        with tiers.side(broker_id) as side:
            at_least = len(tiers.values) - 12
            wait_until(
                lambda side=side, at_least=at_least: side.offset(-5)["Offset"] >= at_least,
                f"broker {broker_id} ({kind}) has copied its segments",
            )
        _wait_local(tiers, at_least)
        if tiers.read(TOPIC) != tiers.values:
            yield f"read while {kind} leads: other records than were produced"
        print(f"  {kind} led: {len(tiers.values)} records, {len(tiers.stored(TOPIC))} segments", flush=True)
    results = {}
    for broker_id in ids:
        tiers.lead(TOPIC, broker_id)
        _settle(tiers, broker_id)
        results[broker_id] = answers(tiers, broker_id)
    first, second = ids
    for (label, answer), (_, other) in zip(results[first], results[second], strict=True):
        if answer != other:
            yield f"{label} at broker {first}: {str(answer)[:300]}, at broker {second}: {str(other)[:300]}"
    print(f"  {len(results[first])} answers of each leader", flush=True)


def _settle(tiers: Tiers, broker_id: int) -> None:
    """Wait until a new leader has loaded the metadata of the stored segments."""
    with tiers.side(broker_id) as side:
        at_least = len(tiers.values) - 12
        wait_until(lambda: side.offset(-5)["Offset"] >= at_least, f"broker {broker_id} knows what is stored")


def _wait_local(tiers: Tiers, at_least: int) -> None:
    """Wait until each broker has deleted the oldest segments locally."""
    for broker_id, node in tiers.cluster.nodes.items():
        folder = node.log_dir / f"{TOPIC}-0"
        wait_until(
            lambda folder=folder: min(int(path.stem) for path in folder.glob("*.log")) >= at_least - 12,
            f"local segments of broker {broker_id} go",
        )


def refusals(tiers: Tiers) -> Iterator[str]:
    """Yield changes of a tiered topic's settings that brokers, or their controllers, do not answer alike."""
    for settings in (*REFUSED, *SWITCHES):
        results = {}
        for broker_id, kind in tiers.cluster.kinds.items():
            with tiers.side(broker_id) as side:
                results[kind] = side.alter(TOPIC, settings, is_only_validated=True)
        is_known = tiers.is_on_zookeeper and settings == SWITCHED_OFF
        codes = results[KAFKA][0], results[OURS][0]
        if codes != ((0, INVALID_CONFIG) if is_known else (codes[0], codes[0])):
            yield f"{settings}: Kafka {results[KAFKA]}, ours {results[OURS]}"
    print(f"  {len(REFUSED) + len(SWITCHES)} changes of settings", flush=True)


def deletions(tiers: Tiers) -> Iterator[str]:
    """Yield what is wrong while each broker deletes what the other has stored."""
    for broker_id, offset in zip(sorted(tiers.cluster.kinds), (25, 75), strict=True):
        kind = tiers.cluster.kinds[broker_id]
        tiers.lead(TOPIC, broker_id)
        _settle(tiers, broker_id)
        with tiers.side(broker_id) as side:
            answer = side.delete_records(offset)
            if answer["ErrorCode"]:
                yield f"deletion of records at {kind}: {answer}"
        wait_until(
            lambda offset=offset: int(tiers.stored(TOPIC)[1].name[:20]) > offset,
            f"segments before {offset} go from the store while {kind} leads",
        )
        if tiers.read(TOPIC, offset) != tiers.values[offset:]:
            yield f"read after a deletion at {kind}: other records"
    for broker_id in sorted(tiers.cluster.kinds):
        kind = tiers.cluster.kinds[broker_id]
        name = f"gone-{broker_id}"
        tiers.create(name)
        for leader in (*(number for number in tiers.cluster.kinds if number != broker_id), broker_id):
            before = len(tiers.stored(name))
            tiers.lead(name, leader)
            tiers.produce(name)
            del tiers.values[-RECORDS_PER_TURN:]
            wait_until(
                lambda name=name, before=before: len(tiers.stored(name)) > before + 2, f"{name} is stored"
            )
        tiers.delete(name)
        print(f"  {name}, stored by both, is deleted by {kind}", flush=True)


def restarts(tiers: Tiers) -> Iterator[str]:
    """Yield what is wrong once each broker was killed and leads alone after that."""
    for broker_id in sorted(tiers.cluster.kinds):
        kind = tiers.cluster.kinds[broker_id]
        tiers.lead(TOPIC, broker_id)
        tiers.cluster.nodes[broker_id].kill()
        wait_until(
            lambda broker_id=broker_id: tiers.cluster.states(TOPIC)[0]["leader"] not in (-1, broker_id),
            f"another broker than {broker_id} leads",
        )
        if tiers.read(TOPIC, 75) != tiers.values[75:]:
            yield f"read while {kind} is away: other records"
        tiers.cluster.start(broker_id)
        tiers.cluster.wait_in_sync(TOPIC, len(KINDS))
        tiers.lead(TOPIC, broker_id)
        if tiers.read(TOPIC, 75) != tiers.values[75:]:
            yield f"read from {kind} after its restart: other records"


def metadata(tiers: Tiers, oracle: Oracle) -> Iterator[str]:
    """Yield what is wrong with the records of the metadata topic, after the tiered topic was deleted, too."""
    tiers.delete(TOPIC)
    time.sleep(2)
    consumer = Consumer(
        {"bootstrap.servers": tiers.cluster.bootstrap, "group.id": "metadata", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(METADATA_TOPIC, number, 0) for number in range(METADATA_PARTITIONS)])
    partitions: dict[TopicIdPartition, PartitionSegments] = {}
    writers: dict[int, int] = {}
    ends = 0
    while ends < METADATA_PARTITIONS:
        message = consumer.poll(WAIT_S)
        if message is None or message.error() is not None:
            ends += 1
            continue
        value = message.value() or b""
        record = decode(value)
        writers[record.broker_id] = writers.get(record.broker_id, 0) + 1
        if metadata_partition(record.partition, METADATA_PARTITIONS) != message.partition():
            yield f"{record} is in metadata partition {message.partition()}"
        if isinstance(record, PartitionDelete):
            continue
        if oracle.ask("decode", hex=value.hex()) != fields_of(record):
            yield f"Kafka's class reads another record than {record}"
        segments = partitions.setdefault(record.partition, PartitionSegments())
        try:
            segments.apply(record)
        except LineageError as error:
            yield f"{record.partition}: {error}"
        yield from _overlaps(record.partition, segments)
    consumer.close()
    for partition, segments in partitions.items():
        if len(segments):
            yield f"{partition} is deleted, and has records of {len(segments)} segments"
    print(f"  records of the metadata topic by broker: {writers}", flush=True)


def _overlaps(partition: TopicIdPartition, segments: PartitionSegments) -> Iterator[str]:
    end = -1
    for segment in segments.segments():
        if segment.state is SegmentState.COPY_FINISHED:
            if segment.start_offset <= end:
                yield f"{partition}: offsets from {segment.start_offset} on are stored twice"
            end = segment.end_offset


def run(directory: Path, controller: str, *, has_zookeeper: bool) -> None:
    """Compare, and print what differs. Raises ClusterError if anything does."""
    tiers = Tiers(directory, controller, has_zookeeper=has_zookeeper)
    failed = 0
    with Oracle() as oracle, tiers.cluster as cluster:
        if isinstance(cluster, Cluster):
            cluster.make_controller(cluster.of_kind(controller)[0])
        parts: dict[str, Callable[[], Iterator[str]]] = {
            "each leads in turn": lambda: turns(tiers),
            "settings are refused alike": lambda: refusals(tiers),
            "each deletes what the other has stored": lambda: deletions(tiers),
            "each is killed": lambda: restarts(tiers),
            "metadata records": lambda: metadata(tiers, oracle),
        }
        for name, part in parts.items():
            differences = list(part())
            print(f"{name}: {len(differences)} differences", flush=True)
            for text in differences[:10]:
                print(f"  {text}", flush=True)
            failed += len(differences)
        for broker_id, lines in tiers.cluster.complaints().items():
            print(f"errors in the log of broker {broker_id}: {lines[:5]}", flush=True)
    if failed:
        raise ClusterError(f"{failed} differences")


def main(argv: Sequence[str]) -> int:
    """Return the exit code: 0 when nothing differs."""
    parser = argparse.ArgumentParser(prog="python -m compat.tiered.cluster", description=__doc__)
    parser.add_argument(
        "--controller", choices=(KAFKA, OURS), default=KAFKA, help="whose it is (default: %(default)s)"
    )
    parser.add_argument("--zookeeper", action="store_true", help="Kafka 3.9 on ZooKeeper instead of a quorum")
    parser.add_argument("--dir", type=Path, help="where everything is to stay")
    options = parser.parse_args(argv)
    keeper = "on ZooKeeper" if options.zookeeper else "in a quorum"
    version = kafka_version(has_zookeeper=options.zookeeper)
    print(f"Apache Kafka {version} and ours {keeper}, controller: {options.controller}", flush=True)
    return in_directory(
        "tiered-cluster-",
        options.dir,
        lambda place: run(place, options.controller, has_zookeeper=options.zookeeper),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
