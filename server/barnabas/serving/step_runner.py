"""Runs steps of long work, interleaved with other work.

The rule: short work is done directly; work of several steps checks the loop's budget after each; work in libraries runs
in a thread. The bytes of such work are counted in lanes by size: each lane has a limit, first come, first served, and
small work never waits for large.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

import trio

from barnabas.environment import Threads
from barnabas.records.codecs.pieces import LARGE_BYTES, Large
from barnabas.records.compression import MEDIUM_BYTES, SMALL_BYTES
from barnabas.records.steps import Reserve, Step, Steps, Work
from barnabas.serving.loop_budget import LoopBudget

T = TypeVar("T")

LANES = ((SMALL_BYTES, 48), (MEDIUM_BYTES, 6), (1 << 62, 1))
"""Up to how many bytes each, and how many at a time: 48 MiB, 48 MiB, and one that may decompress to 128 MiB."""


class StepRunner:
    """Runs the steps of long work."""

    def __init__(self, budget: LoopBudget, threads: Threads) -> None:
        self._budget = budget
        self._threads = threads
        self._lanes = [(bytes_max, trio.Semaphore(count)) for bytes_max, count in LANES]
        self._limiter = trio.CapacityLimiter(max(1, (os.cpu_count() or 2) - 1))

    async def run(self, steps: Steps[T]) -> T:
        """Go through all steps; returns their result, raises their error. Waits only if there are several."""
        try:
            step = next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        return await self.resume(steps, step)

    async def resume(self, steps: Steps[T], step: Step) -> T:
        """Run all steps after `step`, the first one, which the caller has run to detect whether more follow."""
        lane: trio.Semaphore | None = None
        large: Large | None = None
        try:
            while True:
                if step is None:
                    await self._budget.checkpoint()
                    step = next(steps)
                elif isinstance(step, Work):
                    done: list[Any] = []
                    try:
                        done.append(await self._threads.run(step.call, limiter=self._limiter))
                    except Exception as error:
                        step = steps.throw(error)
                    else:
                        if type(done[0]) is bytes and len(done[0]) > LARGE_BYTES:
                            large = Large(done[0])
                        step = steps.send(done.pop())  # nothing here keeps it
                else:
                    if lane is not None:
                        lane.release()
                        lane = None
                    lane = await self._enter(step)
                    step = next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            steps.close()
            try:
                if large is not None:
                    await self._threads.run(large.give_back, limiter=self._limiter)
            finally:
                if lane is not None:
                    lane.release()

    async def _enter(self, reserve: Reserve) -> trio.Semaphore:
        lane = next(lane for bytes_max, lane in self._lanes if reserve.bytes_max <= bytes_max)
        try:
            lane.acquire_nowait()
        except trio.WouldBlock:
            await lane.acquire()
        return lane
