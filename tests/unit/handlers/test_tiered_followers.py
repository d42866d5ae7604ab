"""A leader with tiered storage under its followers: Fetch below its local log start, ListOffsets, OffsetForLeaderEpoch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cluster.metadata.changes import BrokerRegistered, PartitionChanged
from barnabas.cluster.metadata.image import BrokerInfo, PartitionInfo
from barnabas.log.partition_log import PartitionLog
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.support.tiering import Tier, tiered_broker

FOLLOWER = 77
EPOCH = 3


class Led:
    """A partition with a follower; most of it is in tiered storage only."""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.log: PartitionLog

    async def begin(self) -> None:
        tier = self.tier
        self.log = await tier.make()
        tier.append(30)
        await tier.rounds()
        services = tier.asked.services
        me = services.broker_id
        store: Any = services.metadata
        info = PartitionInfo(me, (me, FOLLOWER), (me, FOLLOWER), EPOCH, EPOCH + 1)
        store.image = store.image.apply([BrokerRegistered(BrokerInfo(FOLLOWER, None, {}))])
        await store.change(lambda image: [PartitionChanged("t", 0, info)])
        tier.append(1)
        assert self.log.epochs.entries == [(0, 0), (EPOCH, 30)]

    async def fetch(self, version: int, offset: int, *, epoch: int = -1) -> Any:
        want = FetchRequest.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=EPOCH,
            last_fetched_epoch=epoch, log_start_offset=0,
        )  # fmt: skip
        topic_id = self.tier.asked.services.metadata.image.topics["t"].id
        topic = FetchRequest.FetchTopic(topic="t", topic_id=topic_id, partitions=[want])
        request = FetchRequest(max_bytes=1 << 20, session_epoch=-1, topics=[topic], replica_id=FOLLOWER)
        if version >= 15:
            request.replica_id = -1
            request.replica_state = FetchRequest.ReplicaState(replica_id=FOLLOWER, replica_epoch=-1)
        (answered,) = (await self.tier.asked(request, version)).responses
        return answered.partitions[0]

    async def offset(self, version: int, timestamp: int) -> tuple[int, int, int]:
        query = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=0, current_leader_epoch=EPOCH, timestamp=timestamp
        )
        topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[query])
        request = ListOffsetsRequest(replica_id=FOLLOWER, topics=[topic])
        (answer,) = (await self.tier.asked(request, version)).topics[0].partitions
        return answer.error_code, answer.offset, answer.leader_epoch


@pytest.fixture
async def led(tmp_path: Path) -> AsyncIterator[Led]:
    async with tiered_broker(tmp_path) as tier:
        led = Led(tier)
        await led.begin()
        yield led


@pytest.mark.parametrize("version", range(4, 19))
async def test_follower_below_the_local_start_is_sent_to_the_tier(led: Led, version: int) -> None:
    led.log.delete_records_before(2)
    local = led.log.local_log_start_offset
    assert local > 3
    for offset in (2, local - 1):
        data = await led.fetch(version, offset)
        assert data.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        assert (data.high_watermark, data.last_stable_offset) == (led.log.high_watermark, -1)
        if version >= 5:
            assert data.log_start_offset == 2
        assert not data.records
    assert (await led.fetch(version, 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    here = await led.fetch(version, local)
    assert here.error_code == 0
    assert here.records


@pytest.mark.parametrize("version", range(12, 19))
async def test_follower_that_has_diverged_in_the_tier_is_told_where(led: Led, version: int) -> None:
    data = await led.fetch(version, 31, epoch=0)
    assert data.error_code == 0
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 30)


@pytest.mark.parametrize("version", range(8, 12))
async def test_follower_asks_where_the_local_log_begins(led: Led, version: int) -> None:
    log = led.log
    assert await led.offset(version, -4) == (0, log.local_log_start_offset, 0)
    assert await led.offset(version, -2) == (0, 0, 0)
    assert await led.offset(version, -1) == (0, 31, EPOCH)
    pending = await led.offset(version, -6)
    if version >= 11:
        offset = log.highest_remote_offset + 1
        assert pending == (0, offset, log.epochs.epoch_at(offset))
    else:
        assert pending[0] == ErrorCode.UNSUPPORTED_VERSION


async def test_epoch_of_records_in_the_tier_is_known(led: Led) -> None:
    query = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=EPOCH, leader_epoch=EPOCH - 1
    )
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[query])
    request = OffsetForLeaderEpochRequest(replica_id=FOLLOWER, topics=[topic])
    (end,) = (await led.tier.asked(request, 4)).topics[0].partitions
    assert (end.error_code, end.leader_epoch, end.end_offset) == (0, 0, 30)
