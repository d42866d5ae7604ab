"""ShareFetch v0-v2. Acquires records for a member of a share group, and acknowledges others (KIP-932).

Waits up to max_wait_ms for min_bytes of available records. v1 limits records instead of bytes per partition (the field of
v0, never stable, has no effect), and returns the duration of locks; v2 renews locks (KIP-1222) and can enforce the
limit strictly (KIP-1206).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from barnabas.config import broker as settings
from barnabas.coordinators.share.acquisition import NO_LIMIT, RECORD_LIMIT, AcquireRequest
from barnabas.coordinators.share.sessions import EPOCH_FINAL, EPOCH_INITIAL, SessionKey
from barnabas.errors import RequestError
from barnabas.handlers.shared.asked import each_partition
from barnabas.handlers.shared.share_common import (
    acknowledge,
    acknowledgements_of,
    check_asker,
    check_readable,
    tell_leaders,
)
from barnabas.handlers.shared.share_reading import acquire, look
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.share_fetch import ShareFetchRequest, ShareFetchResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.cluster.tiering.manager import TieredStorage
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordinators.share.partitions import LoadedPartition
    from barnabas.coordinators.share.shares import Shares
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.wire.topic_partitions import TopicIdPartition

RECORDS_MAX_SINCE = 1

Topic = ShareFetchResponse.ShareFetchableTopicResponse
PartitionData = ShareFetchResponse.PartitionData
Answers = dict["TopicIdPartition", PartitionData]


@dataclass(eq=False)
class ShareFetch:
    """Handler of ShareFetch."""

    metadata: MetadataStore
    config: BrokerConfig
    shares: Shares
    budget: LoopBudget
    tiered: TieredStorage | None

    async def handle(self, context: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse:
        """Apply acknowledgements first, then acquire records; the last request of a session only acknowledges."""
        try:
            key = check_asker(request)
            _check_renew(request)
            topic_partitions = await self._resolve_session(context, request, key)
        except RequestError as error:
            if error.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED:
                await trio.sleep(max(request.max_wait_ms, 0) / 1000)
            return ShareFetchResponse(error_code=error.code, error_message=error.message or None)
        acknowledgements = await acknowledgements_of(request, budget=self.budget)
        for topic_partition in [partition for partition, acks in acknowledgements.items() if not acks]:
            del acknowledgements[topic_partition]
            await self.budget.checkpoint()
        outcomes = await acknowledge(
            context,
            key,
            acknowledgements,
            is_renew=request.is_renew_ack,
            metadata=self.metadata,
            shares=self.shares,
            budget=self.budget,
        )
        answers: Answers = {}
        if request.share_session_epoch == EPOCH_FINAL:
            await self.shares.end_session(key)
        elif not request.is_renew_ack:
            answers = await self._fetch(
                context,
                request,
                key,
                topic_partitions,
            )
            if context.quotas is not None:
                context.quotas.charge_fetch(sum(len(answer.records or b"") for answer in answers.values()))
            if request.share_session_epoch == EPOCH_INITIAL:  # a session's first answer names everything
                for topic_partition in topic_partitions:
                    answers.setdefault(
                        topic_partition, PartitionData(partition_index=topic_partition[1], records=b"")
                    )
                    await self.budget.checkpoint()
        for topic_partition, refusal in outcomes.items():
            await self.budget.checkpoint()
            answer = answers.setdefault(
                topic_partition, PartitionData(partition_index=topic_partition[1], records=b"")
            )
            if refusal is not None:
                answer.acknowledge_error_code = refusal.code
                answer.acknowledge_error_message = refusal.message or None
        return await self._respond(context, key, answers)

    async def _resolve_session(
        self, context: RequestContext, request: ShareFetchRequest, key: SessionKey
    ) -> list[TopicIdPartition]:
        """Return the partitions to fetch from, in order of precedence. Raises RequestError."""
        sessions, epoch = self.shares.sessions, request.share_session_epoch
        named: list[TopicIdPartition] = []
        for topic in request.topics:
            await self.budget.checkpoint()
            for part in topic.partitions:
                if epoch == EPOCH_INITIAL and part.acknowledgement_batches:
                    raise RequestError(
                        ErrorCode.INVALID_REQUEST, "a session does not begin with acknowledgements"
                    )
                named.append((topic.topic_id, part.partition_index))
                await self.budget.checkpoint()
        forgotten = await each_partition(
            request.forgotten_topics_data,
            lambda topic: topic.partitions,
            lambda topic, index: (topic.topic_id, index),
            self.budget,
        )
        if epoch == EPOCH_INITIAL:
            return list(sessions.open(key, named, context.connection.connection_id).topic_partitions)
        session = sessions.resume(key, epoch)
        if epoch == EPOCH_FINAL:
            return []
        session.update(named, forgotten)
        return session.rotated(epoch)

    async def _fetch(
        self,
        context: RequestContext,
        request: ShareFetchRequest,
        key: SessionKey,
        topic_partitions: list[TopicIdPartition],
    ) -> Answers:
        answers: Answers = {}
        acquire_request = _acquire_request(context, request, key[1])
        bytes_max = min(request.max_bytes, self.config.get(settings.FETCH_MAX_BYTES))
        quota_bytes = context.quotas.fetch_bytes_max if context.quotas is not None else None
        if quota_bytes is not None:
            bytes_max = min(bytes_max, max(quota_bytes, 1))  # which is one batch
        if not topic_partitions or acquire_request.records_max <= 0 or bytes_max <= 0:
            return answers
        began = trio.current_time()
        deadline = began + max(request.max_wait_ms, 0) / 1000
        counts = self.shares.counts.of_group(key[0])
        bytes_min = min(request.min_bytes, bytes_max)
        while True:
            loaded = await self._load(context, key[0], topic_partitions, answers)
            if not loaded:
                counts.fetch_ratio.add(0)
                return answers
            ready = sum(shared.records.can_acquire for shared in loaded.values())
            ready_at = trio.current_time()
            before = {shared: _place(shared) for shared in loaded.values()}
            readings, failed = await look(loaded, bytes_max, budget=self.budget, tiered=self.tiered)
            for topic_partition, error in failed:
                answers[topic_partition] = _failed(topic_partition, error)
            size = sum(len(each.data) for each in readings)
            late = trio.current_time() >= deadline
            if readings and (late or size >= bytes_min or any(each.cut_short for each in readings)):
                for topic_partition, data in acquire(readings, acquire_request, shares=self.shares):
                    answers[topic_partition] = data
            if late or any(topic_partition in answers for topic_partition in loaded):
                counts.fetch_ratio.add(100 * ready / len(topic_partitions))
                if ready:
                    counts.acquire_ms.add((ready_at - began) * 1000)
                return answers
            if not readings or size < bytes_min:
                await _wait(before, deadline)
            else:
                # All records read were aborted: look at those after them.
                await trio.lowlevel.checkpoint()

    async def _load(
        self,
        context: RequestContext,
        group_id: str,
        topic_partitions: list[TopicIdPartition],
        answers: Answers,
    ) -> dict[TopicIdPartition, LoadedPartition]:
        """Return the usable share partitions; puts the errors of the others into the response."""
        loaded: dict[TopicIdPartition, LoadedPartition] = {}
        for topic_partition in topic_partitions:
            await self.budget.checkpoint()
            if topic_partition in answers:
                continue
            try:
                check_readable(context, topic_partition, metadata=self.metadata)
                loaded[topic_partition] = await self.shares.partitions.load((group_id, *topic_partition))
            except RequestError as error:
                answers[topic_partition] = _failed(topic_partition, error)
        return loaded

    async def _respond(
        self, context: RequestContext, key: SessionKey, answers: Answers
    ) -> ShareFetchResponse:
        response = ShareFetchResponse()
        if context.api_version >= RECORDS_MAX_SINCE:
            settings = self.shares.partitions.settings_of(key[0])
            response.acquisition_lock_timeout_ms = settings.record_lock_ms
        topics: dict[bytes, Topic] = {}
        for (topic_id, _), answer in answers.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = Topic(topic_id=topic_id)
                response.responses.append(topic)
            topic.partitions.append(answer)
            await self.budget.checkpoint()
        await tell_leaders(context, response, answers.items(), metadata=self.metadata, budget=self.budget)
        return response


def _check_renew(request: ShareFetchRequest) -> None:
    if request.is_renew_ack and (
        request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms
    ):
        raise RequestError(
            ErrorCode.INVALID_REQUEST, "a request that renews must ask for no bytes, no records, and not wait"
        )


# --- fetching ---------------------------------------------------------------------------------------------------


class _News:
    """Set when a partition has grown, or records of a share partition have become free."""

    __slots__ = ("event",)

    def __init__(self) -> None:
        self.event = trio.Event()

    def partition_advanced(self, partition: Replica) -> None:  # noqa: ARG002
        self.event.set()


def _acquire_request(context: RequestContext, request: ShareFetchRequest, member_id: str) -> AcquireRequest:
    if context.api_version < RECORDS_MAX_SINCE:
        return AcquireRequest(member_id, NO_LIMIT)
    return AcquireRequest(
        member_id, request.max_records, max(request.batch_size, 1), request.share_acquire_mode == RECORD_LIMIT
    )


def _failed(topic_partition: TopicIdPartition, error: RequestError) -> PartitionData:
    return PartitionData(
        partition_index=topic_partition[1],
        error_code=error.code,
        error_message=error.message or None,
        records=b"",
    )


def _place(shared: LoadedPartition) -> tuple[int, int, int, bool]:
    """Return values that change when there may be more records to acquire."""
    log, records = shared.led.log, shared.records
    return log.high_watermark, log.last_stable_offset, records.next_offset, records.can_acquire


async def _wait(before: dict[LoadedPartition, tuple[int, int, int, bool]], deadline: float) -> None:
    """Until there may be more to acquire in any of these than there was `before`, or the time is over."""
    news = _News()
    for shared, topic_partition in before.items():
        shared.waiting.add(news.event)
        shared.led.subscribers.subscribe(news)
        if not shared.is_current or _place(shared) != topic_partition:
            news.event.set()
    try:
        with trio.move_on_at(deadline):
            await news.event.wait()
    finally:
        for shared in before:
            shared.waiting.discard(news.event)
            shared.led.subscribers.unsubscribe(news)


# --- answering --------------------------------------------------------------------------------------------------
