"""A fetcher's world: a leader with scripted responses, and a broker that consists of followers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from barnabas.cluster.metadata.changes import BrokerRegistered, PartitionChanged, TopicCreated
from barnabas.cluster.metadata.image import BrokerInfo, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.cluster.replicas.fetcher_parts import FetcherParts
from barnabas.cluster.replicas.fetching import ReplicaFetchers
from barnabas.cluster.replicas.ports import NoThrottle
from barnabas.cluster.replicas.replica import Replica
from barnabas.config.loading import BrokerConfig
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from tests.support.logs import NOW_MS, batch, rebase
from tests.support.replicas import Node

BACKOFF_S = 1.0
LEADER, ME = 1, 2
PARTITIONS = 3
TOPIC_ID = b"0123456789abcdef"


def at(offset: int, value: bytes, leader_epoch: int) -> bytes:
    """Return a batch of one record at an offset, as in a leader's log."""
    data = batch(value)
    rebase(data, 0, offset, leader_epoch)
    return bytes(data)


@dataclass
class Leader:
    """Broker 1, as `Peers` of broker 2 reaches it: its logs are lists of batches, one offset each."""

    version: int = 17
    logs: dict[int, list[bytes]] = field(default_factory=lambda: {n: [] for n in range(PARTITIONS)})
    start: int = 0
    epoch: int = 5
    errors: dict[int, int] = field(default_factory=dict)
    """Error codes that partitions are answered with, once each unless `is_stubborn`."""
    is_stubborn: bool = False
    offset_errors: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Error codes of ListOffsets for the log start and the log end, by partition, while set."""
    answer_epochs: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The end of the follower's last epoch, by partition: (epoch, end offset)."""
    asked: list[Any] = field(default_factory=list)
    damage: Callable[[bytes], bytes] | None = None
    is_away: bool = False
    lacks: frozenset[int] = frozenset()
    has_sessions: bool = False
    session: dict[int, Any] = field(default_factory=dict)
    """Partitions that the session's requests have added."""
    told: dict[int, int] = field(default_factory=dict)
    """The high watermark in the session's last response with the partition."""

    async def version_of(self, broker_id: int, key: int, **_: Any) -> int:
        await trio.lowlevel.checkpoint()
        if self.is_away:
            raise PeerUnavailableError("away")
        if key in self.lacks:
            raise PeerUnavailableError("too old", lacks_version=True)
        return {1: self.version, 2: 7, 23: 3}[key]

    async def ask(self, broker_id: int, request: Any, *, version: int | None = None, **_: Any) -> Any:
        assert broker_id == LEADER
        await trio.lowlevel.checkpoint()
        if self.is_away:
            raise PeerUnavailableError("away")
        self.asked.append(request)
        if isinstance(request, FetchRequest):
            assert version is not None
            return await self._fetch(request, version)
        if isinstance(request, OffsetForLeaderEpochRequest):
            return self._epochs(request)
        assert isinstance(request, ListOffsetsRequest)
        return self._offsets(request)

    def close(self, *_: Any) -> None:
        """Nothing is open."""

    async def _fetch_in_session(self, request: FetchRequest, version: int) -> FetchResponse:
        """Answer a fetch of the only session: with new partitions, and those with changed data."""
        if not request.session_epoch:
            self.session.clear()
            self.told.clear()
        for topic in request.topics:
            self.session |= {want.partition: want for want in topic.partitions}
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                del self.session[index]
        give_up_at = trio.current_time() + request.max_wait_ms / 1000
        while True:
            news = []
            for index, want in self.session.items():
                data = self._read(want, version)
                if data.records or data.error_code or data.high_watermark != self.told.get(index):
                    self.told[index] = data.high_watermark
                    news.append(data)
            if news or trio.current_time() >= give_up_at:
                topic = FetchResponse.FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=news)
                return FetchResponse(session_id=7, responses=[topic] if news else [])
            await trio.sleep(0.001)

    async def _fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        if self.has_sessions and request.session_epoch >= 0:
            return await self._fetch_in_session(request, version)
        response = FetchResponse()  # without a session
        has_data = False
        for topic in request.topics:
            if version >= 13:
                assert topic.topic_id == TOPIC_ID
            answered = FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
            response.responses.append(answered)
            for want in topic.partitions:
                data = self._read(want, version)
                has_data |= bool(data.records) or bool(data.error_code) or data.diverging_epoch.epoch >= 0
                answered.partitions.append(data)
        if not has_data:
            await trio.sleep(request.max_wait_ms / 1000)
        return response

    def _read(self, want: Any, version: int) -> Any:
        data = FetchResponse.PartitionData(partition_index=want.partition, records=b"")
        code = self.errors.get(want.partition, 0)
        if code:
            if not self.is_stubborn:
                del self.errors[want.partition]
            data.error_code = code
            return data
        log = self.logs[want.partition]
        data.high_watermark, data.log_start_offset = len(log) + self.start, self.start
        if not self.start <= want.fetch_offset <= len(log) + self.start:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return data
        epoch, end = self.answer_epochs.get(want.partition, (-1, -1))
        if epoch == want.last_fetched_epoch >= 0 and end < want.fetch_offset:
            assert version >= 12
            data.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
            return data
        data.records = b"".join(log[want.fetch_offset - self.start :])
        if self.damage is not None and data.records:
            data.records = self.damage(data.records)
            self.damage = None
        return data

    def _epochs(self, request: Any) -> Any:
        topics = []
        for topic in request.topics:
            answers = [
                OffsetForLeaderEpochResponse.EpochEndOffset(
                    partition=partition.partition,
                    error_code=self.errors.pop(partition.partition, 0),
                    leader_epoch=self.answer_epochs.get(partition.partition, (-1, -1))[0],
                    end_offset=self.answer_epochs.get(partition.partition, (-1, -1))[1],
                )
                for partition in topic.partitions
            ]
            topics.append(
                OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers)
            )
        return OffsetForLeaderEpochResponse(topics=topics)

    def _offsets(self, request: Any) -> Any:
        topics = []
        for topic in request.topics:
            answers = [
                ListOffsetsResponse.ListOffsetsPartitionResponse(
                    partition_index=part.partition_index,
                    error_code=self.offset_errors.get(part.partition_index, (0, 0))[part.timestamp == -1],
                    offset=self.start + (len(self.logs[part.partition_index]) if part.timestamp == -1 else 0),
                )
                for part in topic.partitions
            ]
            topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    def append(self, index: int, *values: bytes) -> None:
        """Append one record for each value."""
        for value in values:
            self.logs[index].append(at(self.start + len(self.logs[index]), value, self.epoch))


