"""Long work gives way once a turn of the event loop has used up its budget."""

from itertools import pairwise

import trio

from barnabas.loop_budget import LoopBudget, Stall


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_young_turn_goes_on() -> None:
    clock = Clock()
    order = []

    async def other() -> None:
        order.append("other")

    with LoopBudget(budget_seconds=1.0, clock=clock) as budget:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            clock.now += 0.9
            assert not budget.is_used_up
            await budget.checkpoint()
            order.append("self")
    assert order == ["self", "other"]


async def test_a_turn_that_has_used_up_its_budget_lets_others_run() -> None:
    clock = Clock()
    order = []

    async def other() -> None:
        order.append("other")

    with LoopBudget(budget_seconds=1.0, clock=clock) as budget:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            for _ in range(2):  # trio draws the order of those that run in one turn
                clock.now += 1.0
                assert budget.is_used_up
                await budget.checkpoint()
                assert not budget.is_used_up
            order.append("self")
    assert order == ["other", "self"]


async def test_all_tasks_share_one_turn() -> None:
    """Whoever comes after the one that used up the budget gives way at once, so that a turn is no longer than it."""
    clock = Clock()
    pieces: list[tuple[str, float]] = []

    async def long_work(name: str, budget: LoopBudget) -> None:
        for _ in range(10):
            clock.now += 0.25
            pieces.append((name, clock.now))
            await budget.checkpoint()

    turns: list[float] = []

    class Turns(trio.abc.Instrument):
        def after_io_wait(self, timeout: float) -> None:
            turns.append(clock.now)

    with LoopBudget(budget_seconds=1.0, clock=clock) as budget:
        watch = Turns()
        trio.lowlevel.add_instrument(watch)
        async with trio.open_nursery() as nursery:
            for name in "abcd":
                nursery.start_soon(long_work, name, budget)
        trio.lowlevel.remove_instrument(watch)
    assert len(pieces) == 40
    assert max(after - before for before, after in pairwise(turns)) <= 1.0 + 4 * 0.25


async def test_without_an_instrument_others_run_once_per_budget() -> None:
    clock = Clock()
    ran = 0

    async def other() -> None:
        nonlocal ran
        while True:
            ran += 1
            await trio.lowlevel.checkpoint()

    budget = LoopBudget(budget_seconds=1.0, clock=clock)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(10):
            clock.now += 0.5
            before = ran
            await budget.checkpoint()
            assert ran == before
            clock.now += 0.5
            await budget.checkpoint()
        assert 5 <= ran <= 15  # trio draws the order of those that run in one turn
        nursery.cancel_scope.cancel()


async def test_a_long_turn_is_told_with_its_longest_step() -> None:
    clock = Clock()
    stalls: list[Stall] = []
    tasks: list[trio.lowlevel.Task] = []

    async def work(seconds: float) -> None:
        if seconds == 0.3:
            tasks.append(trio.lowlevel.current_task())
        clock.now += seconds

    with LoopBudget(clock=clock) as budget:
        budget.on_long_turn = stalls.append
        async with trio.open_nursery() as nursery:
            for seconds in (0.1, 0.3, 0.002):
                nursery.start_soon(work, seconds)
        await trio.lowlevel.checkpoint()
        for seconds in (0.004, 0.006):
            clock.now += seconds
            await trio.lowlevel.checkpoint()
        assert budget.long_turns == [1, 0, 0, 1, 0]
        assert round(budget.longest_seconds, 3) == 0.402
    assert [round(stall.seconds, 3) for stall in stalls] == [0.402, 0.006]
    assert (round(stalls[0].step_seconds, 3), stalls[0].task) == (0.3, tasks[0])
    assert stalls[0].steps >= 3
