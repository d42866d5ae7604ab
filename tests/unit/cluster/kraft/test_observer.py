"""An observer against a simulated leader: snapshots cut anywhere, other leaders, divergence, a slow high watermark."""

import pytest

from barnabas.cluster.kraft.decisions import DropSnapshot, SaveElection, SnapshotId
from barnabas.cluster.kraft.directory import MetadataLog, Until, read_snapshot
from barnabas.cluster.kraft.memory_log import MemoryObserver, Read
from barnabas.cluster.kraft.observer import Observer, first_records
from barnabas.cluster.kraft.replica_values import Leader
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.log.disk import OsDisk
from barnabas.log.format.quorum_state import QuorumState
from barnabas.records.building import encode_batch
from barnabas.records.control import ControlType, encode_key
from barnabas.records.record import Record
from barnabas.wire.generated.data import voters_record
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.fetch_snapshot import FetchSnapshotResponse
from barnabas.wire.generated.metadata_records.topic import TopicRecord
from barnabas.wire.metadata_records import encode_record
from tests.support.metadata_leader import BATCHES, DATA, END, EPOCH, GOLDEN, SNAPSHOT, SimulatedLeader


def replayed(until=END - 1):
    log = MetadataLog(OsDisk(read_only=True), str(GOLDEN))
    for _ in log.steps(Until(offset=until)):
        pass
    return log.state


def run(observer, leader, *, until=END, turns=2000):
    steps = []
    for _ in range(turns):
        taken = observer.take(leader.answer(observer.observer.request(max_wait_ms=0)))
        steps += taken.steps
        if taken.asks_elsewhere or (observer.is_caught_up and observer.state.position.offset == until - 1):
            return steps
    raise AssertionError(f"not caught up: {observer.state.position}, {observer.observer.high_watermark}")


@pytest.mark.parametrize("snapshot", [False, True], ids=["log", "snapshot"])
@pytest.mark.parametrize("seed", range(12))
def test_image_of_an_observer_is_that_of_a_plain_replay(seed, snapshot):
    observer = MemoryObserver()
    steps = run(observer, SimulatedLeader(seed, snapshot=snapshot))
    expected = replayed()
    assert observer.state.image == expected.image
    assert observer.state.leadership == expected.leadership
    assert [step.offset for step in steps] == list(range(76 if snapshot else 0, END))
    assert observer.observer.leader == Leader(1, EPOCH, "controller-1", 9093)


def test_nothing_above_the_high_watermark_is_applied():
    observer, leader = MemoryObserver(), SimulatedLeader(1)
    observer.take(leader.answer(observer.observer.request(max_wait_ms=0)))
    records, highest = DATA, -1
    for watermark in (-1, 0, 15, 40, 30, END):
        highest = max(highest, watermark)
        partition = leader.partition(records=records)
        partition.high_watermark, records = watermark, b""
        observer.take(leader.response(partition))
        committed = [header.last_offset for header, _ in BATCHES if header.last_offset < highest]
        assert observer.state.position.offset == max(committed, default=-1)
    assert observer.is_caught_up


def test_requests_ask_for_the_metadata_log_and_no_more():
    observer, leader = MemoryObserver(), SimulatedLeader(2, snapshot=True)
    request = observer.observer.request(max_wait_ms=500)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (request.cluster_id, request.replica_id, request.replica_state.replica_id) == (None, -1, -1)
    assert (request.session_id, request.session_epoch, request.max_wait_ms, request.min_bytes) == (
        0,
        -1,
        500,
        0,
    )
    assert topic.topic_id == bytes(15) + b"\1"
    assert (partition.partition, partition.current_leader_epoch, partition.fetch_offset) == (0, 0, 0)
    assert (partition.last_fetched_epoch, partition.high_watermark) == (0, -1)
    for _ in range(3):
        observer.take(leader.answer(observer.observer.request(max_wait_ms=0)))
    request = observer.observer.request(max_wait_ms=0)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (request.replica_id, topic.name, partition.partition) == (-1, "__cluster_metadata", 0)
    assert (partition.snapshot_id.end_offset, partition.snapshot_id.epoch) == (76, 1)
    assert partition.position > 0
    assert partition.current_leader_epoch == EPOCH


def test_node_that_does_not_lead_names_the_leader():
    observer = MemoryObserver()
    run(observer, SimulatedLeader(3, leads=False))
    assert observer.observer.leader == Leader(1, EPOCH, "controller-1", 9093)
    assert not observer.is_caught_up


