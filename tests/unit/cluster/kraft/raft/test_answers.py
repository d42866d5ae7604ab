"""Answers of a replica to each request of the quorum: what is granted, and each error."""

import pytest

from barnabas.cluster.kraft.decisions import SnapshotId
from barnabas.cluster.kraft.raft import requests
from barnabas.cluster.kraft.raft.membership import reason_against_level
from barnabas.cluster.kraft.raft.ports import NotLeaderError
from barnabas.cluster.kraft.raft.values import RaftSettings, Role
from barnabas.cluster.kraft.raft.voter import Replica
from barnabas.cluster.kraft.replica_values import Identity, StoredLog
from barnabas.log.format.names import CLUSTER_METADATA_TOPIC
from barnabas.log.format.quorum_state import QuorumState
from barnabas.wire.generated.add_raft_voter import AddRaftVoterRequest
from barnabas.wire.generated.api_versions import ApiVersionsResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch_snapshot import FetchSnapshotRequest
from barnabas.wire.generated.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.wire.generated.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from tests.support.raft_nodes import (
    CLUSTER,
    describe_request,
    directory_id,
    endpoints_of,
    fetch_request,
    record,
    voter,
)
from tests.support.raft_world import NOW, World, asker, vote

# --- elections ----------------------------------------------------------------------------------------------------------


def test_vote_is_given_once_and_saved_before_the_answer():
    world = World()
    assert world.partition(52, vote(1)).vote_granted
    assert world.saved[-1] == QuorumState(1, -1, 1, 2, directory_id(2))
    assert not world.partition(52, vote(1, number=3)).vote_granted
    assert world.partition(52, vote(1)).vote_granted
    again = World(election=world.saved[-1])
    assert not again.partition(52, vote(1, number=3)).vote_granted
    assert again.partition(52, vote(1)).vote_granted
    assert again.partition(52, vote(2, number=3)).vote_granted


def test_vote_needs_a_log_that_is_as_long():
    world = World().lead()
    epoch, end_offset = world.replica.epoch, world.replica.log.end_offset
    assert not world.partition(52, vote(epoch + 1, last_epoch=epoch, end_offset=end_offset - 1)).vote_granted
    assert world.replica.role is Role.UNATTACHED
    assert world.replica.epoch == epoch + 1
    assert not world.partition(52, vote(epoch + 1, last_epoch=0, end_offset=end_offset + 9)).vote_granted
    assert world.partition(52, vote(epoch + 1, last_epoch=epoch, end_offset=end_offset)).vote_granted


def test_pre_vote_changes_nothing_and_followers_are_content():
    world = World()
    assert world.partition(52, vote(0, pre_vote=True)).vote_granted
    assert not world.saved
    assert world.replica.epoch == 0
    world.partition(53, asker().begin(voter(1), 4))
    assert world.partition(52, vote(4, number=3, pre_vote=True)).vote_granted
    world.replica.has_fetched = True
    assert not world.partition(52, vote(4, number=3, pre_vote=True)).vote_granted


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote(2), ErrorCode.FENCED_LEADER_EPOCH),
        (vote(4, number=-1), ErrorCode.INVALID_REQUEST),
        (vote(4, last_epoch=4), ErrorCode.INVALID_REQUEST),
        (vote(4, last_epoch=-1), ErrorCode.INVALID_REQUEST),
        (vote(4, end_offset=-1), ErrorCode.INVALID_REQUEST),
        (vote(4, target=3), ErrorCode.INVALID_VOTER_KEY),
    ],
)
def test_vote_that_makes_no_sense_is_refused(request_, error):
    world = World(election=QuorumState(1, 3, 3))
    partition = world.partition(52, request_)
    assert (partition.error_code, partition.vote_granted) == (error, False)


@pytest.mark.parametrize("api_key", [1, 52, 53, 54, 59])
def test_another_cluster_and_another_partition_are_refused(api_key):
    world = World()
    by_api = {
        1: fetch_request(0, epoch=0, last_epoch=0),
        52: vote(1),
        53: asker().begin(voter(1), 1),
        54: asker().end(1, [voter(1)]),
        59: snapshot_request(SnapshotId(1, 1), 0, epoch=0),
    }
    request = by_api[api_key]
    request.cluster_id = "other"
    assert world.ask(api_key, request).response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    request.cluster_id = None
    request.topics.append(request.topics[0])
    assert world.ask(api_key, request).response.error_code == ErrorCode.INVALID_REQUEST


