"""What a consumer's fetch reads of one partition after the other, where there is nothing special about it.

The rule: one call for each partition. What is not usual (an error, a follower, an epoch that is checked) is left to the
caller, who tells clients what is wrong.
"""

from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.replicas.manager import Replicas
from barnabas.replicas.replica import Replica
from barnabas.requests.fetch_sessions import SessionPartition
from barnabas.wire.regions import FileRegion


class PartitionRead:
    """What was read of one partition, and what a consumer is told of its log.

    `aborted` is None for a consumer that reads what is not committed too.
    """

    __slots__ = ("aborted", "high_watermark", "last_stable_offset", "log_start_offset", "records", "size")

    def __init__(
        self,
        records: FileRegion | bytes,
        size: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        aborted: list[AbortedTransaction] | None,
    ) -> None:
        self.records = records
        self.size = size
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.aborted = aborted


class ConsumerReads:
    """Reads what is led here for one fetch of a consumer; `seen` takes how much each partition had grown to by then."""

    __slots__ = ("_reads_committed", "_replicas", "_seen")

    def __init__(self, replicas: Replicas, seen: dict[Replica, int], *, reads_committed: bool) -> None:
        self._replicas = replicas
        self._seen = seen
        self._reads_committed = reads_committed

    def read(
        self, topic: str, want: SessionPartition, remaining: int, min_one_batch: bool
    ) -> PartitionRead | None:
        """Read what a partition has within `remaining` bytes; None if there is something unusual about it.

        Raises StorageError, and CorruptRecordsError where the log is damaged.
        """
        replica = self._replicas.find(topic, want.index)
        if (
            replica is None
            or replica.closed
            or want.last_fetched_epoch >= 0
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
        max_bytes = want.max_bytes
        if remaining < max_bytes:
            max_bytes = remaining
        result = log.read(
            offset,
            max_bytes=max_bytes if max_bytes > 0 else 0,
            upper_offset=last_stable if committed else high_watermark,
            min_one_batch=min_one_batch,
        )
        return PartitionRead(
            result.records,
            len(result.records),
            high_watermark,
            last_stable,
            start,
            log.aborted_transactions(offset, result.next_offset) if committed else None,
        )

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
        self._seen[replica] = replica.growth.committed_bytes
        return True