def test_records_that_diverge_are_cut_above_the_high_watermark():
    observer, leader = MemoryObserver(), SimulatedLeader(5)
    run(observer, leader, until=END)
    topic = encode_record(TopicRecord("lost", bytes(range(16))), 0)
    stray = encode_batch([Record(END, 1, None, topic)], base_offset=END, leader_epoch=EPOCH)
    observer.take(leader.response(leader.partition(records=bytes(stray))))
    assert observer.observer.request(max_wait_ms=0).topics[0].partitions[0].fetch_offset == END + 1
    diverging = FetchResponse.EpochEndOffset(EPOCH, END)
    observer.take(leader.response(leader.partition(diverging_epoch=diverging)))
    asked = observer.observer.request(max_wait_ms=0).topics[0].partitions[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (END, EPOCH)
    assert observer.state.image == replayed().image


def test_voters_count_where_they_stand_and_go_with_a_cut():
    observer, leader = MemoryObserver(), SimulatedLeader(5)
    run(observer, leader)
    before = observer.observer.leadership
    voters = voters_record.VotersRecord(voters=[voters_record.VotersRecord.Voter(7, bytes(16))])
    record = Record(END, 1, encode_key(ControlType.KRAFT_VOTERS), voters_record.CODEC.encode_bytes(voters, 0))
    data = bytes(encode_batch([record], control=True, leader_epoch=EPOCH))
    observer.take(leader.response(leader.partition(records=data)))
    assert [voter.id for voter in observer.observer.leadership.voters] == [7]
    assert observer.state.leadership == before  # as it is not committed
    diverging = FetchResponse.EpochEndOffset(EPOCH, END)
    observer.take(leader.response(leader.partition(diverging_epoch=diverging)))
    assert observer.observer.leadership == before


def test_divergence_below_the_high_watermark_is_an_error():
    observer, leader = MemoryObserver(), SimulatedLeader(6)
    run(observer, leader)
    diverging = FetchResponse.EpochEndOffset(1, 50)
    with pytest.raises(MetadataLogError, match="has not what was committed"):
        observer.take(leader.response(leader.partition(diverging_epoch=diverging)))


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "CLUSTER_AUTHORIZATION_FAILED"),
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "INCONSISTENT_CLUSTER_ID"),
        (4711, "4711"),
    ],
)
def test_refusal_is_an_error_with_its_name(code, name):
    observer, leader = MemoryObserver(), SimulatedLeader(7)
    partition = leader.partition(error_code=code)
    partition.current_leader = FetchResponse.LeaderIdAndEpoch(-1, -1)
    with pytest.raises(MetadataLogError, match=f"the controller refuses: {name}"):
        observer.take(leader.response(partition))


def test_damaged_or_wrong_records_are_an_error():
    header, batch = BATCHES[0]
    broken = bytearray(batch)
    broken[-1] ^= 1
    for data, text in ((bytes(broken), "checksum|CRC|crc"), (BATCHES[1][1], "begins at offset 3, not 0")):
        observer, leader = MemoryObserver(), SimulatedLeader(8)
        observer.take(leader.answer(observer.observer.request(max_wait_ms=0)))
        with pytest.raises(MetadataLogError, match=text):
            observer.take(leader.response(leader.partition(records=data)))
    assert header.base_offset == 0


def test_answer_about_something_else_is_an_error():
    with pytest.raises(MetadataLogError, match="not about the metadata log"):
        MemoryObserver().take(FetchResponse())


@pytest.mark.parametrize(
    ("code", "leader_id", "expected"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, 1, Read()),
        (ErrorCode.FENCED_LEADER_EPOCH, -1, Read(asks_elsewhere=True, must_wait=True)),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, Read(asks_elsewhere=True)),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, Read(asks_elsewhere=True, must_wait=True)),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, 1, Read(asks_elsewhere=True)),
        (ErrorCode.OFFSET_OUT_OF_RANGE, 1, Read(must_wait=True)),
        (ErrorCode.BROKER_NOT_AVAILABLE, 1, Read(must_wait=True)),
    ],
)
def test_error_decides_which_node_is_asked_next(code, leader_id, expected):
    observer, leader = MemoryObserver(), SimulatedLeader(1, leader_id=leader_id)
    assert observer.take(leader.response(leader.partition(error_code=code))) == expected
    assert observer.observer.leader.epoch == EPOCH


def test_answer_of_an_earlier_epoch_does_not_change_the_leader():
    observer, leader = MemoryObserver(), SimulatedLeader(1)
    observer.observer.leader = Leader(3, EPOCH + 1, "newer", 1)
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    observer.take(leader.response(leader.partition(error_code=code)))
    assert observer.observer.leader == Leader(3, EPOCH + 1, "newer", 1)


def test_leader_that_becomes_known_within_its_epoch_is_noted():
    observer = MemoryObserver()
    for leader_id in (-1, 1):
        leader = SimulatedLeader(1, leader_id=leader_id)
        observer.take(leader.response(leader.partition(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)))
    assert observer.observer.leader == Leader(1, EPOCH, "controller-1", 9093)
    response = leader.response(leader.partition())
    response.node_endpoints = []
    observer.take(response)
    assert observer.observer.leader.host == "controller-1"


