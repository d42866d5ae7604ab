"""The directory of a metadata log: Kafka's is taken over, a start finishes what a crash has cut short, old snapshots go."""

import shutil

import pytest

from barnabas.cluster.kraft.decisions import SnapshotId
from barnabas.cluster.kraft.directory import MetadataLog, read_snapshot
from barnabas.cluster.kraft.durable_log import DurableLog
from barnabas.cluster.kraft.observer import Observer
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.config.metadata_log import LogSettings
from barnabas.log.disk import OsDisk
from barnabas.log.format.quorum_state import QuorumState
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.wire.generated.metadata_records.no_op import NoOpRecord
from barnabas.wire.metadata_records import encode_record
from tests.support.metadata_leader import DATA, END, GOLDEN, SNAPSHOT

NAME = "__cluster_metadata-0"
NOW_MS = 1_000_000_000_000
NEWEST = SnapshotId(76, 1)


@pytest.fixture
def directory(tmp_path):
    shutil.copytree(GOLDEN, tmp_path / "data")
    return tmp_path / "data"


def opened(directory, **settings):
    stored = DurableLog(OsDisk(), str(directory), LogSettings(**settings))
    return stored, stored.open(NOW_MS)


def no_op(offset, epoch=2):
    record = Record(offset, NOW_MS, None, encode_record(NoOpRecord(), 0))
    return bytes(encode_batch([record], leader_epoch=epoch))


def checkpoints(directory):
    return sorted(path.name for path in (directory / NAME).glob("*.checkpoint*"))


def test_directory_of_kafka_is_taken_over(directory):
    stored, state = opened(directory)
    assert (state.end_offset, state.epochs, state.snapshot_id) == (END, ((1, 0), (2, 85)), NEWEST)
    assert state.election == QuorumState(1, 1, 2)
    assert stored.loaded.image == read_snapshot(OsDisk(), str(SNAPSHOT)).image
    assert [snapshot.id for snapshot in stored.snapshots] == [SnapshotId(end, 1) for end in (38, 55, 76)]
    observer = Observer(stored=state)
    assert (observer.high_watermark, observer.last_epoch, observer.leader.id) == (76, 2, 1)
    assert observer.leader.host == "127.0.0.1"  # of the voters in the snapshot
    log = MetadataLog(OsDisk(), str(directory))
    log.begin()
    list(log.steps())
    assert observer.leadership == log.state.leadership
    stored.append(no_op(END), NOW_MS)
    stored.close()
    _, state = opened(directory)
    assert state.end_offset == END + 1


def test_new_directory_is_as_kafka_makes_it(tmp_path):
    stored, state = opened(tmp_path)
    assert (state.end_offset, state.snapshot_id, state.election) == (0, None, None)
    stored.append(DATA, NOW_MS)
    stored.save_election(QuorumState(0, 3, 7, voters=(1, 2, 3)))
    stored.close()
    path = tmp_path / NAME
    golden = GOLDEN / NAME
    for name in ("partition.metadata", "leader-epoch-checkpoint", f"{0:020d}.log"):
        assert (path / name).read_bytes() == (golden / name).read_bytes()
    assert (path / "quorum-state").read_text() == (
        '{"clusterId":"","leaderId":3,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}'
    )
    stored.save_election(QuorumState(1, 1, 2))
    assert (path / "quorum-state").read_bytes() == (golden / "quorum-state").read_bytes()


def test_log_is_read_up_to_an_offset(directory):
    stored, _ = opened(directory)
    data = stored.read(0, 38)
    assert data == DATA[: len(data)]
    assert stored.read(END, END) == b""


def test_truncated_log_ends_before_the_batch(directory):
    stored, _ = opened(directory)
    stored.truncate(85, NOW_MS)
    stored.close()
    _, state = opened(directory)
    assert (state.end_offset, state.epochs) == (85, ((1, 0),))
    observer = Observer(stored=state)
    assert (observer.leader.id, observer.leader.epoch) == (1, 2)


