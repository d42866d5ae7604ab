"""Snapshots of one's own: the records of Kafka's snapshots, the same image when read, and when they are made and go."""

from collections import Counter
from pathlib import Path

import pytest

from barnabas.cluster.kraft.decisions import SnapshotId
from barnabas.cluster.kraft.directory import read_snapshot
from barnabas.cluster.kraft.image import EMPTY
from barnabas.cluster.kraft.snapshot_times import SnapshotTimer, StoredSnapshot, is_oldest_beyond
from barnabas.cluster.kraft.snapshots import image_records, snapshot_batches
from barnabas.cluster.kraft.state import MetadataLogError, snapshot_steps
from barnabas.log.disk import OsDisk
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches
from barnabas.wire.metadata_records import decode_record, encode_record

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "metadata"
TAKEN = sorted(path for path in GOLDEN.glob("*/*/*.checkpoint") if not path.name.startswith("0" * 20))
DISK = OsDisk(read_only=True)


def batches_of(data):
    return [(header, data[position : position + header.size]) for position, header in iter_batches(data)]


def values_of(data):
    """Each record of a snapshot: a control record as it is, another one with its features in one order."""
    values = Counter()
    for header, batch in batches_of(data):
        for record in iter_any_records(batch):
            value = bytes(record.value)
            if not header.is_control:
                message, version = decode_record(value)
                if hasattr(message, "features"):  # Kafka has them in the order of a hash table
                    message.features.sort(key=lambda feature: feature.name)
                value = encode_record(message, version)
            values[header.is_control, record.key, value] += 1
    return values


def read(data, snapshot_id=(76, 1)):
    (snapshot,) = (
        step for step in snapshot_steps(snapshot_id, "snapshot", batches_of(data)) if step is not None
    )
    return snapshot


def label(path):
    return f"{path.parts[-3]}-{path.name[:20].lstrip('0')}"


@pytest.mark.parametrize("path", TAKEN, ids=label)
def test_snapshot_has_the_records_of_kafkas(path):
    theirs = read_snapshot(DISK, str(path))
    ours = b"".join(snapshot_batches(theirs.image, theirs.leadership, now_ms=5, records_per_batch=7))
    assert values_of(ours) == values_of(path.read_bytes())
    assert read(ours, (theirs.end_offset, theirs.epoch)) == theirs
    headers = [header for header, _ in batches_of(ours)]
    assert [header.base_offset for header in headers[1:]] == [header.next_offset for header in headers[:-1]]
    assert {header.leader_epoch for header in headers} == {theirs.epoch}


@pytest.mark.parametrize(
    ("level", "versions"),
    [(7, (1, 0)), (8, (2, 0)), (17, (3, 1)), (23, (3, 2)), (29, (3, 2)), (30, (4, 2)), (33, (4, 2))],
)
def test_metadata_version_decides_versions_of_records(level, versions):
    image = read_snapshot(DISK, str(TAKEN[0])).image
    image = image._replace(features={**image.features, "metadata.version": level})
    by_name = {type(message).__name__: version for message, version in image_records(image)}
    assert (by_name["RegisterBrokerRecord"], by_name["PartitionRecord"]) == versions
    assert ("RegisterControllerRecord" in by_name) == (level >= 15)
    first, _ = next(image_records(image))
    assert (first.name, first.feature_level) == ("metadata.version", level)
    for message, version in image_records(image):
        encode_record(message, version)


def test_empty_image_is_a_snapshot_without_records():
    theirs = read_snapshot(DISK, str(TAKEN[0]))
    data = b"".join(
        snapshot_batches(EMPTY._replace(position=theirs.image.position), theirs.leadership, now_ms=5)
    )
    assert len(batches_of(data)) == 2
    assert read(data).leadership == theirs.leadership


@pytest.mark.parametrize(
    ("kept", "text"),
    [(slice(1, None), "a batch begins at"), (slice(0, -1), "before its footer"), (slice(0, 0), "footer")],
)
def test_snapshot_that_lacks_a_batch_is_an_error(kept, text):
    theirs = read_snapshot(DISK, str(TAKEN[0]))
    batches = list(snapshot_batches(theirs.image, theirs.leadership, now_ms=5, records_per_batch=7))
    with pytest.raises(MetadataLogError, match=text):
        read(b"".join(batches[kept]))
    with pytest.raises(MetadataLogError, match=r"begins at|after its footer"):
        read(b"".join([*batches, batches[1]]))


def test_snapshot_is_due_after_bytes_or_time():
    timer = SnapshotTimer(1_000, 60_000, now_ms=0)
    assert not timer.is_due(999, 59_999)
    assert timer.is_due(1_000, 1)
    assert timer.is_due(1, 60_000)
    assert not timer.is_due(0, 60_000)  # there is nothing new
    timer.reset(1_000, 5_000)
    assert not timer.is_due(1_999, 64_999)
    assert timer.is_due(2_000, 5_000)
    assert not SnapshotTimer(1_000, 0, now_ms=0).is_due(999, 10**9)


@pytest.mark.parametrize(
    ("bytes_max", "age_ms_max", "expected"),
    [(-1, -1, False), (160, -1, False), (159, -1, True), (-1, 100, False), (-1, 99, True), (0, 0, True)],
)
def test_oldest_snapshot_goes_beyond_size_or_age(bytes_max, age_ms_max, expected):
    stored = [StoredSnapshot(SnapshotId(end, 1), 50, end) for end in (100, 150)]
    limits = {"bytes_max": bytes_max, "age_ms_max": age_ms_max, "now_ms": 200}
    assert is_oldest_beyond(stored, 60, **limits) is expected
    assert not is_oldest_beyond(stored[:1], 10**9, **limits)
