"""One pass of a fetch over partitions: the data of each in the response, and the partitions that wait for more.

The rule: records are regions of a log's file, never decoded.
"""

from typing import Final, NamedTuple

import trio

from barnabas.cluster.replicas.epoch_ends import diverging_epoch
from barnabas.cluster.replicas.manager import Replicas
from barnabas.cluster.replicas.replica import Replica
from barnabas.cluster.replicas.watching import PartitionWatch
from barnabas.errors import RequestError
from barnabas.handlers.fetch.conversion import Unconverted
from barnabas.handlers.fetch.terms import FetchTerms
from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.serving.fetch_sessions import Session, SessionPartition
from barnabas.serving.request_quotas import RESPONSE_BYTES
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchResponse

PartitionData = FetchResponse.PartitionData
Served = tuple[SessionPartition, PartitionData]

NO_EPOCH_END: Final = FetchResponse.EpochEndOffset()
NO_LEADER: Final = FetchResponse.LeaderIdAndEpoch()
NO_SNAPSHOT: Final = FetchResponse.SnapshotId()
"""Values that most answers have; shared, so they are replaced, never changed."""


class RemotePart(NamedTuple):
    """A partition with records to be read out of tiered storage, and its data in the answer."""

    want: SessionPartition
    data: PartitionData
    replica: Replica
    max_bytes: int
    min_one_batch: bool


class FetchPass:
    """Reads partitions for one fetch, once, and holds the results.

    `due` are the partitions to read, of which the first `read` were read; `remaining` is the number of bytes left of the
    limit. `size` is the number of record bytes; `must_answer`: whether the response must not wait for more. `seen` maps
    replicas to their appended or committed bytes at the last read or change; with a `session`, quiet partitions are watched
    instead. `following` are partitions that this broker does not lead. `unconverted` are reads that must be converted for
    an old client, `remote` those to be read from tiered storage. `is_first` is False for a fetch that has waited: the
    follower's positions in it have been noted. `waiting` are the partitions that wait for more records.
    """

    __slots__ = (
        "_replicas",
        "_session",
        "_terms",
        "due",
        "following",
        "is_first",
        "must_answer",
        "read",
        "remaining",
        "remote",
        "seen",
        "served",
        "size",
        "unconverted",
        "waiting",
    )

    def __init__(
        self,
        terms: FetchTerms,
        replicas: Replicas,
        session: Session | None,
        due: list[SessionPartition],
        *,
        is_first: bool,
    ) -> None:
        self._terms = terms
        self._replicas = replicas
        self._session = session
        self.due = due
        self.read = 0
        self.remaining = terms.bytes_max
        self.is_first = is_first
        self.following: list[Replica] = []
        self.served: list[Served] = []
        self.size = 0
        self.must_answer = False
        self.seen: dict[Replica, int] = {}
        self.unconverted: list[Unconverted] = []
        self.remote: list[RemotePart] = []
        self.waiting: MoreBytes | None = None

    @property
    def reads_committed(self) -> bool:
        """True if the fetch is read_committed."""
        return self._terms.reads_committed

    @property
    def is_converted(self) -> bool:
        """True if records are to be converted for an old client."""
        return self._terms.is_converted

    @property
    def response_bytes(self) -> int:
        """About how many bytes the response will have."""
        return self.size + RESPONSE_BYTES * (1 + len(self.served))

    def read_partition(self, topic: str, want: SessionPartition) -> PartitionData:
        """Read a partition within `remaining` bytes; note a follower's position.

        Raises RequestError, StorageError, and CorruptRecordsError if the log is damaged.
        """
        terms, replica = self._terms, self._found(topic, want)
        log = replica.log
        if not terms.knows_zstd and log.config.compression_type == "zstd":
            raise RequestError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        offset, last_epoch = want.fetch_offset, want.last_fetched_epoch
        near = terms.near_replica(replica, offset) if terms.rack else None
        if near is not None:
            data = unread(want, replica)
            data.preferred_read_replica = near
            self.must_answer = True
            return data
        if last_epoch >= 0 and (last_epoch != log.epochs.latest or offset > log.log_end_offset):
            diverging = diverging_epoch(replica, last_epoch, offset)
            if diverging is not None:
                data = unread(want, replica)
                data.diverging_epoch = FetchResponse.EpochEndOffset(*diverging)
                self.must_answer = True
                return data
        committed = terms.reads_committed
        if terms.is_follower:
            upper = log.log_end_offset
        else:
            upper = log.last_stable_offset if committed else log.high_watermark
        limit = want.max_bytes
        if limit > terms.partition_bytes_max:
            limit = terms.partition_bytes_max
        if limit < 0 and log.log_start_offset <= offset < upper:
            raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{limit} bytes cannot be read")
        if limit > self.remaining:
            limit = self.remaining
        try:
            result = log.read(
                offset,
                max_bytes=limit if limit > 0 else 0,
                upper_offset=upper,
                min_one_batch=not self.size,
                is_end_wanted=committed,
            )
        except RequestError as error:
            if error.code != ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
                raise
            return self._remote(want, replica, max(limit, 0))
        records = result.records
        size = len(records)
        if terms.is_follower:
            self._note_position(replica, want)
            if size and replica.holds_back(terms.replica_id):
                self.seen.pop(replica, None)  # new records are not visible to it for now
                return unread(want, replica)
            if size:
                replica.sent_to_follower(size)
        aborted = (
            named_transactions(log.aborted_transactions(offset, result.next_offset)) if committed else None
        )
        self.size += size
        self.remaining -= size
        data = PartitionData(
            want.index, 0, log.high_watermark, log.last_stable_offset, log.log_start_offset,
            NO_EPOCH_END, NO_LEADER, NO_SNAPSHOT, aborted, -1, records,
        )  # fmt: skip
        if size and terms.is_converted:
            data.records = b""
            self.unconverted.append((want, data, result))
        return data

    def _remote(self, want: SessionPartition, replica: Replica, limit: int) -> PartitionData:
        """Note that a partition's records are to be read remotely: their bytes count as if all of them were read.

        A follower is answered OFFSET_MOVED_TO_TIERED_STORAGE with the watermarks, in every version: its log will begin
        after the remote records. Raises OFFSET_OUT_OF_RANGE while tiered storage is switched off.
        """
        if not replica.log.is_tiered:
            raise RequestError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"the log begins at {replica.log.local_log_start_offset}"
            )
        data = unread(want, replica)
        if self._terms.is_follower:
            data.error_code, data.last_stable_offset = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, -1
            self.must_answer = True
            return data
        is_first = not self.size and not self.remote
        if not limit and not is_first:
            return data  # the answer is full
        self.remote.append(RemotePart(want, data, replica, limit, is_first))
        self.remaining -= limit
        self.must_answer = True
        return data

    def _found(self, topic: str, want: SessionPartition) -> Replica:
        """Return a partition's replica, and note how much there is to read. Raises RequestError."""
        terms = self._terms
        epoch = max(want.current_leader_epoch, -1)  # a fetch with any negative one asks for no check
        if terms.needs_leader:
            replica = self._replicas.leader(topic, want.index, epoch)
        else:
            replica = self._replicas.local(topic, want.index, epoch)
        if terms.is_follower:
            replica.check_follower(terms.replica_id, want.current_leader_epoch)
            self.seen[replica] = replica.growth.appended_bytes
        else:
            self.seen[replica] = replica.growth.committed_bytes
        if replica.closed:
            self.following.append(replica)
        return replica

    def is_quiet(self, topic: str, want: SessionPartition) -> bool:
        """Return whether an incremental response omits a partition: no records, and no changes.

        A follower that is up to date is noted as caught up.
        """
        terms = self._terms
        replica = self._replicas.find(topic, want.index)
        if replica is None or replica.closed or want.told_error:
            return False
        log = replica.log
        last_stable, high_watermark = log.last_stable_offset, log.high_watermark
        if terms.is_follower:
            if (
                replica.is_offline
                or want.current_leader_epoch != replica.leader_epoch
                or not replica.has_follower(terms.replica_id)
                or want.fetch_offset != log.log_end_offset
                or want.last_fetched_epoch != log.epochs.latest
            ):
                return False
            self._note_position(replica, want)
            last_stable, high_watermark = log.last_stable_offset, log.high_watermark
            seen = replica.growth.appended_bytes
        else:
            upper = last_stable if terms.reads_committed else high_watermark
            if (
                want.last_fetched_epoch >= 0
                or (want.current_leader_epoch != -1 and want.current_leader_epoch != replica.leader_epoch)
                or not upper <= want.fetch_offset <= log.log_end_offset
            ):
                return False
            seen = replica.growth.committed_bytes
        if (
            high_watermark != want.told_high_watermark
            or last_stable != want.told_last_stable_offset
            or log.log_start_offset != want.told_log_start_offset
        ):
            return False
        session = self._session
        if (
            session is None
            or not session.is_open
            or (terms.is_follower and not replica.is_in_sync(terms.replica_id))
        ):
            self.seen[replica] = seen
        elif want.watch is None:
            PartitionWatch(session, want, replica, seen)
        return True

    def _note_position(self, replica: Replica, want: SessionPartition) -> None:
        if self.is_first:
            replica.follower_fetched(
                self._terms.replica_id,
                want.fetch_offset,
                log_start_offset=want.log_start_offset,
                broker_epoch=self._terms.broker_epoch,
            )


