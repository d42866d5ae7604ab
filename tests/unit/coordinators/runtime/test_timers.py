"""Timers of a shard: when each is due, after it was put off, moved earlier, cancelled, or set with many others."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.coordinators.runtime.shard import Shard, no_checkpoint
from barnabas.coordinators.runtime.timers import TIMERS_PER_TURN, Timers

from .test_loading import Counter

WALL_MS = 1_700_000_000_000


def a_shard() -> Shard[Counter]:
    return Shard(0, 0, Counter(), iter(()))


class World:
    """Timers of one shard, with two clocks that are set by hand: the wall clock is some way ahead of the steady one."""

    def __init__(self) -> None:
        self.steady_ms = 5_000
        self.ahead_ms = WALL_MS
        self.shard = a_shard()
        self.timers: Timers[Any] = Timers(
            "t",
            no_checkpoint,
            wall_ms=lambda: self.steady_ms + self.ahead_ms,
            steady_ms=lambda: self.steady_ms,
        )

    def set(self, key: str, after_ms: int | None) -> None:
        at_ms = None if after_ms is None else self.steady_ms + self.ahead_ms + after_ms
        self.timers.set(self.shard, {key: at_ms})

    def due(self) -> list[object]:
        due = list(self.timers.due())
        assert all(shard is self.shard for shard, _ in due)
        return [key for _, key in due]

    def times(self, until_ms: int) -> list[tuple[int, object]]:
        """The timers that are due in each millisecond from now on."""
        due = []
        for ms in range(until_ms + 1):
            due += [(ms, key) for key in self.due()]
            self.steady_ms += 1
        return due


@pytest.fixture
def world() -> World:
    return World()


def test_postponed_timer_has_one_heap_entry(world):
    heap = world.timers._heap
    for after_ms in (20, 20, 20, 50, 50, 30):
        world.set("a", after_ms)
        assert len(heap) == 1
    assert world.times(100) == [(30, "a")]
    assert heap == []


def test_cancelled_timer_can_be_set_again(world):
    world.set("a", 20)
    world.set("a", None)
    world.set("never set", None)
    assert world.times(30) == []
    world.set("a", 40)
    world.set("a", None)
    world.set("a", 60)
    assert world.times(100) == [(60, "a")]


def test_timer_set_during_expiry_is_due_next_time(world):
    world.set("a", 0)
    world.set("b", 0)
    seen = []
    for _, key in world.timers.due():
        seen.append(key)
        world.set("a", -5)
    assert seen == ["a", "b"]
    assert world.timers.is_due()
    assert world.due() == ["a"]
    assert world.due() == []


@pytest.mark.parametrize("set_by_ms", [-3_600_000, 3_600_000])
def test_wall_clock_change_moves_no_timer(world, set_by_ms):
    world.set("a", 20)
    world.ahead_ms += set_by_ms
    world.set("b", 30)
    assert world.times(100) == [(20, "a"), (30, "b")]


def test_the_timers_of_some_kinds_are_put_off_together(world):
    for key in (("session", "g", "a"), ("session", "g", "b"), ("join", "g"), "session"):
        world.set(key, 20)
    world.timers.postpone(world.shard, {"session"}, 15)
    assert sorted(world.times(100), key=str) == [
        (20, "session"), (20, ("join", "g")), (35, ("session", "g", "a")), (35, ("session", "g", "b")),
    ]  # fmt: skip


def test_many_timers_are_left_to_the_caller(world):
    at_ms = WALL_MS + world.steady_ms + 10
    few = dict.fromkeys(range(TIMERS_PER_TURN), at_ms)
    assert not world.timers.set_decided(world.shard, few)
    assert world.shard.timers.keys() == few.keys()
    many = {f"m{number}": at_ms for number in range(TIMERS_PER_TURN + 1)}
    assert world.timers.set_decided(world.shard, many)
    assert world.shard.timers.keys() == few.keys()
    assert not world.timers.set_decided(world.shard, {"m0": None, "new": at_ms}), "somebody does so already"
    assert "new" in world.shard.timers
    world.timers.set_rest(world.shard)
    assert world.shard.timers.keys() == (few.keys() | many.keys() | {"new"}) - {"m0"}


async def test_earlier_timer_wakes_the_waiting_task(autojump_clock):
    def now_ms() -> int:
        return round(trio.current_time() * 1000)

    timers: Timers[Any] = Timers("t", no_checkpoint, wall_ms=now_ms, steady_ms=now_ms)
    shard = a_shard()
    start_ms = now_ms()
    timers.set(shard, {"a": start_ms + 10_000, "b": start_ms + 20_000})
    woken: list[int] = []

    async def wait() -> None:
        await timers.wait_due()
        woken.append(now_ms() - start_ms)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(2)
        timers.set(shard, {"c": start_ms + 15_000})
        await trio.sleep(2)
        assert woken == []
        timers.set(shard, {"b": start_ms + 5_000})
        await trio.testing.wait_all_tasks_blocked()
        assert woken == [4_000]
    await wait()
    assert woken == [4_000, 5_000]
    assert [key for _, key in timers.due()] == ["b"]
    await wait()
    assert woken[-1] == 10_000
