"""Records of remote segments where other brokers lead `__remote_log_metadata`: read, written, waited for (KIP-405)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from barnabas.cluster.tiering.metadata import RefusedRecordError
from barnabas.cluster.tiering.metadata_log import RETRY_SECONDS
from barnabas.errors import RequestError
from barnabas.tiered.metadata import PartitionDelete, PartitionDeleteState, encode
from barnabas.tiered.segment import SegmentState
from barnabas.wire.generated.errors import ErrorCode
from tests.support.metadata_leaders import MetadataLeader
from tests.support.peers import THREE
from tests.support.remote_segments import PARTITION, remote_segment, update

SEGMENT = remote_segment()
STARTED, FINISHED, DELETING, DELETED = SegmentState
NEXT = remote_segment(100, 199, number=2)


@asynccontextmanager
async def followed(leader: MetadataLeader, *, is_ready: bool = True) -> AsyncIterator[None]:
    """A broker that follows the records of `PARTITION`."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader.state.run)
        leader.state.follow(PARTITION)
        if is_ready:
            await until(lambda: leader.state.is_ready_for(PARTITION))
        yield
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(100):
        while not condition():
            await trio.sleep(0.01)


def states(leader: MetadataLeader) -> list[SegmentState]:
    return [segment.state for segment in leader.state.of(PARTITION).segments()]


# --- following --------------------------------------------------------------------------------------------------------


async def test_partition_is_ready_once_all_was_read(autojump_clock):
    leader = MetadataLeader()
    leader.write(SEGMENT, update(SEGMENT, FINISHED))
    leader.fetch_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    async with followed(leader, is_ready=False):
        await trio.sleep(5)
        with pytest.raises(RequestError) as refused:
            leader.state.check_ready(PARTITION)
        assert refused.value.code == ErrorCode.REPLICA_NOT_AVAILABLE
        leader.fetch_error = 0
        await until(lambda: leader.state.is_ready_for(PARTITION))
        assert states(leader) == [FINISHED]


async def test_only_committed_records_count(autojump_clock):
    leader = MetadataLeader()
    leader.write(SEGMENT, update(SEGMENT, FINISHED))
    leader.hidden = 1
    async with followed(leader):
        assert states(leader) == [STARTED]
        leader.hidden = 0
        await until(lambda: states(leader) == [FINISHED])


async def test_new_leader_catches_up_with_all_that_is_written(autojump_clock):
    leader = MetadataLeader()
    async with followed(leader):
        leader.write(SEGMENT, update(SEGMENT, FINISHED))
        assert states(leader) == []
        await leader.state.catch_up(PARTITION)
        assert states(leader) == [FINISHED]


async def test_records_are_read_from_the_next_leader(autojump_clock):
    leader = MetadataLeader()
    leader.write(SEGMENT)
    async with followed(leader):
        await leader.elect(THREE)
        leader.write(update(SEGMENT, FINISHED))
        await until(lambda: states(leader) == [FINISHED])


async def test_log_that_another_leader_truncated_is_read_again(autojump_clock):
    leader = MetadataLeader()
    leader.write(SEGMENT, update(SEGMENT, FINISHED))
    forgotten = []
    leader.state.on_restart = forgotten.append
    async with followed(leader):
        await leader.elect(THREE)
        leader.records[1:] = []
        leader.write(NEXT, update(NEXT, FINISHED))
        await until(lambda: states(leader) == [STARTED, FINISHED])
        assert forgotten == [PARTITION]
        await until(lambda: leader.state.is_ready_for(PARTITION))


async def test_shorter_log_of_an_unclean_leader_is_read_again(autojump_clock):
    leader = MetadataLeader()
    leader.write(SEGMENT, update(SEGMENT, FINISHED))
    async with followed(leader):
        await leader.elect(THREE)
        leader.records[1:] = []
        await until(lambda: states(leader) == [STARTED])


async def test_log_that_begins_later_is_read_from_there(autojump_clock):
    leader = MetadataLeader()
    leader.start, leader.lost_offsets = 7, 3
    leader.write(SEGMENT, update(SEGMENT, FINISHED))
    async with followed(leader):
        assert states(leader) == [FINISHED]
        assert trio.current_time() >= 3 * RETRY_SECONDS, "requests that fail are repeated after a pause"


async def test_damaged_records_are_passed_over(autojump_clock):
    leader = MetadataLeader()
    leader.records = [(1, b"\xff\xff"), (1, b""), (1, encode(SEGMENT))]
    async with followed(leader):
        assert states(leader) == [STARTED]


