"""Apache Kafka tiers a topic; our library reads its metadata and its objects, writes them anew, and Kafka reads those.

The rule: contents are verified, not reports. Each record of a remote segment is compared with the produced ones, and after
our library has replaced all of Kafka's objects, a stock consumer reads the topic from its beginning.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.records.batch import DECOMPRESSED_BYTES_MAX, iter_batches, iter_records, require_crc
from barnabas.records.record import Record
from barnabas.tiered.lineage import PartitionSegments
from barnabas.tiered.metadata import METADATA_TOPIC, decode, encode, metadata_partition
from barnabas.tiered.segment import RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition
from barnabas.tiered.storage import IndexKind, RemoteObjectNotFoundError, RemoteStorage, SegmentFiles
from barnabas.tiered.stores import open_store
from barnabas.tools.logtool.tier_command import CLASS_NAME, COUNT
from compat.kafka import RealKafka
from compat.tiered.exchange import CHUNK, FILESYSTEM, LOCAL_CLASS
from compat.tiered.java import Oracle, fields_of
from compat.tiered.plugin import CLASS as AIVEN_CLASS
from tests.support.rsa_keys import key_files

VERSION = "4.3.1"
TOPIC, PARTITIONS, METADATA_PARTITIONS = "tiered", 2, 5
SEGMENT_BYTES = 1 << 20  # as small as Kafka 4 allows
RECORDS, VALUE_BYTES = 6_000, 1_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WAIT_S = 120
QUIET_S = 5
FIRST_LOG = f"{0:020}.log"
Segments = dict[TopicIdPartition, PartitionSegments]
Values = dict[int, list[bytes]]


def run(oracle: Oracle, mode: str, jars: str) -> Iterator[str]:
    """Yield what goes wrong with a store: `directory`, or `aiven`; `jars` are the class path of its Java class."""
    with TemporaryDirectory(prefix="tiered-broker-") as name:
        folder = Path(name)
        (folder / "store").mkdir()
        class_name, settings = _store_settings(mode, folder)
        broker = {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": class_name,
            "remote.log.storage.manager.class.path": jars,
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
            "rlmm.config.remote.log.metadata.topic.num.partitions": str(METADATA_PARTITIONS),
            "remote.log.manager.task.interval.ms": "500",
            "log.retention.check.interval.ms": "500",
            **{f"rsm.config.{setting}": value for setting, value in settings.items()},
        }
        with RealKafka(VERSION, settings=broker, data=folder / "kafka") as kafka:
            values, committed = _produced(kafka)
            segments = _tiered(kafka, oracle)
            store = open_store(mode, settings)
            for partition, lineage in segments.items():
                yield from _judge(store, partition, lineage, values[partition.partition])
            yield from _checked(kafka, class_name, settings)
            stored = _written_anew(store, segments, mode, settings, folder)
            kafka.stop()
            kafka.start()
            consumed = _consumed(kafka)
            if consumed != committed:
                yield f"read through Kafka out of our objects: {_difference(consumed, committed)}"
            if any(path.name == FIRST_LOG for path in kafka.log_dir.glob(f"{TOPIC}-*/*")):
                yield "Kafka has kept its own first segments: nothing was read out of our objects"
            print(f"  {mode}: {stored} segments, {sum(map(len, values.values()))} records", flush=True)


def _store_settings(mode: str, folder: Path) -> tuple[str, dict[str, str]]:
    if mode == "directory":
        return LOCAL_CLASS, {"dir": str(folder / "store")}
    public, private = key_files(folder)
    return AIVEN_CLASS, {
        "storage.backend.class": FILESYSTEM,
        "storage.root": str(folder / "store"),
        "chunk.size": str(CHUNK),
        "key.prefix": "tiered/",
        "compression.enabled": "true",
        "encryption.enabled": "true",
        "encryption.key.pair.id": "a",
        "encryption.key.pairs": "a",
        "encryption.key.pairs.a.public.key.file": str(public),
        "encryption.key.pairs.a.private.key.file": str(private),
        "custom.metadata.fields.include": "REMOTE_SIZE,OBJECT_KEY",
    }


def _produced(kafka: RealKafka) -> tuple[Values, Values]:
    """Write the topic, in all codecs and in transactions of which some are aborted: all values, and those committed."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    config = {
        "remote.storage.enable": "true",
        "segment.bytes": str(SEGMENT_BYTES),
        "local.retention.bytes": "1",
        "index.interval.bytes": "4096",
    }
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=config)]).values():
        future.result()
    values: Values = {number: [] for number in range(PARTITIONS)}
    committed: Values = {number: [] for number in range(PARTITIONS)}
    random = Random(56)
    for codec in CODECS:
        producer = Producer({
            "bootstrap.servers": kafka.bootstrap, "compression.type": codec, "transactional.id": codec, "linger.ms": 5,
        })  # fmt: skip
        producer.init_transactions()
        for is_committed in (True, False, True):
            producer.begin_transaction()
            for _ in range(RECORDS // len(CODECS) // 3):
                number, value = random.randrange(PARTITIONS), random.randbytes(VALUE_BYTES)
                producer.produce(TOPIC, value, partition=number)
                producer.poll(0)
                values[number].append(value)
                if is_committed:
                    committed[number].append(value)
            producer.flush()
            (producer.commit_transaction if is_committed else producer.abort_transaction)()
    return values, committed


def _tiered(kafka: RealKafka, oracle: Oracle) -> Segments:
    """Read the metadata until nothing new comes; each record is compared with what Kafka's class reads out of it."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "metadata", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(METADATA_TOPIC, number, 0) for number in range(METADATA_PARTITIONS)])
    segments: Segments = {}
    deadline, last = time.monotonic() + WAIT_S, time.monotonic()
    while time.monotonic() < last + QUIET_S or not segments:
        if time.monotonic() > deadline:
            raise KafkaError(
                f"after {WAIT_S} s there are still new records of remote segments, or none at all"
            )
        message = consumer.poll(0.2)
        if message is None or message.error():
            continue
        last = time.monotonic()
        value = message.value()
        record = decode(value)
        if not isinstance(record, RemoteSegment | SegmentUpdate):
            raise ValueError(f"Kafka wrote {record}")
        if encode(record) != value or oracle.ask("decode", hex=value.hex()) != fields_of(record):
            raise ValueError(f"{value.hex()} is read as {record}")
        if metadata_partition(record.partition, METADATA_PARTITIONS) != message.partition():
            raise ValueError(f"{record.partition} is in metadata partition {message.partition()}")
        segments.setdefault(record.partition, PartitionSegments()).apply(record)
    consumer.close()
    return segments


def _judge(
    store: RemoteStorage, partition: TopicIdPartition, lineage: PartitionSegments, values: list[bytes]
) -> Iterator[str]:
    """Yield what is wrong with the remote segments of a partition."""
    finished = [segment for segment in lineage.segments() if segment.state is SegmentState.COPY_FINISHED]
    if len(finished) < 2 or len(finished) != len(lineage):
        yield f"{partition}: {lineage.segments()}"
    offset, logs = 0, []
    for segment in finished:
        name = f"{partition.topic}-{partition.partition}, offset {segment.start_offset}"
        data = store.read(segment, 0, segment.size)
        batches = list(iter_batches(data))
        if segment.start_offset != offset or len(data) != segment.size:
            yield f"{name}: begins at {segment.start_offset} after {offset}, {len(data)} of {segment.size} bytes"
        offset = segment.end_offset + 1
        if batches[-1][1].base_offset + batches[-1][1].last_offset_delta != segment.end_offset:
            yield f"{name}: ends with another offset than {segment.end_offset}"
        if max(header.max_timestamp for _, header in batches) != segment.max_timestamp:
            yield f"{name}: the largest timestamp is not {segment.max_timestamp}"
        logs.append(data)
        for kind in IndexKind:
            try:
                if not store.read_index(segment, kind):
                    yield f"{name}: {kind.name} is empty"
            except RemoteObjectNotFoundError as error:
                if kind is not IndexKind.TRANSACTION or not segment.is_transaction_index_empty:
                    yield f"{name}: {error}"
    if lineage.highest_offset(finished[-1].leader_epochs[-1][0]) != offset - 1:
        yield f"{partition}: the highest offset is not {offset - 1}"
    records = [record.value for data in logs for record in _records(data)]
    if not records or records != values[: len(records)]:
        yield f"{partition}: {len(records)} records in remote segments are others than those produced"


def _records(data: bytes) -> Iterator[Record]:
    for position, header in iter_batches(data):
        require_crc(data, position, header)
        if not header.is_control:
            yield from iter_records(data, position, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)


def _checked(kafka: RealKafka, class_name: str, settings: dict[str, str]) -> Iterator[str]:
    """Yield what `barnabas log tier` finds wrong with what Kafka has in its log dir and its store."""
    arguments = [f"--set={CLASS_NAME}={class_name}"]
    arguments += [f"--set=rsm.config.{name}={value}" for name, value in settings.items()]
    arguments += [f"--set=rlmm.config.{COUNT}={METADATA_PARTITIONS}", str(kafka.log_dir)]
    for task in (["verify", "--deep"], ["orphans"]):
        command = [sys.executable, "-m", "barnabas", "log", "tier", *task, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or (task[0] == "verify" and "damaged=0" not in done.stdout):
            yield f"barnabas log tier {task[0]}: {done.stdout}{done.stderr}"


def _written_anew(
    store: RemoteStorage, segments: Segments, mode: str, settings: dict[str, str], folder: Path
) -> int:
    """Read every object, empty the store, and write each segment by our library; return how many there are."""
    copies: list[tuple[RemoteSegment, SegmentFiles]] = []
    for lineage in segments.values():
        for number, segment in enumerate(lineage.segments()):
            place = folder / "copies" / f"{segment.partition.partition}-{number}"
            place.mkdir(parents=True)
            copies.append((segment, _files(store, segment, place)))
    shutil.rmtree(folder / "store")
    (folder / "store").mkdir()
    anew = open_store(mode, settings)
    for segment, files in copies:
        custom = anew.copy(segment, files)
        if (custom is None) != (segment.custom_metadata is None):
            raise ValueError(f"custom metadata of {segment} are {custom!r}")
    return len(copies)


def _files(store: RemoteStorage, segment: RemoteSegment, place: Path) -> SegmentFiles:
    (place / "log").write_bytes(store.read(segment, 0, segment.size))
    for kind in IndexKind:
        if kind is not IndexKind.TRANSACTION or not segment.is_transaction_index_empty:
            (place / kind.value).write_bytes(store.read_index(segment, kind))
    transactions = place / IndexKind.TRANSACTION.value
    return SegmentFiles(
        log=place / "log",
        offset_index=place / IndexKind.OFFSET.value,
        time_index=place / IndexKind.TIMESTAMP.value,
        producer_snapshot=place / IndexKind.PRODUCER_SNAPSHOT.value,
        leader_epochs=(place / IndexKind.LEADER_EPOCH.value).read_bytes(),
        transaction_index=transactions if transactions.exists() else None,
    )


def _consumed(kafka: RealKafka) -> Values:
    """The committed values of the topic, read from its beginning by a stock consumer."""
    consumer = Consumer({
        "bootstrap.servers": kafka.bootstrap, "group.id": "values", "enable.partition.eof": True,
        "isolation.level": "read_committed",
    })  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    values: Values = {number: [] for number in range(PARTITIONS)}
    ended: set[int] = set()
    deadline = time.monotonic() + WAIT_S
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            if (
                message.error().code() == KafkaError._PARTITION_EOF
            ):  # others go away: the tier's metadata are read first
                ended.add(message.partition())
        else:
            values[message.partition()].append(message.value())
    consumer.close()
    return values


def _difference(consumed: Values, values: Values) -> str:
    return "; ".join(
        f"partition {number}: {len(consumed[number])} records of {len(values[number])}" for number in values
    )
