"""ListOffsets v0-v11. Offsets by timestamp, and the ends of a partition.

v0 returns a list of segment base offsets written before the timestamp (the old getOffsetsBefore); v1+ one
offset. Special timestamps: -1 latest, -2 earliest, -3 (v7) the record with the largest timestamp, -4 (v8) earliest
on local disk, -5 (v9) latest in tiered storage, -6 (v11) earliest pending upload. A timestamp is searched in remote
segments first, for the request's timeout (v10), else the broker's, in as many partitions concurrently as there are reader
threads. v2 adds the isolation level (read_committed: latest is the last stable offset), v4 leader epochs, v5
OFFSET_NOT_AVAILABLE while a new leader's high watermark is behind the committed offsets (KIP-207). Earliest and latest
cost O(1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.replicas.epoch_ends import epoch_at
from barnabas.errors import RequestError, StorageError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.cluster.tiering.manager import TieredStorage
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.timestamps import TimestampOffset
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.serving.step_runner import StepRunner

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_TIERED = (LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
_SPECIAL = (EARLIEST, EARLIEST_LOCAL, *_TIERED)
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONSUMER = -1
DEBUGGING = -2
"""The replica id of a tool that may ask followers too."""
LEADER_EPOCH_SINCE = 4
TIMEOUT_SINCE = 10
OFFSET_NOT_AVAILABLE_SINCE = 5
PARTITIONS_PER_CHECKPOINT = 16

PartitionAnswer = ListOffsetsResponse.ListOffsetsPartitionResponse
PartitionQuery = ListOffsetsRequest.ListOffsetsPartition


@dataclass(eq=False)
class ListOffsets:
    """Handler of ListOffsets."""

    replicas: Replicas
    budget: LoopBudget
    step_runner: StepRunner
    tiered: TieredStorage | None

    async def handle(self, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """Answer every partition on its own, once; a partition that is named twice is refused."""
        if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise RequestError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"isolation level {request.isolation_level} is not known"
            )
        checkpoint = self.budget.checkpoint
        asked: dict[str, dict[int, PartitionQuery]] = {}
        repeated: set[TopicPartition] = set()
        count = 0
        for topic in request.topics:
            await checkpoint()
            for query in topic.partitions:
                of_topic = asked.setdefault(topic.name, {})
                if query.partition_index in of_topic:
                    repeated.add((topic.name, query.partition_index))
                of_topic[query.partition_index] = query
                count += 1
                if not count % PARTITIONS_PER_CHECKPOINT:
                    await checkpoint()
        response = ListOffsetsResponse()
        deadline = self._remote_deadline(context, request)
        times: list[Callable[[], Awaitable[None]]] = []
        for name, of_topic in asked.items():
            answered = ListOffsetsResponse.ListOffsetsTopicResponse(name=name)
            response.topics.append(answered)
            await checkpoint()
            is_described = context.authorizes(Operation.DESCRIBE, ResourceType.TOPIC, name)
            for query in of_topic.values():
                answer = PartitionAnswer(partition_index=query.partition_index)
                answered.partitions.append(answer)
                fill = partial(
                    self._fill,
                    answer,
                    context,
                    request,
                    name,
                    query,
                    is_described=is_described,
                    twice=(name, query.partition_index) in repeated,
                    deadline=deadline,
                )
                if self.tiered is not None and query.timestamp >= 0:
                    times.append(fill)
                else:
                    await fill()
                count += 1
                if not count % PARTITIONS_PER_CHECKPOINT:
                    await checkpoint()
        if self.tiered is not None:
            await _several_at_once(times, self.tiered.reads.threads, checkpoint)
        return response

    def _remote_deadline(self, context: RequestContext, request: ListOffsetsRequest) -> float:
        """Return the time limit for searches in remote segments, by the clock of the event loop."""
        if self.tiered is None:
            return 0.0
        has_own = context.api_version >= TIMEOUT_SINCE
        wait_ms = max(request.timeout_ms, 0) if has_own else self.tiered.reads.time_look_up_ms
        return trio.current_time() + wait_ms / 1000

    async def _fill(
        self,
        answer: PartitionAnswer,
        context: RequestContext,
        request: ListOffsetsRequest,
        topic: str,
        query: PartitionQuery,
        *,
        is_described: bool,
        twice: bool,
        deadline: float,
    ) -> None:
        try:
            if not is_described:
                raise RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if twice:
                raise RequestError(ErrorCode.INVALID_REQUEST, "the partition is named twice")
            if (
                context.api_version < _SINCE.get(query.timestamp, 0)
                or query.timestamp < EARLIEST_PENDING_UPLOAD
            ):
                raise RequestError(
                    ErrorCode.UNSUPPORTED_VERSION, f"timestamp {query.timestamp} has no meaning here"
                )
            epoch = query.current_leader_epoch
            look_up = self.replicas.local if request.replica_id == DEBUGGING else self.replicas.leader
            partition = look_up(topic, query.partition_index, epoch)
            if context.api_version == 0:
                answer.old_style_offsets = await self._segment_offsets(context, partition, query)
            else:
                upper = _upper(partition, request)
                may_be_behind = request.replica_id == CONSUMER and partition.is_high_watermark_behind
                timed_offset = await self._find(partition, query.timestamp, upper, deadline)
                if may_be_behind and (
                    query.timestamp == LATEST or (timed_offset[1] < 0 and query.timestamp not in _TIERED)
                ):
                    raise RequestError(
                        ErrorCode.OFFSET_NOT_AVAILABLE
                        if context.api_version >= OFFSET_NOT_AVAILABLE_SINCE
                        else ErrorCode.LEADER_NOT_AVAILABLE,
                        "a new leader does not know yet how far the partition is committed",
                    )
                answer.timestamp, answer.offset, leader_epoch = timed_offset
                if context.api_version >= LEADER_EPOCH_SINCE:
                    answer.leader_epoch = leader_epoch
        except RequestError as error:
            answer.error_code = error.code

    async def _find(
        self, partition: Replica, timestamp: int, upper: int, deadline: float
    ) -> tuple[int, int, int]:
        """Return (timestamp, offset, leader epoch), each -1 if not found. Raises REQUEST_TIMED_OUT."""
        log = partition.log
        if timestamp == LATEST:
            return -1, upper, partition.leader_epoch
        if timestamp in _SPECIAL:
            offset = special_offset(log, timestamp)
            return -1, offset, epoch_at(partition, offset) if offset >= 0 else -1
        timed_offset: TimestampOffset | None = None
        if timestamp >= 0 and self.tiered is not None and log.is_tiered:
            seconds = deadline - trio.current_time()
            timed_offset = await self.tiered.reads.offset_for_time(partition, timestamp, max(seconds, 0))
        if timed_offset is None:
            is_max = timestamp == MAX_TIMESTAMP
            steps = log.max_timestamp_steps() if is_max else log.timestamp_steps(timestamp)
            timed_offset = await self.step_runner.run(steps)
        if timed_offset is None or timed_offset.offset >= upper:
            return -1, -1, -1
        return timed_offset.timestamp, timed_offset.offset, timed_offset.leader_epoch

    async def _segment_offsets(
        self, context: RequestContext, partition: Replica, query: PartitionQuery
    ) -> list[int]:
        """v0: base offsets of segments last written to before the timestamp, newest first."""
        log = partition.log
        offset_times = await self.step_runner.run(log.segment_times_steps())
        offset_times.append((log.high_watermark, context.now_ms))
        if query.timestamp == LATEST:
            start = len(offset_times) - 1
        elif query.timestamp == EARLIEST:
            start = 0
        else:
            start = max(
                (i for i, (_, written_ms) in enumerate(offset_times) if written_ms <= query.timestamp),
                default=-1,
            )
        offsets = [max(base, log.log_start_offset) for base, _ in offset_times[: start + 1]]
        return sorted(set(offsets), reverse=True)[: max(query.max_num_offsets, 0)]


async def _several_at_once(
    steps: Sequence[Callable[[], Awaitable[None]]], limit: int, checkpoint: Callable[[], Awaitable[None]]
) -> None:
    """Make calls, a limited number in parallel; the first error ends all, and is raised unchanged. Raises StorageError."""
    remaining = iter(steps)
    failures: list[StorageError] = []

    async def work() -> None:
        for step in remaining:
            try:
                await step()
            except StorageError as error:
                failures.append(error)
                nursery.cancel_scope.cancel()
            await checkpoint()

    async with trio.open_nursery() as nursery:
        for _ in range(min(limit, len(steps))):
            nursery.start_soon(work)
    if failures:
        raise failures[0]


def special_offset(log: PartitionLog, timestamp: int) -> int:
    """Return the start or end offset of a log's local or remote part, by its special timestamp; -1 if it has none."""
    if timestamp == EARLIEST:
        return log.log_start_offset
    if timestamp == EARLIEST_LOCAL:
        return log.local_log_start_offset
    if not log.is_tiered:  # nothing is stored remotely, and nothing is waiting to be
        return -1
    highest = log.highest_remote_offset
    if timestamp == LATEST_TIERED:
        return highest
    if highest >= 0:
        return max(highest + 1, log.log_start_offset)
    is_whole = log.local_log_start_offset == log.log_start_offset < log.log_end_offset
    return log.log_start_offset if is_whole else -1


def _upper(partition: Replica, request: ListOffsetsRequest) -> int:
    """Return the offset below which the requester may read: brokers and tools see all of the log."""
    log = partition.log
    if request.replica_id != CONSUMER:
        return log.log_end_offset
    return log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark
