"""Answers about a tiered log, ours beside Apache Kafka's with the same store: `python -m compat.tiered.answers`.

The same records, batch by batch, go to both; both tier them and keep one segment. Then offsets, times, records at each
place of the log, refused settings and the end of tiering are asked for, field by field.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import Producer

from barnabas.records.batch import iter_batches
from compat.kafka import KafkaError, RealKafka
from compat.kit.wire import Connection, Values
from compat.matrix.brokers import Barnabas
from compat.tiered.java import Oracle, local_jars

VERSION = "4.3.1"
TOPIC = "tiered"
SEGMENT_BYTES = 1 << 20
VALUE = b"v" * 100_000
COUNT = 60
FIRST_MS = 1_790_000_000_000
STEP_MS = 1000
WAIT_S = 60
LIST_OFFSETS, FETCH = 11, 12
REQUEST_TIMED_OUT = 7
TRANSACTIONAL = "transactional"
TRANSACTIONS, RECORDS = 12, 4
SETTINGS = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": "1",
    "retention.ms": "-1",
}
REFUSED: tuple[dict[str, str], ...] = (
    {"remote.storage.enable": "true", "cleanup.policy": "compact"},
    {"remote.storage.enable": "true", "cleanup.policy": "compact,delete"},
    {"remote.storage.enable": "true", "retention.ms": "10", "local.retention.ms": "11"},
    {"remote.storage.enable": "true", "retention.bytes": "10", "local.retention.bytes": "-1"},
    {"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.bytes": "1"},
    {"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.ms": "1"},
    {"local.retention.ms": "-3"},
)
STORE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


def store_settings(folder: Path) -> dict[str, str]:
    """Settings of the broker, but for where a class is."""
    (folder / "store").mkdir(parents=True, exist_ok=True)
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": STORE,
        "rsm.config.dir": str(folder / "store"),
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
    }


class Side:
    """One broker, asked for what is compared."""

    def __init__(self, bootstrap: str, list_offsets: int = LIST_OFFSETS) -> None:
        """`list_offsets` is the version of ListOffsets where none is given."""
        host, _, port = bootstrap.rpartition(":")
        self._list_offsets = list_offsets
        self._bootstrap = bootstrap
        self._connection = Connection(host, int(port))
        self.timed_out = 0

    def close(self) -> None:
        """Let the connection go."""
        self._connection.close()

    def create(self, topic: str, settings: dict[str, str]) -> tuple[int, str]:
        """Return code and message of a topic's creation."""
        configs = [{"Name": name, "Value": value} for name, value in settings.items()]
        new_topic = {"Name": topic, "NumPartitions": 1, "ReplicationFactor": 1, "Configs": configs}
        answer = self._connection.ask("CreateTopics", 7, {"Topics": [new_topic], "timeoutMs": 10_000})
        created = answer["Topics"][0]
        return created["ErrorCode"], created["ErrorMessage"] or ""

    def alter(
        self, topic: str, settings: dict[str, str], *, is_only_validated: bool = False
    ) -> tuple[int, str]:
        """Return code and message of a change of settings."""
        configs = [{"Name": name, "ConfigOperation": 0, "Value": value} for name, value in settings.items()]
        resource = {"ResourceType": 2, "ResourceName": topic, "Configs": configs}
        request = {"Resources": [resource], "ValidateOnly": is_only_validated}
        answer = self._connection.ask("IncrementalAlterConfigs", 1, request)
        altered = answer["Responses"][0]
        return altered["ErrorCode"], altered["ErrorMessage"] or ""

    def produce(self) -> None:
        """Write the records, each in a separate batch."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0})
        for number in range(COUNT):
            producer.produce(TOPIC, VALUE, partition=0, timestamp=FIRST_MS + number * STEP_MS)
            producer.flush(10)

    def produce_transactions(self) -> None:
        """Write transactions, of which every other one is aborted, each record in a batch."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0, "transactional.id": "t"})
        producer.init_transactions()
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            for _ in range(RECORDS):
                producer.produce(TRANSACTIONAL, VALUE, partition=0, timestamp=FIRST_MS)
                producer.flush(10)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()

    def fetch_committed(self, offset: int, max_bytes: int) -> Any:
        """Return the answer to a fetch of transactions, without ids of producers: offsets and sizes of batches."""
        answer = self.fetch(offset, max_bytes, 1, TRANSACTIONAL)
        batches = [
            (header.base_offset, header.size) for _, header in iter_batches(answer.pop("Records") or b"")
        ]
        aborted = sorted(entry["FirstOffset"] for entry in answer.pop("AbortedTransactions") or ())
        return answer, aborted, batches

    def offset(self, timestamp: int, version: int | None = None, topic: str = TOPIC) -> Values:
        """Return the answer about a timestamp, or a special one."""
        version = self._list_offsets if version is None else version
        partition = {"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": timestamp}
        request = {
            "ReplicaId": -1,
            "IsolationLevel": 0,
            "Topics": [{"Name": topic, "Partitions": [partition]}],
            "TimeoutMs": 10_000,
        }
        for _ in range(3):
            answer: Values = self._connection.ask("ListOffsets", version, request)["Topics"][0]["Partitions"][
                0
            ]
            if answer["ErrorCode"] != REQUEST_TIMED_OUT:
                break
            self.timed_out += 1  # Kafka does now and then, where no record has the time: clients ask again
        return answer

    def fetch(self, offset: int, max_bytes: int, isolation: int = 0, topic: str = TOPIC) -> Values:
        """Return the answer to a fetch: code, watermarks, and the records' bytes."""
        partition = {"Partition": 0, "FetchOffset": offset, "PartitionMaxBytes": max_bytes}
        request = {
            "ReplicaId": -1,
            "MaxWaitMs": 500,
            "MinBytes": 1,
            "MaxBytes": 50 << 20,
            "IsolationLevel": isolation,
            "SessionEpoch": -1,
            "Topics": [{"Topic": topic, "Partitions": [partition]}],
        }
        answer: Values = self._connection.ask("Fetch", FETCH, request)["Responses"][0]["Partitions"][0]
        return answer

    def delete_records(self, offset: int) -> Values:
        """Return the answer to a deletion of records before an offset."""
        partition = {"PartitionIndex": 0, "Offset": offset}
        request = {"Topics": [{"Name": TOPIC, "Partitions": [partition]}], "TimeoutMs": 10_000}
        answer: Values = self._connection.ask("DeleteRecords", 2, request)["Topics"][0]["Partitions"][0]
        return answer


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition. Raises KafkaError."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise KafkaError(f"{what} has not come in {WAIT_S} s")
        time.sleep(0.2)


