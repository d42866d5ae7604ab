"""Reads the partitions of a fetch: in one pass or, if the fetch waits, in several.

The rule: an unreadable partition gets its own error, and the others their records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from barnabas.cluster.replicas.watching import PartitionWatch
from barnabas.config import broker as settings
from barnabas.errors import RequestError, StorageError, lacks_files
from barnabas.handlers.fetch.passes import FetchPass, MoreBytes, PartitionData, unread
from barnabas.handlers.fetch.terms import FetchTerms
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.serving.fetch_sessions import Session, SessionPartition, Watch
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from barnabas.handlers.fetch.services import FetchServices
    from barnabas.serving.context import RequestContext

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

_NOT_ABORTED: Final[list[FetchResponse.AbortedTransaction]] = []
"""Empty list of aborted transactions, which some errors have; shared, so it is replaced, never changed."""


class Reader:
    """Reads the partitions of a fetch, once or, if it waits, several times.

    `result` is the latest pass. Also the `fetch_sessions.Reader` of its session, until `end`.
    """

    def __init__(
        self,
        services: FetchServices,
        context: RequestContext,
        request: FetchRequest,
        named: list[SessionPartition],
        *,
        session: Session | None,
    ) -> None:
        """`session` is that of an incremental request, updated by it; other requests read the `named` partitions."""
        self._context = context
        self._request = request
        self._services = services
        terms = self._terms = FetchTerms(context, request, services.config, services.metadata)
        self.is_follower = terms.is_follower
        self._may_follow = not terms.is_follower or context.authorizes(
            Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )
        self._first = 0
        if terms.is_converted and named:
            # So little is converted for one answer that some of the partitions must take turns.
            self._first = context.correlation_id % len(named)
            named = named[self._first :] + named[: self._first]
        self._named = named
        self._session = session
        if session is not None:
            session.reader = self
        self._may_leave_out = (
            session is not None and terms.knows_zstd and not terms.rack and request.max_bytes >= 0
        )
        may_watch = self._may_follow if terms.is_follower else not context.asks_authorizer
        self._may_watch = self._may_leave_out and may_watch
        all_after_ms = 0
        if self._may_watch:
            lag_max_ms: int = services.config.get(settings.REPLICA_LAG_TIME_MAX_MS)
            all_after_ms = min(ALL_AFTER_MS, lag_max_ms // 4)
        due = named
        if session is not None:
            due = session.due(context.now_ms, all_after_ms=all_after_ms, broker_epoch=terms.broker_epoch)
        self.result = self._pass_over(due, is_first=True)

    def _pass_over(self, due: list[SessionPartition], *, is_first: bool) -> FetchPass:
        session = self._session if self._may_watch else None
        return FetchPass(self._terms, self._services.replicas, session, due, is_first=is_first)

    @property
    def wants_anything(self) -> bool:
        """True if there is any partition to read."""
        return bool(self._named if self._session is None else self._session.partitions)

    def end(self) -> None:
        """Stop watching partitions of the session."""
        if self._session is not None and self._session.reader is self:
            self._session.reader = None

    def partition_changed(self, watch: Watch) -> None:
        """Count the bytes appended to a watched partition since the last pass."""
        assert isinstance(watch, PartitionWatch)
        done = self.result
        done.seen[watch.replica] = watch.seen
        if done.waiting is not None:
            done.waiting.begin(watch.replica)

    async def read_rest(self) -> FetchPass:
        """Read the remaining partitions of the pass."""
        while not self.read_some():
            await self._services.budget.checkpoint()
        return self.result

    def read_some(self) -> bool:
        """Look at some partitions of the pass; returns whether these were the last."""
        done = self.result
        due, first = done.due, done.read
        if first == len(due):
            return True
        stop = done.read = min(first + PARTITIONS_PER_CHECKPOINT, len(due))
        topic: str | bytes | None = None
        name = ""
        is_known = may_read = False
        session = self._session
        for number in range(first, stop):
            want = due[number]
            if want.topic != topic:
                topic = want.topic
                name = (
                    topic if isinstance(topic, str) else self._services.metadata.image.topic_name(topic) or ""
                )
                is_known = name != "" or isinstance(topic, str)
                may_read = is_known and self._may_read(name)
            if may_read and self._may_leave_out and done.is_quiet(name, want):
                continue
            if want.watch is not None and session is not None:
                session.note_change(want)
            try:
                if not may_read:
                    raise RequestError(
                        ErrorCode.TOPIC_AUTHORIZATION_FAILED
                        if is_known or not self._may_follow
                        else ErrorCode.UNKNOWN_TOPIC_ID
                    )
                data = done.read_partition(name, want)
            except (RequestError, StorageError) as failure:
                data = self._refused(name, want, failure)
            done.served.append((want, data))
        if stop < len(due):
            return False
        if self._first:
            done.served = done.served[-self._first :] + done.served[: -self._first]
        return True

    def _may_read(self, topic: str) -> bool:
        """Return whether the sender may read a topic: a broker of the cluster all topics, clients those with READ."""
        if self.is_follower:
            return self._may_follow
        return self._context.authorizes(Operation.READ, ResourceType.TOPIC, topic)

    def _refused(
        self, topic: str, want: SessionPartition, failure: RequestError | StorageError
    ) -> PartitionData:
        """Return the answer of a partition that could not be read."""
        done = self.result
        error = self._services.failures.failed(failure) if isinstance(failure, StorageError) else failure
        if done.size and isinstance(failure, StorageError) and lacks_files(failure.cause):
            # a pass keeps its files open until it is sent: enough for one response
            done.remaining = 0
            return unread(want, self._services.replicas.find(topic, want.index))
        data = unread(want)
        answer_error(data, error)
        if self._terms.tells_leader and error.code in _MOVED:
            leader = self._services.replicas.current_leader(topic, want.index)
            data.current_leader = FetchResponse.LeaderIdAndEpoch(*leader)
        done.must_answer = True
        return data

    async def wait_and_read(self) -> FetchPass:
        """Wait until there may be min_bytes, or max_wait_ms is over, and read again."""
        request = self._request
        deadline = trio.current_time() + request.max_wait_ms / 1000
        done = self.result
        while done.size < request.min_bytes and not done.must_answer:
            watcher = MoreBytes(done, request.min_bytes - done.size, is_follower=self.is_follower)
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
            if self._services.budget.is_used_up:  # one batch may have woken a thousand fetches
                await self._services.budget.admit(is_active=True)
            session = self._session
            due = self._named if session is None else list(session.changed.values())
            self.result = self._pass_over(due, is_first=False)
            done = await self.read_rest()
            if scope.cancelled_caught:
                break
        return done


def answer_error(data: PartitionData, error: RequestError) -> None:
    """Set the error of a partition; its aborted transactions are null once the log was read."""
    data.error_code = error.code
    data.aborted_transactions = _NOT_ABORTED if error.code in _REFUSED_UNREAD else None
    data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
    data.records = b""
