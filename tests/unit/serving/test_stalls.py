"""Long turns of the event loop: their origin, and those for which the machine is to blame."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace

import pytest
import trio

from barnabas.serving.log_limit import LogLimit
from barnabas.serving.loop_budget import CPU_ASKED_SECONDS, LoopBudget, Stall
from barnabas.serving.stalls import BACKGROUND, COUNTED_SECONDS, MACHINE, StallMeter

METADATA = 3


class Request(SimpleNamespace):
    """Stands for a request that is in hand."""

    def __str__(self) -> str:
        return "the request"


@pytest.fixture
async def meter(caplog):
    """A meter that knows the running task as a connection with a request."""
    caplog.set_level(logging.WARNING)
    meter = StallMeter(LogLimit())
    meter.connections[trio.lowlevel.current_task()] = SimpleNamespace(request=Request(api_key=METADATA))  # type: ignore[assignment]
    return meter


def stall(seconds: float, cpu_seconds: float, task: trio.lowlevel.Task | None) -> Stall:
    return Stall(seconds, cpu_seconds, 4, seconds * 0.9, task)


async def test_a_turn_that_took_the_processor_is_its_requests(meter, caplog):
    meter.connections[trio.lowlevel.current_task()] = SimpleNamespace(request=Request(api_key=METADATA))
    meter.long_turn(stall(0.3, 0.29, trio.lowlevel.current_task()))
    assert meter.counts == {"Metadata": 1}
    assert caplog.messages == [
        "the event loop was held up for 300 ms in 4 steps, the longest of 270 ms: the request"
    ]


async def test_a_turn_without_a_processor_is_the_machines(meter, caplog):
    meter.connections[trio.lowlevel.current_task()] = SimpleNamespace(request=Request(api_key=METADATA))
    meter.long_turn(stall(0.3, 0.012, trio.lowlevel.current_task()))
    assert meter.counts == {MACHINE: 1}
    assert caplog.messages == [
        "the event loop was held up for 300 ms, and had a processor for 12 ms of these: the machine is busy, or a disk is "
        "slow (in 4 steps, the longest of 270 ms: the request)"
    ]


@pytest.mark.parametrize(
    ("cpu_seconds", "name"), [(0.0, MACHINE), (0.019, MACHINE), (0.02, BACKGROUND), (0.04, BACKGROUND)]
)
async def test_half_of_a_turn_decides_whose_it_is(meter, caplog, cpu_seconds, name):
    meter.long_turn(stall(0.04, cpu_seconds, None))
    meter.long_turn(stall(COUNTED_SECONDS / 2, 0.0, None))
    assert (meter.counts, caplog.messages) == ({name: 1}, [])


class Clock:
    """A clock that is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("before_seconds", [0.0, CPU_ASKED_SECONDS / 2, CPU_ASKED_SECONDS, 1.0])
async def test_cpu_time_of_a_turn_is_never_too_little(before_seconds):
    clock, cpu = Clock(), Clock()
    stalls: list[Stall] = []
    with LoopBudget(clock=clock, cpu_clock=cpu) as budget:
        budget.on_long_turn = stalls.append
        await trio.lowlevel.checkpoint()
        clock.now += before_seconds
        cpu.now += before_seconds
        await trio.lowlevel.checkpoint()
        stalls.clear()
        clock.now += 0.3
        cpu.now += 0.05
        await trio.lowlevel.checkpoint()
    [told] = stalls
    assert 0.05 <= round(told.cpu_seconds, 9) <= 0.05 + CPU_ASKED_SECONDS
    assert round(told.seconds, 9) == 0.3


async def test_without_a_clock_of_the_processor_all_time_counts():
    clock = Clock()
    stalls: list[Stall] = []
    with LoopBudget(clock=clock) as budget:
        budget.on_long_turn = stalls.append
        clock.now += 0.3
        await trio.lowlevel.checkpoint()
    assert [(round(told.seconds, 9), round(told.cpu_seconds, 9)) for told in stalls] == [(0.3, 0.3)]


async def test_a_thread_that_sleeps_has_no_processor():
    stalls: list[Stall] = []
    with LoopBudget(clock=time.monotonic, cpu_clock=time.thread_time) as budget:
        budget.on_long_turn = stalls.append
        time.sleep(0.05)
        await trio.lowlevel.checkpoint()
    assert stalls[0].seconds >= 0.05
    assert stalls[0].cpu_seconds < stalls[0].seconds / 2
