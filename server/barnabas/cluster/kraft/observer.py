"""An observer of a KRaft quorum: chooses the next request, and decides on answers (KIP-595, KIP-630, KIP-853). Pure.

The rule: `take` returns decisions, which are carried out in order before the next request. An invalid answer has no
effect. Only records above the high watermark are truncated, and the high watermark never falls. Voters count as soon as
they are in the log, and no longer once they are truncated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas.cluster.kraft.decisions import (
    Append,
    Commit,
    Decision,
    DropSnapshot,
    InstallSnapshot,
    SaveElection,
    SnapshotId,
    Taken,
    Truncate,
    WritePiece,
)
from barnabas.cluster.kraft.download import Download
from barnabas.cluster.kraft.quorum import Leadership, decode_control
from barnabas.cluster.kraft.replica_values import (
    METADATA_TOPIC_ID,
    NO_VOTE,
    PLACE,
    Identity,
    Leader,
    StoredLog,
    Vote,
    WrongAnswerError,
)
from barnabas.cluster.kraft.state import MetadataLogError, Snapshot
from barnabas.log.epochs import UNDEFINED_EPOCH, LeaderEpochs
from barnabas.log.format.quorum_state import QuorumState
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import HEADER_SIZE, BatchHeader, read_any_header, require_crc
from barnabas.records.errors import RecordsError
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

FETCH_VERSION_MIN: Final = 13
"""The first version that names topics by id: the metadata topic is named by its id."""
REPLICA_STATE_VERSION: Final = 15
"""The first version of Fetch that names the sender in its replica state (KIP-903)."""
FETCH_BYTES_MAX: Final = 1 << 20
FETCH_WAIT_MS: Final = 500
"""Longest time that a controller holds a Fetch without new records, as for Kafka's observers."""
SNAPSHOT_BYTES_MAX: Final = 4 << 30
"""Largest size accepted from an answer; a cluster of a million partitions has a tenth of it."""

