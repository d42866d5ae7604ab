"""A clock that is advanced, stopped and driven faster."""

from __future__ import annotations

import math

import pytest
import trio
import trio.testing

from barnabas.tools.control.clock import VirtualClock


class System:
    """The system's clock, by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ns(self) -> int:
        return int((self.now_s + 1_000_000) * 1e9)


@pytest.fixture
def system() -> System:
    return System()


@pytest.fixture
def clock(system: System) -> VirtualClock:
    return VirtualClock(monotonic=system.monotonic, wall_ns=system.wall_ns)


def test_it_runs_as_the_systems_does(clock: VirtualClock, system: System) -> None:
    assert clock.wall_clock_ms() == 1_000_100_000
    system.now_s += 5
    assert clock.current_time() == clock.monotonic() == 105
    assert clock.wall_clock_ms() == 1_000_105_000
    assert clock.ahead_ms == 0
    assert clock.deadline_to_sleep_time(107) == 2


def test_time_passes_at_once(clock: VirtualClock, system: System) -> None:
    clock.advance(3600)
    system.now_s += 1
    assert clock.current_time() == 3701
    assert clock.ahead_ms == 3_600_000
    assert clock.deadline_to_sleep_time(3700) == 0
    assert clock.deadline_to_sleep_time(math.inf) == math.inf


def test_it_stands_still_and_goes_on(clock: VirtualClock, system: System) -> None:
    clock.freeze()
    system.now_s += 50
    assert clock.current_time() == 100
    assert clock.deadline_to_sleep_time(101) == math.inf
    assert clock.deadline_to_sleep_time(100) == 0
    clock.advance(2)
    assert clock.current_time() == 102
    clock.resume()
    system.now_s += 1
    assert clock.current_time() == 103
    assert clock.ahead_ms == -48_000


@pytest.mark.parametrize("factor", [0.001, 1.0, 50.0])
@pytest.mark.parametrize("is_frozen", [False, True])
def test_time_passes_at_least_as_in_reality_for_an_end(
    clock: VirtualClock, system: System, factor: float, is_frozen: bool
) -> None:
    clock.run_at(factor)
    if is_frozen:
        clock.freeze()
    with clock.passing():
        system.now_s += 2
        speed = 1 if is_frozen else max(factor, 1)
        assert clock.current_time() == 100 + 2 * speed
        assert clock.deadline_to_sleep_time(clock.current_time() + 10 * speed) == pytest.approx(10)
    at = clock.current_time()
    system.now_s += 10
    assert clock.current_time() == pytest.approx(at if is_frozen else at + 10 * factor)
    assert (clock.is_frozen, clock.factor) == (is_frozen, factor)


def test_several_ends_need_time_until_the_last(clock: VirtualClock, system: System) -> None:
    clock.freeze()
    with clock.passing():
        with clock.passing():
            system.now_s += 1
        system.now_s += 1
    system.now_s += 1
    assert clock.current_time() == 102


def test_a_clock_that_is_let_go_runs_as_the_systems(clock: VirtualClock, system: System) -> None:
    clock.run_at(0.01)
    clock.freeze()
    clock.let_go()
    system.now_s += 3
    assert (clock.current_time(), clock.is_frozen, clock.factor) == (103, False, 1.0)


def test_it_runs_faster(clock: VirtualClock, system: System) -> None:
    clock.run_at(60)
    system.now_s += 2
    assert clock.current_time() == 220
    assert clock.deadline_to_sleep_time(280) == 1
    clock.run_at(1)
    system.now_s += 1
    assert clock.current_time() == 221


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf])
def test_it_does_not_go_back(clock: VirtualClock, seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        clock.advance(seconds)
    with pytest.raises(ValueError, match="factor"):
        clock.run_at(seconds)


def test_tasks_wake_when_it_is_advanced() -> None:
    clock = VirtualClock()
    clock.freeze()
    woken = []

    async def sleep(seconds: float) -> None:
        await trio.sleep(seconds)
        woken.append(seconds)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleep, 3600)
            nursery.start_soon(sleep, 7200)
            await trio.testing.wait_all_tasks_blocked()
            clock.advance(3600)
            await trio.testing.wait_all_tasks_blocked()
            assert woken == [3600]
            clock.advance(3600)

    trio.run(main, clock=clock)
    assert woken == [3600, 7200]