class Follower(Node):
    """Broker 2, which follows the partitions of `t`."""

    def __init__(self, leader: Leader, *, budget: LoopBudget | None = None, **settings: str) -> None:
        super().__init__(ME)
        config = BrokerConfig({"replica.fetch.backoff.ms": "1000", **settings})
        parts = FetcherParts(
            leader, config, budget or LoopBudget(), self.failed, lambda: NOW_MS, NoThrottle()  # type: ignore[arg-type]
        )  # fmt: skip
        self.fetchers = ReplicaFetchers(ME, parts, lambda: 22)
        self.storage_errors: list[Exception] = []

    def failed(self, error: Any) -> Any:
        self.storage_errors.append(error)

    async def follow(self, epoch: int = 5, *, is_first: bool = True) -> None:
        """Apply the topic's metadata, or a new leader epoch, and begin to fetch."""
        info = PartitionInfo(LEADER, (LEADER, ME), (LEADER,), epoch, epoch)
        if is_first:
            brokers = [BrokerRegistered(BrokerInfo(id_, None, {})) for id_ in (1, 2)]
            topic = TopicInfo("t", TOPIC_ID, (info,) * PARTITIONS)
            await self.apply([*brokers, TopicCreated(topic)])
        else:
            await self.apply([PartitionChanged("t", index, info) for index in range(PARTITIONS)])
        for index in range(PARTITIONS):
            self.fetchers.start(self.of(index))

    def of(self, index: int) -> Replica:
        return self.replicas.local("t", index)

    def log_of(self, index: int) -> bytes:
        log = self.of(index).log
        return log.read(log.log_start_offset, max_bytes=1 << 20, upper_offset=log.log_end_offset).to_bytes()

    @asynccontextmanager
    async def fetching(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.fetchers.run)
            yield
            nursery.cancel_scope.cancel()

    async def until(self, condition: Callable[[], bool]) -> float:
        """Wait until a condition holds; returns how long that took (s)."""
        before = trio.current_time()
        with trio.fail_after(60):
            while not condition():
                await trio.sleep(0.001)
        return trio.current_time() - before

    def has(self, leader: Leader, *indexes: int) -> bool:
        return all(
            self.log_of(index) == b"".join(leader.logs[index]) for index in indexes or range(PARTITIONS)
        )
