"""A Java process that gives access to Kafka's own classes: records, caches and stores of remote segments."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any
from zipfile import ZipFile

from barnabas.tiered.segment import RemoteSegment, SegmentUpdate
from barnabas.tiered.storage import IndexKind, RemoteObjectNotFoundError, RemoteStorageError, SegmentFiles
from barnabas.wire.ids import uuid_text
from compat.kafka.releases import ROOT, fetched_jars, release
from compat.kit.java import built

MOVED = "org/apache/kafka/common/utils/LogContext"
"""Classes that the store uses, and that Kafka 4.4 has in another package; its own store is not on Maven Central."""
SOURCE = Path(__file__).with_name("oracle")
MAIN = "org.apache.kafka.server.log.remote.metadata.storage.Oracle"
INDEXES = {
    IndexKind.OFFSET: "OFFSET",
    IndexKind.TIMESTAMP: "TIMESTAMP",
    IndexKind.TRANSACTION: "TRANSACTION",
    IndexKind.PRODUCER_SNAPSHOT: "PRODUCER_SNAPSHOT",
    IndexKind.LEADER_EPOCH: "LEADER_EPOCH",
}


def local_jars(version: str = "4") -> str:
    """The class path of Kafka's store for tests, for brokers of 3.9, or of 4.3 and 4.4. Raises KafkaError."""
    if version.startswith("3"):
        name = release(version).version
        jars = fetched_jars(
            SOURCE / "pom.xml", ROOT / ".tools" / f"tiered-store-{name}", f"-Dkafka.version={name}"
        )
        return ":".join(str(path) for path in sorted(jars.glob("*-test.jar")))
    jars = Path(built(SOURCE, "tiered-oracle").rpartition(":")[2].removesuffix("/*"))
    moved = jars.with_name("moved")
    if not moved.exists():
        (clients,) = (path for path in jars.glob("kafka-clients-*.jar") if not path.stem.endswith("-test"))
        with ZipFile(clients) as file:
            file.extractall(moved, [name for name in file.namelist() if name.startswith(MOVED)])
    return ":".join([*(str(path) for path in sorted(jars.glob("*-test.jar"))), str(moved)])


class OracleError(Exception):
    """An exception of Kafka's classes."""


class Oracle:
    """The running process; a context manager."""

    def __init__(self, classpath: str = "") -> None:
        """Compile and start it, with classes of a plug-in on the class path. Raises KafkaError."""
        path = ":".join(filter(None, (built(SOURCE, "tiered-oracle"), classpath)))
        self._process = subprocess.Popen(
            ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, MAIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def ask(self, op: str, **question: Any) -> dict[str, Any]:
        """The answer to a question. Raises OracleError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **question}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise OracleError(f"{answer['error']}: {answer['message']}")
        return answer


class JavaStorage:
    """A store of Kafka's interface RemoteStorageManager, as ours are asked; of one oracle, one at a time."""

    def __init__(self, oracle: Oracle, class_name: str, settings: dict[str, str]) -> None:
        self._oracle = oracle
        self._ask("open", **{"class": class_name, "settings": settings})

    def copy(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        paths = {
            "LOG": str(files.log),
            "OFFSET": str(files.offset_index),
            "TIMESTAMP": str(files.time_index),
            "PRODUCER_SNAPSHOT": str(files.producer_snapshot),
            "LEADER_EPOCH": files.leader_epochs.hex(),
            "TRANSACTION": str(files.transaction_index) if files.transaction_index is not None else None,
        }
        custom = self._ask("copy", files=paths, **fields_of(segment))["custom"]
        return None if custom is None else bytes.fromhex(custom)

    def read(self, segment: RemoteSegment, start: int, length: int) -> bytes:
        last = min(start + length, segment.size) - 1
        answer = self._ask("read", first=start, last=last, **fields_of(segment))
        # Kafka's store for tests gives all bytes from the position on.
        return bytes.fromhex(answer["hex"])[:length]

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        return bytes.fromhex(self._ask("index", index=INDEXES[kind], **fields_of(segment))["hex"])

    def delete(self, segment: RemoteSegment) -> None:
        self._ask("delete", **fields_of(segment))

    def _ask(self, op: str, **question: Any) -> dict[str, Any]:
        try:
            return self._oracle.ask(op, **question)
        except OracleError as error:
            kind = RemoteObjectNotFoundError if "ResourceNotFound" in str(error) else RemoteStorageError
            raise kind(str(error)) from None


def fields_of(record: RemoteSegment | SegmentUpdate) -> dict[str, Any]:
    """The fields of a record as the oracle takes and gives them."""
    partition, custom = record.partition, record.custom_metadata
    fields = {
        "kind": "update",
        "topic": partition.topic,
        "topicId": uuid_text(partition.topic_id.bytes),
        "partition": partition.partition,
        "segmentId": uuid_text(record.segment_id.bytes),
        "broker": record.broker_id,
        "event": record.event_timestamp,
        "custom": None if custom is None else custom.hex(),
        "state": int(record.state),
    }
    if isinstance(record, RemoteSegment):
        fields |= {
            "kind": "segment",
            "start": record.start_offset,
            "end": record.end_offset,
            "max": record.max_timestamp,
            "size": record.size,
            "empty": record.is_transaction_index_empty,
            "epochs": [list(entry) for entry in record.leader_epochs],
        }
    return fields
