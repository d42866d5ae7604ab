"""Fast path of Fetch: reads one partition after the other, where there is nothing special about it.

The rule: one call for each partition. What is not usual (an error, a log that has diverged) is left to the caller, who
tells clients what is wrong.
"""

from typing import Final

from barnabas.cluster.replicas.manager import Replicas
from barnabas.cluster.replicas.replica import Replica
from barnabas.cluster.replicas.watching import PartitionWatch
from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.log.readable import ReadableLog
from barnabas.log.results import ReadResult
from barnabas.serving.fetch_sessions import Session, SessionPartition
from barnabas.wire.generated.fetch import FetchResponse

PartitionData = FetchResponse.PartitionData
NO_EPOCH_END: Final = FetchResponse.EpochEndOffset()
NO_LEADER: Final = FetchResponse.LeaderIdAndEpoch()
NO_SNAPSHOT: Final = FetchResponse.SnapshotId()
"""Values that most answers have; shared, so they are replaced, never changed."""


def aborted_of(transactions: list[AbortedTransaction]) -> list[FetchResponse.AbortedTransaction]:
    """Return aborted transactions as an answer names them."""
    return [
        FetchResponse.AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in transactions
    ]


class ConsumerReads:
    """Reads what is led here for one fetch of a consumer.

    `seen` takes how much each partition had grown to by then, unless it is watched: with a `session`, quiet ones are.
    """

    __slots__ = ("_reads_committed", "_replicas", "_seen", "_session")

    def __init__(
        self,
        replicas: Replicas,
        seen: dict[Replica, int],
        session: Session | None,
        *,
        reads_committed: bool,
    ) -> None:
        self._replicas = replicas
        self._seen = seen
        self._session = session
        self._reads_committed = reads_committed

    def read(
        self, topic: str, want: SessionPartition, remaining: int, min_one_batch: bool
    ) -> FetchResponse.PartitionData | None:
        """Answer with what a partition has within `remaining` bytes; None if there is something unusual about it.

        Raises StorageError, and CorruptRecordsError where the log is damaged.
        """
        replica = self._replicas.find(topic, want.index)
        if (
            replica is None
            or replica.closed
            or want.last_fetched_epoch >= 0
            or want.max_bytes < 0
            or (want.current_leader_epoch >= 0 and want.current_leader_epoch != replica.leader_epoch)
        ):
            return None
        log = replica.log
        offset, start, high_watermark = want.fetch_offset, log.log_start_offset, log.high_watermark
        if not start <= offset <= log.log_end_offset:
            return None
        self._seen[replica] = replica.growth.committed_bytes
        last_stable = log.last_stable_offset
        committed = self._reads_committed
        upper = last_stable if committed else high_watermark
        result = _read(log, want, remaining, upper, min_one_batch, is_end_wanted=committed)
        aborted = aborted_of(log.aborted_transactions(offset, result.next_offset)) if committed else None
        return PartitionData(
            want.index, 0, high_watermark, last_stable, start,
            NO_EPOCH_END, NO_LEADER, NO_SNAPSHOT, aborted, -1, result.records,
        )  # fmt: skip

    def is_quiet(self, topic: str, want: SessionPartition) -> bool:
        """Say whether an incremental answer leaves a partition out: nothing to read, and nothing that was not told."""
        replica = self._replicas.find(topic, want.index)
        if (
            replica is None
            or replica.closed
            or want.told_error
            or want.last_fetched_epoch >= 0
            or (want.current_leader_epoch != -1 and want.current_leader_epoch != replica.leader_epoch)
        ):
            return False
        log = replica.log
        last_stable, high_watermark = log.last_stable_offset, log.high_watermark
        upper = last_stable if self._reads_committed else high_watermark
        if (
            not upper <= want.fetch_offset <= log.log_end_offset
            or high_watermark != want.told_high_watermark
            or last_stable != want.told_last_stable_offset
            or log.log_start_offset != want.told_log_start_offset
        ):
            return False
        seen, session = replica.growth.committed_bytes, self._session
        if session is None or not session.is_open:
            self._seen[replica] = seen
        elif want.watch is None:
            PartitionWatch(session, want, replica, seen)
        return True


