"""Remote reads for requests: a limited number of threads, a bounded wait, and a cache of late results.

The rule: a request's wait is limited, but a read continues to its end; its result is for the client's next request, so
that a slow store still makes progress.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from barnabas.cluster.tiering.ahead import ReadAhead
from barnabas.cluster.tiering.counts import READS, BytesLimit, TierCounts
from barnabas.cluster.tiering.lineage import end_of_use, is_in_lineage, is_read_from, segment_at
from barnabas.cluster.tiering.partition import key_of
from barnabas.cluster.tiering.reading import RemoteRange, find_time, read_records
from barnabas.config import broker as settings
from barnabas.errors import RequestError, detached
from barnabas.tiered.segment import SegmentState
from barnabas.tiered.storage import RemoteObjectNotFoundError, RemoteStorageError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.cluster.tiering.metadata import RemoteMetadata
    from barnabas.cluster.tiering.reading import RemoteIndexes, RemoteRecords
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.log.format.txn_index import AbortedTransaction
    from barnabas.log.timestamps import TimestampOffset
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.tiered.segment import RemoteSegment
    from barnabas.tiered.storage import RemoteStorage

log = logging.getLogger(__name__)

LATE_BYTES_MAX: Final = 16 << 20
"""Most bytes of records that are kept for later requests."""
LATE_SECONDS_MAX: Final = 30.0


class RemoteFetch(NamedTuple):
    """Part of a fetch, of records that are only in the store; `reads_committed` requests aborted transactions."""

    replica: Replica
    offset: int
    max_bytes: int
    min_one_batch: bool
    reads_committed: bool


class RemoteData(NamedTuple):
    """Result of a remote read; `aborted` is None unless it was requested."""

    data: bytes
    aborted: list[AbortedTransaction] | None


class _Job:
    """A read; `result` is valid once `done` is set."""

    __slots__ = ("done", "finished_s", "key", "result", "waiting")

    def __init__(self, key: object) -> None:
        self.key = key
        self.done = trio.Event()
        self.result: Any = None
        self.waiting = 0
        self.finished_s = 0.0


class RemoteReads:
    """Reads from the store, for Fetch and ListOffsets."""

    def __init__(
        self,
        config: BrokerConfig,
        storage: RemoteStorage,
        indexes: RemoteIndexes,
        metadata: RemoteMetadata,
        counts: TierCounts,
        environment: Environment,
        budget: LoopBudget,
        background: trio.Nursery,
    ) -> None:
        get = config.get
        self._get = get
        self._storage = storage
        self._indexes = indexes
        self._metadata = metadata
        self._counts = counts
        self._threads = environment.threads
        self._now_s = environment.monotonic
        self._budget = budget
        self._background = background
        self._limiter = trio.CapacityLimiter(get(settings.REMOTE_LOG_READER_THREADS))
        self._jobs: dict[object, _Job] = {}
        self._late: OrderedDict[object, _Job] = OrderedDict()
        self._late_bytes = 0
        self._limit = BytesLimit(config, READS, environment.monotonic_ms)
        self._ahead = ReadAhead(
            storage, indexes, metadata, counts, self._limit, environment, self._limiter, background
        )

    @property
    def pending(self) -> int:
        """Number of reads that run or wait for a thread."""
        return len(self._jobs)

    @property
    def threads(self) -> int:
        """Number of reads that run at the same time."""
        return int(self._limiter.total_tokens)

    @property
    def is_throttled(self) -> bool:
        """True if reads are throttled, as the limit is reached (KIP-956)."""
        is_over = self._limit.throttle_ms() > 0
        self._counts.throttled_reads += is_over
        return is_over

    @property
    def time_look_up_ms(self) -> int:
        """Longest wait for a search by time, for a request without a timeout."""
        return self._get(settings.REMOTE_LIST_OFFSETS_REQUEST_TIMEOUT_MS)

    def follow_settings(self) -> None:
        """Adjust the number of threads to the settings."""
        self._limiter.total_tokens = self._get(settings.REMOTE_LOG_READER_THREADS)

    # --- Fetch ------------------------------------------------------------------------------------------------

    def fetch_nowait(
        self, fetches: Sequence[RemoteFetch], reserve: Callable[[int], bool]
    ) -> list[RemoteData] | None:
        """Return records for a request if all of them were read ahead, else None: `fetch` is needed.

        `reserve` reserves memory for bytes, or returns False. None is also returned while reads are throttled (KIP-956).
        """
        pieces, aborted = [], []
        for fetch in fetches:
            piece = self._ahead.find(fetch.replica, fetch.offset, fetch.max_bytes)
            if piece is None or self._limit.throttle_ms() > 0:
                return None
            pieces.append(piece)
            aborted.append(self._aborted_nowait(fetch, piece.records.upper_offset))
            if fetch.reads_committed and aborted[-1] is None:
                return None
        if not reserve(sum(len(piece.records.data) for piece in pieces)):
            return None
        for fetch, piece in zip(fetches, pieces, strict=True):
            self._ahead.take(fetch.replica, piece)
            self._counts.of(fetch.replica.topic).reads += 1
        return [
            RemoteData(piece.records.data, transactions)
            for piece, transactions in zip(pieces, aborted, strict=True)
        ]

    async def fetch(self, fetches: Sequence[RemoteFetch]) -> list[RemoteData | RequestError | None]:
        """Read for a request, for at most `remote.fetch.max.wait.ms`; None if the read takes longer."""
        jobs: list[_Job | RequestError] = []
        for fetch in fetches:
            key = ("fetch", key_of(fetch.replica), *fetch[1:])
            jobs.append(self._begin(key, partial(self._fetch, fetch), fetch.replica.topic))
        await self._wait(jobs, self._get(settings.REMOTE_FETCH_MAX_WAIT_MS) / 1000)
        results: list[RemoteData | RequestError | None] = []
        for job in jobs:
            results.append(job if isinstance(job, RequestError) else job.result)
            self._counts.late_reads += results[-1] is None
        return results

    async def _fetch(self, fetch: RemoteFetch) -> RemoteData:
        replica, counts = fetch.replica, self._counts.of(fetch.replica.topic)
        segments = self._metadata.of(key_of(replica))
        counts.reads += 1
        offset = fetch.offset
        await self._ahead.wait(replica, offset)
        piece = self._ahead.find(replica, offset, fetch.max_bytes)
        if piece is not None:
            self._ahead.take(replica, piece)
            return await self._data(fetch, piece.records)
        records: RemoteRecords | None = None
        while records is None:
            self._metadata.check_ready(key_of(replica))
            partition_log = replica.log
            segment = segment_at(segments, partition_log.epochs, offset)
            if segment is None:
                raise RequestError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"no segment in tiered storage has offset {offset} of {partition_log.name}",
                )
            end = end_of_use(segment, offset, partition_log.epochs, partition_log.log_end_offset)
            part = RemoteRange(segment, fetch.offset, end, fetch.max_bytes, fetch.min_one_batch)
            try:
                records = await self._threads.run(
                    partial(read_records, self._storage, self._indexes, part), limiter=self._limiter
                )
            except RemoteObjectNotFoundError:
                if segment_at(segments, partition_log.epochs, offset) is segment:
                    raise  # a deletion would have been recorded before: the store has lost the segment
                continue
            offset = max(end, offset + 1)
            if records is not None:
                counts.read_bytes += len(records.data)
                self._limit.record(len(records.data))
                self._ahead.was_read(replica, fetch.offset, fetch.max_bytes, segment, records)
        return await self._data(fetch, records)

    async def _data(self, fetch: RemoteFetch, records: RemoteRecords) -> RemoteData:
        aborted = None
        if fetch.reads_committed:
            aborted = await self._aborted(fetch, records.upper_offset) if records.data else []
        return RemoteData(records.data, aborted)

    def _aborted_nowait(self, fetch: RemoteFetch, upper_offset: int) -> list[AbortedTransaction] | None:
        """Return the aborted transactions of records that were read, None if a read from the store is needed."""
        if not fetch.reads_committed or self._metadata.of(key_of(fetch.replica)).with_transactions():
            return None
        return self._local_aborted(fetch, upper_offset)

    async def _aborted(self, fetch: RemoteFetch, upper_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions of records that were read: their markers may be in any later segment."""
        replica = fetch.replica
        segments = self._metadata.of(key_of(replica))
        aborted: dict[AbortedTransaction, None] = {}
        listed: list[RemoteSegment] | None = None
        while listed is not segments.with_transactions():  # local segments may be remote by then
            listed = segments.with_transactions()
            for segment in listed:
                await self._budget.checkpoint()
                if not is_read_from(segment, segments, replica.log.epochs, fetch.offset):
                    continue
                entries = self._indexes.cached_aborted(segment)
                if entries is None:
                    entries = await self._threads.run(
                        partial(self._indexes.aborted, segment), limiter=self._limiter
                    )
                for entry in entries:
                    if entry.last_offset >= fetch.offset and entry.first_offset < upper_offset:
                        aborted[entry] = None
                    if entry.last_stable_offset >= upper_offset:
                        return list(aborted)
        aborted.update(dict.fromkeys(self._local_aborted(fetch, upper_offset)))
        return list(aborted)

    @staticmethod
    def _local_aborted(fetch: RemoteFetch, upper_offset: int) -> list[AbortedTransaction]:
        local_log = fetch.replica.log
        return local_log.aborted_transactions(
            max(fetch.offset, local_log.local_log_start_offset), upper_offset
        )

    # --- ListOffsets ------------------------------------------------------------------------------------------

    async def offset_for_time(
        self, replica: Replica, timestamp_ms: int, timeout_s: float
    ) -> TimestampOffset | None:
        """Return the first record that is only in the store and has at least a timestamp; None if there is no such record.

        Raises REQUEST_TIMED_OUT.
        """
        key = "time", key_of(replica), timestamp_ms, replica.log.log_start_offset
        job = self._begin(key, partial(self._find_time, replica, timestamp_ms), replica.topic)
        await self._wait([job], timeout_s)
        if isinstance(job, RequestError):
            raise job
        if not job.done.is_set():
            self._counts.late_look_ups += 1
            raise RequestError(
                ErrorCode.REQUEST_TIMED_OUT, f"looking for a time in remote segments of {replica.log.name}"
            )
        if isinstance(job.result, RequestError):
            raise job.result
        record: TimestampOffset | None = job.result[0]
        return record

    async def _find_time(self, replica: Replica, timestamp_ms: int) -> tuple[TimestampOffset | None]:
        partition_log = replica.log
        self._metadata.check_ready(key_of(replica))
        start, entries = partition_log.log_start_offset, partition_log.epochs.entries
        segments = self._metadata.of(key_of(replica))
        for epoch, _ in entries:
            for segment in segments.segments(epoch):
                await self._budget.checkpoint()
                if segment.start_offset >= partition_log.local_log_start_offset:
                    return (None,)
                if (
                    segment.state is SegmentState.COPY_FINISHED
                    and segment.max_timestamp >= timestamp_ms
                    and segment.end_offset >= start
                    and is_in_lineage(segment, entries, partition_log.log_end_offset)
                ):
                    try:
                        record = await self._threads.run(
                            partial(
                                find_time,
                                self._storage,
                                self._indexes,
                                segment,
                                timestamp_ms,
                                start,
                                partition_log.config.max_decompressed_message_bytes,
                            ),
                            limiter=self._limiter,
                        )
                    except RemoteObjectNotFoundError:
                        if segments.get(segment.segment_id) is segment:
                            raise
                        continue  # the segment has been deleted meanwhile
                    if record is not None:
                        return (record,)
        return (None,)

    # --- jobs -------------------------------------------------------------------------------------------------

    def _begin(self, key: object, work: Callable[[], Awaitable[object]], topic: str) -> _Job | RequestError:
        """Return the job for a read, whether new, running or done."""
        self._forget_late()
        job = self._late.pop(key, None)
        if job is not None:
            self._late_bytes -= _size(job)
            return job
        job = self._jobs.get(key)
        if job is None:
            threads = self._get(settings.REMOTE_LOG_READER_THREADS)
            if len(self._jobs) >= threads + self._get(settings.REMOTE_LOG_READER_MAX_PENDING_TASKS):
                self._counts.of(topic).failed_reads += 1
                return RequestError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, "too many reads of remote segments are waiting"
                )
            job = self._jobs[key] = _Job(key)
            self._background.start_soon(self._do, job, work, topic)
        return job

    async def _wait(self, jobs: Sequence[_Job | RequestError], seconds: float) -> None:
        begun = [job for job in jobs if isinstance(job, _Job)]
        for job in begun:
            job.waiting += 1
        try:
            with trio.move_on_after(seconds):
                for job in begun:
                    await job.done.wait()
        finally:
            for job in begun:
                job.waiting -= 1

    async def _do(self, job: _Job, work: Callable[[], Awaitable[object]], topic: str) -> None:
        try:
            job.result = await work()
        except RequestError as error:
            job.result = detached(error)
        except Exception as error:
            if not isinstance(error, RemoteStorageError):
                log.exception("a read of remote segments of %s failed", topic)
            else:
                log.warning("a read of remote segments of %s failed: %s", topic, error)
            job.result = RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        finally:
            del self._jobs[job.key]
        if isinstance(job.result, RequestError):
            self._counts.of(topic).failed_reads += 1
        elif not job.waiting:
            job.finished_s = self._now_s()
            self._late[job.key] = job
            self._late_bytes += _size(job)
            self._forget_late()
        job.done.set()

    def _forget_late(self) -> None:
        oldest = self._now_s() - LATE_SECONDS_MAX
        while self._late:
            job = next(iter(self._late.values()))
            if self._late_bytes <= LATE_BYTES_MAX and job.finished_s >= oldest:
                return
            del self._late[job.key]
            self._late_bytes -= _size(job)


def _size(job: _Job) -> int:
    return len(job.result.data) if isinstance(job.result, RemoteData) else 0
