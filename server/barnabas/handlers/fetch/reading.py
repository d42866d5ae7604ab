"""Reading what a fetch asks for: one pass over its partitions or, where it waits, several.

The rule: what is read is a region of a log's file, never decoded. A partition that cannot be read answers with its own
error, and the others with records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from barnabas.cluster.metadata.endpoints import advertised_node
from barnabas.cluster.replicas.epoch_ends import diverging_epoch
from barnabas.cluster.replicas.reading import (
    NO_EPOCH_END,
    NO_LEADER,
    NO_SNAPSHOT,
    ConsumerReads,
    FollowerReads,
    PartitionData,
    aborted_of,
)
from barnabas.cluster.replicas.replica import Replica
from barnabas.cluster.replicas.watching import PartitionWatch
from barnabas.cluster.replication.read_replica import preferred_replica
from barnabas.config import broker as settings
from barnabas.config.cluster import reads_from_rack
from barnabas.errors import RequestError, StorageError, lacks_files
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.serving.fetch_sessions import Session, SessionPartition, Watch
from barnabas.serving.request_quotas import RESPONSE_BYTES
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.failures import LogDirFailures
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.config.loading import BrokerConfig
    from barnabas.handlers.fetch.conversion import Unconverted
    from barnabas.log.partition_log import PartitionLog
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

WHOLE_FIRST_BATCH_SINCE: Final = 3
RECORD_BATCHES_SINCE: Final = 4
ZSTD_SINCE: Final = 10
FOLLOWERS_SERVE_SINCE: Final = 11
CURRENT_LEADER_SINCE: Final = 16
READ_COMMITTED: Final = 1
PARTITIONS_PER_CHECKPOINT: Final = 16

_REFUSED_UNREAD: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
)
"""Codes of partitions that are answered without a look at their log."""

_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

ALL_AFTER_MS: Final = 500
"""A fetch of a session looks at all partitions so often: for retention, and for when a follower last had everything."""

CONVERTED_BYTES_MAX: Final = 1 << 20
"""Most bytes that are read to be converted for one answer, beside a first batch that is larger."""

_NOT_ABORTED: Final[list[FetchResponse.AbortedTransaction]] = []
"""Empty list of aborted transactions, which most answers have; shared, so it is replaced, never changed."""

Served = tuple[SessionPartition, PartitionData]


class ReadPass:
    """Results of one pass over the partitions of a fetch.

    `due` are the partitions to look at, of which the first `read` were; `remaining` is how many bytes there is room for.
    `size` are the bytes of records; `must_answer` is whether the answer must not wait for more. `seen` is how much there
    was to read of each partition when it was read, or had changed; `following` are those that are not led here.
    `unconverted` is what is still to be converted for an old client. `is_first` is False for a fetch that has waited: what
    it says of a follower's position has been noted. `waiting` is who waits for more than this.
    """

    __slots__ = (
        "due",
        "following",
        "is_first",
        "must_answer",
        "read",
        "remaining",
        "seen",
        "served",
        "size",
        "unconverted",
        "waiting",
    )

    def __init__(self, due: list[SessionPartition], bytes_max: int, *, is_first: bool) -> None:
        """`due` are the partitions to look at; `bytes_max` is how many bytes there is room for."""
        self.due = due
        self.read = 0
        self.remaining = bytes_max
        self.is_first = is_first
        self.following: list[Replica] = []
        self.served: list[Served] = []
        self.size = 0
        self.must_answer = False
        self.seen: dict[Replica, int] = {}
        self.unconverted: list[Unconverted] = []
        self.waiting: _MoreBytes | None = None

    @property
    def response_bytes(self) -> int:
        """About how many bytes the response will have."""
        return self.size + RESPONSE_BYTES * (1 + len(self.served))


class _MoreBytes:
    """A fetch that waits until its partitions have grown by `missing` bytes."""

    __slots__ = ("_is_follower", "_missing", "_pass", "event")

    def __init__(self, done: ReadPass, missing: int, *, is_follower: bool) -> None:
        self.event = trio.Event()
        self._missing = missing
        self._pass = done
        self._is_follower = is_follower

    def begin(self, replica: Replica) -> None:
        """Count what comes to a replica, and what has come since it was seen."""
        replica.subscribers.subscribe(self, to_log_end=self._is_follower)
        self.partition_advanced(replica)

    def partition_advanced(self, replica: Replica) -> None:
        """Count what has come; what a role that has ended brings is an error, which must not wait."""
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


class Reader:
    """Reads what a fetch asks for, once or, where it waits, several times.

    Also the `fetch_sessions.Reader` of its session, until `end`.
    """

    def __init__(
        self,
        context: RequestContext,
        request: FetchRequest,
        named: list[SessionPartition],
        *,
        session: Session | None,
        metadata: MetadataStore,
        replicas: Replicas,
        config: BrokerConfig,
        budget: LoopBudget,
        failures: LogDirFailures,
    ) -> None:
        """`session` is that of an incremental request, which has taken what it names; others read what is `named`."""
        self._context = context
        self._request = request
        self._metadata = metadata
        self._replicas = replicas
        self._budget = budget
        self._checkpoint = budget.checkpoint
        self._failures = failures
        version = context.api_version
        self._replica_id = max(request.replica_id, request.replica_state.replica_id)
        self.is_follower = self._replica_id >= 0
        self._may_follow = not self.is_follower or context.authorizes(
            Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )
        self._needs_leader = self.is_follower or version < FOLLOWERS_SERVE_SINCE
        self._reads_committed = request.isolation_level == READ_COMMITTED and not self.is_follower
        self._rack = ""
        if (
            request.rack_id
            and version >= FOLLOWERS_SERVE_SINCE
            and not self.is_follower
            and reads_from_rack(config)
        ):
            self._rack = request.rack_id
        self._bytes_max = config.get(settings.FETCH_MAX_BYTES)
        if version >= WHOLE_FIRST_BATCH_SINCE:
            self._bytes_max = min(self._bytes_max, request.max_bytes)
        if context.quotas is not None and not self.is_follower:
            # More could never be sent: it would be over the quota all by itself.
            quota_bytes = context.quotas.fetch_bytes_max
            self._bytes_max = self._bytes_max if quota_bytes is None else min(self._bytes_max, quota_bytes)
        self._first = 0
        if version < RECORD_BATCHES_SINCE and named:
            # So little is converted for one answer that some of the partitions must take turns.
            self._bytes_max = min(self._bytes_max, CONVERTED_BYTES_MAX)
            self._first = context.correlation_id % len(named)
            named = named[self._first :] + named[: self._first]
        self._named = named
        self._session = session
        self._pass = ReadPass([], 0, is_first=True)
        if session is not None:
            session.reader = self
        self._is_usual = version >= ZSTD_SINCE and not self._rack and request.max_bytes >= 0
        self._may_leave_out = session is not None and self._is_usual
        may_watch = self._may_follow if self.is_follower else not context.asks_authorizer
        self._may_watch = self._may_leave_out and may_watch
        self._all_after_ms = 0
        if self._may_watch:
            lag_max_ms: int = config.get(settings.REPLICA_LAG_TIME_MAX_MS)
            self._all_after_ms = min(ALL_AFTER_MS, lag_max_ms // 4)

    @property
    def result(self) -> ReadPass:
        """The latest pass."""
        return self._pass

    @property
    def wants_anything(self) -> bool:
        """True if there is any partition to read."""
        return bool(self._named if self._session is None else self._session.partitions)

    def end(self) -> None:
        """Watch no partition of the session any more."""
        if self._session is not None and self._session.reader is self:
            self._session.reader = None

    def partition_changed(self, watch: Watch) -> None:
        """Count what has come to a partition that was not looked at, since it was watched."""
        assert isinstance(watch, PartitionWatch)
        done = self._pass
        done.seen[watch.replica] = watch.seen
        if done.waiting is not None:
            done.waiting.begin(watch.replica)

    def _due(self, *, is_first: bool) -> list[SessionPartition]:
        """Return the partitions that a pass looks at."""
        session = self._session
        if session is None:
            return self._named
        if not is_first:
            return list(session.changed.values())
        return session.due(
            self._context.now_ms,
            all_after_ms=self._all_after_ms,
            broker_epoch=self._request.replica_state.replica_epoch,
        )

    def _reads(self, done: ReadPass) -> ConsumerReads | FollowerReads:
        session = self._session if self._may_watch else None
        if not self.is_follower:
            return ConsumerReads(self._replicas, done.seen, session, reads_committed=self._reads_committed)
        return FollowerReads(
            self._replicas,
            done.seen,
            session,
            replica_id=self._replica_id,
            broker_epoch=self._request.replica_state.replica_epoch,
            is_first=done.is_first,
        )

    def begin(self, *, is_first: bool) -> None:
        """Begin a pass over the partitions."""
        self._pass = ReadPass(self._due(is_first=is_first), self._bytes_max, is_first=is_first)

    async def read_rest(self) -> ReadPass:
        """Look at all that is left of the pass."""
        while not self.read_some():
            await self._checkpoint()
        return self._pass

    def read_some(self) -> bool:
        """Look at some partitions of the pass; returns whether these were the last."""
        done = self._pass
        due, first = done.due, done.read
        if first == len(due):
            return True
        stop = done.read = min(first + PARTITIONS_PER_CHECKPOINT, len(due))
        remaining = done.remaining
        served = done.served
        topic: str | bytes | None = None
        name = ""
        is_known = may_read = False
        session = self._session
        reads = self._reads(done)
        usual = reads if self._is_usual else None
        for number in range(first, stop):
            want = due[number]
            if want.topic != topic:
                topic = want.topic
                name = topic if isinstance(topic, str) else self._metadata.image.topic_name(topic) or ""
                is_known = name != "" or isinstance(topic, str)
                may_read = is_known and self._may_read(name)
            if may_read and self._may_leave_out and reads.is_quiet(name, want):
                continue
            if want.watch is not None and session is not None:
                session.note_change(want)
            data: PartitionData | None = None
            try:
                if not may_read:
                    raise RequestError(
                        ErrorCode.TOPIC_AUTHORIZATION_FAILED
                        if is_known or not self._may_follow
                        else ErrorCode.UNKNOWN_TOPIC_ID
                    )
                if usual is not None:
                    data = usual.read(name, want, remaining, not done.size)
                if data is not None:
                    size = len(data.records)  # type: ignore[arg-type]
                else:
                    data = _unanswered(want)
                    size = self._read_partition(want, name, data, max(remaining, 0), done)
            except (RequestError, StorageError) as failure:
                if data is None:
                    data = _unanswered(want)
                served.append((want, data))
                error = self._failures.failed(failure) if isinstance(failure, StorageError) else failure
                if done.size and isinstance(failure, StorageError) and lacks_files(failure.cause):
                    # What was read keeps its files open until it is sent: enough for one answer.
                    remaining = 0
                    if replica := self._replicas.find(name, want.index):
                        _tell_watermarks(data, replica.log)
                    continue
                answer_error(data, error)
                if self._context.api_version >= CURRENT_LEADER_SINCE and error.code in _MOVED:
                    leader = self._replicas.current_leader(name, want.index)
                    data.current_leader = FetchResponse.LeaderIdAndEpoch(*leader)
                done.must_answer = True
            else:
                served.append((want, data))
                done.size += size
                remaining -= size
                if data.diverging_epoch is not NO_EPOCH_END:
                    done.must_answer = True
        done.remaining = remaining
        if stop < len(due):
            return False
        if self._first:
            done.served = done.served[-self._first :] + done.served[: -self._first]
        return True

    def _may_read(self, topic: str) -> bool:
        """Say whether who fetches may: a broker of the cluster every topic, everybody else those with READ."""
        if self.is_follower:
            return self._may_follow
        return self._context.authorizes(Operation.READ, ResourceType.TOPIC, topic)

    def _note_position(self, partition: Replica, want: SessionPartition) -> None:
        partition.follower_fetched(
            self._replica_id,
            want.fetch_offset,
            log_start_offset=want.log_start_offset,
            broker_epoch=self._request.replica_state.replica_epoch,
        )

    def _partition_of(self, want: SessionPartition, topic: str) -> Replica:
        epoch = max(want.current_leader_epoch, -1)  # a fetch with any negative one asks for no check
        if self._needs_leader:
            return self._replicas.leader(topic, want.index, epoch)
        return self._replicas.local(topic, want.index, epoch)

    def _read_partition(
        self, want: SessionPartition, topic: str, data: PartitionData, remaining: int, done: ReadPass
    ) -> int:
        """Fill in one partition's answer; returns its size in bytes."""
        partition = self._partition_of(want, topic)
        is_follower = self.is_follower
        if is_follower:
            partition.check_follower(self._replica_id, want.current_leader_epoch)
        done.seen[partition] = (
            partition.growth.appended_bytes if is_follower else partition.growth.committed_bytes
        )
        if partition.closed:
            done.following.append(partition)
        partition_log = partition.log
        version = self._context.api_version
        if version < ZSTD_SINCE and partition_log.config.compression_type == "zstd":
            raise RequestError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        committed = self._reads_committed
        if is_follower:
            upper = partition_log.log_end_offset
        else:
            upper = partition_log.last_stable_offset if committed else partition_log.high_watermark
        _tell_watermarks(data, partition_log)
        data.aborted_transactions = None
        if self._rack and self._names_near_replica(partition, want, data):
            done.must_answer = True
            return 0
        if want.last_fetched_epoch >= 0:
            diverging = diverging_epoch(partition, want.last_fetched_epoch, want.fetch_offset)
            if diverging is not None:
                data.diverging_epoch = FetchResponse.EpochEndOffset(
                    epoch=diverging.epoch, end_offset=diverging.end_offset
                )
                return 0
        limit = min(want.max_bytes, self._request.max_bytes)
        if limit < 0 and partition_log.log_start_offset <= want.fetch_offset < upper:
            raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{limit} bytes cannot be read")
        result = partition_log.read(
            want.fetch_offset,
            max_bytes=remaining if remaining < want.max_bytes else max(want.max_bytes, 0),
            upper_offset=upper,
            min_one_batch=not done.size,
            is_end_wanted=committed,
        )
        if is_follower and done.is_first:
            self._note_position(partition, want)
        size = len(result.records)
        if is_follower and size:
            if partition.holds_back(self._replica_id):
                done.seen.pop(partition, None)  # what comes is not for it, for now
                return 0
            partition.sent_to_follower(size)
        if committed:
            data.aborted_transactions = aborted_of(
                partition_log.aborted_transactions(want.fetch_offset, result.next_offset)
            )
        if not size:
            return 0
        if version < RECORD_BATCHES_SINCE:
            done.unconverted.append((want, data, result))
            return size
        data.records = result.records
        return size

    def _names_near_replica(self, partition: Replica, want: SessionPartition, data: PartitionData) -> bool:
        """Send a consumer to a replica in its rack, if there is one that has what it asks for (KIP-392)."""
        image, connection = self._metadata.image, self._context.connection

        def rack_of(broker_id: int) -> str | None:
            node = advertised_node(image, broker_id, connection)
            return node.rack if node is not None else None

        preferred = preferred_replica(
            self._rack, partition.leader_id, partition.read_replicas(want.fetch_offset), rack_of
        )
        if preferred is not None:
            data.preferred_read_replica = preferred
        return preferred is not None

    async def wait_and_read(self, done: ReadPass) -> ReadPass:
        """Wait until there may be min_bytes, or max_wait_ms is over, and read again."""
        request = self._request
        deadline = trio.current_time() + request.max_wait_ms / 1000
        while done.size < request.min_bytes and not done.must_answer:
            watcher = _MoreBytes(done, request.min_bytes - done.size, is_follower=self.is_follower)
            done.waiting = watcher
            for partition in tuple(done.seen):
                watcher.begin(partition)
            try:
                with trio.move_on_at(deadline) as scope:
                    await watcher.event.wait()
            finally:
                done.waiting = None
                for partition in done.seen:
                    partition.subscribers.unsubscribe(watcher)
            if self._budget.is_used_up:  # one batch may have woken a thousand fetches
                await self._budget.admit(is_active=True)
            self.begin(is_first=False)
            done = await self.read_rest()
            if scope.cancelled_caught:
                break
        return done


def _tell_watermarks(data: PartitionData, log: PartitionLog) -> None:
    """Fill in where a log begins and how far it is committed."""
    data.high_watermark = log.high_watermark
    data.last_stable_offset = log.last_stable_offset
    data.log_start_offset = log.log_start_offset


def _unanswered(want: SessionPartition) -> PartitionData:
    """Return the answer of a partition of which nothing is known yet."""
    return PartitionData(
        want.index, 0, 0, -1, -1, NO_EPOCH_END, NO_LEADER, NO_SNAPSHOT, _NOT_ABORTED, -1, b""
    )


def answer_error(data: PartitionData, error: RequestError) -> None:
    """Answer a partition with an error: without aborted transactions, which are null once a log was looked at."""
    data.error_code = error.code
    data.aborted_transactions = _NOT_ABORTED if error.code in _REFUSED_UNREAD else None
    data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
    data.records = b""
