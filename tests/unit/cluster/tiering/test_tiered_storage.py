"""Tiered storage of a broker: copies, local deletion, expiry, deletion, and what a failing store leads to (KIP-405)."""

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from barnabas.tiered.segment import SegmentState
from barnabas.tools.control.snapshots import SnapshotError, Snapshots
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.support.tiering import KilledError, tiered_broker


@pytest.fixture
async def tier(tmp_path):
    async with tiered_broker(tmp_path) as tier:
        yield tier


async def alter(tier, topic="t", **settings):
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=name.replace("_", "."), config_operation=0, value=value
        )
        for name, value in settings.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(2, topic, configs)
    answer = await tier.asked(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return answer.responses[0].error_code


async def test_closed_segments_are_stored_and_go_locally(tier):
    log = await tier.make()
    tier.append(30)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 4
    await tier.rounds()
    assert tier.stored() == bases[:-1]
    assert log.highest_remote_offset == bases[-1] - 1
    assert (log.log_start_offset, log.local_log_start_offset) == (0, bases[-1])


async def test_segment_is_not_copied_beyond_the_last_stable_offset(tier):
    log = await tier.make()
    tier.append(1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    tier.append(30)
    await tier.rounds()
    assert log.last_stable_offset == 0
    assert tier.stored() == []
    assert len(log.segments) > 4


@pytest.mark.parametrize(
    ("lag", "is_copied"),
    [
        ({"remote_copy_lag_ms": "0", "remote_copy_lag_bytes": "100000"}, True),
        ({"remote_copy_lag_ms": "2000", "remote_copy_lag_bytes": "100000"}, False),
        ({"remote_copy_lag_ms": "1000", "remote_copy_lag_bytes": "100000"}, True),
        ({"remote_copy_lag_ms": "2000", "remote_copy_lag_bytes": "2500"}, True),
        ({"remote_copy_lag_ms": "-1", "remote_copy_lag_bytes": "-1"}, True),
        (
            {"remote_copy_lag_ms": "-1", "local_retention_ms": "2000", "remote_copy_lag_bytes": "100000"},
            False,
        ),
    ],
)
async def test_copies_wait_until_their_lag_is_reached(tier, lag, is_copied):
    await tier.make(**{"local_retention_bytes": "-2", **lag})
    tier.append(20)
    tier.asked.clock.now_ms += 1000
    await tier.rounds()
    assert (0 in tier.stored()) is is_copied
    assert [partition.lag_segments for partition in tier.tiered.seen()] == [0]


async def test_unflushed_segment_is_not_copied(tier):
    log = await tier.make()
    tier.append(30)
    log.recovery_point = 0
    await tier.rounds()
    assert tier.stored() == []


async def test_failed_copy_is_deleted_and_tried_again(tier):
    log = await tier.make()
    tier.append(30)
    for step in ("copy", "copied"):
        tier.store.failing = {step}
        await tier.rounds()
        assert log.highest_remote_offset == -1
        assert tier.stored() == []
        assert len(log.segments) > 4
    tier.store.failing = set()
    await tier.rounds()
    assert len(tier.stored()) > 4
    counts = tier.tiered.counts.of("t")
    assert counts.failed_copies == 6


async def test_remains_of_a_failed_copy_go_when_the_store_works_again(tier):
    await tier.make()
    tier.append(10)
    tier.store.failing = {"copied", "delete"}
    await tier.rounds(1)
    assert len(tier.stored()) == 1
    tier.store.failing = {"copied"}
    await tier.rounds(1)
    assert tier.stored() == []


@pytest.mark.parametrize("step", ["copy", "copied"])
async def test_copy_cut_off_by_a_kill_is_deleted_after_a_restart(tmp_path, step):
    with pytest.RaisesGroup(KilledError, flatten_subgroups=True):
        async with tiered_broker(tmp_path) as tier:
            await tier.make()
            tier.append(30)
            tier.store.killing = {step}
            await tier.rounds(1)
    async with tiered_broker(tmp_path) as tier:
        (segments,) = tier.tiered.metadata.partitions.values()
        assert len(segments) > 0
        await until(
            lambda: not any(partition.is_expiring or partition.is_copying for partition in tier.tiered)
        )
        await tier.rounds()
        stored = tier.stored()
        assert len(set(stored)) == len(stored) > 4
        assert {segment.state for segment in segments.segments()} == {SegmentState.COPY_FINISHED}


async def test_restart_knows_what_is_stored(tmp_path):
    async with tiered_broker(tmp_path) as tier:
        log = await tier.store_all()
        highest, stored = log.highest_remote_offset, tier.stored()
    async with tiered_broker(tmp_path) as tier:
        log = tier.log()
        assert log.log_start_offset == 0 < log.local_log_start_offset
        await tier.rounds()
        assert (log.highest_remote_offset, tier.stored()) == (highest, stored)


async def test_too_much_custom_metadata_ends_the_copying(tier):
    log = await tier.make()
    tier.append(30)
    tier.store.custom_metadata = bytes(129)
    await tier.rounds()
    assert (tier.stored(), log.highest_remote_offset) == ([], -1)
    assert tier.tiered.counts.of("t").copies == 1


async def test_custom_metadata_is_kept(tier):
    await tier.make()
    tier.append(10)
    tier.store.custom_metadata = b"where"
    await tier.rounds()
    (segments,) = tier.tiered.metadata.partitions.values()
    assert {segment.custom_metadata for segment in segments.segments()} == {b"where"}


async def test_copies_wait_for_their_quota(tmp_path):
    async with tiered_broker(tmp_path, remote_log_manager_copy_max_bytes_per_second="1") as tier:
        await tier.make()
        tier.append(30)
        with trio.move_on_after(0.5):
            await tier.rounds(1)
        assert len(tier.stored()) == 1
        assert tier.tiered.counts.throttled_copies_ms > 0


# --- expiry ---------------------------------------------------------------------------------------------------------


async def test_expired_segments_go_from_the_store(tier):
    log = await tier.make(retention_ms="1000", local_retention_ms="1000")
    tier.append(30)
    await tier.rounds(1)
    tier.asked.clock.now_ms += 2000
    tier.append(5)
    await tier.rounds()
    assert tier.stored() == [base for base in tier.stored() if base >= log.log_start_offset]
    assert log.log_start_offset >= 24
    (segments,) = tier.tiered.metadata.partitions.values()
    assert all(segment.max_timestamp >= tier.asked.clock.now_ms - 1000 for segment in segments.segments())


async def test_size_counts_each_byte_once(tier):
    log = await tier.store_all(count=60, retention_bytes="6000")
    (segments,) = tier.tiered.metadata.partitions.values()
    total = segments.size() + sum(
        segment.size for segment in log.segments if segment.base_offset > log.highest_remote_offset
    )
    assert 6000 <= total < 6000 + 2000
    assert log.log_start_offset == tier.stored()[0]


async def test_deleted_records_go_from_the_store(tier):
    log = await tier.store_all()
    second, third = tier.stored()[1:3]
    log.delete_records_before(third - 1)
    await tier.rounds(1)
    assert tier.stored()[0] == second
    assert log.log_start_offset == third - 1


async def test_deletion_that_fails_is_tried_again(tier):
    log = await tier.store_all()
    count = len(tier.stored())
    log.delete_records_before(log.local_log_start_offset)
    tier.store.failing = {"delete"}
    await tier.rounds(1)
    assert len(tier.stored()) == count
    tier.store.failing = set()
    await tier.rounds(1)
    assert tier.stored() == []


# --- topics ---------------------------------------------------------------------------------------------------------


async def delete(tier):
    topic = DeleteTopicsRequest.DeleteTopicState(name="t")
    await tier.asked(DeleteTopicsRequest(topics=[topic], timeout_ms=1000), 6)


async def until(condition):
    with trio.fail_after(10):
        while not condition():
            await trio.sleep(0.02)


async def test_deleted_topic_takes_its_segments_along(tier):
    await tier.store_all()
    await delete(tier)
    await until(lambda: tier.stored() == [])
    await until(lambda: not tier.tiered.metadata.partitions)


async def test_deletion_of_a_topic_is_resumed_after_a_restart(tmp_path):
    async with tiered_broker(tmp_path) as tier:
        await tier.store_all()
        tier.store.failing = {"delete"}
        await delete(tier)
        await until(lambda: tier.tiered.metadata.deleting)
    async with tiered_broker(tmp_path) as tier:
        await until(lambda: tier.stored() == [])


async def test_topic_deleted_after_a_cut_off_copy_leaves_nothing(tmp_path):
    with pytest.RaisesGroup(KilledError, flatten_subgroups=True):
        async with tiered_broker(tmp_path) as tier:
            await tier.make()
            tier.append(30)
            tier.store.killing = {"copied"}
            await tier.rounds(1)
    async with tiered_broker(tmp_path, held={"copy", "delete"}) as tier:
        await delete(tier)
        assert len(tier.stored()) == 1
        tier.store.failing = set()
        await until(lambda: tier.stored() == [])
        await until(lambda: not tier.tiered.metadata.partitions)


async def test_switched_off_topic_begins_where_its_local_log_does(tier):
    log = await tier.store_all()
    assert await alter(tier, remote_storage_enable="false") != 0
    local = log.local_log_start_offset
    assert await alter(tier, remote_storage_enable="false", remote_log_delete_on_disable="true") == 0
    assert (log.log_start_offset, log.highest_remote_offset) == (local, -1)
    await until(lambda: tier.stored() == [])


async def test_topic_switched_on_again_is_stored_from_its_start(tmp_path):
    async with tiered_broker(tmp_path) as tier:
        await tier.store_all(count=60, local_retention_bytes="5000")
        await alter(tier, remote_storage_enable="false", remote_log_delete_on_disable="true")
        await until(lambda: tier.stored() == [])
    async with tiered_broker(tmp_path) as tier:
        log = tier.log()
        start = log.log_start_offset
        assert await alter(tier, remote_storage_enable="true") == 0
        await tier.rounds()
        assert tier.stored()[0] == start == log.log_start_offset


async def test_copying_stops_where_it_is_disabled(tier):
    log = await tier.store_all()
    stored = tier.stored()
    assert await alter(tier, remote_log_copy_disable="true", local_retention_bytes="-2") == 0
    tier.append(30)
    await tier.rounds()
    assert tier.stored() == stored
    assert log.log_start_offset == 0
    assert len(log.segments) > 4


# --- what is missing ------------------------------------------------------------------------------------------------


async def test_missing_snapshot_of_producers_is_made_again(tier):
    log = await tier.make()
    for number in range(30):
        tier.append(1, producer_id=7, producer_epoch=0, base_sequence=number)
    second = log.segments[1].base_offset
    snapshot = Path(log.store.snapshots.path(second))
    before = snapshot.read_bytes()
    log.store.snapshots.remove([second])
    await tier.rounds()
    assert len(tier.stored()) > 4
    (stored,) = [path for path in tier.directory.rglob("*.snapshot") if path.name.startswith("0" * 20)]
    assert stored.read_bytes() == before


async def test_broker_refuses_snapshots_while_it_has_tiered_storage(tier):
    with pytest.raises(SnapshotError, match="tiered storage"):
        await Snapshots([str(tier.directory)]).take("before", tier.asked.services)


async def test_local_retention_of_all_topics_is_within_the_whole(tier):
    async def set_for_all(**settings):
        configs = [
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=name.replace("_", "."), config_operation=0, value=value
            )
            for name, value in settings.items()
        ]
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(4, "", configs)
        answer = await tier.asked(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        return answer.responses[0]

    refused = await set_for_all(log_local_retention_bytes="11", log_retention_bytes="10")
    assert "Value must not be more than retention.bytes" in refused.error_message
    assert (await set_for_all(log_local_retention_bytes="10", log_retention_bytes="10")).error_code == 0
    assert (await set_for_all(remote_log_reader_threads="21")).error_code != 0


def test_broker_without_tiered_storage_imports_nothing_of_it():
    program = (
        "import sys, barnabas.broker.assembly, barnabas.handlers.fetch, barnabas.handlers.list_offsets\n"
        "import barnabas.log.manager, barnabas.metrics.of_broker\n"
        "print([name for name in sys.modules if 'tier' in name and 'tables' not in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