_ELSEWHERE: Final = frozenset(
    {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH}
)
_AGAIN: Final = frozenset(
    {
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.SNAPSHOT_NOT_FOUND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Observer:
    """State machine of an observer. Lifecycle: send `request`, `take` the answer, carry out the decisions, repeat.

    `leader` is the leader as named by answers. `high_watermark` is -1 until an answer or a snapshot has it.
    """

    def __init__(
        self,
        identity: Identity = Identity(),  # noqa: B008
        stored: StoredLog = StoredLog(),  # noqa: B008
        *,
        static_voters: Mapping[int, tuple[str, int]] | None = None,
        listener: str = "",
        fetch_bytes_max: int = FETCH_BYTES_MAX,
        snapshot_bytes_max: int = FETCH_BYTES_MAX,
    ) -> None:
        """`static_voters` are the addresses in controller.quorum.voters, by id; the sizes are limits of one answer.

        `listener` is the listener at which voters of the log are reached; a voter without it is reached at its first.
        """
        self.identity = identity
        self._listener = listener
        self._has_answered = False  # a controller of this cluster
        self._static_voters = dict(static_voters or {})
        self._fetch_bytes_max = fetch_bytes_max
        self._snapshot_bytes_max = snapshot_bytes_max
        self._end_offset = stored.end_offset
        self._epochs = LeaderEpochs(stored.epochs)
        self._snapshot_id = stored.snapshot_id
        self._controls = list(stored.controls)
        self.high_watermark = stored.snapshot_id.end_offset if stored.snapshot_id is not None else -1
        self._leaders_high_watermark = -1
        self._download: Download | None = None
        self.leader = self._stored_leader(stored.election)
        self.vote = self._stored_vote(stored.election)

    def _stored_leader(self, election: QuorumState | None) -> Leader:
        """Return the leader in the stored `quorum-state`; if the log has a later epoch, no leader."""
        if election is None or election.leader_epoch < self.last_epoch:
            return Leader(epoch=self.last_epoch)
        return self._with_address(Leader(election.leader_id, election.leader_epoch))

    def _stored_vote(self, election: QuorumState | None) -> Vote:
        """Return the vote in the stored `quorum-state`; a vote in an earlier epoch does not count."""
        if election is None or election.leader_epoch < self.leader.epoch:
            return NO_VOTE
        return Vote(election.voted_id, election.voted_directory_id)

    @property
    def end_offset(self) -> int:
        """The offset after the last record of the log."""
        return self._end_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; of the snapshot if no record follows it; 0 for an empty log."""
        if self._epochs.latest != UNDEFINED_EPOCH:
            return self._epochs.latest
        return self._snapshot_id.epoch if self._snapshot_id is not None else 0

    @property
    def leadership(self) -> Leadership:
        """Leader, voters and kraft.version by the records of the log, committed or not."""
        return self._controls[-1][1]

    def voters_offset(self) -> int:
        """Return the offset of the record with the voters of `leadership`; -1 if the log has no such record."""
        voters, offset = self.leadership.voters, -1
        for record_offset, leadership in reversed(self._controls):
            if leadership.voters != voters:
                break
            offset = record_offset
        return offset

    @property
    def is_caught_up(self) -> bool:
        """True if the log had, at the last answer, all committed records."""
        return self._download is None and 0 <= self._leaders_high_watermark <= self.high_watermark

    # --- requests -------------------------------------------------------------------------------------------

    def request(
        self, *, max_wait_ms: int, fetch_version: int = REPLICA_STATE_VERSION
    ) -> FetchRequest | FetchSnapshotRequest:
        """Return the next request; without new records a Fetch is answered after `max_wait_ms`.

        `fetch_version` is the version in which the Fetch will be sent.
        """
        if self._download is not None:
            return self._download.request(self.identity, self.leader.epoch, self._snapshot_bytes_max)
        return self._fetch(self._end_offset, self.last_epoch, max_wait_ms, fetch_version)

    def epoch_start_request(self, fetch_version: int = REPLICA_STATE_VERSION) -> FetchRequest:
        """Return a Fetch for the start offset of the leader's epoch, which the answer has as divergence from the epoch
        before.
        """
        return self._fetch(self._end_offset, self.leader.epoch - 1, 0, fetch_version)

    def first_record_request(
        self, response: FetchResponse, fetch_version: int = REPLICA_STATE_VERSION
    ) -> FetchRequest | None:
        """Return a Fetch of that epoch's first record, after `epoch_start_request`; None if the record was removed."""
        diverging = _only(response.responses).diverging_epoch
        if diverging.end_offset < 0:
            return None
        return self._fetch(diverging.end_offset, diverging.epoch, 0, fetch_version)

    def _fetch(self, offset: int, last_epoch: int, max_wait_ms: int, version: int) -> FetchRequest:
        partition = FetchRequest.FetchPartition(
            partition=0,
            current_leader_epoch=self.leader.epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            replica_directory_id=self.identity.directory_id,
            high_watermark=self.high_watermark,
        )
        topic = FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])
        request = FetchRequest(
            cluster_id=self.identity.cluster_id,
            max_wait_ms=max_wait_ms,
            max_bytes=self._fetch_bytes_max,
            topics=[topic],
        )
        if version >= REPLICA_STATE_VERSION:
            request.replica_state = FetchRequest.ReplicaState(self.identity.node_id, -1)
        else:
            request.replica_id = self.identity.node_id
        return request

    # --- answers --------------------------------------------------------------------------------------------

    def take(self, response: FetchResponse | FetchSnapshotResponse) -> Taken:
        """Process the answer to the last request.

        Raises WrongAnswerError for an invalid answer, MetadataLogError if the log cannot follow this cluster.
        """
        try:
            if isinstance(response, FetchResponse):
                return self._take_fetch(response)
            return self._take_piece(response)
        except RecordsError as error:
            raise WrongAnswerError(f"{PLACE}: {error.message}") from None
        except DecodeError as error:
            raise WrongAnswerError(f"{PLACE}: {error}") from None

    def _take_fetch(self, response: FetchResponse) -> Taken:
        self._check(response.error_code)
        partition = _only(response.responses)
        outcome = self._outcome(partition, self._note_leader(partition, response.node_endpoints))
        if outcome is not None:
            return outcome
        snapshot, diverging = partition.snapshot_id, partition.diverging_epoch
        if snapshot.end_offset >= 0:
            self._begin_download(SnapshotId(snapshot.end_offset, snapshot.epoch))
            return Taken()
        if diverging.end_offset >= 0:
            return Taken((self._cut(diverging.epoch, diverging.end_offset),))
        appended = self._append(bytes(partition.records or b""))
        self._leaders_high_watermark = partition.high_watermark
        return Taken((*appended, *self.commit(partition.high_watermark)))

    def _append(self, data: bytes) -> tuple[Decision, ...]:
        """Validate the batches of an answer, all of them before the first is appended."""
        end_offset, epoch, position = self._end_offset, self.last_epoch, 0
        headers: list[BatchHeader] = []
        controls: list[tuple[int, Leadership]] = []
        leadership = self.leadership
        while len(data) - position >= HEADER_SIZE:
            header = read_any_header(data, position)
            if header.size > len(data) - position:
                break
            require_crc(data, position, header)
            self._require_next(header, end_offset, epoch)
            if header.is_control:
                for record in iter_any_records(data[position : position + header.size]):
                    _, message = decode_control(record)
                    leadership = leadership.after(message, header.leader_epoch, record)
                    controls.append((record.offset, leadership))
            headers.append(header)
            end_offset, epoch = header.last_offset + 1, header.leader_epoch
            position += header.size
        if not headers:
            if len(data) >= HEADER_SIZE:
                raise WrongAnswerError(f"{PLACE}: an answer has no whole batch")
            return ()
        for header in headers:
            self._epochs.assign(header.leader_epoch, header.base_offset)
        self._controls += controls
        self._end_offset = end_offset
        return (Append(data[:position], end_offset),)

    def append_own(self, batches: bytes) -> Append:
        """Append batches of this node, which leads. Raises WrongAnswerError if they do not continue the log."""
        (decision,) = self._append(batches)
        assert isinstance(decision, Append)
        return decision

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch of the log up to an epoch, and its end offset: the diverging epoch of a response."""
        found_epoch, end_offset = self._epochs.end_offset_for(epoch, self._end_offset)
        if end_offset < 0:
            return self.last_epoch, self._end_offset
        return found_epoch, end_offset

    def _require_next(self, header: BatchHeader, end_offset: int, epoch: int) -> None:
        if header.base_offset != end_offset:
            raise WrongAnswerError(
                f"{PLACE}: a batch begins at offset {header.base_offset}, not {end_offset}"
            )
        if not epoch <= header.leader_epoch <= self.leader.epoch:
            raise WrongAnswerError(
                f"{PLACE}: a batch has epoch {header.leader_epoch}, after epoch {epoch} and under a leader of "
                f"epoch {self.leader.epoch}"
            )

    def commit(self, high_watermark: int) -> tuple[Decision, ...]:
        """Raise the high watermark, as known from the leader, or computed by it."""
        high_watermark = min(high_watermark, self._end_offset)
        if high_watermark <= self.high_watermark:
            return ()
        self.high_watermark = high_watermark
        committed = [index for index, (offset, _) in enumerate(self._controls) if offset < high_watermark]
        del self._controls[: committed[-1]]
        return (Commit(high_watermark),)

    def _cut(self, epoch: int, end_offset: int) -> Truncate:
        """Truncate to the end of the largest own epoch up to the leader's diverging epoch. Raises MetadataLogError.

        If both are the same epoch, to the leader's end of it at most; in another epoch that offset could be inside a
        batch.
        """
        own_epoch, own_end = epoch, -1
        if self._epochs.entries:
            own_epoch, own_end = self._epochs.end_offset_for(epoch, self._end_offset)
        if own_end < 0:
            own_epoch, own_end = epoch, self._end_offset
        cut = min(own_end, end_offset) if own_epoch == epoch else own_end
        if cut < self.high_watermark:
            raise MetadataLogError(
                f"{PLACE}: the leader has not what was committed: {self.high_watermark} to be cut to {cut}"
            )
        if cut >= self._end_offset:
            raise WrongAnswerError(
                f"{PLACE}: it diverges at offset {cut}, and ends at {self._end_offset} as it is"
            )
        self._epochs.truncate_from_end(cut)
        self._controls = [entry for entry in self._controls if entry[0] < cut]
        self._end_offset = cut
        return Truncate(cut)

    # --- snapshots ------------------------------------------------------------------------------------------

    def _begin_download(self, snapshot_id: SnapshotId) -> None:
        if snapshot_id.end_offset < max(self.high_watermark, 1) or snapshot_id.epoch < 0:
            raise WrongAnswerError(
                f"{PLACE}: the leader offers a snapshot up to offset {snapshot_id.end_offset}, and "
                f"{max(self.high_watermark, 0)} is committed here"
            )
        self._download = Download(snapshot_id, self.leader)

    def _take_piece(self, response: FetchSnapshotResponse) -> Taken:
        download = self._download
        if download is None or download.is_whole:
            raise WrongAnswerError(f"{PLACE}: a piece of a snapshot comes unasked")
        self._check(response.error_code)
        partition = _only(response.topics)
        elected = self._note_leader(partition, getattr(response, "node_endpoints", []))
        if partition.error_code in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            # Fetch names the next snapshot
            return Taken((*elected, *self.abandon_snapshot()), must_wait=True)
        outcome = self._outcome(partition, elected)
        if outcome is not None:
            return outcome
        data, position = bytes(partition.unaligned_records or b""), download.position
        if partition.position != position or not data or tuple(_id_of(partition)) != download.id:
            raise WrongAnswerError(
                f"{PLACE}: a piece of a snapshot continues at {partition.position}, not {position}"
            )
        if not 0 < partition.size <= SNAPSHOT_BYTES_MAX:
            raise WrongAnswerError(f"{PLACE}: a snapshot has {partition.size} bytes")
        if position + len(data) > partition.size or (position and partition.size != download.size):
            return Taken(self.abandon_snapshot(), must_wait=True)  # this size or the last was wrong
        download.size = partition.size
        download.position += len(data)
        piece = WritePiece(download.id, position, data)
        if download.position < download.size:
            return Taken((piece,))
        download.is_whole = True
        return Taken((piece, InstallSnapshot(download.id)))

    def abandon_snapshot(self) -> tuple[Decision, ...]:
        """Abandon the snapshot that is being fetched, if any: the next request is a Fetch."""
        download, self._download = self._download, None
        return () if download is None else (DropSnapshot(download.id),)

    def installed(self, snapshot: Snapshot) -> Commit:
        """Note that the log was restarted after a snapshot."""
        self._download = None
        self._snapshot_id = SnapshotId(snapshot.end_offset, snapshot.epoch)
        self._end_offset = self.high_watermark = snapshot.end_offset
        self._leaders_high_watermark = -1
        self._epochs.clear()
        self._controls = [(snapshot.end_offset - 1, snapshot.leadership)]
        return Commit(snapshot.end_offset)

    # --- leader ---------------------------------------------------------------------------------------------

    def _note_leader(self, partition: Any, endpoints: list[Any]) -> tuple[Decision, ...]:
        """Note the leader in an answer. Raises MetadataLogError for a second leader of the same epoch."""
        leader_id, epoch = partition.current_leader.leader_id, partition.current_leader.leader_epoch
        before = self.leader
        if epoch < before.epoch or epoch < 0:
            return ()
        if epoch == before.epoch and before.id >= 0 and leader_id not in (before.id, -1):
            raise MetadataLogError(
                f"the quorum has two leaders of epoch {epoch}, {before.id} and {leader_id}: it is broken, or the "
                "controllers that were named are of two clusters"
            )
        if epoch == before.epoch and leader_id < 0:
            return ()
        host, port = next(
            ((endpoint.host, endpoint.port) for endpoint in endpoints if endpoint.node_id == leader_id),
            ("", -1),
        )
        return self.elect(Leader(leader_id, epoch, host, port))

    def elect(self, leader: Leader, vote: Vote | None = None) -> tuple[Decision, ...]:
        """Note the leader of an epoch (-1 for none yet), and this node's vote in it; None keeps its vote in that epoch.

        The epoch must not be earlier than the present one.
        """
        before, named = self.leader, self._with_address(leader)
        kept = self.vote if named.epoch == before.epoch else NO_VOTE
        after = kept if vote is None else vote
        if named[:2] == before[:2] and after == self.vote:
            self.leader = named if leader.host or not before.host else before
            return ()
        self.leader, self.vote = named, after
        dropped: tuple[Decision, ...] = ()
        if self._download is not None and self._download.source != named[:2]:
            dropped = self.abandon_snapshot()
        return (SaveElection(self._election()), *dropped)

    def _with_address(self, leader: Leader) -> Leader:
        """Return a leader with its address, from the answer, the voters or the settings."""
        if leader.host or leader.id < 0:
            return leader
        for voter in self.leadership.voters:
            if voter.id == leader.id and voter.endpoints:
                addresses = {name: (host, port) for name, host, port in reversed(voter.endpoints)}
                host, port = addresses.get(self._listener, voter.endpoints[0][1:])
                return leader._replace(host=host, port=port)
        host, port = self._static_voters.get(leader.id, ("", -1))
        return leader._replace(host=host, port=port)

    def _election(self) -> QuorumState:
        if self.leadership.kraft_version:
            return QuorumState(1, self.leader.id, self.leader.epoch, *self.vote)
        voters = tuple(sorted(self._static_voters))
        return QuorumState(0, self.leader.id, self.leader.epoch, self.vote.id, voters=voters)

    def _outcome(self, partition: Any, elected: tuple[Decision, ...]) -> Taken | None:
        """Return the result of an answer without usable records (an error, a new leader); None if it has usable ones."""
        code = partition.error_code
        if code in _ELSEWHERE:
            is_behind = code != ErrorCode.FENCED_LEADER_EPOCH or self.leader.id < 0
            return Taken(elected, asks_elsewhere=is_behind, must_wait=not elected or self.leader.id < 0)
        if code in _AGAIN:
            return Taken(elected, must_wait=True)
        self._check(code)
        if elected:
            return Taken(elected)
        if partition.current_leader.leader_epoch != self.leader.epoch:
            return Taken(asks_elsewhere=True, must_wait=True)
        return None

    def _check(self, code: int) -> None:
        """Raise WrongAnswerError for an error code; MetadataLogError if the controllers belong to another cluster."""
        if code == ErrorCode.NONE:
            self._has_answered = True
            return
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID and not self._has_answered and self.identity.cluster_id:
            raise MetadataLogError(
                "the controllers are of another cluster than this directory, in which meta.properties says "
                f"cluster.id={self.identity.cluster_id}: correct the addresses of the controllers, or use another directory"
            )
        name = next((error.name for error in ErrorCode if error == code), str(code))
        raise WrongAnswerError(f"the controller refuses: {name}")


def first_records(response: FetchResponse) -> bytes:
    """Return the records of an answer, unparsed. Raises WrongAnswerError."""
    return bytes(_only(response.responses).records or b"")


def _id_of(partition: Any) -> SnapshotId:
    return SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)


def _only(topics: list[Any]) -> Any:
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise WrongAnswerError("the controller's answer is not about the metadata log")
    return topics[0].partitions[0]
