"""Locks of share partitions that end: written down, or gone with a topic that was deleted."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from barnabas.cluster.changes import TopicDeleted
from barnabas.coordination.share_partitions import SharePartitions
from barnabas.errors import RequestError
from barnabas.share.acquisition import AcquireRequest
from barnabas.share.records import ShareState
from barnabas.share.settings import ShareSettings
from barnabas.wire.generated.errors import ErrorCode

from .test_cluster_ports import ME, cluster, topic

KEY = ("g", b"t".rjust(16), 0)
SETTINGS = ShareSettings(record_lock_ms=1000)


class States:
    """Stands for the share coordinator: `meanwhile` happens before what is written is refused, if it is."""

    def __init__(self) -> None:
        self.written = 0
        self.meanwhile = None

    async def read(self, key, leader_epoch):
        return ShareState(start_offset=0, leader_epoch=leader_epoch)

    async def write(self, key, write):
        self.written += 1
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

        replicas = SimpleNamespace(leader=lambda *_: self.replica)
        self.partitions = SharePartitions(
            self.metadata,
            replicas,
            self.states,
            None,
            now_ms,
            now_ms,
            SETTINGS,  # type: ignore[arg-type]
        )
        self.now_ms = now_ms

    async def acquire(self) -> None:
        shared = await self.partitions.load(KEY)
        assert shared.records.acquire(AcquireRequest("member", 10), [(0, 9)], self.now_ms())
        self.partitions.lock_ends_at(shared.records.lock_due_ms)

    async def delete(self) -> None:
        await self.metadata.apply([TopicDeleted("t")])


@pytest.fixture
async def locks(autojump_clock, caplog):
    caplog.set_level(logging.INFO)
    made = Locks()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.partitions.run)
        await made.acquire()
        yield made
        nursery.cancel_scope.cancel()


async def test_what_has_ended_is_written(locks, caplog):
    await trio.sleep(2)
    assert locks.states.written == 1
    assert "t-0" not in caplog.text


async def test_after_the_topic_was_deleted_nothing_is_written(locks, caplog):
    locks.replica.closed = True
    await locks.delete()
    await trio.sleep(2)
    assert locks.states.written == 0
    assert locks.partitions.get(KEY) is None
    assert "t-0" not in caplog.text


async def test_a_topic_that_is_deleted_while_they_are_written_is_said_to_be(locks, caplog):
    locks.states.meanwhile = locks.delete
    await trio.sleep(2)
    assert locks.states.written == 1
    assert "locks in t-0 have ended with the topic, which was deleted" in caplog.text
    assert "not written down" not in caplog.text


async def test_any_other_refusal_is_warned_of(locks, caplog):
    locks.states.meanwhile = trio.lowlevel.checkpoint
    await trio.sleep(2)
    assert "locks that have ended in t-0 are not written down: 'g' has no state" in caplog.text
