"""Share partitions of a broker: where they begin, in whose epochs they are written down, and when they count no longer."""

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


@pytest.mark.parametrize(
    "found", [None, SimpleNamespace(offset=HIGH_WATERMARK), SimpleNamespace(offset=HIGH_WATERMARK + 1)]
)
async def test_a_group_that_begins_at_a_time_to_come_begins_at_the_high_watermark(found):
    world = World(OffsetReset("by_duration", 60_000))
    world.found = found
    assert (await world.partitions.load(KEY)).records.start_offset == HIGH_WATERMARK


async def test_what_is_written_is_in_the_epochs_of_the_state_and_of_the_leader():
    world = World()
    await world.acquired()
    await world.accept()
    [(key, write)] = world.written
    assert key == KEY
    assert (write.state_epoch, write.leader_epoch, write.start_offset) == (7, 3, HIGH_WATERMARK)
    assert [tuple(batch)[:2] for batch in write.batches] == [(50, 54)]
    assert world.asked == [(KEY, 3)], "it is read once"


async def test_what_could_not_be_written_has_not_happened_and_may_be_done_again():
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
async def test_what_the_coordinator_says_is_told_as_a_client_sees_it_and_may_end_what_is_known(
    code, seen, closes
):
    world = World()
    shared = await world.acquired()
    world.failure = RequestError(code)
    assert await code_of(world.accept()) == seen
    assert shared.closed is closes
    world.partitions.unload()
    assert await code_of(world.partitions.load(KEY)) == seen


async def test_a_partition_that_is_led_in_another_epoch_is_read_again():
    world = World()
    shared = await world.acquired()
    world.led.leader_epoch = 4
    assert world.partitions.get(KEY) is None
    assert shared.closed
    again = await world.partitions.load(KEY)
    assert again is not shared
    assert world.asked == [(KEY, 3), (KEY, 4)]
    assert await code_of(world.accept()) == ErrorCode.INVALID_RECORD_STATE


async def test_a_group_whose_state_was_begun_again_is_forgotten_and_others_are_not():
    world = World()
    shared = await world.partitions.load(KEY)
    other = await world.partitions.load(("other", T, 0))
    world.partitions.forget_group("g")
    assert (shared.closed, other.closed) == (True, False)
    assert world.partitions.get(("other", T, 0)) is other


async def test_what_a_member_has_acquired_is_free_again_when_its_session_ends():
    world = World()
    shared = await world.acquired()
    results = await world.partitions.release("g", "m", [(T, 0), (b"u" * 16, 1)])
    assert results[T, 0] is None
    assert results[b"u" * 16, 1].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert shared.records.acquire(AcquireRequest("n", 10), [(50, 59)], 0) == [(50, 59, 2)]


async def test_nothing_is_written_where_nothing_has_changed():
    world = World()
    await world.acquired()
    assert await world.partitions.release("g", "another", [(T, 0)]) == {(T, 0): None}
    assert world.written == []


async def test_who_has_fetched_nothing_can_acknowledge_nothing():
    assert await code_of(World().accept()) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_is_gone_cannot_be_loaded():
    assert await code_of(World().partitions.load(("g", b"u" * 16, 0))) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