class MoreBytes:
    """A fetch that waits until its partitions have grown by `missing` bytes."""

    __slots__ = ("_is_follower", "_missing", "_pass", "event")

    def __init__(self, done: FetchPass, missing: int, *, is_follower: bool) -> None:
        self.event = trio.Event()
        self._missing = missing
        self._pass = done
        self._is_follower = is_follower

    def begin(self, replica: Replica) -> None:
        """Begin to count the bytes appended to a replica, including those since it was read."""
        replica.subscribers.subscribe(self, to_log_end=self._is_follower)
        self.partition_advanced(replica)

    def partition_advanced(self, replica: Replica) -> None:
        """Count appended bytes; the end of the replica's role is an error, which must not wait."""
        seen = self._pass.seen
        total = replica.growth.appended_bytes if self._is_follower else replica.growth.committed_bytes
        self._missing -= total - seen[replica]
        seen[replica] = total
        if (
            self._missing <= 0
            or (replica.closed and replica not in self._pass.following)
            or replica.is_offline
        ):
            self.event.set()


def unread(want: SessionPartition, replica: Replica | None = None) -> PartitionData:
    """Return the response for a partition without records, with its watermarks if they are known here."""
    high_watermark = last_stable = start = -1
    if replica is not None:
        log = replica.log
        high_watermark, last_stable, start = log.high_watermark, log.last_stable_offset, log.log_start_offset
    return PartitionData(
        want.index, 0, high_watermark, last_stable, start, NO_EPOCH_END, NO_LEADER, NO_SNAPSHOT, None, -1, b"",
    )  # fmt: skip


def named_transactions(transactions: list[AbortedTransaction]) -> list[FetchResponse.AbortedTransaction]:
    """Return aborted transactions as an answer names them."""
    return [
        FetchResponse.AbortedTransaction(
            producer_id=transaction.producer_id, first_offset=transaction.first_offset
        )
        for transaction in transactions
    ]
