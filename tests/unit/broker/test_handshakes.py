"""TLS handshakes: how many at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio
import trio.testing

from barnabas.serving.channel import HANDSHAKES_MAX, Handshakes

T = TypeVar("T")


class SlowThreads:
    """Threads with work that is done when the test says so; in which order it began is kept."""

    def __init__(self) -> None:
        self.begun: list[Callable[[], object]] = []
        self.may_end = trio.Semaphore(0)

    async def run(self, work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None) -> T:
        assert limiter is not None
        async with limiter:
            self.begun.append(work)
            await self.may_end.acquire()
            return work()

    def check_cancelled(self) -> None:
        """Never."""


async def test_few_are_at_work_and_the_others_wait_for_their_turn() -> None:
    threads = SlowThreads()
    handshakes = Handshakes(threads)
    done: list[int] = []
    steps = [lambda number=number: done.append(number) for number in range(20)]
    async with trio.open_nursery() as nursery:
        for step in steps:
            nursery.start_soon(handshakes.run, step)
            await trio.testing.wait_all_tasks_blocked()
        assert threads.begun == steps[:HANDSHAKES_MAX]
        for number in range(len(steps)):
            threads.may_end.release()
            await trio.testing.wait_all_tasks_blocked()
            assert threads.begun == steps[: HANDSHAKES_MAX + number + 1]
    assert done == list(range(20))
