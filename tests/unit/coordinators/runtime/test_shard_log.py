"""Shards append as part of a transaction or not, wait for the commit or not at all, and survive a failed append."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.coordinators.runtime.shard import Shard
from barnabas.coordinators.runtime.shard_log import NOT_REPLAYED, ShardLog
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.journals import MemoryJournal

from .test_loading import Counter, write

TIMEOUT_MS = 5_000


class World:
    """The log of one shard; notes what is replayed, and why the shard would be read again."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.replayed: list[Any] = []
        self.read_again: list[str] = []
        self.failure: Exception | None = None
        self.shard = Shard(0, 0, Counter(), iter(()))
        self.log: ShardLog[Counter] = ShardLog(
            "test", self.journal, lambda: 7, TIMEOUT_MS, replay=self.replay,
            read_again=lambda shard, why: self.read_again.append(why),
        )  # fmt: skip

    def replay(self, partition, machine, entry, *, loading):
        if self.failure is not None:
            raise self.failure
        self.replayed.append((partition, list(entry.records), entry.producer_id, loading))

    def append(self, **fields: Any) -> None:
        out = Decision()
        write(self.shard.machine, out)
        for name, value in fields.items():
            setattr(out, name, value)
        self.log.append(self.shard, out)


@pytest.fixture
def world():
    return World()


def code_of(call: Any) -> int:
    with pytest.raises(RequestError) as refused:
        call()
    return refused.value.code


@pytest.mark.parametrize(("producer", "producer_id"), [(None, -1), ((40, 3), 40)])
def test_what_is_appended_is_replayed_as_part_of_the_transaction_that_it_is_in(world, producer, producer_id):
    world.append(producer=producer)
    assert world.replayed == [(0, [(b"written", b"")], producer_id, False)]
    assert world.shard.end_offset == 1


async def test_nothing_is_waited_for_where_nothing_was_written_or_all_of_it_is_committed(world):
    def refuse(partition, end_offset):
        raise AssertionError("nobody asks the journal")

    world.journal.wait_committed = refuse
    await world.log.wait_committed(world.shard, 0)
    world.append()
    await world.log.wait_committed(world.shard, world.shard.end_offset)


@pytest.mark.parametrize("end_offset", [0, 1])
async def test_a_shard_that_is_out_of_service_says_so_to_who_waits(world, end_offset):
    """Also where nothing was in it: another coordinator may have written something since."""
    world.append()
    world.shard.failure = RequestError(ErrorCode.NOT_COORDINATOR)
    assert not world.log.is_committed(world.shard, end_offset)
    with pytest.raises(RequestError) as refused:
        await world.log.wait_committed(world.shard, end_offset)
    assert refused.value.code == ErrorCode.NOT_COORDINATOR


async def test_replicas_that_do_not_follow_are_waited_for_so_long_and_no_longer(world, autojump_clock):
    world.append()
    world.journal.commits = trio.Event()
    began = trio.current_time()
    with pytest.raises(RequestError) as refused:
        await world.log.wait_committed(world.shard, 1)
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert trio.current_time() - began == TIMEOUT_MS / 1000
    assert world.shard.committing == set()


def test_what_cannot_be_appended_and_has_changed_nothing_leaves_the_shard_as_it_is(world):
    world.journal.append_failure = RequestError(ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(RequestError):
        world.append()
    assert (world.read_again, world.replayed, world.shard.end_offset) == ([], [], 0)


@pytest.mark.parametrize(
    ("fields", "failure"),
    [
        ({"is_ahead": True}, RequestError(ErrorCode.MESSAGE_TOO_LARGE)),
        ({"replies": [(1, "answer")]}, RequestError(ErrorCode.MESSAGE_TOO_LARGE)),
        ({}, StorageError("/dir", OSError(5, "broken"))),
    ],
    ids=["ahead", "answers", "disk"],
)
def test_what_cannot_be_appended_otherwise_has_the_shard_read_again(world, fields, failure):
    world.journal.append_failure = failure
    with pytest.raises(RequestError):
        world.append(**fields)
    assert world.read_again == ["what was decided could not be written"]
    assert world.replayed == []


def test_what_cannot_be_replayed_has_the_shard_read_again(world):
    world.failure = ValueError("cannot be")
    with pytest.raises(ValueError, match="cannot be"):
        world.append()
    assert world.read_again == [NOT_REPLAYED]
    assert len(world.journal.records) == 1
