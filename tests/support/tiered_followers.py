"""A leader with tiered storage as seen by its followers: real logs, a store in a directory, a broker's responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import trio

from barnabas.cluster.replicas.epoch_ends import diverging_epoch, end_offset_for_epoch
from barnabas.cluster.tiering.counts import TierCounts
from barnabas.cluster.tiering.followers import FollowerTiers
from barnabas.cluster.tiering.lineage import entries_between
from barnabas.cluster.tiering.tasks import files_of
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import real_environment
from barnabas.errors import RequestError
from barnabas.handlers.list_offsets import special_offset
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.serving.loop_budget import LoopBudget
from barnabas.tiered.directory import DirectoryStorage
from barnabas.tiered.lineage import PartitionSegments
from barnabas.tiered.segment import RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from tests.support.fetching import PARTITIONS, TOPIC_ID, Follower
from tests.support.logs import NOW_MS, Broker, batch
from tests.support.tiering import ScriptedStore

SETTINGS = {
    "segment_bytes": 700,
    "remote_storage_enable": True,
    "local_retention_bytes": 1,
    "retention_ms": -1,
}
VALUE = b"v" * 100
PartitionData = FetchResponse.PartitionData


class TieredLeader:
    """Broker 1, as `Peers` of broker 2 reaches it; both share the metadata of remote segments."""

    def __init__(self, directory: Path, *, versions: dict[int, int] | None = None) -> None:
        self.versions = {1: 17, 2: 11, 23: 4, **(versions or {})}
        self.broker = Broker(directory / "leader", **SETTINGS)  # type: ignore[arg-type]
        self.logs = [self.broker.log("t", index) for index in range(PARTITIONS)]
        self.store = ScriptedStore(DirectoryStorage(directory / "tier"))
        self.partitions: dict[TopicIdPartition, PartitionSegments] = {}
        self.epoch = 5
        self.not_ready: set[int] = set()
        """Partitions without loaded metadata."""
        self.errors: dict[int, int] = {}
        """Error codes of ListOffsets, by timestamp, once each."""
        self.asked: list[Any] = []

    # --- metadata of remote segments ------------------------------------------------------------------------

    def key(self, index: int) -> TopicIdPartition:
        return TopicIdPartition("t", index, UUID(bytes=TOPIC_ID))

    def of(self, key: TopicIdPartition) -> PartitionSegments:
        return self.partitions.setdefault(key, PartitionSegments())

    def follow(self, key: TopicIdPartition) -> None:
        """Do nothing: the metadata of all partitions are followed."""

    def is_ready_for(self, key: TopicIdPartition) -> bool:
        return key.partition not in self.not_ready

    # --- the log --------------------------------------------------------------------------------------------

    def append(self, index: int, count: int = 1, **options: Any) -> PartitionLog:
        """Append batches of a record each, and commit them."""
        log = self.logs[index]
        for _ in range(count):
            log.append_as_leader(batch(VALUE, **options), leader_epoch=self.epoch, now_ms=NOW_MS)
            log.advance_high_watermark(log.log_end_offset)
            if "base_sequence" in options:
                options["base_sequence"] += 1
        return log

    def tier(self, index: int, *, segments_max: int = 1000) -> None:
        """Copy the closed segments to the store."""
        log, key = self.logs[index], self.key(index)
        log.flush(NOW_MS)
        for segment, following in list(pairwise(log.segments))[:segments_max]:
            if segment.base_offset <= log.highest_remote_offset:
                continue
            segment.seal()
            start, end = segment.base_offset, following.base_offset
            remote = RemoteSegment(
                key, UUID(int=len(self.of(key)) + 1), start, end - 1,
                broker_id=1, max_timestamp=NOW_MS, event_timestamp=NOW_MS,
                leader_epochs=tuple(entries_between(log.epochs.entries, start, end)), size=segment.size,
            )  # fmt: skip
            self.of(key).apply(remote)
            self.store.copy(remote, files_of(log, segment, end))
            self.of(key).apply(
                SegmentUpdate(key, remote.segment_id, 1, NOW_MS, SegmentState.COPY_FINISHED, None)
            )
            log.highest_remote_offset = end - 1

    def tier_all(self, index: int) -> PartitionLog:
        """Copy the closed segments to the store, and delete them locally."""
        log = self.logs[index]
        self.tier(index)
        while log.apply_retention(NOW_MS):
            pass
        return log

    # --- answers --------------------------------------------------------------------------------------------

    async def version_of(self, broker_id: int, key: int, **_: Any) -> int:
        await trio.lowlevel.checkpoint()
        return self.versions[key]

    def close(self, *_: Any) -> None:
        """Nothing is open."""

    async def ask(self, broker_id: int, request: Any, *, version: int | None = None, **_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self.asked.append(request)
        if isinstance(request, FetchRequest):
            return await self._fetch(request)
        topics: list[Any] = []
        for topic in request.topics:
            if isinstance(request, ListOffsetsRequest):
                offsets = [self._offset(query, version or 0) for query in topic.partitions]
                topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=offsets))
            else:
                assert isinstance(request, OffsetForLeaderEpochRequest)
                ends = [self._epoch_end(query) for query in topic.partitions]
                topics.append(
                    OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic="t", partitions=ends)
                )
        is_offsets = isinstance(request, ListOffsetsRequest)
        return (ListOffsetsResponse if is_offsets else OffsetForLeaderEpochResponse)(topics=topics)

    def timestamps(self) -> list[int]:
        """The timestamps in ListOffsets requests."""
        return [
            query.timestamp
            for request in self.asked
            if isinstance(request, ListOffsetsRequest)
            for topic in request.topics
            for query in topic.partitions
        ]

    def _offset(self, query: Any, version: int) -> Any:
        assert version >= {-4: 8, -6: 11}.get(query.timestamp, 1)
        log = self.logs[query.partition_index]
        answer = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=query.partition_index)
        answer.error_code = self.errors.pop(query.timestamp, 0)
        if not answer.error_code:
            answer.offset = (
                log.log_end_offset if query.timestamp == -1 else special_offset(log, query.timestamp)
            )
            answer.leader_epoch = log.epochs.epoch_at(answer.offset) if answer.offset >= 0 else -1
        return answer

    def _epoch_end(self, query: Any) -> Any:
        epoch, end = end_offset_for_epoch(self._replica(query.partition), query.leader_epoch)
        return OffsetForLeaderEpochResponse.EpochEndOffset(
            partition=query.partition, leader_epoch=epoch, end_offset=end
        )

    def _replica(self, index: int) -> Any:
        return SimpleNamespace(log=self.logs[index], is_leader=True, leader_epoch=self.epoch)

    async def _fetch(self, request: FetchRequest) -> FetchResponse:
        answered = FetchResponse.FetchableTopicResponse(topic="t", topic_id=TOPIC_ID)
        for topic in request.topics:
            answered.partitions += [self._data(want) for want in topic.partitions]
        if not any(data.records or data.error_code for data in answered.partitions):
            await trio.sleep(request.max_wait_ms / 1000)
        return FetchResponse(responses=[answered])

    def _data(self, want: Any) -> Any:
        log = self.logs[want.partition]
        data = PartitionData(partition_index=want.partition, records=b"")
        data.high_watermark, data.log_start_offset = log.high_watermark, log.log_start_offset
        try:
            if want.last_fetched_epoch >= 0:
                diverging = diverging_epoch(
                    self._replica(want.partition), want.last_fetched_epoch, want.fetch_offset
                )
                if diverging is not None:
                    data.diverging_epoch = FetchResponse.EpochEndOffset(*diverging)
                    return data
            data.records = log.read(
                want.fetch_offset, max_bytes=1 << 20, upper_offset=log.log_end_offset
            ).to_bytes()
        except RequestError as error:
            data.error_code = error.code
        return data


class TieredFollower(Follower):
    """Broker 2, which follows the partitions of `t`, and has the same store."""

    def __init__(self, leader: TieredLeader, **settings: str) -> None:
        super().__init__(leader, **settings)  # type: ignore[arg-type]
        self.config = LogConfig(**SETTINGS)  # type: ignore[arg-type]
        self.leader = leader
        self.counts = TierCounts()
        self.broker_settings = settings

    @asynccontextmanager
    async def fetching(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            tiers = FollowerTiers(
                BrokerConfig(self.broker_settings), self.leader.store, self.leader, self.counts,  # type: ignore[arg-type]
                real_environment(), LoopBudget(), nursery,
            )  # fmt: skip
            self.tiers = tiers
            self.fetchers.use_tiers(tiers)
            nursery.start_soon(self.fetchers.run)
            yield
            nursery.cancel_scope.cancel()

    def log(self, index: int = 0) -> PartitionLog:
        return self.of(index).log

    def is_level(self, *indexes: int) -> bool:
        """Return whether the logs equal the leader's local logs, from the later of both log starts on."""
        return all(self._is_level(index) for index in indexes or range(PARTITIONS))

    def _is_level(self, index: int) -> bool:
        own, leaders = self.log(index), self.leader.logs[index]
        if own.log_end_offset != leaders.log_end_offset or own.high_watermark != leaders.high_watermark:
            return False
        start = max(own.local_log_start_offset, leaders.local_log_start_offset)
        return content(own, start) == content(leaders, start)


def content(log: PartitionLog, start: int) -> bytes:
    """Return the bytes of a log from an offset on."""
    parts, offset = [], start
    while offset < log.log_end_offset:
        result = log.read(offset, max_bytes=1 << 20, upper_offset=log.log_end_offset)
        parts.append(result.to_bytes())
        offset = result.next_offset
    return b"".join(parts)


def producers(log: PartitionLog) -> Collection[tuple[int, int, int]]:
    """Return id, epoch and last sequence of each producer of a log."""
    return [
        (entry.producer_id, entry.producer_epoch, entry.last_sequence) for entry in log.producers.snapshot()
    ]
