"""Records, partitions and lineages beside what Kafka's own classes said of them (compat/tiered)."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.tiered.lineage import PartitionSegments
from barnabas.tiered.metadata import (
    PartitionDelete,
    PartitionDeleteState,
    decode,
    encode,
    encode_snapshot,
    metadata_partition,
)
from barnabas.tiered.segment import TopicIdPartition
from barnabas.wire.ids import parse_uuid
from compat.tiered.java import fields_of
from compat.tiered.records import differences, forgotten, listing

GOLDEN = Path(__file__).parents[2] / "golden/tiered/kafka-4.3.1.jsonl"
ROWS = [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def partition_of(fields) -> TopicIdPartition:
    topic_id = UUID(bytes=parse_uuid(fields["topicId"]))
    return TopicIdPartition(fields["topic"], fields["partition"], topic_id)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if "record" in row], ids=lambda row: row["record"]["kind"]
)
def test_kafkas_records_are_written_and_understood(row) -> None:
    fields, value = row["record"], bytes.fromhex(row["hex"])
    kind, partition = fields["kind"], partition_of(fields)
    record = decode(value, partition if kind == "snapshot" else None)
    if kind == "delete":
        state = PartitionDeleteState(fields["state"])
        assert record == PartitionDelete(partition, fields["broker"], fields["event"], state)
    else:
        assert fields_of(record) | {"kind": kind} == fields
    assert (encode_snapshot(record) if kind == "snapshot" else encode(record)) == value


@pytest.mark.parametrize("row", [row for row in ROWS if "partition" in row])
def test_partition_of_the_metadata_is_kafkas(row) -> None:
    assert metadata_partition(partition_of(row["partition"]), row["partition"]["count"]) == row["number"]


@pytest.mark.parametrize("row", [row for row in ROWS if "history" in row])
def test_lineage_after_a_history_is_kafkas(row) -> None:
    segments = PartitionSegments()
    for value in row["history"]:
        segments.apply(decode(bytes.fromhex(value)))
    ours = listing(segments, **row["extent"])
    assert list(differences(ours, row["answer"], forgotten(segments))) == []
