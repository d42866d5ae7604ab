"""`barnabas log tier`: a log dir with records of remote segments, and the store that they are about."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.cli import main
from barnabas.tiered.metadata import METADATA_TOPIC, encode, metadata_partition
from barnabas.tiered.segment import RemoteSegment, SegmentState, TopicIdPartition
from barnabas.tiered.storage import SegmentFiles
from barnabas.tiered.stores import open_store
from barnabas.wire.ids import uuid_text
from tests.support.logs import NOW_MS, Broker, append, batch
from tests.support.remote_segments import PARTITION, remote_segment, update

COUNT = 3
CLASS = "remote.log.storage.manager.class.name"


class Tier:
    """A log dir, a store with segments of `orders-3`, and the tool."""

    def __init__(self, directory, capsys) -> None:
        self.directory, self.capsys = directory, capsys
        self.broker = Broker(directory / "broker", segment_bytes=2_000, index_interval_bytes=100)
        self.metadata = self.broker.log(METADATA_TOPIC, metadata_partition(PARTITION, COUNT))
        self.log = self.broker.log("orders", 3)
        for number in range(60):
            append(self.log, batch(b"%d" % number, b"x" * 50, timestamp=NOW_MS + number))
        self.log.close()
        self.store = open_store("directory", {"dir": str(directory / "store")})
        self.segments = [self.copy(path) for path in sorted(self.folder.glob("*.log"))[:-1]]

    @property
    def folder(self) -> Path:
        return self.directory / "broker" / "orders-3"

    def files(self, path: Path) -> SegmentFiles:
        snapshot = self.directory / "snapshot"
        snapshot.write_bytes(next(self.folder.glob("*.snapshot")).read_bytes())
        return SegmentFiles(
            path, path.with_suffix(".index"), path.with_suffix(".timeindex"), snapshot, b"0\n1\n0 0\n"
        )

    def copy(self, path: Path) -> RemoteSegment:
        start = int(path.stem)
        end = min(int(other.stem) for other in self.folder.glob("*.log") if int(other.stem) > start) - 1
        segment = remote_segment(
            start, end, number=1000 + start, size=path.stat().st_size, is_transaction_index_empty=True
        )
        self.record(segment)
        self.store.copy(segment, self.files(path))
        self.record(update(segment, SegmentState.COPY_FINISHED))
        return segment

    def record(self, record) -> None:
        append(self.metadata, batch(encode(record)))

    def __call__(self, task, *arguments):
        config = self.directory / "server.properties"
        config.write_text(
            f"log.dirs={self.directory / 'broker'}\n{CLASS}=directory\nrsm.config.dir={self.directory / 'store'}\n"
            f"rlmm.config.remote.log.metadata.topic.num.partitions={COUNT}\n"
        )
        self.capsys.readouterr()
        code = main(["log", "tier", task, "--json", "--config", str(config), *map(str, arguments)])
        out, self.err = self.capsys.readouterr()
        return code, [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def tier(directory, capsys):
    return Tier(directory, capsys)


def test_segments_are_listed_with_their_states(tier) -> None:
    begun = replace(tier.segments[0], segment_id=UUID(int=5), start_offset=500, end_offset=501)
    tier.record(begun)
    code, rows = tier("list")
    assert code == 0
    assert [row["start"] for row in rows] == [*(segment.start_offset for segment in tier.segments), 500]
    assert {row["state"] for row in rows[:-1]} == {"copy_finished"}
    assert (rows[-1]["state"], rows[-1]["is_read"]) == ("copy_started", False)
    assert tier("list", "--only", "orders-2") == (0, [])


def test_sound_segments_are_verified(tier) -> None:
    assert len(tier.segments) >= 2
    assert tier("verify", "--deep") == (
        0,
        [{"kind": "verified", "segments": len(tier.segments), "damaged": 0}],
    )


@pytest.mark.parametrize(
    ("suffix", "damage", "text"),
    [
        ("log", lambda data: data[:70] + bytes((data[70] ^ 1,)) + data[71:], "log: "),
        ("log", lambda data: data[:-1], "cannot be read: "),
        ("log", lambda data: None, "does not exist"),
        ("index", lambda data: bytes(8) + data[8:], "index: "),
        ("timeindex", lambda data: None, "timeindex: is missing"),
        ("leader_epoch_checkpoint", lambda data: b"7\n", "leader-epoch-checkpoint: "),
    ],
)
def test_damage_of_each_object_is_shown(tier, suffix, damage, text) -> None:
    path = sorted((tier.directory / "store").rglob(f"*.{suffix}"))[1]
    data = damage(path.read_bytes())
    path.unlink() if data is None else path.write_bytes(data)
    code, rows = tier("verify")
    assert code == 1
    assert rows[-1]["damaged"] == 1
    assert {row["start"] for row in rows[:-1]} == {tier.segments[1].start_offset}
    assert any(text in row["text"] for row in rows[:-1])


def test_orphans_are_shown_and_removed_by_repair_alone(tier) -> None:
    assert tier("orphans") == (0, [])
    path = next(iter(tier.folder.glob("*.log")))
    orphan = replace(tier.segments[0], segment_id=UUID(int=77))
    tier.store.copy(orphan, tier.files(path))
    gone = tier.segments[0]
    tier.record(update(gone, SegmentState.DELETE_STARTED))
    tier.record(update(gone, SegmentState.DELETE_FINISHED))
    for arguments in (("orphans",), ("repair", "--dry-run")):
        code, rows = tier(*arguments)
        assert (code, [row["kind"] for row in rows]) == (1, ["orphan", "orphan"])
        assert {row["objects"] for row in rows} == {5}
    assert tier("repair")[1][0]["kind"] == "removed"
    assert tier("orphans") == (0, [])
    assert {text for text, _, _ in tier.store.objects(PARTITION)} == {
        row["segment_id"] for row in tier("list")[1]
    }


def test_objects_without_their_records_here_are_left(tier) -> None:
    elsewhere = next(
        partition
        for number in range(100)
        if metadata_partition(partition := TopicIdPartition("other", number, PARTITION.topic_id), COUNT)
        != metadata_partition(PARTITION, COUNT)
    )
    segment = replace(tier.segments[0], partition=elsewhere)
    tier.store.copy(segment, tier.files(next(iter(tier.folder.glob("*.log")))))
    code, rows = tier("repair")
    assert (code, [row["kind"] for row in rows]) == (1, ["undecided"])
    assert len(list(tier.store.objects(elsewhere))) == 5


def test_segments_of_a_topic_deleted_without_a_record_stay(tier) -> None:
    shutil.rmtree(tier.folder)
    code, rows = tier("list")
    assert code == 0
    listed = [(row["topic"], row["topic_id"], row["start"]) for row in rows]
    topic_id = uuid_text(PARTITION.topic_id.bytes)
    assert listed == [("orders", topic_id, segment.start_offset) for segment in tier.segments]
    assert tier("orphans") == tier("repair") == (0, [])
    assert all(tier.store.read(segment, 0, 10) for segment in tier.segments)


def test_longest_copy_of_the_records_counts(tier) -> None:
    other = tier.directory / "other"
    shutil.copytree(tier.directory / "broker", other)
    tier.record(replace(tier.segments[0], segment_id=UUID(int=9)))
    assert tier("list", other, tier.directory / "broker") == tier("list", tier.directory / "broker", other)
    assert len(tier("list", other, tier.directory / "broker")[1]) == len(tier.segments) + 1


def test_record_that_does_not_follow_is_a_problem(tier) -> None:
    tier.record(update(remote_segment(number=4), SegmentState.COPY_FINISHED))
    code, rows = tier("list")
    assert (code, rows[0]["kind"]) == (1, "problem")
    assert "there is no segment" in rows[0]["text"]


@pytest.mark.parametrize("damage", [lambda data: data[:40] + b"x" + data[41:], lambda data: data + bytes(12)])
def test_damaged_records_of_segments_are_a_problem(tier, damage) -> None:
    (path,) = (tier.directory / "broker").glob(f"{METADATA_TOPIC}-*/*.log")
    path.write_bytes(damage(path.read_bytes()))
    code, rows = tier("list")
    assert (code, rows[0]["kind"], rows[0]["path"]) == (1, "problem", str(path))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--set", f"{CLASS}=com.example.Store"), "there is no remote store 'com.example.Store'"),
        (("--set", "rsm.config.chunk.size=1"), "the store directory has no setting chunk.size"),
        (("--set", "oops"), "NAME=VALUE is expected"),
        (("/nowhere",), "/nowhere"),
    ],
)
def test_settings_that_are_wrong_are_explained(tier, arguments, text) -> None:
    code, rows = tier("orphans", *arguments)
    assert (code, rows) == (2, [])
    assert text in tier.err