def test_begin_quorum_epoch_makes_a_follower():
    world = World()
    response = world.ask(53, asker().begin(voter(1), 5)).response
    partition = response.topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 2, 5)
    assert [(node.node_id, node.host) for node in response.node_endpoints] == [(2, "c2")]
    assert world.saved[-1][1:3] == (2, 5)
    assert world.replica.role is Role.FOLLOWER
    assert world.partition(53, asker(3).begin(voter(1), 4)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert world.partition(53, asker(3).begin(voter(1), 5)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.partition(53, asker(2).begin(voter(3), 5)).error_code == ErrorCode.INVALID_VOTER_KEY
    assert world.ask(53, asker().begin(voter(1), 5), 0).response.node_endpoints == []


@pytest.mark.parametrize(("successors", "wait_ms"), [((1, 3), 0), ((3, 1), 500), ((3,), 1_000)])
def test_successors_stand_in_their_order(successors, wait_ms):
    world = World()
    world.partition(53, asker().begin(voter(1), 5))
    world.partition(54, asker().end(5, [voter(number) for number in successors]))
    world.replica.tick(world.now + wait_ms - 1)
    assert world.replica.role is Role.FOLLOWER
    world.replica.tick(world.now + wait_ms)
    assert world.replica.role is Role.PROSPECTIVE


# --- roles --------------------------------------------------------------------------------------------------------------


def test_leader_of_before_resigns_and_does_not_lead_again():
    world = World(election=QuorumState(1, 1, 7))
    assert world.replica.role is Role.RESIGNED
    sends = world.replica.sends(world.now)
    assert [type(send.message).__name__ for send in sends] == ["EndQuorumEpochRequest"] * 2
    world.carry_out(world.replica.tick(world.now + 2_000))
    assert (world.replica.role, world.replica.epoch, world.replica.leader_id) == (Role.UNATTACHED, 8, -1)


def test_leader_resigns_when_a_majority_is_silent():
    world = World().lead().commit()
    world.replica.tick(world.now + 2_999)
    assert world.replica.role is Role.LEADER
    world.replica.tick(world.now + 3_000)
    assert world.replica.role is Role.RESIGNED


def test_leader_tells_voters_until_they_fetch():
    world = World().lead()
    sends = world.replica.sends(world.now)
    assert {send.key for send in sends} == {2, 3}
    assert {type(send.message).__name__ for send in sends} == {"BeginQuorumEpochRequest"}
    for send in sends:
        world.replica.failed(send, world.now)
    world.commit(2)
    assert [send.key for send in world.replica.sends(world.now + 1_000)] == [2, 3]
    world.now += 1_500
    world.commit(2)
    assert 2 not in [send.key for send in world.replica.sends(world.now + 900)]


def test_append_after_resignation_is_refused():
    world = World().lead().commit()
    epoch = world.replica.epoch
    world.carry_out((world.replica.append(epoch, [record(1)], world.now),))
    world.replica.resign(world.now)
    with pytest.raises(NotLeaderError):
        world.replica.append(epoch, [record(2)], world.now)


# --- the log ------------------------------------------------------------------------------------------------------------


def snapshot_request(snapshot_id, position, *, epoch, name=CLUSTER_METADATA_TOPIC, size=100):
    partition = FetchSnapshotRequest.PartitionSnapshot(
        0, epoch, FetchSnapshotRequest.SnapshotId(*snapshot_id), position
    )
    return FetchSnapshotRequest(
        replica_id=2, max_bytes=size, topics=[FetchSnapshotRequest.TopicSnapshot(name, [partition])]
    )


def fetched(world, **fields):
    response = world.ask(1, fetch_request(**fields)).response
    return response.responses[0].partitions[0]


def test_fetch_is_committed_by_a_majority_of_its_epoch():
    world = World().lead()
    epoch = world.replica.epoch
    assert fetched(world, offset=0, epoch=epoch, last_epoch=0, replica_id=9).high_watermark == -1
    world.commit(9)
    assert world.replica.log.high_watermark == -1
    world.commit(2)
    end_offset = world.replica.log.end_offset
    assert world.replica.log.high_watermark == end_offset
    answered = fetched(world, offset=end_offset, epoch=epoch, last_epoch=epoch, replica_id=3)
    assert answered.high_watermark == end_offset


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 9, "last_epoch": 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"wait_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"size": -1}, ErrorCode.INVALID_REQUEST),
        ({"replica_id": 1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_fetch_that_makes_no_sense_is_refused(fields, error):
    world = World().lead()
    asked = {"offset": 0, "epoch": world.replica.epoch, "last_epoch": 0, **fields}
    partition = fetched(world, **asked)
    assert partition.error_code == error
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (
        1,
        world.replica.epoch,
    )


def test_fetch_from_a_follower_names_the_leader():
    world = World()
    world.ask(53, asker().begin(voter(1), 5))
    response = world.ask(1, fetch_request(0, epoch=5, last_epoch=0)).response
    partition = response.responses[0].partitions[0]
    assert (partition.error_code, partition.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [(2, "c2", 9093)]
    assert world.ask(1, fetch_request(0, epoch=5, last_epoch=0), 16).response.node_endpoints == []


def test_divergence_and_snapshots_are_answered():
    world = World().lead().commit()
    replica, disk = world.replica, world.disk
    epoch, end_offset = replica.epoch, replica.log.end_offset
    parted = fetched(world, offset=end_offset + 5, epoch=epoch, last_epoch=epoch, replica_id=2)
    assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (epoch, end_offset)
    snapshot_id = SnapshotId(end_offset, epoch)
    disk.snapshots[snapshot_id] = b"s" * 150
    assert fetched(world, offset=0, epoch=epoch, last_epoch=0).snapshot_id.end_offset == end_offset
    piece = world.partition(59, snapshot_request(snapshot_id, 0, epoch=epoch))
    assert (piece.size, piece.position, len(piece.unaligned_records)) == (150, 0, 100)
    for asked, error in (
        (snapshot_request(snapshot_id, 150, epoch=epoch), ErrorCode.POSITION_OUT_OF_RANGE),
        (snapshot_request(snapshot_id, -1, epoch=epoch), ErrorCode.POSITION_OUT_OF_RANGE),
        (snapshot_request(SnapshotId(1, 1), 0, epoch=epoch), ErrorCode.SNAPSHOT_NOT_FOUND),
        (snapshot_request(SnapshotId(0, 0), 0, epoch=epoch), ErrorCode.SNAPSHOT_NOT_FOUND),
        (snapshot_request(snapshot_id, 0, epoch=epoch - 1), ErrorCode.FENCED_LEADER_EPOCH),
        (snapshot_request(snapshot_id, 0, epoch=epoch + 1), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (snapshot_request(snapshot_id, 0, epoch=epoch, name="t"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        assert world.partition(59, asked).error_code == error


def test_fetch_waits_unless_there_is_news():
    world = World().lead().commit()
    epoch, end_offset = world.replica.epoch, world.replica.log.end_offset
    asked = {"offset": end_offset, "epoch": epoch, "last_epoch": epoch, "wait_ms": 500}
    assert world.ask(1, fetch_request(**asked)).waits_ms == 500
    assert world.ask(1, fetch_request(**asked, high_watermark=end_offset)).waits_ms == 500
    assert world.ask(1, fetch_request(**asked, high_watermark=end_offset - 1)).waits_ms == 0
    world.replica.stop(world.now)
    partition = world.ask(1, fetch_request(**asked)).response.responses[0].partitions[0]
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_leader_that_ends_waits_for_no_absent_voter():
    world = World().lead().commit()
    for send in world.replica.sends(world.now):
        world.replica.failed(send, world.now)
    world.replica.stop(world.now)
    assert not world.replica.is_known_to_resign
    world.now += 1_000
    sends = world.replica.sends(world.now)
    assert [send.key for send in sends] == [2, 3]
    for send in sends:
        assert not world.replica.is_known_to_resign
        world.replica.failed(send, world.now)
    assert world.replica.is_known_to_resign


@pytest.mark.parametrize("version", [0, 1, 2])
def test_describe_quorum_in_each_version(version):
    world = World()
    partition = world.partition(55, describe_request(), version)
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.error_message
    world.lead().commit()
    partition = world.partition(55, describe_request(), version)
    assert (partition.error_code, partition.leader_id) == (0, 1)
    assert [entry.replica_id for entry in partition.current_voters] == [1, 2, 3]
    request = describe_request()
    request.topics[0].topic_name = "t"
    refused = world.partition(55, request, version)
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused.error_message


# --- voters -------------------------------------------------------------------------------------------------------------


def add_request(number, listener="CONTROLLER", cluster=CLUSTER, directory=None, **fields):
    listeners = [AddRaftVoterRequest.Listener(listener, f"c{number}", 9093)]
    directory = directory_id(number) if directory is None else directory
    return AddRaftVoterRequest(cluster, 1_000, number, directory, listeners, **fields)


def update_request(world, number, *, host="new", levels=(0, 1), listener="CONTROLLER", epoch=None):
    return UpdateRaftVoterRequest(
        CLUSTER,
        world.replica.epoch if epoch is None else epoch,
        number,
        directory_id(number),
        [UpdateRaftVoterRequest.Listener(listener, host, 9093)],
        UpdateRaftVoterRequest.KRaftVersionFeature(*levels),
    )


def supports(world, send, lowest=0, highest=1, error=0):
    features = [ApiVersionsResponse.SupportedFeatureKey("kraft.version", lowest, highest)]
    response = ApiVersionsResponse(error_code=error, supported_features=features)
    world.carry_out(world.replica.answered(send, response, world.now))


def probe(world, number):
    return next(send for send in world.replica.sends(world.now) if send.key == number)


def test_voter_is_added_when_it_has_the_log():
    world = World().lead().commit(2, 3)
    change = world.ask(80, add_request(4)).change
    send = probe(world, 4)
    assert (type(send.message).__name__, send.address) == ("ApiVersionsRequest", ("c4", 9093))
    supports(world, send)
    assert change.error == ErrorCode.REQUEST_TIMED_OUT  # it has never fetched
    world.commit(4)
    change = world.ask(80, add_request(4)).change
    assert world.ask(80, add_request(5)).response.error_code == ErrorCode.REQUEST_TIMED_OUT
    supports(world, probe(world, 4))
    assert [entry.id for entry in world.replica.voters] == [1, 2, 3, 4]
    assert change.error is None
    world.commit(2)
    assert change.error is None  # two of four are no majority
    world.commit(3)
    assert change.error == ErrorCode.NONE
    assert world.ask(80, add_request(4)).response.error_code == ErrorCode.DUPLICATE_VOTER


def test_adding_may_be_answered_before_the_commit():
    world = World().lead().commit(2, 3, 4)
    change = world.ask(80, add_request(4, ack_when_committed=False)).change
    supports(world, probe(world, 4))
    assert change.error == ErrorCode.NONE
    assert world.replica.log.high_watermark < world.replica.log.end_offset


@pytest.mark.parametrize(
    ("levels", "error", "expected"),
    [((0, 0), 0, ErrorCode.INVALID_REQUEST), ((0, 1), 35, ErrorCode.REQUEST_TIMED_OUT)],
)
def test_voter_that_cannot_take_part_is_not_added(levels, error, expected):
    world = World().lead().commit(2, 3, 4)
    change = world.ask(80, add_request(4)).change
    supports(world, probe(world, 4), *levels, error=error)
    assert change.error == expected
    assert len(world.replica.voters) == 3


def test_adding_that_takes_too_long_is_given_up():
    world = World().lead().commit(2, 3, 4)
    change = world.ask(80, add_request(4)).change
    world.replica.tick(world.now + 2_000)
    assert change.error == ErrorCode.REQUEST_TIMED_OUT


def test_removed_leader_resigns_once_that_is_committed():
    world = World().lead().commit(2, 3)
    change = world.ask(81, RemoveRaftVoterRequest(CLUSTER, 1, directory_id(1))).change
    world.commit(2)
    assert world.replica.role is Role.LEADER
    assert change.error is None
    world.commit(3)
    assert change.error == ErrorCode.NONE
    assert world.replica.role is Role.RESIGNED


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (add_request(4, cluster="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (add_request(4, "OTHER"), ErrorCode.INVALID_REQUEST),
        (add_request(4, directory=bytes(16)), ErrorCode.INVALID_REQUEST),
        (add_request(-1), ErrorCode.INVALID_REQUEST),
        (add_request(2), ErrorCode.DUPLICATE_VOTER),
        (RemoveRaftVoterRequest("other", 2, directory_id(2)), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (RemoveRaftVoterRequest(CLUSTER, 2, bytes(16)), ErrorCode.INVALID_REQUEST),
        (RemoveRaftVoterRequest(CLUSTER, 2, directory_id(3)), ErrorCode.VOTER_NOT_FOUND),
        (RemoveRaftVoterRequest(CLUSTER, 7, directory_id(7)), ErrorCode.VOTER_NOT_FOUND),
    ],
)
def test_change_of_voters_is_refused(request_, error):
    world = World().lead().commit(2, 3)
    key = 80 if isinstance(request_, AddRaftVoterRequest) else 81
    assert world.ask(key, request_).response.error_code == error


def test_voters_do_not_change_before_the_epoch_is_committed():
    world = World()
    for key, request in ((80, add_request(4)), (81, RemoveRaftVoterRequest(CLUSTER, 2, directory_id(2)))):
        assert world.ask(key, request).response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.lead()
    assert world.ask(80, add_request(4)).response.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert world.ask(82, update_request(world, 2)).response.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_static_voters_cannot_be_changed():
    world = World(is_static=True).lead().commit(2, 3)
    assert world.ask(80, add_request(4)).response.error_code == ErrorCode.UNSUPPORTED_VERSION
    removal = RemoveRaftVoterRequest(CLUSTER, 2, directory_id(2))
    assert world.ask(81, removal).response.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_static_voters_tell_their_leader_and_go_up_a_level():
    world = World(is_static=True).lead()
    assert world.ask(82, update_request(world, 2)).response.error_code == ErrorCode.REQUEST_TIMED_OUT
    world.commit(2, 3)
    assert world.ask(82, update_request(world, 7)).response.error_code == ErrorCode.VOTER_NOT_FOUND
    assert reason_against_level(world.replica, 1).startswith("voter 2 ")
    for number in (2, 3):
        assert world.ask(82, update_request(world, number)).response.error_code == 0
        assert world.replica.voters[number - 1].directory_id == bytes(16)
    assert reason_against_level(world.replica, 1) == ""
    assert reason_against_level(world.replica, 2).startswith("voter 1 ")
    before = world.replica.log.end_offset
    world.carry_out([world.replica.raise_level(world.replica.epoch, 1, world.now)])
    assert world.replica.log.end_offset == before + 2
    assert world.replica.log.leadership.kraft_version == 1
    assert [(entry.id, entry.directory_id) for entry in world.replica.voters] == [
        (number, directory_id(number)) for number in (1, 2, 3)
    ]
    world.commit(2, 3)
    assert world.replica.log.high_watermark == before + 2


def test_static_voter_tells_each_leader_once():
    world = World(is_static=True)
    for epoch in (5, 6):
        world.ask(53, asker().begin(voter(1), epoch))
        world.now += 2_000
        (update,) = [
            send
            for send in world.replica.sends(world.now)
            if isinstance(send.message, UpdateRaftVoterRequest)
        ]
        assert (update.message.voter_id, update.message.voter_directory_id) == (1, directory_id(1))
        told = UpdateRaftVoterResponse(
            current_leader=UpdateRaftVoterResponse.CurrentLeader(2, epoch, "c2", 9093)
        )
        world.replica.answered(update, told, world.now)
        world.now += 1_900
        sends = world.replica.sends(world.now)
        assert not [send for send in sends if isinstance(send.message, UpdateRaftVoterRequest)]


def test_voter_has_its_endpoints_updated():
    world = World().lead().commit(2, 3)
    response = world.ask(82, update_request(world, 2)).response
    assert (response.error_code, response.current_leader.leader_id, response.current_leader.host) == (
        0,
        1,
        "c1",
    )
    assert world.replica.voters[1].endpoints == (("CONTROLLER", "new", 9093),)
    world.commit(2, 3)
    for request, error in (
        (update_request(world, 7), ErrorCode.VOTER_NOT_FOUND),
        (update_request(world, 2, levels=(0, 0)), ErrorCode.INVALID_REQUEST),
        (update_request(world, 2, levels=(1, 0)), ErrorCode.INVALID_REQUEST),
        (update_request(world, 2, listener="OTHER"), ErrorCode.INVALID_REQUEST),
        (update_request(world, 2, epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
        (update_request(world, 2, epoch=99), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        assert world.ask(82, request).response.error_code == error


def test_empty_replica_grants_and_knows_no_voters():
    settings = RaftSettings(endpoints=endpoints_of(4), bootstrap=(("c1", 9093),))
    replica = Replica(Identity(4, directory_id(4), CLUSTER), StoredLog(), settings, lambda limit: 0)
    replica.begin(NOW)
    replica.tick(NOW + 60_000)
    assert replica.role is Role.UNATTACHED
    assert not replica.is_voter
    assert [type(send.message).__name__ for send in replica.sends(NOW)] == ["FetchRequest"]
    reply = requests.vote(replica, 2, vote(1, target=4), NOW)
    assert reply.response.topics[0].partitions[0].vote_granted
