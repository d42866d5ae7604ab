"""Directories of metadata logs that are not as they should be: damaged, cut short, without a beginning."""

import shutil
from pathlib import Path

import pytest

from barnabas.cluster.kraft.directory import MetadataLog, Until, read_snapshot
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.log.disk import OsDisk
from barnabas.log.format import CorruptFileError
from barnabas.log.format.quorum_state import QuorumState
from barnabas.records.batch import iter_batches

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "metadata" / "kafka-4.3.1"
SEGMENT = "00000000000000000000.log"
SNAPSHOT = "00000000000000000038-0000000001.checkpoint"
DISK = OsDisk(read_only=True)


@pytest.fixture
def directory(tmp_path):
    shutil.copytree(GOLDEN, tmp_path / "data")
    return tmp_path / "data" / "__cluster_metadata-0"


def read(directory, until=None, *, begin=True):
    log = MetadataLog(DISK, str(directory))
    bound = Until() if until is None else until
    if begin:
        log.begin(bound)
    return log, [step.offset for step in log.steps(bound)]


def cut_positions(path):
    return [(position, header) for position, header in iter_batches(path.read_bytes())]


def test_end_that_is_being_written_is_a_note(directory):
    path = directory / SEGMENT
    path.write_bytes(path.read_bytes()[:-10])
    log, offsets = read(directory)
    assert offsets[-1] < 104
    assert len(log.notes) == 1
    assert "cut short" in log.notes[0]


def test_damage_in_a_segment_before_the_last_is_an_error(directory):
    path = directory / SEGMENT
    data = path.read_bytes()
    position, header = cut_positions(path)[-1]
    (directory / f"{header.base_offset:020d}.log").write_bytes(data[position:])
    path.write_bytes(data[:position])
    assert read(directory)[1][-1] == 104
    broken = bytearray(data[:position])
    broken[-1] ^= 1
    path.write_bytes(broken)
    with pytest.raises(MetadataLogError, match=f"{SEGMENT}: the checksum is wrong"):
        read(directory)


def test_missing_segment_is_an_error(directory):
    path = directory / SEGMENT
    data = path.read_bytes()
    batches = cut_positions(path)
    (first, _), (last, header) = batches[-3], batches[-1]
    (directory / f"{header.base_offset:020d}.log").write_bytes(data[last:])
    path.write_bytes(data[:first])
    with pytest.raises(MetadataLogError, match="are missing before it"):
        read(directory)


def test_log_whose_beginning_is_gone_starts_with_a_snapshot(directory):
    path = directory / SEGMENT
    data = path.read_bytes()
    position, header = next(pair for pair in cut_positions(path) if pair[1].base_offset >= 60)
    whole = read(directory)[0]
    (directory / f"{header.base_offset:020d}.log").write_bytes(data[position:])
    path.unlink()
    log, offsets = read(directory)
    assert (log.state.image, offsets[0]) == (whole.state.image, 76)
    with pytest.raises(MetadataLogError, match="oldest state is that of offset 75, after offset 70"):
        read(directory, Until(offset=70))
    assert log.oldest == Until(offset=75)


def test_log_that_begins_where_a_snapshot_ends_is_read(directory):
    path = directory / SEGMENT
    data = path.read_bytes()
    position, header = next(pair for pair in cut_positions(path) if pair[1].base_offset == 76)
    whole = read(directory)[0]
    (directory / f"{header.base_offset:020d}.log").write_bytes(data[position:])
    path.unlink()
    assert read(directory)[0].state.image == whole.state.image
    assert read(directory, Until(offset=75))[0].state.position.offset == 75
    with pytest.raises(MetadataLogError, match="oldest state is that of offset 75, after offset 74"):
        read(directory, Until(offset=74))


def test_newest_snapshot_within_the_bound_is_the_beginning(directory):
    for bound, first in ((75, 76), (74, 55), (54, 55), (53, 38), (37, 38), (36, 0)):
        log = MetadataLog(DISK, str(directory))
        log.begin(Until(offset=bound))
        assert next(step.offset for step in log.steps()) == first


def test_segments_may_end_after_any_batch(directory):
    path = directory / SEGMENT
    data = path.read_bytes()
    for snapshot in directory.glob("*.checkpoint"):
        snapshot.unlink()
    whole = read(directory, begin=False)[0]
    for position, header in cut_positions(path)[1:]:
        second = directory / f"{header.base_offset:020d}.log"
        path.write_bytes(data[:position])
        second.write_bytes(data[position:])
        log, offsets = read(directory, begin=False)
        assert (log.state.image, offsets) == (whole.state.image, list(range(105)))
        second.unlink()


def test_snapshot_without_its_footer_is_an_error(directory):
    path = directory / SNAPSHOT
    position, _ = cut_positions(path)[-1]
    path.write_bytes(path.read_bytes()[:position])
    with pytest.raises(MetadataLogError, match="before its footer"):
        read_snapshot(DISK, str(path))


def test_directory_with_indexes_alone_is_an_error(tmp_path):
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    (directory / "00000000000000000000.index").write_bytes(b"")
    with pytest.raises(MetadataLogError, match="neither segments nor snapshots"):
        MetadataLog(DISK, str(tmp_path))
    with pytest.raises(MetadataLogError, match="has no __cluster_metadata-0"):
        MetadataLog(DISK, str(directory))


@pytest.mark.parametrize("size", [0, 60, 400, 1900])
def test_snapshot_without_its_end_is_an_error(directory, size):
    path = directory / SNAPSHOT
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(MetadataLogError, match=r"before its footer|cut short|too few for the header"):
        read_snapshot(DISK, str(path))


@pytest.mark.parametrize("at", range(20, 1960, 97))
def test_snapshot_with_a_damaged_byte_is_an_error(directory, at):
    path = directory / SNAPSHOT
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(MetadataLogError, match=SNAPSHOT):
        read_snapshot(DISK, str(path))


def test_partly_fetched_and_deleted_snapshots_are_not_read(directory):
    data = (directory / SNAPSHOT).read_bytes()
    for suffix in (".part", ".deleted"):
        (directory / f"00000000000000000100-0000000009.checkpoint{suffix}").write_bytes(data)
    assert read(directory)[0].state.position.offset == 104


def test_directory_without_a_metadata_log_is_an_error(tmp_path):
    for path, text in (
        (tmp_path, "has no __cluster_metadata-0"),
        (tmp_path / "missing", "No such file"),
        (GOLDEN / "meta.properties", "is a file"),
    ):
        with pytest.raises(MetadataLogError, match=text):
            MetadataLog(DISK, str(path))


def test_nothing_is_written(directory):
    before = {path: path.read_bytes() for path in directory.iterdir()}
    read(directory)
    assert {path: path.read_bytes() for path in directory.iterdir()} == before


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (
            b'{"clusterId":"","leaderId":2,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,'
            b'"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}',
            QuorumState(0, 2, 7, -1, bytes(16), (1, 2)),
        ),
        (
            b'{"leaderId":-1,"leaderEpoch":3,"votedId":4,"votedDirectoryId":"AQEBAQEBAQEBAQEBAQEBAQ",'
            b'"data_version":1}',
            QuorumState(1, -1, 3, 4, b"\1" * 16),
        ),
    ],
)
def test_quorum_state_of_both_versions_round_trips(text, state):
    assert QuorumState.decode(text) == state
    assert state.encode() == text


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"data_version":2}', b'{"data_version":1,"leaderId":"x"}', b"\xff"]
)
def test_damaged_quorum_state_is_an_error(text):
    with pytest.raises(CorruptFileError, match="quorum-state"):
        QuorumState.decode(text)
