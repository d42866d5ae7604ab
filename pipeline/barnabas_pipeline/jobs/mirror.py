"""mirror: from a topic of one cluster to a topic of another, each record once, in order, with where it came from.

The rule: the target itself says how far the mirror is: its last record names the source offset. So a mirror that died
goes on after the last record that arrived, with no other state. Each try of a task asks the target again, for the try
before it may have died when much had arrived already. A partition goes to the partition of the same number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from barnabas.wire.generated.index import RECORDS
from barnabas_pipeline import faults
from barnabas_pipeline.errors import DataLossError, IncompleteError, MissingOffsets, UsageError
from barnabas_pipeline.jobs.load import unwrap
from barnabas_pipeline.log.columns import Columns
from barnabas_pipeline.log.model import Bounds, CorruptSpan, LogOptions, OffsetRange, TopicIdentity
from barnabas_pipeline.log.reader import RangeReader
from barnabas_pipeline.log.transports import open_log

HEADER = "barnabas-mirror-source"
TAIL_OFFSETS = 1000
FLUSH_SECONDS_MAX = 120.0


@dataclass(slots=True)
class MirrorSummary:
    """Figures of one run."""

    mirrored: int = 0
    already_there: int = 0
    skipped_control: int = 0
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class _Part:
    source: LogOptions
    target: LogOptions
    identity: TopicIdentity
    bound: Bounds
    wanted: OffsetRange


def mirror(spark: Any, source: LogOptions, target: LogOptions) -> MirrorSummary:
    """Mirror what is there now; one task a partition. Raises UsageError, DataLossError, IncompleteError."""
    if target.transport != "wire":
        raise UsageError("the target of a mirror is a cluster, not a directory")
    if target.topic in RECORDS:
        raise UsageError(
            f"{target.topic} cannot be mirrored into: a cluster alone writes to its internal topics"
        )
    log = open_log(source)
    try:
        identity, bounds = log.identity(), log.bounds()
    finally:
        log.close()
    into = open_log(target)
    try:
        target_bounds = into.bounds()
    finally:
        into.close()
    if len(target_bounds) < len(bounds):
        raise UsageError(
            f"{target.topic} has {len(target_bounds)} partitions, {source.topic} has {len(bounds)}"
        )
    summary = MirrorSummary(partitions=len(bounds))
    parts = []
    for partition, bound in sorted(bounds.items()):
        start = _resume(target, partition, target_bounds[partition], identity, bound)
        summary.already_there += start - bound.start
        if start < bound.end:
            parts.append(_Part(source, target, identity, bound, OffsetRange(partition, start, bound.end)))
    faults.point("mirror.after_plan")
    if parts:
        try:
            for mirrored, control in spark.sparkContext.parallelize(parts, len(parts)).map(copy).collect():
                summary.mirrored += mirrored
                summary.skipped_control += control
        except Exception as error:
            raise unwrap(error) from None
    faults.point("mirror.after_tasks")
    return summary


def _resume(target: LogOptions, partition: int, there: Bounds, identity: TopicIdentity, bound: Bounds) -> int:
    """The next source offset that the target lacks."""
    if there.end == there.start:
        return bound.start
    last = _last_source(target, OffsetRange(partition, max(there.start, there.end - TAIL_OFFSETS), there.end))
    if last is None:
        raise UsageError(f"{target.topic}-{partition} ends with records that are not from a mirror")
    cluster_id, topic_id, source_partition, offset = last
    if (cluster_id, topic_id) != (identity.cluster_id, identity.topic_id) or source_partition != partition:
        raise DataLossError(
            f"{target.topic}-{partition} mirrors {topic_id} of cluster {cluster_id}, not {identity.topic_id} of "
            f"{identity.cluster_id}",
            [MissingOffsets(partition, offset + 1, None)],
        )
    if offset + 1 < bound.start:
        raise DataLossError(
            f"retention has overtaken the mirror of {identity.topic}",
            [MissingOffsets(partition, offset + 1, bound.start)],
        )
    return offset + 1


def _last_source(target: LogOptions, tail: OffsetRange) -> tuple[str, str, int, int] | None:
    log = open_log(target)
    found = None
    try:
        for item in RangeReader(log, tail):
            if isinstance(item, Columns):
                for headers in item.headers.to_pylist():
                    values = [one["value"] for one in headers if one["key"] == HEADER]
                    found = _parse(values[-1]) if values else None
    finally:
        log.close()
    return found


def _parse(value: bytes) -> tuple[str, str, int, int] | None:
    try:
        cluster_id, topic_id, partition, offset = value.decode().split("/")
        return cluster_id, topic_id, int(partition), int(offset)
    except ValueError:
        return None


def copy(part: _Part) -> tuple[int, int]:
    """Copy what the target still lacks of one partition, in order.

    Returns how many records went over and how many offsets are control records.
    """
    from confluent_kafka import Producer

    wanted = _still_lacking(part)
    faults.point("mirror.after_resume")

    failures: list[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": part.target.bootstrap,
            "enable.idempotence": True,  # keeps the order even if requests are repeated
            "linger.ms": 20,
            "compression.type": "lz4",
            **part.target.client_settings,
        }
    )
    log = open_log(part.source)
    mirrored = 0
    try:
        reader = RangeReader(log, wanted)
        for item in reader:
            if isinstance(item, CorruptSpan):
                producer.flush(FLUSH_SECONDS_MAX)
                raise IncompleteError(
                    f"{part.source.topic}-{part.wanted.partition}: [{item.start}, {item.end}) is damaged: {item.detail}"
                )
            mirrored += _send(producer, part, item, delivered)
            faults.point("mirror.after_block")
            if failures:
                break
    finally:
        log.close()
        left = producer.flush(FLUSH_SECONDS_MAX)
    if failures or left:
        raise IncompleteError(
            f"{len(failures)} records failed ({failures[:1]}), {left} were not acknowledged"
        )
    faults.point("mirror.after_flush")
    return mirrored, reader.counts.control


def _still_lacking(part: _Part) -> OffsetRange:
    into = open_log(part.target)
    try:
        there = into.bounds()[part.wanted.partition]
    finally:
        into.close()
    start = _resume(part.target, part.wanted.partition, there, part.identity, part.bound)
    return OffsetRange(part.wanted.partition, min(start, part.wanted.end), part.wanted.end)


def _send(producer: Any, part: _Part, columns: Columns, delivered: Any) -> int:
    identity, partition = part.identity, part.wanted.partition
    for key, value, headers, offset, timestamp in zip(
        columns.key.to_pylist(),
        columns.value.to_pylist(),
        columns.headers.to_pylist(),
        columns.offset.tolist(),
        columns.timestamp_ms.tolist(),
        strict=True,
    ):
        source = f"{identity.cluster_id}/{identity.topic_id}/{partition}/{offset}".encode()
        carried = [*((one["key"], one["value"]) for one in headers), (HEADER, source)]
        while True:
            try:
                producer.produce(
                    part.target.topic,
                    value,
                    key,
                    partition,
                    headers=carried,
                    timestamp=max(timestamp, 0),
                    on_delivery=delivered,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    return len(columns)