async def test_what_is_followed_no_more_is_forgotten(autojump_clock):
    leader = MetadataLeader()
    leader.write(SEGMENT)
    async with followed(leader):
        leader.state.retain([])
        assert states(leader) == []
        assert not leader.state.is_ready_for(PARTITION)
        leader.state.retain([PARTITION])
        await until(lambda: states(leader) == [STARTED])


# --- writing ----------------------------------------------------------------------------------------------------------


async def test_write_counts_once_it_was_read_here(autojump_clock):
    leader = MetadataLeader()
    async with followed(leader):
        await leader.state.add(SEGMENT)
        assert states(leader) == [STARTED]
        finished = await leader.state.advance(SEGMENT, FINISHED, b"custom")
        (segment,) = leader.state.of(PARTITION).segments()
        assert segment == finished
        assert (segment.state, segment.custom_metadata) == (FINISHED, b"custom")
        assert leader.appends == 2


async def test_write_whose_answer_is_lost_is_done_all_the_same(autojump_clock):
    leader = MetadataLeader()
    async with followed(leader):
        await leader.state.add(SEGMENT)
        leader.lost_answers = 1
        await leader.state.advance(SEGMENT, FINISHED)
        assert states(leader) == [FINISHED]
        await leader.state.advance(SEGMENT, DELETING)
        leader.lost_answers = 1
        await leader.state.advance(SEGMENT, DELETED)
        assert states(leader) == []


async def test_record_that_is_there_twice_has_no_effect(autojump_clock):
    leader = MetadataLeader()
    finished = update(SEGMENT, FINISHED)
    leader.write(SEGMENT, SEGMENT, finished, finished, SEGMENT, update(SEGMENT, DELETING), finished)
    async with followed(leader):
        assert states(leader) == [DELETING]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
async def test_write_is_repeated_after_passing_errors(code, autojump_clock):
    leader = MetadataLeader()
    leader.append_errors = [code, code]
    async with followed(leader):
        await leader.state.add(SEGMENT)
        assert states(leader) == [STARTED]
        assert leader.appends == 3


async def test_write_is_repeated_at_the_next_leader(autojump_clock):
    leader = MetadataLeader()
    async with followed(leader):
        leader.leader = THREE  # which the image says later
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leader.state.add, SEGMENT)
            await trio.sleep(3)
            assert states(leader) == []
            await leader.elect(THREE)
        assert states(leader) == [STARTED]


async def test_write_without_rights_fails(autojump_clock):
    leader = MetadataLeader()
    leader.append_errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    async with followed(leader):
        with pytest.raises(RequestError) as refused:
            await leader.state.add(SEGMENT)
        assert refused.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_write_that_never_succeeds_ends(autojump_clock):
    leader = MetadataLeader()
    async with followed(leader):
        leader.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000
        with pytest.raises(RequestError) as refused:
            await leader.state.add(SEGMENT)
        assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT


async def test_state_that_another_broker_has_changed_is_refused(autojump_clock):
    """A former leader that finishes a copy learns that its successor has deleted it."""
    leader = MetadataLeader()
    async with followed(leader):
        await leader.state.add(SEGMENT)
        leader.write(update(SEGMENT, DELETING))
        with pytest.raises(RefusedRecordError) as refused:
            await leader.state.advance(SEGMENT, FINISHED)
        assert not refused.value.is_gone
        leader.write(update(SEGMENT, DELETED))
        with pytest.raises(RefusedRecordError) as refused:
            await leader.state.advance(SEGMENT, DELETED)
        assert refused.value.is_gone


# --- deletion of partitions -------------------------------------------------------------------------------------------


async def test_mark_of_a_deletion_ends_with_the_last_segment(autojump_clock):
    leader = MetadataLeader()
    leader.write(SEGMENT, update(SEGMENT, FINISHED))
    async with followed(leader):
        await leader.state.mark_deletion(PARTITION)
        assert PARTITION in leader.state.deleting
        leader.write(update(SEGMENT, DELETING), update(SEGMENT, DELETED))
        await until(lambda: PARTITION not in leader.state.deleting)
        assert PARTITION not in leader.state.partitions


async def test_finished_deletion_of_others_is_understood(autojump_clock):
    leader = MetadataLeader()
    mark = PartitionDelete(PARTITION, 2, 5, PartitionDeleteState.MARKED)
    leader.write(
        SEGMENT, mark, update(SEGMENT, DELETING), update(SEGMENT, DELETED),
        replace(mark, state=PartitionDeleteState.FINISHED),
    )  # fmt: skip
    async with followed(leader):
        assert PARTITION not in leader.state.deleting
        assert states(leader) == []
