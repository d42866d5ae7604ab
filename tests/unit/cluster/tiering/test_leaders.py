"""Leaders of tiered partitions after leaders: copies that others have begun, deletions that others have left (KIP-405)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest
import trio

from barnabas.cluster.metadata.changes import BrokerUnregistered, ConfigChanged, TopicDeleted
from barnabas.cluster.metadata.image import TOPIC, Delta
from barnabas.cluster.tiering.counts import TierCounts
from barnabas.cluster.tiering.deletions import TAKE_OVER_SECONDS, Deletions, deleted_partitions
from barnabas.cluster.tiering.expiry import TieredLog, plan_expiry
from barnabas.cluster.tiering.reading import RemoteIndexes
from barnabas.cluster.tiering.tasks import FORMER_LEADER_SECONDS, SegmentTasks
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import real_environment
from barnabas.log.config import LogConfig
from barnabas.tiered.directory import DirectoryStorage
from barnabas.tiered.metadata import METADATA_TOPIC, PartitionDelete, PartitionDeleteState, metadata_partition
from barnabas.tiered.segment import SegmentState, TopicIdPartition
from tests.support.metadata_leaders import MetadataLeader
from tests.support.peers import ME, THREE, TWO, cluster, topic
from tests.support.remote_segments import PARTITION, remote_segment, update
from tests.support.tiering import ScriptedStore, tiered_broker

FINISHED = SegmentState.COPY_FINISHED
TIERED = {"remote.storage.enable": "true"}


async def until(condition):
    with trio.fail_after(1000):
        while not condition():
            await trio.sleep(0.02)


def tasks_of(broker_id, store, metadata, environment, live=()):
    common = BrokerConfig(), store, RemoteIndexes(store, 1 << 20), metadata, TierCounts()
    return SegmentTasks(*common, environment, broker_id, lambda: live)


# --- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("live", "seconds", "is_finished", "is_kept"),
    [
        ({1}, 0, False, False), ({1, 99}, 0, False, True), ({1, 99}, FORMER_LEADER_SECONDS + 1, False, False),
        ({1}, 0, True, True),
    ],
)  # fmt: skip
async def test_copy_of_a_former_leader_is_kept_or_replaced(tmp_path, live, seconds, is_finished, is_kept):
    async with tiered_broker(tmp_path) as tier:
        log = await tier.make()
        tier.append(20)
        (partition,) = tier.tiered.seen()
        first, second, *_ = log.segments
        begun = remote_segment(0, second.base_offset - 1, tuple(log.epochs.entries))
        begun = replace(begun, partition=partition.key, broker_id=99)
        await tier.tiered.metadata.add(begun)
        if is_finished:
            await tier.tiered.metadata.advance(begun, FINISHED)
        tasks = tasks_of(1, tier.store, tier.tiered.metadata, real_environment(), live)
        partition.led_since_s -= seconds
        await tasks.expire(partition)
        await tasks.copy(partition)
        assert (partition.segments.get(begun.segment_id) is not None) is is_kept
        assert (first.base_offset not in tier.stored()) is is_kept
        assert bool(tier.stored()) is (is_finished or not is_kept)


async def test_copy_that_another_leader_deleted_leaves_nothing(tmp_path):
    async with tiered_broker(tmp_path) as tier:
        log = await tier.make()
        tier.append(10)
        metadata = tier.tiered.metadata
        tier.store.on_copied = lambda segment: trio.from_thread.run(
            metadata.advance, segment, SegmentState.DELETE_STARTED
        )
        (partition,) = tier.tiered.seen()
        await tier.tiered.round_of(partition)
        assert (tier.stored(), log.highest_remote_offset) == ([], -1)
        tier.store.on_copied = lambda _: None
        await tier.rounds()
        assert len(tier.stored()) == len(set(tier.stored())) > 0
        assert {segment.state for segment in partition.segments.segments()} == {FINISHED}


async def test_segment_that_has_gone_is_not_deleted_again(tmp_path):
    async with tiered_broker(tmp_path) as tier:
        await tier.store_all(count=10)
        (partition,) = tier.tiered.seen()
        segment = partition.segments.segments()[0]
        await tier.tiered.tasks.delete_unused(segment)
        metadata_log = tier.asked.services.replicas.leader(
            METADATA_TOPIC, metadata_partition(partition.key, 2)
        ).log
        end = metadata_log.log_end_offset
        await tier.tiered.tasks.delete_unused(segment)
        assert metadata_log.log_end_offset == end


def test_replaced_segment_goes_and_is_not_counted():
    segments = [remote_segment(0, 49, number=number, state=FINISHED, size=1000) for number in (1, 2)]
    log = TieredLog(((0, 0),), 0, 60, 100)
    config = LogConfig(retention_bytes=1500, retention_ms=-1)
    expiry = plan_expiry(segments, log, config, now_ms=0, replaced={UUID(int=1)})
    assert (expiry.segments, expiry.log_start_offset) == (segments[:1], 0)


# --- deletions --------------------------------------------------------------------------------------------------------


def deleted(*leaders: int, settings=TIERED, gone=(), stored=(), me=ME):
    """The partitions that broker `me` deletes, of topic "t" that is deleted while brokers are gone."""
    before = cluster(topic("t", *leaders)).image.apply([ConfigChanged(TOPIC, "t", tuple(settings.items()))])
    changes = [TopicDeleted("t"), *(BrokerUnregistered(broker) for broker in gone)]
    delta = Delta.of(before, before.apply(changes), changes)
    return [key.partition for key in deleted_partitions(delta, me, stored)]


def test_leader_deletes_what_is_stored_of_a_topic():
    assert deleted(ME, TWO, ME) == [0, 2]
    assert deleted(ME, TWO, ME, me=TWO) == [1]
    assert deleted(ME, settings={}) == []


def test_first_live_broker_deletes_where_no_leader_is():
    assert deleted(TWO, -1, gone=[TWO]) == [0, 1]
    assert deleted(TWO, -1, gone=[TWO], me=THREE) == []


def test_topic_that_was_switched_off_is_deleted_where_stored():
    key = TopicIdPartition("t", 0, UUID(bytes=b"t".rjust(16)))
    assert deleted(ME, ME, settings={}, stored=[key]) == [0]


@asynccontextmanager
async def deleting(leader: MetadataLeader, tmp_path) -> AsyncIterator[ScriptedStore]:
    """A broker that follows the records of `PARTITION`, of a topic that there is not; its store."""
    storage = ScriptedStore(DirectoryStorage(tmp_path))
    tasks = tasks_of(ME, storage, leader.state, leader.environment)
    deletions = Deletions(leader.state, tasks, leader.metadata, None, leader.environment, ME)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader.state.run)
        leader.state.follow(PARTITION)
        nursery.start_soon(deletions.run)
        await until(lambda: leader.state.is_ready_for(PARTITION))
        yield storage
        nursery.cancel_scope.cancel()


def marked(broker_id: int) -> MetadataLeader:
    leader = MetadataLeader()
    segment = remote_segment()
    mark = PartitionDelete(PARTITION, broker_id, 5, PartitionDeleteState.MARKED)
    leader.write(segment, update(segment, FINISHED), mark)
    return leader


async def test_own_deletion_is_resumed_after_a_restart(tmp_path, autojump_clock):
    leader = marked(ME)
    async with deleting(leader, tmp_path):
        await until(lambda: not leader.state.partitions)
        assert trio.current_time() < TAKE_OVER_SECONDS / 2


async def test_deletion_of_another_broker_is_taken_over_late(tmp_path, autojump_clock):
    leader = marked(TWO)
    began = trio.current_time()
    async with deleting(leader, tmp_path):
        await until(lambda: not leader.state.partitions)
        assert trio.current_time() - began > TAKE_OVER_SECONDS
    assert leader.state.deleting == {}


async def test_deletion_that_fails_is_marked_again(tmp_path, autojump_clock):
    """So another broker does not take over what is only slow."""
    leader = marked(ME)
    async with deleting(leader, tmp_path) as store:
        store.failing = {"delete"}
        await until(lambda: trio.current_time() > TAKE_OVER_SECONDS)
        assert trio.current_time() - leader.state.deleting[PARTITION].read_at < TAKE_OVER_SECONDS / 2
        store.failing = set()
        await until(lambda: not leader.state.partitions)
