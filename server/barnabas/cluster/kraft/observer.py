"""An observer of a KRaft quorum: which request comes next, and what an answer means (KIP-595, KIP-630, KIP-853). Pure.

The rule: records are appended as they come, and applied once they are below the high watermark, which never goes back; what
diverges is cut above it, and below it is a fault. An observer without a node id votes for nothing, and no quorum lists it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from barnabas.cluster.kraft.state import LogState, MetadataLogError, SnapshotReader, Step
from barnabas.log.format.names import CLUSTER_METADATA_TOPIC
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import HEADER_SIZE, BatchHeader, read_any_header, require_crc
from barnabas.records.errors import RecordsError
from barnabas.records.record import Record
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

METADATA_TOPIC_ID: Final = bytes(15) + b"\1"
FETCH_VERSION_MIN: Final = 13
"""The first version that names topics by id: the metadata log has no other name for Fetch."""
FETCH_BYTES_MAX: Final = 1 << 20
UNCOMMITTED_BYTES_MAX: Final = 64 << 20
BATCH_BYTES_MAX: Final = 64 << 20
"""Limits of what is held of a quorum that commits nothing, or of one batch of a snapshot; Kafka's have 8 MiB at most."""
PLACE: Final = "the quorum's log"

_ELSEWHERE: Final = frozenset(
    {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH}
)
_AGAIN: Final = frozenset(
    {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.SNAPSHOT_NOT_FOUND}
)


class Leader(NamedTuple):
    """The leader that answers have named; id -1 and no address where they did not."""

    id: int = -1
    epoch: int = 0
    host: str = ""
    port: int = -1


class Taken(NamedTuple):
    """Meaning of an answer: steps that became committed, whether to ask another node, and whether to wait before."""

    steps: tuple[Step, ...] = ()
    asks_elsewhere: bool = False
    must_wait: bool = False


class _Batch(NamedTuple):
    header: BatchHeader
    records: list[Record]
    size: int


class _SnapshotFetch:
    """A snapshot that is being fetched, in pieces cut anywhere; batches are read as soon as they are whole."""

    def __init__(self, end_offset: int, epoch: int) -> None:
        self.end_offset, self.epoch = end_offset, epoch
        self.position = 0
        self.reader = SnapshotReader(end_offset, epoch, f"snapshot {end_offset}-{epoch} of the quorum")
        self._rest = b""

    def add(self, data: bytes) -> None:
        """Take in the next piece. Raises RecordsError, MetadataLogError."""
        self.position += len(data)
        rest = self._rest + data
        start = 0
        while len(rest) - start >= HEADER_SIZE:
            header = read_any_header(rest, start)
            if header.size > BATCH_BYTES_MAX:
                raise MetadataLogError(f"a batch of {header.size} bytes is in a snapshot of the quorum")
            if header.size > len(rest) - start:
                break
            require_crc(rest, start, header)
            self.reader.add(header, list(iter_any_records(rest[start : start + header.size])))
            start += header.size
        self._rest = rest[start:]


