"""Records of `__remote_log_metadata`, their partitions, and the resulting segments, compared with Kafka's own classes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from barnabas.tiered.lineage import PartitionSegments
from barnabas.tiered.metadata import (
    PartitionDelete,
    PartitionDeleteState,
    decode,
    encode,
    encode_snapshot,
    metadata_partition,
)
from barnabas.tiered.segment import RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition
from barnabas.wire.ids import uuid_text
from compat.tiered.java import Oracle, fields_of
from tests.support.remote_segments import History, remote_segment

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "tiered" / "kafka-4.3.1.jsonl"
GOLDEN_SEEDS = 2
STEPS = 40
TOPICS = ("t", "orders", "a.b-c_d", "x" * 249)
COUNTS = (1, 3, 50, 1000)


def compare(oracle: Oracle, seed: int, count: int) -> Iterator[str]:
    """Yield what differs from Kafka's, over `count` records of each kind and as many histories."""
    rows: list[Any] = []
    for number in range(count):
        random = Random(f"{seed} record {number}")
        yield from _record(oracle, random, rows)
    for number in range(count):
        random = Random(f"{seed} history {number}")
        yield from _history(oracle, random, rows)


def golden(oracle: Oracle) -> None:
    """Write golden results of Kafka's classes for some records and histories. Raises ValueError if ours differ."""
    rows: list[Any] = []
    differences = [
        text
        for number in range(GOLDEN_SEEDS)
        for text in (*_record(oracle, Random(number), rows), *_history(oracle, Random(number), rows))
    ]
    if differences:
        raise ValueError(differences[0])
    GOLDEN.parent.mkdir(parents=True, exist_ok=True)
    GOLDEN.write_text("".join(json.dumps(row) + "\n" for row in rows))


def listing(segments: PartitionSegments, epochs: int, offsets: int) -> dict[str, Any]:
    """Answers of our lineage, in the form of the oracle's answer to `ask`."""
    return {
        "all": _ids(segments.segments()),
        "epochs": [
            {
                "highest": segments.highest_offset(epoch),
                "segments": _ids(segments.segments(epoch)),
                "held": [_id(segments.segment_for(epoch, offset)) for offset in range(offsets)],
                "next": [_id(segments.next_with_transactions(epoch, offset)) for offset in range(offsets)],
            }
            for epoch in range(epochs)
        ],
    }


def forgotten(segments: PartitionSegments) -> set[str | None]:
    """Copied segments that another one with the same start has replaced: Kafka does not list them by epoch any more."""
    return {
        _id(segment) for segment in segments.unreferenced() if segment.state is SegmentState.COPY_FINISHED
    }


def differences(ours: dict[str, Any], theirs: dict[str, Any], surplus: set[str | None]) -> Iterator[str]:
    """Yield what differs between two answers; `surplus` may be in ours alone, in the lists by epoch."""
    if set(ours["all"]) != set(theirs["all"]):
        yield f"all segments: ours {ours['all']}, Kafka's {theirs['all']}"
    for epoch, (our, their) in enumerate(zip(ours["epochs"], theirs["epochs"], strict=True)):
        for name in ("highest", "held", "next"):
            if our[name] != their[name]:
                yield f"epoch {epoch}, {name}: ours {our[name]}, Kafka's {their[name]}"
        if not set(their["segments"]) <= set(our["segments"]) <= {*their["segments"], *surplus}:
            yield f"epoch {epoch}: ours {our['segments']}, Kafka's {their['segments']}"


def _record(oracle: Oracle, random: Random, rows: list[Any]) -> Iterator[str]:
    partition = TopicIdPartition(
        random.choice(TOPICS), random.choice((0, 7, 2**31 - 1)), UUID(int=random.getrandbits(128))
    )
    segment = _segment(random, partition)
    update = SegmentUpdate(
        partition, segment.segment_id, random.choice((0, 2**31 - 1)), random.getrandbits(62),
        random.choice(list(SegmentState)), random.choice((None, b"", random.randbytes(200))),
    )  # fmt: skip
    deletion = PartitionDelete(
        partition, 3, random.getrandbits(40), random.choice(list(PartitionDeleteState))
    )
    # Kafka's texts of ids that begin with a dash are read as well as others.
    for kind, record, value in (
        ("segment", segment, encode(segment)),
        ("update", update, encode(update)),
        ("snapshot", segment, encode_snapshot(segment)),
        ("delete", deletion, encode(deletion)),
    ):
        fields = _deletion_fields(deletion) if isinstance(record, PartitionDelete) else fields_of(record)
        theirs = bytes.fromhex(oracle.ask("encode", **{**fields, "kind": kind})["hex"])
        rows.append({"record": {**fields, "kind": kind}, "hex": theirs.hex()})
        if theirs != value:
            yield f"{record}: ours {value.hex()}, Kafka's {theirs.hex()}"
        if decode(theirs, partition) != record:
            yield f"{theirs.hex()} is read as {decode(theirs, partition)}, not {record}"
    for count in COUNTS:
        theirs_number = oracle.ask("partition", count=count, **fields_of(segment))["partition"]
        rows.append({"partition": {**fields_of(segment), "count": count}, "number": theirs_number})
        if theirs_number != metadata_partition(partition, count):
            yield f"{partition} of {count}: ours {metadata_partition(partition, count)}, Kafka's {theirs_number}"


def _history(oracle: Oracle, random: Random, rows: list[Any]) -> Iterator[str]:
    history, segments = History(random), PartitionSegments()
    oracle.ask("cache")
    records = []
    for _ in range(STEPS):
        record = history.next()
        records.append(encode(record).hex())
        oracle.ask("apply", hex=records[-1])
        history.applied(segments.apply(record))
    extent = {"epochs": history.epoch + 2, "offsets": history.offset + 2}
    theirs = oracle.ask("ask", **extent)
    rows.append({"history": records, "extent": extent, "answer": theirs})
    yield from differences(listing(segments, **extent), theirs, forgotten(segments))


def _segment(random: Random, partition: TopicIdPartition) -> RemoteSegment:
    start = random.choice((0, 5, 2**40))
    epochs = sorted({random.getrandbits(random.choice((3, 30))) for _ in range(random.randint(1, 4))})
    return replace(
        remote_segment(is_transaction_index_empty=random.random() < 0.5),
        partition=partition,
        segment_id=UUID(int=random.getrandbits(128)),
        start_offset=start,
        end_offset=start + random.getrandbits(30),
        leader_epochs=tuple((epoch, start + place) for place, epoch in enumerate(epochs)),
        max_timestamp=random.choice((-1, 0, random.getrandbits(45))),
        size=random.choice((0, 1000, 2**31 - 1)),
        state=random.choice(list(SegmentState)),
        custom_metadata=random.choice((None, b"", random.randbytes(20))),
    )


def _deletion_fields(deletion: PartitionDelete) -> dict[str, Any]:
    partition = deletion.partition
    return {
        "topic": partition.topic,
        "topicId": uuid_text(partition.topic_id.bytes),
        "partition": partition.partition,
        "broker": deletion.broker_id,
        "event": deletion.event_timestamp,
        "state": int(deletion.state),
    }


def _id(segment: RemoteSegment | None) -> str | None:
    return None if segment is None else uuid_text(segment.segment_id.bytes)


def _ids(segments: list[RemoteSegment]) -> list[str | None]:
    return [_id(segment) for segment in segments]
