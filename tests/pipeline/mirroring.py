"""Ledgers of mirrored topics: what the source has, what the target has, record by record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.records.record import Record
from barnabas_pipeline.jobs.choices import parse_choice
from barnabas_pipeline.jobs.mirror.model import HEADER, MirrorOptions, parse_coordinates
from barnabas_pipeline.jobs.mirror.reading import read_records
from barnabas_pipeline.jobs.sites import Cluster
from barnabas_pipeline.log.model import LogOptions, OffsetRange
from barnabas_pipeline.log.transports import open_log

KEYS = 12


class Entry(NamedTuple):
    """A record as a ledger has it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int
    source_offset: int


def records(bootstrap: str, topic: str) -> dict[int, list[Record]]:
    """Return what consumers see of a topic, by partition."""
    log = open_log(LogOptions(topic, "wire", bootstrap))
    try:
        return {
            partition: list(read_records(log, OffsetRange(partition, bound.start, bound.end)))
            for partition, bound in log.bounds().items()
        }
    finally:
        log.close()


def high_watermark(bootstrap: str, topic: str) -> int:
    log = open_log(LogOptions(topic, "wire", bootstrap))
    try:
        return log.bounds()[0].high_watermark
    finally:
        log.close()


def source_ledger(bootstrap: str, topic: str) -> dict[int, list[Entry]]:
    return {
        partition: [Entry(r.key, r.value, tuple(r.headers), r.timestamp, r.offset) for r in read]
        for partition, read in records(bootstrap, topic).items()
    }


def target_ledger(bootstrap: str, topic: str) -> dict[int, list[Entry]]:
    """As `source_ledger`, with the newest source header taken off and read."""
    ledger: dict[int, list[Entry]] = {}
    for partition, read in records(bootstrap, topic).items():
        ledger[partition] = []
        for row in read:
            name, value = row.headers[-1]
            source = parse_coordinates(value)
            assert name == HEADER and source is not None and source.partition == partition, row  # noqa: PT018
            headers = tuple(row.headers[:-1])
            ledger[partition].append(Entry(row.key, row.value, headers, row.timestamp, source.offset))
    return ledger


def assert_mirrored(source: str, topic: str, target: str, copy: str = "") -> int:
    """See that two topics are the same, record by record and in order; returns how many records they have."""
    expected, actual = source_ledger(source, topic), target_ledger(target, copy or topic)
    assert actual == expected
    return sum(map(len, actual.values()))


def mirror_options(source: Any, target: Any, *topics: str, **more: Any) -> MirrorOptions:
    """Options for one source without a name."""
    exclude = more.pop("exclude", ())
    return MirrorOptions(
        (Cluster("", source.bootstrap),), Cluster("", target.bootstrap), parse_choice(topics, exclude), **more
    )


def create(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    settings = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in config.items()}}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, config=settings)])[name].result(20)


def send(bootstrap: str, topic: str, numbers: Iterable[int], partitions: int = 1, **config: Any) -> None:
    """Send records in which every part says which number it has; some are tombstones, some have headers."""
    producer = Producer({"bootstrap.servers": bootstrap, **config})
    for n in numbers:
        value = None if n % 7 == 3 else b"value-%d" % n
        key = None if n % 5 == 4 else b"key-%d" % n
        headers = [("n", b"%d" % n), ("n", None), ("empty", b"")] if n % 3 == 0 else None
        timestamp = 1_600_000_000_000 + n * 17 % 1000
        producer.produce(
            topic, value, key, n % partitions, headers=headers, timestamp=timestamp, on_delivery=_acknowledged
        )
        if n % 1000 == 999:
            producer.poll(0)
    assert producer.flush(30) == 0


def _acknowledged(error: Any, _: Any) -> None:
    assert error is None, error


def send_in_transactions(
    bootstrap: str, topic: str, numbers: range, size: int = 10, keys: int = KEYS
) -> None:
    """Every third transaction is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t-{topic}-{numbers.start}"})
    producer.init_transactions(30)
    for n in range(numbers.start, numbers.stop, size):
        producer.begin_transaction()
        for number in range(n, min(n + size, numbers.stop)):
            producer.produce(topic, b"value-%d" % number, b"key-%d" % (number % keys), 0)
        if n // size % 3 == 2:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def commit(
    bootstrap: str, group: str, topic: str, offset: int, partition: int = 0, metadata: str = ""
) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, partition, offset, metadata)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> tuple[int, str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (place,) = consumer.committed([TopicPartition(topic, partition)], 20)
        return place.offset, place.metadata or ""
    finally:
        consumer.close()


def values_from(bootstrap: str, topic: str, offset: int, partition: int = 0) -> list[bytes | None]:
    """Return the values that a consumer sees from an offset on."""
    return [record.value for record in records(bootstrap, topic)[partition] if record.offset >= offset]


def wait_until(done: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