class Observer:
    """An observer's log in memory. Lifecycle: `request`, have it answered, `take` the answer, and so on.

    `state` has what is committed; `leader` is where to ask, as far as answers said.
    """

    def __init__(self) -> None:
        self.state = LogState()
        self.leader = Leader()
        self.high_watermark = -1
        self._leaders_high_watermark = -1
        self._end_offset = 0
        self._epochs: list[tuple[int, int]] = []  # epoch, and the offset after its last record
        self._uncommitted: list[_Batch] = []
        self._snapshot: _SnapshotFetch | None = None

    @property
    def is_caught_up(self) -> bool:
        """True if all that was committed, at the last answer, has been applied."""
        applied = self.state.position.offset + 1
        return self._snapshot is None and 0 <= self._leaders_high_watermark <= applied

    def request(self, *, max_wait_ms: int) -> FetchRequest | FetchSnapshotRequest:
        """Return the next request; a Fetch may be answered after `max_wait_ms` if nothing is new."""
        if self._snapshot is not None:
            return self._snapshot_request(self._snapshot)
        last_epoch = self._epochs[-1][0] if self._epochs else 0
        return self._fetch(self._end_offset, last_epoch, max_wait_ms)

    def epoch_start_request(self) -> FetchRequest:
        """Return a Fetch that asks where the leader's epoch begins: that of a log that ended in the epoch before."""
        return self._fetch(self._end_offset, self.leader.epoch - 1, 0)

    def first_record_request(self, response: FetchResponse) -> FetchRequest | None:
        """Return a Fetch of the first record of that epoch, from the answer to the other one; None if it has gone."""
        diverging = _only(response.responses).diverging_epoch
        if diverging.end_offset < 0:
            return None
        return self._fetch(diverging.end_offset, diverging.epoch, 0)

    def note_leader(self, response: FetchResponse) -> None:
        """Take from the first record of its epoch since when the leader leads. Raises MetadataLogError."""
        data = bytes(_only(response.responses).records or b"")
        if len(data) < HEADER_SIZE:
            return
        header = read_any_header(data, 0)
        if header.size <= len(data):
            for record in iter_any_records(data[: header.size]):
                self.state.note_leader(header, record, PLACE)

    def _fetch(self, offset: int, last_epoch: int, max_wait_ms: int) -> FetchRequest:
        partition = FetchRequest.FetchPartition(
            partition=0,
            current_leader_epoch=self.leader.epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            high_watermark=self.high_watermark,
        )
        topic = FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])
        return FetchRequest(max_wait_ms=max_wait_ms, max_bytes=FETCH_BYTES_MAX, topics=[topic])

    def take(self, response: FetchResponse | FetchSnapshotResponse) -> Taken:
        """Take in an answer. Raises MetadataLogError for one that no observer can go on from."""
        try:
            if isinstance(response, FetchResponse):
                return self._take_fetch(response)
            return self._take_piece(response)
        except RecordsError as error:
            raise MetadataLogError(f"{PLACE}: {error.message}") from None

    # --- Fetch ----------------------------------------------------------------------------------------------

    def _take_fetch(self, response: FetchResponse) -> Taken:
        _check(response.error_code)
        partition = _only(response.responses)
        taken = self._take_leader(partition, response.node_endpoints)
        if taken is not None:
            return taken
        snapshot, diverging = partition.snapshot_id, partition.diverging_epoch
        if snapshot.end_offset >= 0:
            self._snapshot = _SnapshotFetch(snapshot.end_offset, snapshot.epoch)
            return Taken()
        if diverging.end_offset >= 0:
            self._cut(diverging.epoch, diverging.end_offset)
            return Taken()
        self._append(bytes(partition.records or b""))
        self._leaders_high_watermark = partition.high_watermark
        self.high_watermark = max(self.high_watermark, min(partition.high_watermark, self._end_offset))
        return Taken(self._commit())

    def _append(self, data: bytes) -> None:
        start = 0
        while len(data) - start >= HEADER_SIZE:
            header = read_any_header(data, start)
            if header.size > len(data) - start:
                break
            require_crc(data, start, header)
            if header.base_offset != self._end_offset:
                raise MetadataLogError(
                    f"{PLACE}: a batch begins at offset {header.base_offset}, not {self._end_offset}"
                )
            records = list(iter_any_records(data[start : start + header.size]))
            self._uncommitted.append(_Batch(header, records, header.size))
            self._end_offset = header.last_offset + 1
            self._note_epoch(header.leader_epoch)
            start += header.size
        if sum(batch.size for batch in self._uncommitted) > UNCOMMITTED_BYTES_MAX:
            raise MetadataLogError(f"{PLACE}: more than {UNCOMMITTED_BYTES_MAX} bytes are not committed")

    def _note_epoch(self, epoch: int) -> None:
        if self._epochs and self._epochs[-1][0] == epoch:
            self._epochs[-1] = (epoch, self._end_offset)
        else:
            self._epochs.append((epoch, self._end_offset))

    def _cut(self, epoch: int, end_offset: int) -> None:
        """Cut to the end of the largest own epoch that is not later, at most to an offset. Raises MetadataLogError."""
        own_end = next((end for own, end in reversed(self._epochs) if own <= epoch), 0)
        cut = min(own_end, end_offset)
        if cut < self.high_watermark:
            raise MetadataLogError(
                f"{PLACE}: the leader has not what was committed: {self.high_watermark} to be cut to {cut}"
            )
        self._uncommitted = [batch for batch in self._uncommitted if batch.header.last_offset < cut]
        self._end_offset = max(self.high_watermark, 0)
        if self._uncommitted:
            self._end_offset = self._uncommitted[-1].header.last_offset + 1
        self._epochs = [
            (own, min(end, self._end_offset))
            for index, (own, end) in enumerate(self._epochs)
            if not index or self._epochs[index - 1][1] < self._end_offset
        ]

    def _commit(self) -> tuple[Step, ...]:
        steps: list[Step] = []
        count = 0
        for batch in self._uncommitted:
            if batch.header.last_offset >= self.high_watermark:
                break
            steps += [self.state.step(batch.header, record, PLACE) for record in batch.records]
            count += 1
        del self._uncommitted[:count]
        return tuple(steps)

    # --- FetchSnapshot --------------------------------------------------------------------------------------

    def _snapshot_request(self, snapshot: _SnapshotFetch) -> FetchSnapshotRequest:
        partition = FetchSnapshotRequest.PartitionSnapshot(
            partition=0,
            current_leader_epoch=self.leader.epoch,
            snapshot_id=FetchSnapshotRequest.SnapshotId(snapshot.end_offset, snapshot.epoch),
            position=snapshot.position,
        )
        topic = FetchSnapshotRequest.TopicSnapshot(name=CLUSTER_METADATA_TOPIC, partitions=[partition])
        return FetchSnapshotRequest(replica_id=-1, max_bytes=FETCH_BYTES_MAX, topics=[topic])

    def _take_piece(self, response: FetchSnapshotResponse) -> Taken:
        snapshot = self._snapshot
        assert snapshot is not None
        _check(response.error_code)
        partition = _only(response.topics)
        if partition.error_code in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            self._snapshot = None  # another one has taken its place: Fetch says which
            return Taken(must_wait=True)
        taken = self._take_leader(partition, getattr(response, "node_endpoints", []))
        if taken is not None:
            return taken
        data = bytes(partition.unaligned_records or b"")
        if partition.position != snapshot.position or not data:
            raise MetadataLogError(
                f"{PLACE}: a snapshot continues at {partition.position}, not {snapshot.position}"
            )
        snapshot.add(data)
        if snapshot.position < partition.size:
            return Taken()
        self._snapshot = None
        self.state.load(snapshot.reader.finish())
        self._end_offset = self.high_watermark = snapshot.end_offset
        self._leaders_high_watermark = -1
        self._epochs = [(snapshot.epoch, snapshot.end_offset)]
        self._uncommitted = []
        return Taken()

    # --- who leads ------------------------------------------------------------------------------------------

    def _take_leader(self, partition: Any, endpoints: list[Any]) -> Taken | None:
        """Note the leader that an answer names; return what to do if the answer is an error. Raises MetadataLogError."""
        named = partition.current_leader
        if named.leader_epoch >= self.leader.epoch and named.leader_epoch >= 0:
            address = next(
                ((one.host, one.port) for one in endpoints if one.node_id == named.leader_id), ("", -1)
            )
            if named.leader_id != self.leader.id or named.leader_epoch != self.leader.epoch or address[0]:
                self.leader = Leader(named.leader_id, named.leader_epoch, *address)
        code = partition.error_code
        if code == ErrorCode.NONE:
            return None
        if code in _ELSEWHERE:
            is_behind = code != ErrorCode.FENCED_LEADER_EPOCH
            return Taken(asks_elsewhere=is_behind, must_wait=is_behind and self.leader.id < 0)
        if code in _AGAIN:
            return Taken(must_wait=True)
        _check(code)
        return None


def _check(code: int) -> None:
    """Raise MetadataLogError for an error that asking again does not mend."""
    if code == ErrorCode.NONE:
        return
    name = next((error.name for error in ErrorCode if error == code), str(code))
    raise MetadataLogError(f"the controller refuses: {name}")


def _only(topics: list[Any]) -> Any:
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise MetadataLogError("the controller's answer is not about the metadata log")
    return topics[0].partitions[0]
