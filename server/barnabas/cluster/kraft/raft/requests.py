"""Responses of a replica to the requests of the quorum (KIP-595, KIP-630, KIP-642, KIP-853, KIP-996). Pure.

The rule: a response is sent once its decisions are carried out; it names the known leader, with its address in the
versions that have one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from barnabas.cluster.kraft.decisions import Decision, SnapshotId
from barnabas.cluster.kraft.observer import REPLICA_STATE_VERSION
from barnabas.cluster.kraft.raft import membership
from barnabas.cluster.kraft.raft.leading import NO_PROGRESS, Progress, VoterChange
from barnabas.cluster.kraft.raft.messages import only_partition
from barnabas.cluster.kraft.raft.values import BATCH_BYTES_MAX, ReplicaKey, Role, address_by, is_same
from barnabas.cluster.kraft.raft.voter import Replica
from barnabas.cluster.kraft.replica_values import METADATA_TOPIC_ID, Vote
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.cluster.kraft.values import MIGRATING, LevelRange, Voter
from barnabas.config.quorum import Address
from barnabas.log.format.names import CLUSTER_METADATA_TOPIC
from barnabas.wire.generated.add_raft_voter import AddRaftVoterResponse
from barnabas.wire.generated.begin_quorum_epoch import BeginQuorumEpochResponse
from barnabas.wire.generated.describe_quorum import DescribeQuorumResponse
from barnabas.wire.generated.end_quorum_epoch import EndQuorumEpochResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.fetch_snapshot import FetchSnapshotResponse
from barnabas.wire.generated.remove_raft_voter import RemoveRaftVoterResponse
from barnabas.wire.generated.update_raft_voter import UpdateRaftVoterResponse
from barnabas.wire.generated.vote import VoteResponse

FETCH_ENDPOINTS_VERSION: Final = 17
FETCH, VOTE, BEGIN, END, DESCRIBE, SNAPSHOT, ADD, REMOVE, UPDATE = 1, 52, 53, 54, 55, 59, 80, 81, 82


class LogFiles(Protocol):
    """The log and its snapshots on disk."""

    @property
    def start_offset(self) -> int:
        """The offset of the first record."""

    @property
    def snapshot_ids(self) -> list[SnapshotId]:
        """The snapshots, the oldest first, without the bootstrap snapshot."""

    def read_log(self, offset: int, bytes_max: int) -> bytes:
        """Return whole batches from an offset on, at least one unless the log ends there."""

    def snapshot_size(self, snapshot_id: SnapshotId) -> int:
        """Return the size of a snapshot in bytes."""

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, size: int) -> bytes:
        """Return a piece of a snapshot."""


class Reply(NamedTuple):
    """A response. `waits_ms` is how long a Fetch may wait for new records, `change` the change of voters to wait for."""

    response: Any
    decisions: tuple[Decision, ...] = ()
    waits_ms: int = 0
    change: VoterChange | None = None


# --- elections ----------------------------------------------------------------------------------------------------------


def _is_of_cluster(replica: Replica, cluster_id: str | None) -> bool:
    return cluster_id is None or replica.cluster_id is None or cluster_id == replica.cluster_id


def _leader_address(replica: Replica) -> Address | None:
    leader = replica.log.leader
    if leader.id == replica.key.id:
        return address_by(replica.settings.endpoints, replica.settings.listener)
    return (leader.host, leader.port) if leader.id >= 0 and leader.host else None


def _endpoints(replica: Replica, kind: Any, *, has_them: bool) -> list[Any]:
    address = _leader_address(replica) if has_them else None
    return [] if address is None else [kind(node_id=replica.leader_id, host=address[0], port=address[1])]


def _checked(replica: Replica, node_id: int, epoch: int) -> int:
    """Return the error code of a candidate's or leader's request."""
    if epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if node_id < 0 else ErrorCode.NONE


def _is_meant(replica: Replica, voter_id: int, directory_id: bytes) -> bool:
    return voter_id < 0 or is_same(ReplicaKey(voter_id, directory_id), replica.key)


def _answer(replica: Replica, response: Any, version: int, error: int, **fields: Any) -> Any:
    """Return a response to Vote, BeginQuorumEpoch or EndQuorumEpoch."""
    partition = response.PartitionData(
        error_code=error, leader_id=replica.leader_id, leader_epoch=replica.epoch, **fields
    )
    endpoints = _endpoints(replica, response.NodeEndpoint, has_them=version >= 1)
    return response(
        topics=[response.TopicData(CLUSTER_METADATA_TOPIC, [partition])], node_endpoints=endpoints
    )


def vote(replica: Replica, version: int, request: Any, now_ms: int) -> Reply:
    """Answer Vote (v0-v2): grant or refuse a vote or a pre-vote."""
    partition = only_partition(request)
    if not _is_of_cluster(replica, request.cluster_id):
        return Reply(VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
    if partition is None:
        return Reply(VoteResponse(error_code=ErrorCode.INVALID_REQUEST))
    epoch, is_asking = partition.replica_epoch, partition.pre_vote
    is_illegal = partition.last_offset_epoch > epoch if is_asking else partition.last_offset_epoch >= epoch
    error = _checked(replica, partition.replica_id, epoch)
    if partition.last_offset < 0 or partition.last_offset_epoch < 0 or is_illegal:
        error = ErrorCode.INVALID_REQUEST
    decisions: tuple[Decision, ...] = ()
    if error == ErrorCode.NONE:
        decisions = replica.note_leader(-1, epoch, None, now_ms)
        if not _is_meant(replica, request.voter_id, partition.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
    is_granted = False
    if error == ErrorCode.NONE:
        candidate = ReplicaKey(partition.replica_id, partition.replica_directory_id)
        own_end = (replica.log.last_epoch, replica.log.end_offset)
        is_up_to_date = (partition.last_offset_epoch, partition.last_offset) >= own_end
        is_granted = may_grant(replica, candidate, is_up_to_date=is_up_to_date, is_asking=is_asking)
        if is_granted and not is_asking:
            decisions += replica.voted(candidate, now_ms)
    return Reply(_answer(replica, VoteResponse, version, error, vote_granted=is_granted), decisions)


def may_grant(replica: Replica, candidate: ReplicaKey, *, is_up_to_date: bool, is_asking: bool) -> bool:
    """Return whether a candidate of this epoch gets the vote, or the pre-vote if it only asks (KIP-996)."""
    if is_asking:
        is_content = replica.role is Role.FOLLOWER and replica.has_fetched
        return is_up_to_date and replica.role is not Role.LEADER and not is_content
    if replica.role not in (Role.UNATTACHED, Role.PROSPECTIVE):
        return False
    own: Vote = replica.log.vote
    if own.id >= 0:
        return is_same(own, candidate)
    return replica.leader_id < 0 and is_up_to_date


def _led(
    replica: Replica, version: int, request: Any, response: Any, now_ms: int
) -> tuple[Any, Any, tuple[Decision, ...]]:
    """Check a request of a leader; returns its partition or the response that refuses it, and the decisions."""
    partition = only_partition(request)
    if not _is_of_cluster(replica, request.cluster_id):
        return None, response(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID), ()
    if partition is None:
        return None, response(error_code=ErrorCode.INVALID_REQUEST), ()
    error = _checked(replica, partition.leader_id, partition.leader_epoch)
    if error != ErrorCode.NONE:
        return None, _answer(replica, response, version, error), ()
    endpoints = [(entry.name, entry.host, entry.port) for entry in request.leader_endpoints]
    address = address_by(endpoints or replica.endpoints_of(partition.leader_id), replica.settings.listener)
    try:
        decisions = replica.note_leader(partition.leader_id, partition.leader_epoch, address, now_ms)
    except MetadataLogError:
        return None, _answer(replica, response, version, ErrorCode.UNKNOWN_SERVER_ERROR), ()
    return partition, None, decisions


def begin_quorum_epoch(replica: Replica, version: int, request: Any, now_ms: int) -> Reply:
    """Answer BeginQuorumEpoch (v0-v1): follow the leader."""
    partition, refusal, decisions = _led(replica, version, request, BeginQuorumEpochResponse, now_ms)
    if partition is None:
        return Reply(refusal, decisions)
    is_meant = _is_meant(replica, request.voter_id, partition.voter_directory_id)
    error = ErrorCode.NONE if is_meant else ErrorCode.INVALID_VOTER_KEY
    return Reply(_answer(replica, BeginQuorumEpochResponse, version, error), decisions)


def end_quorum_epoch(replica: Replica, version: int, request: Any, now_ms: int) -> Reply:
    """Answer EndQuorumEpoch (v0-v1): stand for election, the sooner the higher this node is on the list of successors."""
    partition, refusal, decisions = _led(replica, version, request, EndQuorumEpochResponse, now_ms)
    if partition is None:
        return Reply(refusal, decisions)
    successors = [
        ReplicaKey(candidate.candidate_id, candidate.candidate_directory_id)
        for candidate in partition.preferred_candidates
    ] or [ReplicaKey(node_id) for node_id in partition.preferred_successors]
    position = next(
        (index for index, successor in enumerate(successors) if is_same(successor, replica.key)),
        len(successors),
    )
    replica.leader_resigned(partition.leader_id, position, len(successors), now_ms)
    return Reply(_answer(replica, EndQuorumEpochResponse, version, ErrorCode.NONE), decisions)


# --- the log ------------------------------------------------------------------------------------------------------------


def _leader_error(replica: Replica, epoch: int) -> int:
    """Return the error code of a request that needs the leader of an epoch."""
    if epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > replica.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if replica.leading is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.BROKER_NOT_AVAILABLE if replica.is_stopping else ErrorCode.NONE


def fetch(replica: Replica, version: int, request: Any, now_ms: int, files: LogFiles) -> Reply:
    """Answer Fetch of the metadata log (v13-v18): records, the diverging epoch, or the snapshot to fetch first."""
    if not _is_of_cluster(replica, request.cluster_id):
        return Reply(FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
    topics = request.topics
    if (
        len(topics) != 1
        or len(topics[0].partitions) != 1
        or topics[0].topic_id != METADATA_TOPIC_ID
        or topics[0].partitions[0].partition != 0
    ):
        return Reply(FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
    asked = topics[0].partitions[0]
    answer = FetchResponse.PartitionData(high_watermark=-1, log_start_offset=files.start_offset, records=b"")
    decisions: tuple[Decision, ...] = ()
    waits_ms = 0
    answer.error_code = _leader_error(replica, asked.current_leader_epoch)
    sender = request.replica_state.replica_id if version >= REPLICA_STATE_VERSION else request.replica_id
    if (
        request.max_wait_ms < 0
        or asked.fetch_offset < 0
        or asked.last_fetched_epoch < 0
        or asked.last_fetched_epoch > asked.current_leader_epoch
    ):
        answer.error_code = ErrorCode.INVALID_REQUEST
    if answer.error_code == ErrorCode.NONE and (request.max_bytes < 0 or sender == replica.key.id):
        answer.error_code = ErrorCode.INVALID_REQUEST
    if answer.error_code == ErrorCode.NONE:
        assert replica.leading is not None
        leading = replica.leading
        key = ReplicaKey(sender, asked.replica_directory_id)
        continues = place(replica, asked.fetch_offset, asked.last_fetched_epoch, files, answer)
        if continues:
            if sender >= 0:
                leading.fetched(key, asked.fetch_offset, replica.log.end_offset, replica.voters, now_ms)
                decisions = replica.commit(now_ms)
            answer.records = files.read_log(
                asked.fetch_offset, min(max(request.max_bytes, 1), BATCH_BYTES_MAX)
            )
        answer.high_watermark = leading.high_watermark(replica.log.high_watermark)
        is_news = bool(answer.records) or not continues or asked.high_watermark < answer.high_watermark
        waits_ms = 0 if is_news else request.max_wait_ms
    answer.current_leader = FetchResponse.LeaderIdAndEpoch(replica.leader_id, replica.epoch)
    topic = FetchResponse.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[answer])
    endpoints = _endpoints(replica, FetchResponse.NodeEndpoint, has_them=version >= FETCH_ENDPOINTS_VERSION)
    return Reply(FetchResponse(responses=[topic], node_endpoints=endpoints), decisions, waits_ms)


def place(replica: Replica, offset: int, last_epoch: int, files: LogFiles, answer: Any) -> bool:
    """Return whether a fetch continues the log; if not, set the diverging epoch or the snapshot to fetch in the answer."""
    ids, start_offset = files.snapshot_ids, files.start_offset
    if ids:
        oldest, latest = ids[0], ids[-1]
        is_before = offset < start_offset or last_epoch < oldest.epoch
        if not offset or is_before or (offset == start_offset and last_epoch != oldest.epoch):
            answer.snapshot_id = FetchResponse.SnapshotId(latest.end_offset, latest.epoch)
            return False
    if offset == 0 and last_epoch == 0 and start_offset == 0:
        return True
    if ids and offset == ids[0].end_offset and last_epoch == ids[0].epoch:
        return True
    epoch, end_offset = replica.log.epoch_end(last_epoch)
    if epoch == last_epoch and offset <= end_offset:
        return True
    answer.diverging_epoch = FetchResponse.EpochEndOffset(epoch, end_offset)
    return False


def fetch_snapshot(replica: Replica, version: int, request: Any, now_ms: int, files: LogFiles) -> Reply:
    """Answer FetchSnapshot (v0-v1): a piece of a snapshot."""
    if not _is_of_cluster(replica, request.cluster_id):
        return Reply(FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return Reply(FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST))
    name, index = request.topics[0].name, request.topics[0].partitions[0].partition
    answer = FetchSnapshotResponse.PartitionSnapshot(index=index, unaligned_records=b"")
    asked = only_partition(request, "name", "partition")
    if asked is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        answer.current_leader = FetchSnapshotResponse.LeaderIdAndEpoch(replica.leader_id, replica.epoch)
        _fill_piece(replica, request, asked, answer, now_ms, files)
    topic = FetchSnapshotResponse.TopicSnapshot(name, [answer])
    endpoints = _endpoints(replica, FetchSnapshotResponse.NodeEndpoint, has_them=version >= 1)
    return Reply(FetchSnapshotResponse(topics=[topic], node_endpoints=endpoints))


def _fill_piece(
    replica: Replica, request: Any, asked: Any, answer: Any, now_ms: int, files: LogFiles
) -> None:
    answer.error_code = _leader_error(replica, asked.current_leader_epoch)
    if answer.error_code != ErrorCode.NONE:
        return
    snapshot_id = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    if snapshot_id not in files.snapshot_ids:
        answer.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        return
    size = files.snapshot_size(snapshot_id)
    if not 0 <= asked.position < size:
        answer.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        return
    assert replica.leading is not None
    replica.leading.heard_of(
        ReplicaKey(request.replica_id, asked.replica_directory_id), replica.voters, now_ms
    )
    answer.snapshot_id = FetchSnapshotResponse.SnapshotId(*snapshot_id)
    answer.size, answer.position = size, asked.position
    piece_size = min(max(request.max_bytes, 0), BATCH_BYTES_MAX, size - asked.position)
    answer.unaligned_records = files.read_snapshot(snapshot_id, asked.position, piece_size)


# --- description --------------------------------------------------------------------------------------------------------


def describe_quorum(replica: Replica, version: int, request: Any, now_ms: int) -> Reply:
    """Answer DescribeQuorum (v0-v2): only the leader knows the progress of the others."""
    partition, leading = only_partition(request), replica.leading
    if partition is None:
        return Reply(_undescribed(request))
    answer = DescribeQuorumResponse.PartitionData(0, leader_id=-1, leader_epoch=-1, high_watermark=-1)
    response = DescribeQuorumResponse(
        topics=[DescribeQuorumResponse.TopicData(CLUSTER_METADATA_TOPIC, [answer])]
    )
    if leading is None:
        answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer.error_message = "this node does not lead the quorum"
        answer.leader_id = answer.leader_epoch = answer.high_watermark = 0
        return Reply(response)
    answer.leader_id, answer.leader_epoch = replica.key.id, replica.epoch
    answer.high_watermark = leading.high_watermark(replica.log.high_watermark)

    def state(key: ReplicaKey, progress: Progress) -> DescribeQuorumResponse.ReplicaState:
        described = DescribeQuorumResponse.ReplicaState(
            replica_id=key.id,
            log_end_offset=progress.end_offset,
            last_fetch_timestamp=replica.wall_ms(progress.fetched_ms) if progress.fetched_ms >= 0 else -1,
            last_caught_up_timestamp=replica.wall_ms(progress.caught_up_ms)
            if progress.caught_up_ms >= 0
            else -1,
        )
        if version >= 2:
            described.replica_directory_id = key.directory_id
        return described

    own = NO_PROGRESS._replace(end_offset=replica.log.end_offset, fetched_ms=now_ms, caught_up_ms=now_ms)
    for voter in replica.voters:
        progress = own if voter.id == replica.key.id else leading.progress_of(voter)
        answer.current_voters.append(state(ReplicaKey(voter.id, voter.directory_id), progress))
    answer.observers = [state(key, progress) for key, progress in leading.observers(replica.voters, now_ms)]
    if version >= 2:
        response.nodes = [
            DescribeQuorumResponse.Node(
                voter.id, [DescribeQuorumResponse.Listener(*endpoint) for endpoint in voter.endpoints]
            )
            for voter in replica.voters
        ]
    return Reply(response)


def _undescribed(request: Any) -> DescribeQuorumResponse:
    topics = []
    for topic in request.topics:
        partitions = [
            DescribeQuorumResponse.PartitionData(
                entry.partition_index,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "only the quorum's own partition is described",
            )
            for entry in topic.partitions
        ]
        topics.append(DescribeQuorumResponse.TopicData(topic.topic_name, partitions))
    return DescribeQuorumResponse(topics=topics)


# --- voters -------------------------------------------------------------------------------------------------------------


def _refusal(replica: Replica, request: Any) -> tuple[int, str | None]:
    """Return the error of a change of voters that is refused before a closer look; NONE if it is not."""
    if not _is_of_cluster(replica, request.cluster_id):
        return (
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"cluster id {request.cluster_id} is not {replica.cluster_id}",
        )
    error = _leader_error(replica, replica.epoch)
    if error == ErrorCode.NONE and (request.voter_id < 0 or request.voter_directory_id == MIGRATING):
        return ErrorCode.INVALID_REQUEST, "the request names no voter with its directory"
    return error, None


def _listeners(request: Any) -> tuple[tuple[str, str, int], ...]:
    return tuple((listener.name, listener.host, listener.port) for listener in request.listeners)


def add_voter(replica: Replica, version: int, request: Any, now_ms: int) -> Reply:
    """Answer AddRaftVoter (v0-v1) once the new voters are committed, or appended if v1 asks for that."""
    error, message = _refusal(replica, request)
    endpoints = _listeners(request)
    if error == ErrorCode.NONE and address_by(endpoints, replica.settings.listener) is None:
        error, message = (
            ErrorCode.INVALID_REQUEST,
            f"listener {replica.settings.listener} of the voter is missing",
        )
    if error == ErrorCode.NONE:
        assert replica.leading is not None
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        waits_for_commit = version < 1 or request.ack_when_committed
        try:
            change = membership.begin_adding(
                replica, replica.leading, key, endpoints, waits_for_commit=waits_for_commit, now_ms=now_ms
            )
            return Reply(AddRaftVoterResponse(), change=change)
        except membership.RefusedChangeError as refused:
            error, message = refused.error, refused.message
    return Reply(AddRaftVoterResponse(error_code=error, error_message=message))


def remove_voter(replica: Replica, version: int, request: Any, now_ms: int) -> Reply:
    """Answer RemoveRaftVoter (v0) once the voters without the removed one are committed."""
    del version
    error, message = _refusal(replica, request)
    if error == ErrorCode.NONE:
        assert replica.leading is not None
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        try:
            change, decisions = membership.begin_removing(replica, replica.leading, key, now_ms)
            return Reply(RemoveRaftVoterResponse(), decisions, change=change)
        except membership.RefusedChangeError as refused:
            error, message = refused.error, refused.message
    return Reply(RemoveRaftVoterResponse(error_code=error, error_message=message))


def update_voter(replica: Replica, version: int, request: Any, now_ms: int) -> Reply:
    """Answer UpdateRaftVoter (v0): the endpoints and levels of a voter that has restarted."""
    del version
    error, _ = _refusal(replica, request)
    if error in (ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        error = _leader_error(replica, request.current_leader_epoch) or error
    levels = LevelRange(
        request.kraft_version_feature.min_supported_version,
        request.kraft_version_feature.max_supported_version,
    )
    endpoints = _listeners(request)
    has_address = address_by(endpoints, replica.settings.listener) is not None
    if error == ErrorCode.NONE and (not has_address or not 0 <= levels.lowest <= levels.highest):
        error = ErrorCode.INVALID_REQUEST
    decisions: tuple[Decision, ...] = ()
    if error == ErrorCode.NONE:
        assert replica.leading is not None
        voter = Voter(request.voter_id, request.voter_directory_id, endpoints, levels)
        try:
            decisions = membership.update(replica, replica.leading, voter, now_ms)
        except membership.RefusedChangeError as refused:
            error = refused.error
    host, port = _leader_address(replica) or ("", -1)
    leader = UpdateRaftVoterResponse.CurrentLeader(replica.leader_id, replica.epoch, host, port)
    return Reply(UpdateRaftVoterResponse(error_code=error, current_leader=leader), decisions)


def finished(response: Any, change: VoterChange) -> Any:
    """Return the response to a finished change of voters."""
    response.error_code, response.error_message = change.error, change.message
    return response


ANSWERS: Final[Mapping[int, Callable[[Replica, int, Any, int], Reply]]] = {
    VOTE: vote,
    BEGIN: begin_quorum_epoch,
    END: end_quorum_epoch,
    DESCRIBE: describe_quorum,
    ADD: add_voter,
    REMOVE: remove_voter,
    UPDATE: update_voter,
}
LOG_ANSWERS: Final[Mapping[int, Callable[[Replica, int, Any, int, LogFiles], Reply]]] = {
    FETCH: fetch,
    SNAPSHOT: fetch_snapshot,
}


def answer(replica: Replica, api_key: int, version: int, request: Any, now_ms: int, files: LogFiles) -> Reply:
    """Answer a request by its API."""
    if api_key in LOG_ANSWERS:
        return LOG_ANSWERS[api_key](replica, version, request, now_ms, files)
    return ANSWERS[api_key](replica, version, request, now_ms)