class FollowerReads:
    """Reads what is led here for one fetch of a broker that follows, and notes how far it has come.

    `seen` takes how much each partition had grown to by then, unless it is watched: with a `session`, quiet ones of which
    the follower is in sync are. What a fetch says of a follower's position is noted by its first pass (`is_first`).
    """

    __slots__ = ("_broker_epoch", "_is_first", "_replica_id", "_replicas", "_seen", "_session")

    def __init__(
        self,
        replicas: Replicas,
        seen: dict[Replica, int],
        session: Session | None,
        *,
        replica_id: int,
        broker_epoch: int,
        is_first: bool,
    ) -> None:
        self._replicas = replicas
        self._seen = seen
        self._session = session
        self._replica_id = replica_id
        self._broker_epoch = broker_epoch
        self._is_first = is_first

    def _followed(self, topic: str, want: SessionPartition) -> Replica | None:
        """Return a partition's replica, if it is led here in the epoch that the follower believes in."""
        replica = self._replicas.find(topic, want.index)
        if (
            replica is None
            or replica.closed
            or replica.is_offline
            or want.current_leader_epoch != replica.leader_epoch
            or not replica.has_follower(self._replica_id)
        ):
            return None
        return replica

    def _note_position(self, replica: Replica, want: SessionPartition) -> None:
        if self._is_first:
            replica.follower_fetched(
                self._replica_id,
                want.fetch_offset,
                log_start_offset=want.log_start_offset,
                broker_epoch=self._broker_epoch,
            )

    def read(
        self, topic: str, want: SessionPartition, remaining: int, min_one_batch: bool
    ) -> FetchResponse.PartitionData | None:
        """Answer with what a partition has within `remaining` bytes; None if there is something unusual about it.

        Raises StorageError, and CorruptRecordsError where the log is damaged.
        """
        replica = self._followed(topic, want)
        if replica is None or want.max_bytes < 0 or replica.holds_back(self._replica_id):
            return None
        log = replica.log
        offset = want.fetch_offset
        if not log.log_start_offset <= offset <= log.log_end_offset or not (
            want.last_fetched_epoch == log.epochs.latest or want.last_fetched_epoch < 0
        ):
            return None
        self._note_position(replica, want)
        self._seen[replica] = replica.growth.appended_bytes
        result = _read(log, want, remaining, log.log_end_offset, min_one_batch, is_end_wanted=False)
        size = len(result.records)
        if size:
            replica.sent_to_follower(size)
        return PartitionData(
            want.index, 0, log.high_watermark, log.last_stable_offset, log.log_start_offset,
            NO_EPOCH_END, NO_LEADER, NO_SNAPSHOT, None, -1, result.records,
        )  # fmt: skip

    def is_quiet(self, topic: str, want: SessionPartition) -> bool:
        """Say whether an answer leaves a partition out: the follower has all there is, and knows it."""
        if want.told_error:
            return False
        replica = self._followed(topic, want)
        if replica is None:
            return False
        log = replica.log
        if want.fetch_offset != log.log_end_offset or want.last_fetched_epoch != log.epochs.latest:
            return False
        self._note_position(replica, want)
        if (
            log.high_watermark != want.told_high_watermark
            or log.last_stable_offset != want.told_last_stable_offset
            or log.log_start_offset != want.told_log_start_offset
        ):
            return False
        seen = replica.growth.appended_bytes
        session = self._session
        if session is None or not session.is_open or not replica.is_in_sync(self._replica_id):
            self._seen[replica] = seen
        elif want.watch is None:
            PartitionWatch(session, want, replica, seen)
        return True


def _read(
    log: ReadableLog,
    want: SessionPartition,
    remaining: int,
    upper_offset: int,
    min_one_batch: bool,
    *,
    is_end_wanted: bool,
) -> ReadResult:
    """Read what a partition wants within `remaining` bytes and below `upper_offset`.

    Raises StorageError, and CorruptRecordsError where the log is damaged.
    """
    max_bytes = want.max_bytes
    if remaining < max_bytes:
        max_bytes = remaining
    return log.read(
        want.fetch_offset,
        max_bytes=max_bytes if max_bytes > 0 else 0,
        upper_offset=upper_offset,
        min_one_batch=min_one_batch,
        is_end_wanted=is_end_wanted,
    )