def write_part(stored, snapshot_id):
    data = SNAPSHOT.read_bytes()
    stored.write_piece(snapshot_id, 0, data[:100] + b"of an earlier download")
    stored.write_piece(snapshot_id, 0, data[:100])
    stored.write_piece(snapshot_id, 100, data[100:])


def test_installed_snapshot_restarts_the_log_at_its_end(directory):
    stored, _ = opened(directory, delete_delay_ms=1_000)
    newer = SnapshotId(200, 4)
    write_part(stored, newer)
    (snapshot,) = (step for step in stored.part_steps(newer) if step is not None)
    assert snapshot.end_offset == 200
    stored.finish_snapshot(newer)
    stored.install(newer, NOW_MS)
    assert (stored.log.log_start_offset, stored.log.log_end_offset) == (200, 200)
    assert checkpoints(directory) == [
        "00000000000000000000-0000000000.checkpoint",
        *(f"{end:020d}-{1:010d}.checkpoint.deleted" for end in (38, 55, 76)),
        f"{200:020d}-{4:010d}.checkpoint",
    ]
    assert stored.begin_removal(NOW_MS + 999) is None
    removal = stored.begin_removal(NOW_MS + 1_000)
    removal.run()
    removal.finish()
    assert len(checkpoints(directory)) == 2
    stored.append(no_op(200, 4), NOW_MS)
    stored.close()
    _, state = opened(directory)
    assert (state.end_offset, state.snapshot_id, state.epochs) == (201, newer, ((4, 200),))


def test_log_starts_at_a_snapshot_after_a_crash_before_install(directory):
    stored, _ = opened(directory)
    newer = SnapshotId(200, 4)
    write_part(stored, newer)
    stored.finish_snapshot(newer)
    stored.close()
    stored, state = opened(directory)
    assert (state.end_offset, stored.log.log_start_offset, state.snapshot_id) == (200, 200, newer)
    assert Observer(stored=state).last_epoch == 4


def test_leftovers_of_a_crash_are_removed(directory):
    for suffix in (".part", ".deleted"):
        (directory / NAME / f"{300:020d}-{4:010d}.checkpoint{suffix}").write_bytes(b"x")
    opened(directory)
    assert [name for name in checkpoints(directory) if not name.endswith(".checkpoint")] == []


def test_log_without_its_snapshot_is_refused(directory):
    stored, _ = opened(directory)
    newer = SnapshotId(200, 4)
    write_part(stored, newer)
    stored.finish_snapshot(newer)
    stored.install(newer, NOW_MS)
    stored.close()
    (directory / NAME / f"{200:020d}-{4:010d}.checkpoint").unlink()
    with pytest.raises(MetadataLogError, match="begins at offset 200, and has no snapshot"):
        opened(directory)


@pytest.mark.parametrize("content", ["", "{}", '{"data_version":7}'])
def test_damaged_quorum_state_is_refused(directory, content):
    (directory / NAME / "quorum-state").write_text(content)
    with pytest.raises(MetadataLogError, match=r"quorum-state: .*remove the file"):
        opened(directory)


def test_retention_removes_the_oldest_and_keeps_the_newest(directory):
    stored, _ = opened(directory, segment_bytes=2_000, retention_bytes=6_000, retention_ms=-1)
    assert stored.clean(NOW_MS) == 2
    assert [snapshot.id for snapshot in stored.snapshots] == [NEWEST]
    assert stored.log.log_start_offset == 76
    assert stored.clean(NOW_MS) == 0
    stored.close()
    _, state = opened(directory)
    assert (state.snapshot_id, state.end_offset) == (NEWEST, END)


def test_own_snapshot_is_only_added_after_all_others(directory):
    stored, _ = opened(directory)
    assert not stored.takes_snapshot(NEWEST)
    assert not stored.takes_snapshot(SnapshotId(70, 1))
    assert stored.takes_snapshot(SnapshotId(85, 1))
