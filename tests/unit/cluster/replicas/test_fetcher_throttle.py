"""Followers that are throttled: those in sync go on, those out of sync wait, and what ends being in sync."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

from barnabas.cluster.replicas.fetching import ReplicaFetchers
from barnabas.cluster.replicas.replica import Replica
from barnabas.wire.generated.errors import ErrorCode
from tests.support.fetching import ME, PARTITIONS, Follower, Leader


class Throttle:
    """Holds replicas as the test says, and notes what was used."""

    def __init__(self) -> None:
        self.is_held = False
        self.uses: list[tuple[int, int]] = []

    def holds(self, replica: Replica) -> bool:
        return self.is_held

    def used(self, replica: Replica, size: int) -> None:
        self.uses.append((replica.index, size))


async def following(throttle: Throttle, **leader: Any) -> tuple[Leader, Follower]:
    there = Leader(**leader)
    follower = Follower(there, **{"replica.fetch.backoff.ms": "100", "replica.fetch.wait.max.ms": "200"})
    parts = replace(follower.fetchers._parts, throttle=throttle)
    follower.fetchers = ReplicaFetchers(ME, parts, lambda: 22)
    for index in range(PARTITIONS):
        there.append(index, b"x")
    await follower.follow()
    return there, follower


async def test_what_is_fetched_is_counted_and_nothing_is_not(autojump_clock: Any) -> None:
    throttle = Throttle()
    leader, follower = await following(throttle)
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))
        await trio.sleep(1)
    assert sorted(throttle.uses) == [(index, len(leader.logs[index][0])) for index in range(PARTITIONS)]


async def test_who_is_out_of_sync_waits_and_is_looked_at_again_soon(autojump_clock: Any) -> None:
    throttle = Throttle()
    throttle.is_held = True
    leader, follower = await following(throttle)
    async with follower.fetching():
        await trio.sleep(3)
        assert leader.asked == []
        throttle.is_held = False
        assert await follower.until(lambda: follower.has(leader)) < 1


async def away(leader: Leader) -> None:
    leader.is_away = True
    await trio.sleep(1)
    leader.is_away = False


async def answers_an_error(leader: Leader) -> None:
    leader.errors = dict.fromkeys(range(PARTITIONS), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await trio.sleep(1)
    leader.errors = {}


async def sends_damage(leader: Leader) -> None:
    leader.damage = lambda data: data[:-1] + bytes([data[-1] ^ 1])
    leader.append(0, b"y")
    await trio.sleep(0.25)


@pytest.mark.parametrize(
    ("trouble", "count"), [(away, PARTITIONS), (answers_an_error, PARTITIONS), (sends_damage, 1)]
)
async def test_who_is_in_sync_goes_on_until_there_is_trouble(
    trouble: Callable[[Leader], Any], count: int, autojump_clock: Any
) -> None:
    throttle = Throttle()
    leader, follower = await following(throttle)
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))
        throttle.is_held = True
        for index in range(PARTITIONS):
            leader.append(index, b"more")
        await follower.until(lambda: follower.has(leader))
        await trouble(leader)
        before = [follower.of(index).log.log_end_offset for index in range(PARTITIONS)]
        for index in range(PARTITIONS):
            leader.append(index, b"last")
        await trio.sleep(2)
        after = [follower.of(index).log.log_end_offset for index in range(PARTITIONS)]
        assert sum(one == other for one, other in zip(before, after, strict=True)) == count
        throttle.is_held = False
        await follower.until(lambda: follower.has(leader))


async def test_who_has_diverged_is_out_of_sync(autojump_clock: Any) -> None:
    throttle = Throttle()
    leader, follower = await following(throttle)
    async with follower.fetching():
        await follower.until(lambda: follower.has(leader))
        throttle.is_held = True
        leader.answer_epochs = {0: (leader.epoch, 0)}
        await follower.until(lambda: follower.of(0).log.log_end_offset == 0)
        leader.answer_epochs = {}
        await trio.sleep(2)
        assert follower.of(0).log.log_end_offset == 0
        throttle.is_held = False
        await follower.until(lambda: follower.has(leader))