def ask(side: Side) -> Iterator[tuple[str, Any]]:
    """Yield the values to compare, with a label of each request."""
    for number, settings in enumerate(REFUSED):
        code, text = side.create(f"refused-{number}", settings)
        yield f"create with {settings}", (code, text if "remote.storage.enable" in settings else "")
    yield "create", side.create(TOPIC, SETTINGS)
    until(lambda: side.offset(-1)["ErrorCode"] == 0, "a leader")
    for timestamp in (-2, -4, -5, -6):
        yield f"offset {timestamp} of an empty log", side.offset(timestamp)
    side.produce()
    until(lambda: side.offset(-4)["Offset"] > COUNT - 15, "local deletion")
    time.sleep(1.5)
    for timestamp in range(-6, 0):
        yield f"offset {timestamp}", side.offset(timestamp)
    for version in (1, 4, 7, 9, 10):
        yield f"offset of the third, version {version}", side.offset(FIRST_MS + 2 * STEP_MS, version)
    for number in (0, 1, 9, 10, 11, 30, 49, 59, 60):
        for more in (0, 1):
            yield f"offset of time {number}+{more}", side.offset(FIRST_MS + number * STEP_MS + more)
    for offset in (0, 5, 9, 10, 11, 25, 49, 50, 59, 60, 61):
        for max_bytes in (1, 100_000, 250_000, 2 << 20):
            for isolation in (0, 1):
                yield (
                    f"fetch of {offset}, {max_bytes} bytes, isolation {isolation}",
                    side.fetch(offset, max_bytes, isolation),
                )
    side.create(TRANSACTIONAL, SETTINGS)
    until(lambda: side.offset(-1, topic=TRANSACTIONAL)["ErrorCode"] == 0, "a leader")
    side.produce_transactions()
    until(
        lambda: side.offset(-4, topic=TRANSACTIONAL)["Offset"] > TRANSACTIONS * RECORDS - 15, "local deletion"
    )
    time.sleep(1.5)
    for timestamp in (-2, -4, -5, -6):
        yield f"offset {timestamp} of transactions", side.offset(timestamp, topic=TRANSACTIONAL)
    for offset in range(0, TRANSACTIONS * (RECORDS + 1), 2):
        for max_bytes in (1, 350_000, 2 << 20):
            yield f"committed fetch of {offset}, {max_bytes} bytes", side.fetch_committed(offset, max_bytes)
    yield "deletion of records", side.delete_records(13)
    time.sleep(2)
    for timestamp in (-2, -4, -5, -6, FIRST_MS):
        yield f"offset {timestamp} after a deletion of records", side.offset(timestamp)
    for offset in (12, 13, 19):
        yield f"fetch of {offset} after a deletion of records", side.fetch(offset, 1)
    yield "switching off", side.alter(TOPIC, {"remote.storage.enable": "false"})
    yield (
        "switching off with deletion",
        side.alter(TOPIC, {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}),
    )
    until(lambda: side.offset(-2)["Offset"] == side.offset(-4)["Offset"], "the end of tiering")
    for timestamp in (-2, -4, -5, -6):
        yield f"offset {timestamp} after switching off", side.offset(timestamp)


def answers(bootstrap: str) -> list[tuple[str, Any]]:
    """Return all that a broker answers."""
    side = Side(bootstrap)
    try:
        return list(ask(side))
    finally:
        print(f"{side.timed_out} looks for a time were timed out", flush=True)
        side.close()


def main(_: Sequence[str]) -> int:
    """Return the exit code: 0 when nothing differs."""
    with TemporaryDirectory(prefix="tiered-answers-") as name, Oracle():
        folder = Path(name)
        broker = Barnabas(folder / "ours", store_settings(folder / "ours"))
        broker.start()
        try:
            ours = answers(broker.bootstrap)
        finally:
            broker.stop()
        settings = {
            **store_settings(folder / "kafka"),
            "remote.log.storage.manager.class.path": local_jars(),
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        }
        with RealKafka(VERSION, settings=settings, data=folder / "kafka" / "data") as kafka:
            theirs = answers(kafka.bootstrap)
    count = 0
    for (label, mine), (_label, other) in zip(ours, theirs, strict=True):
        if mine != other:
            count += 1
            print(f"{label}\n  ours   {str(mine)[:700]}\n  Kafka  {str(other)[:700]}")
    print(f"{len(ours)} answers, {count} differ")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
