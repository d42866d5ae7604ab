"""Locks of share partitions that end: written down, or gone with a topic that was deleted."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from barnabas.cluster.metadata.changes import TopicDeleted
from barnabas.coordinators.share.acknowledgement import Acknowledgement, Verdict
from barnabas.coordinators.share.acquisition import AcquireRequest
from barnabas.coordinators.share.partitions import SharePartitions
from barnabas.coordinators.share.records import ShareState
from barnabas.coordinators.share.settings import ShareSettings
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.peers import ME, cluster, topic

KEY = ("g", b"t".rjust(16), 0)
OTHER = ("other", b"t".rjust(16), 0)
SETTINGS = ShareSettings(record_lock_ms=1000)
WALL_AHEAD_MS = 1_700_000_000_000
"""Locks end by the monotonic clock; the wall clock is far ahead of it."""


class States:
    """Stands for the share coordinator: `meanwhile` happens before what is written is refused, if it is."""

    def __init__(self) -> None:
        self.written = 0
        self.times: list[tuple[str, int]] = []
        """Groups with locks that have ended, and when in ms."""
        self.meanwhile = None

    async def read_state(self, key, leader_epoch):
        return ShareState(start_offset=0, leader_epoch=leader_epoch)

    async def write_state(self, key, write):
        self.written += 1
        self.times.append((key[0], round(trio.current_time() * 1000)))
        if self.meanwhile is not None:
            await self.meanwhile()
            raise RequestError(ErrorCode.INVALID_REQUEST, f"{key[0]!r} has no state of this partition yet")


class Locks:
    """Share partitions of which one has records that are acquired for a second."""

    def __init__(self) -> None:
        self.metadata = cluster(topic("t", ME))
        self.replica = SimpleNamespace(topic="t", index=0, leader_epoch=3, closed=False)
        self.states = States()

        def now_ms() -> int:
            return int(trio.current_time() * 1000)

        def wall_ms() -> int:
            return now_ms() + WALL_AHEAD_MS

        replicas = SimpleNamespace(leader=lambda *_: self.replica)
        self.partitions = SharePartitions(
            self.metadata,
            replicas,
            self.states,
            None,
            wall_ms,
            now_ms,
            SETTINGS,  # type: ignore[arg-type]
        )
        self.now_ms = now_ms

    async def acquire(self, key=KEY, first=0):
        shared = await self.partitions.load(key)
        records = shared.records
        assert records.acquire(AcquireRequest("member", 10), [(first, first + 9)], self.now_ms())
        self.partitions.lock_ends_at(records.lock_due_ms)
        return shared

    async def delete(self) -> None:
        await self.metadata.apply([TopicDeleted("t")])


@pytest.fixture
async def locks(caplog):
    caplog.set_level(logging.INFO)
    world = Locks()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.partitions.run)
        await world.acquire()
        yield world
        nursery.cancel_scope.cancel()


async def test_what_has_ended_is_written(autojump_clock, locks, caplog):
    await trio.sleep(2)
    assert locks.states.written == 1
    assert "t-0" not in caplog.text


async def test_after_the_topic_was_deleted_nothing_is_written(autojump_clock, locks, caplog):
    locks.replica.closed = True
    await locks.delete()
    await trio.sleep(2)
    assert locks.states.written == 0
    assert locks.partitions.get(KEY) is None
    assert "t-0" not in caplog.text


async def test_topic_deletion_during_the_write_is_logged(autojump_clock, locks, caplog):
    locks.states.meanwhile = locks.delete
    await trio.sleep(2)
    assert locks.states.written == 1
    assert "locks in t-0 have ended with the topic, which was deleted" in caplog.text
    assert "not written down" not in caplog.text


async def test_any_other_refusal_is_warned_of(autojump_clock, locks, caplog):
    locks.states.meanwhile = trio.lowlevel.checkpoint
    await trio.sleep(2)
    assert "locks that have ended in t-0 are not written down: 'g' has no state" in caplog.text


# --- when -----------------------------------------------------------------------------------------------------------


async def test_each_lock_ends_at_its_own_time_whoever_came_first(autojump_clock, locks):
    began = locks.now_ms()
    await trio.sleep(0.4)
    other = await locks.acquire(OTHER)
    await trio.sleep(0.3)
    await locks.acquire(KEY, 10)
    await trio.sleep(5)
    times = [(group, ms - began) for group, ms in locks.states.times]
    assert times == [("g", 1000), ("other", 1400), ("g", 1700)]
    assert other.records.lock_due_ms is None
    assert locks.partitions.get(OTHER) is other


async def test_ended_lock_wakes_fetches_of_its_partition(autojump_clock, locks):
    mine, others = await locks.partitions.load(KEY), await locks.partitions.load(OTHER)
    mine.waiting.add(free := trio.Event())
    others.waiting.add(not_free := trio.Event())
    await trio.sleep(0.9)
    assert not free.is_set()
    await trio.sleep(0.2)
    assert (free.is_set(), not_free.is_set()) == (True, False)


async def test_a_lock_goes_on_when_what_was_decided_cannot_be_written(autojump_clock, locks):
    """It is the member's again, and ends at its time."""
    locks.states.meanwhile = trio.lowlevel.checkpoint
    shared = await locks.partitions.load(KEY)
    began = locks.now_ms()
    await trio.sleep(0.5)
    with pytest.raises(RequestError):
        await locks.partitions.acknowledge(KEY, "member", [Acknowledgement(0, 9, (Verdict.ACCEPT,))])
    locks.states.meanwhile = None
    assert shared.records.lock_due_ms == began + 1000
    await trio.sleep(5)
    assert [ms - began for _, ms in locks.states.times] == [500, 1000]
    assert shared.records.acquire(AcquireRequest("n", 10), [(0, 9)], 0) == [(0, 9, 2)]


async def test_lock_ending_during_a_write_ends_after_its_failure(autojump_clock, locks):
    async def slowly() -> None:
        await trio.sleep(3)

    locks.states.meanwhile = slowly
    began = locks.now_ms()
    await trio.sleep(0.5)
    with pytest.raises(RequestError):
        await locks.partitions.acknowledge(KEY, "member", [Acknowledgement(0, 9, (Verdict.ACCEPT,))])
    locks.states.meanwhile = None
    await trio.sleep(5)
    assert [ms - began for _, ms in locks.states.times] == [500, 3500]