def pieces(**fields):
    values = {
        "size": len(SNAPSHOT.read_bytes()),
        "unaligned_records": SNAPSHOT.read_bytes()[:100],
        "snapshot_id": FetchSnapshotResponse.SnapshotId(76, 1),
        "current_leader": FetchSnapshotResponse.LeaderIdAndEpoch(1, EPOCH),
        **fields,
    }
    partition = FetchSnapshotResponse.PartitionSnapshot(**values)
    return FetchSnapshotResponse(topics=[FetchSnapshotResponse.TopicSnapshot(partitions=[partition])])


def fetching_a_snapshot():
    observer, leader = MemoryObserver(), SimulatedLeader(9, snapshot=True)
    for _ in range(2):
        observer.take(leader.fetch(observer.observer.request(max_wait_ms=0)))
    return observer


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (pieces(position=7), "continues at 7, not 0"),
        (pieces(unaligned_records=b""), "continues at 0"),
        (pieces(snapshot_id=FetchSnapshotResponse.SnapshotId(55, 1)), "continues at 0, not 0"),
        (pieces(size=-1), "a snapshot has -1 bytes"),
        (pieces(size=100, unaligned_records=b"x" * 100), "."),
        (
            FetchSnapshotResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            "CLUSTER_AUTHORIZATION_FAILED",
        ),
        (FetchSnapshotResponse(), "not about the metadata log"),
        (pieces(size=100, unaligned_records=SNAPSHOT.read_bytes()[:100]), "before its footer"),
    ],
)
def test_piece_that_makes_no_sense_is_an_error(response, text):
    with pytest.raises(MetadataLogError, match=text):
        fetching_a_snapshot().take(response)


def test_snapshot_begins_anew_with_another_leader():
    observer, leader = Observer(), SimulatedLeader(9, snapshot=True)
    for _ in range(2):
        observer.take(leader.answer(observer.request(max_wait_ms=0)))
    (piece,) = observer.take(leader.answer(observer.request(max_wait_ms=0))).decisions
    assert (piece.snapshot_id, piece.position) == ((76, 1), 0)
    (asked,) = observer.request(max_wait_ms=0).topics[0].partitions
    assert asked.position == len(piece.data)
    response = pieces(error_code=ErrorCode.FENCED_LEADER_EPOCH)
    response.topics[0].partitions[0].current_leader = FetchSnapshotResponse.LeaderIdAndEpoch(2, EPOCH + 1)
    saved, dropped = observer.take(response).decisions
    assert saved == SaveElection(QuorumState(0, 2, EPOCH + 1, voters=()))
    assert dropped == DropSnapshot(SnapshotId(76, 1))
    assert observer.request(max_wait_ms=0).topics[0].partitions[0].fetch_offset == 0


@pytest.mark.parametrize("size", [50, 2_000_000])
def test_snapshot_of_another_size_begins_anew(size):
    observer, leader = MemoryObserver(), SimulatedLeader(9, snapshot=True)
    for _ in range(2):
        observer.take(leader.answer(observer.observer.request(max_wait_ms=0)))
    observer.take(pieces(size=size))
    run(observer, leader)
    assert observer.state.image == replayed().image


@pytest.mark.parametrize("code", [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE])
def test_snapshot_that_vanishes_is_asked_for_again(code):
    observer, leader = MemoryObserver(), SimulatedLeader(9, snapshot=True)
    for _ in range(4):
        observer.take(leader.answer(observer.observer.request(max_wait_ms=0)))
    gone = FetchSnapshotResponse.PartitionSnapshot(error_code=code)
    response = FetchSnapshotResponse(topics=[FetchSnapshotResponse.TopicSnapshot(partitions=[gone])])
    assert observer.take(response).must_wait
    assert observer.observer.request(max_wait_ms=0).topics[0].partitions[0].fetch_offset == 0
    run(observer, leader)
    assert observer.state.image == replayed().image


def test_leader_of_a_snapshot_is_learned_from_its_first_record():
    observer, leader = MemoryObserver(), SimulatedLeader(10, snapshot=True)
    leader.end = 76
    leader.batches = []
    for _ in range(100):
        observer.take(leader.answer(observer.observer.request(max_wait_ms=0)))
    assert observer.state.leadership.epoch == -1
    assert observer.state.image == read_snapshot(OsDisk(read_only=True), str(SNAPSHOT)).image
    asked = observer.observer.epoch_start_request().topics[0].partitions[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (76, EPOCH - 1)
    diverging = leader.response(leader.partition(diverging_epoch=FetchResponse.EpochEndOffset(1, 85)))
    request = observer.observer.first_record_request(diverging)
    assert request.topics[0].partitions[0].fetch_offset == 85
    data = next(batch for header, batch in BATCHES if header.base_offset == 85)
    observer.state.note_leader_of(first_records(leader.response(leader.partition(records=data))), "log")
    assert observer.state.leadership == replayed().leadership
    assert observer.observer.first_record_request(leader.response(leader.partition())) is None
