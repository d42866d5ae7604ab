"""Share partitions of a broker: their start, failed writes, and errors of the share coordinator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cluster.metadata.changes import TopicCreated
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.coordinators.share.acknowledgement import Acknowledgement, Verdict
from barnabas.coordinators.share.acquisition import AcquireRequest
from barnabas.coordinators.share.partitions import SharePartitions
from barnabas.coordinators.share.records import UNKNOWN_OFFSET, ShareState
from barnabas.coordinators.share.settings import OffsetReset, ShareSettings
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

T = b"t" * 16
KEY = ("g", T, 0)
LOG_START, FOUND, HIGH_WATERMARK = 5, 20, 50


class World:
    """Stands for what share partitions ask: metadata, replicas, the share coordinator, and looks for a time."""

    def __init__(self, reset: OffsetReset | None = None) -> None:
        partition = PartitionInfo(1, (1,), (1,))
        self.image = ClusterImage("c").apply([TopicCreated(TopicInfo("t", T, (partition,)))])
        log = SimpleNamespace(
            log_start_offset=LOG_START,
            high_watermark=HIGH_WATERMARK,
            timestamp_steps=lambda timestamp_ms: timestamp_ms,
        )
        self.led = SimpleNamespace(topic="t", index=0, leader_epoch=3, closed=False, log=log)
        self.state = ShareState(state_epoch=7, leader_epoch=2, start_offset=UNKNOWN_OFFSET)
        self.found: Any = SimpleNamespace(offset=FOUND)
        self.failure: RequestError | None = None
        self.asked: list[Any] = []
        self.written: list[Any] = []
        self.lock_ms = 0
        self.partitions = SharePartitions(
            self, self, self, self, lambda: 100_000, lambda: self.lock_ms,  # type: ignore[arg-type]
            ShareSettings(reset=reset or OffsetReset()),
        )  # fmt: skip

    def leader(self, topic: str, index: int) -> Any:
        if topic != "t":
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.led

    async def read_state(self, key: Any, leader_epoch: int) -> ShareState:
        self.asked.append((key, leader_epoch))
        if self.failure is not None:
            raise self.failure
        return self.state

    async def write_state(self, key: Any, write: Any) -> None:
        if self.failure is not None:
            raise self.failure
        self.written.append((key, write))

    async def run(self, timestamp_ms: int) -> Any:
        assert timestamp_ms == 100_000 - 60_000
        return self.found

    async def acquired(self) -> Any:
        """The share partition, of which member m has acquired records 50 to 59."""
        shared = await self.partitions.load(KEY)
        assert shared.records.acquire(AcquireRequest("m", 10), [(50, 59)], self.lock_ms) == [(50, 59, 1)]
        return shared

    async def accept(self, member: str = "m") -> None:
        await self.partitions.acknowledge(KEY, member, [Acknowledgement(50, 54, (Verdict.ACCEPT,))])


async def code_of(awaitable: Any) -> int:
    with pytest.raises(RequestError) as refused:
        await awaitable
    return refused.value.code


@pytest.mark.parametrize(
    ("reset", "start"),
    [
        (OffsetReset("earliest"), LOG_START),
        (OffsetReset("latest"), HIGH_WATERMARK),
        (OffsetReset("by_duration", 60_000), FOUND),
    ],
)
async def test_a_group_without_an_offset_begins_where_it_says(reset, start):
    shared = await World(reset).partitions.load(KEY)
    assert shared.records.start_offset == start


async def test_failed_acknowledgement_can_be_repeated():
    world = World()
    shared = await world.acquired()
    world.failure = RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert await code_of(world.accept()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shared.records.start_offset == HIGH_WATERMARK
    world.failure = None
    await world.accept()
    assert shared.records.start_offset == 55
    assert not shared.closed


@pytest.mark.parametrize(
    ("code", "seen", "closes"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, False),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, False),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR, False),
    ],
)
async def test_coordinator_errors_are_translated_for_clients(code, seen, closes):
    world = World()
    shared = await world.acquired()
    world.failure = RequestError(code)
    assert await code_of(world.accept()) == seen
    assert shared.closed is closes
    world.partitions.unload()
    assert await code_of(world.partitions.load(KEY)) == seen


async def test_end_of_a_session_releases_acquired_records():
    world = World()
    loaded = await world.acquired()
    results = await world.partitions.release("g", "m", [(T, 0), (b"u" * 16, 1)])
    assert results[T, 0] is None
    assert results[b"u" * 16, 1].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert loaded.records.acquire(AcquireRequest("n", 10), [(50, 59)], 0) == [(50, 59, 2)]
    world.partitions.forget_group("g")
    assert loaded.closed
    with pytest.raises(RequestError) as refused:
        await world.accept()
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
