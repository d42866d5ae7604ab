"""Long work gives way once a turn of the event loop has used up its budget."""

from collections import Counter
from functools import partial
from itertools import pairwise

import pytest
import trio
import trio.testing

from barnabas.serving.loop_budget import (
    AT_ONCE_SECONDS,
    CROWD,
    CROWD_SECONDS,
    LET_THROUGH_MAX,
    LONG_WORK_SHARE,
    LoopBudget,
    Stall,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("is_used_up", [False, True])
async def test_turn_lets_others_run_once_its_budget_is_used_up(is_used_up: bool) -> None:
    clock = Clock()
    order = []

    async def other() -> None:
        order.append("other")

    with LoopBudget(budget_seconds=1.0, clock=clock) as budget:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            for _ in range(2 if is_used_up else 1):  # trio draws the order of those that run in one turn
                clock.now += 1.0 if is_used_up else 0.3
                assert budget.is_used_up is is_used_up
                await budget.checkpoint()
                assert not budget.is_used_up
            order.append("self")
    assert order == (["other", "self"] if is_used_up else ["self", "other"])


async def test_all_tasks_share_one_turn() -> None:
    """A task after the one that used up the budget yields at once, so that a turn is no longer than it."""
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


class UsedUp:
    """A budget with turns used up from their beginning, and which task was let through in which turn."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.budget = LoopBudget(budget_seconds=0.0, clock=self.clock)
        self.turn = 0
        self.through: list[tuple[str, int]] = []

    def turns_of(self, name: str) -> list[int]:
        return [turn for who, turn in self.through if who == name]

    async def count_turns(self) -> None:
        while True:
            self.turn += 1
            await trio.lowlevel.checkpoint()

    async def ask(self, name: str, *, is_active: bool) -> None:
        await self.budget.admit(is_active=is_active)
        self.through.append((name, self.turn))

    async def work(self, name: str, pieces: int) -> None:
        for _ in range(pieces):
            await self.budget.checkpoint()
            self.through.append((name, self.turn))


async def test_long_step_at_the_start_of_measuring_is_its_tasks() -> None:
    stalls: list[Stall] = []
    clock = [0.0]
    budget = LoopBudget(clock=lambda: clock[0])
    budget.on_long_turn = stalls.append
    with budget:
        clock[0] += 0.3
        await trio.sleep(0.001)
    assert (stalls[0].task, stalls[0].steps) == (trio.lowlevel.current_task(), 1)
    assert stalls[0].seconds == stalls[0].step_seconds == 0.3


async def test_inactive_crowd_does_not_delay_an_active_connection() -> None:
    used_up = UsedUp()
    with used_up.budget:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(used_up.count_turns)
            async with trio.open_nursery() as crowd:
                for _ in range(500):
                    crowd.start_soon(partial(used_up.ask, "crowd", is_active=False))
                await trio.lowlevel.checkpoint()
                began = used_up.turn
                crowd.start_soon(partial(used_up.ask, "quiet", is_active=True))
            nursery.cancel_scope.cancel()
    assert used_up.turns_of("quiet")[0] - began <= 5
    crowd_turns = used_up.turns_of("crowd")
    assert len(crowd_turns) == 500
    assert max(Counter(crowd_turns).values()) <= LET_THROUGH_MAX


async def test_long_work_and_requests_both_get_on_in_every_turn() -> None:
    used_up = UsedUp()

    async def ask_again_and_again(number: int) -> None:
        for _ in range(20):
            await used_up.ask(f"request {number}", is_active=bool(number % 2))

    with used_up.budget:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(used_up.count_turns)
            async with trio.open_nursery() as all_of_them:
                for number in range(100):
                    all_of_them.start_soon(ask_again_and_again, number)
                    all_of_them.start_soon(used_up.work, f"work {number}", 5)
            nursery.cancel_scope.cancel()
    last_request = max(turn for who, turn in used_up.through if who.startswith("request"))
    first_works = [turn for who, turn in used_up.through if who.startswith("work")][:10]
    assert len(used_up.through) == 100 * 20 + 100 * 5
    assert max(first_works) < last_request
    for number in range(1, 100):  # each is served as often as the first, give or take one
        ahead = used_up.turns_of("work 0")
        mine = used_up.turns_of(f"work {number}")
        assert all(before <= after for before, after in zip(mine, ahead[1:], strict=False))


async def test_a_turn_that_took_too_long_lets_fewer_through() -> None:
    clock = Clock()
    budget = LoopBudget(budget_seconds=1.0, clock=clock)
    through: list[float] = []

    async def ask() -> None:
        await budget.admit(is_active=True)
        clock.now += 1.5  # each alone is more than a turn
        through.append(clock.now)

    turns: list[int] = []

    class Turns(trio.abc.Instrument):
        def after_io_wait(self, timeout: float) -> None:
            turns.append(len(through))

    with budget:
        watch = Turns()
        trio.lowlevel.add_instrument(watch)
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(ask)
        trio.lowlevel.remove_instrument(watch)
    assert len(through) == 50
    assert max(after - before for before, after in pairwise(turns[5:])) <= 1


async def test_used_up_turn_runs_one_of_the_long_requests() -> None:
    """However many were let through together, a turn is no longer than its budget and a step."""
    clock = Clock()
    budget = LoopBudget(budget_seconds=1.0, clock=clock)
    order: list[int] = []
    turns: list[int] = []

    async def ask(number: int) -> None:
        await budget.admit(is_active=False)
        order.append(number)
        if number >= 40:  # so many are let through together by then
            clock.now += 1.5

    class Turns(trio.abc.Instrument):
        def after_io_wait(self, timeout: float) -> None:
            turns.append(len(order))

    with budget:
        watch = Turns()
        trio.lowlevel.add_instrument(watch)
        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(ask, number)
                await trio.lowlevel.checkpoint()
        trio.lowlevel.remove_instrument(watch)
    assert sorted(order) == list(range(60))
    from_40_on = [len([number for number in order[a:b] if number >= 40]) for a, b in pairwise([*turns, 60])]
    assert max(from_40_on) == 1


async def test_who_is_cancelled_while_it_waits_leaves_its_queue() -> None:
    used_up = UsedUp()
    with used_up.budget:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(used_up.ask, "stays", is_active=True))
            for name in "abc":
                nursery.start_soon(partial(_cancelled, used_up, name))
    assert [who for who, _ in used_up.through] == ["stays"]


async def _cancelled(used_up: UsedUp, name: str) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await used_up.ask(name, is_active=True)


async def test_the_next_request_of_who_has_taken_long_is_long_work_too() -> None:
    """So fifty clients that ask for much are ahead of one that asks for little only once, not with each request."""
    clock = Clock()
    budget = LoopBudget(budget_seconds=0.005, clock=clock)
    order: list[str] = []

    async def ask_for_much(name: str) -> None:
        for _ in range(4):
            clock.now += 0.006
            await budget.checkpoint()
            await budget.admit(is_active=True)
            order.append(name)

    async def ask_for_little() -> None:
        for _ in range(20):
            clock.now += 0.0001
            await budget.admit(is_active=True)
            order.append("little")

    with budget:
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(ask_for_much, f"much {number}")
            nursery.start_soon(ask_for_little)
    last_little = len(order) - 1 - order[::-1].index("little")
    assert last_little < 150, "others got in between with twice their share"
    assert len(order) == 4 * 50 + 20


async def test_long_work_leaves_the_rest_of_a_turn_to_requests() -> None:
    clock = Clock()
    budget = LoopBudget(budget_seconds=1.0, clock=clock)
    with budget:
        await trio.lowlevel.checkpoint()
        turns: list[int] = [0]

        class Turns(trio.abc.Instrument):
            def after_io_wait(self, timeout: float) -> None:
                turns[0] += 1

        trio.lowlevel.add_instrument(Turns())
        clock.now += LONG_WORK_SHARE - 0.01
        await budget.checkpoint()
        assert turns[0] == 0
        clock.now += 0.02
        assert not budget.is_used_up
        await budget.checkpoint()
        assert turns[0] > 0


async def idle_once() -> None:
    """Let the loop have nothing to do for once, after which it is known which tasks can run."""
    await trio.testing.wait_all_tasks_blocked(0.000_1)


async def test_who_is_alone_in_a_young_turn_may_go_on() -> None:
    clock = Clock()
    with LoopBudget(clock=clock) as budget:
        await idle_once()
        assert budget.may_go_on
        clock.now += AT_ONCE_SECONDS
        assert not budget.may_go_on
        await trio.lowlevel.checkpoint()
        assert budget.may_go_on


async def test_nobody_goes_on_while_another_task_can_run() -> None:
    ran = []

    async def other() -> None:
        ran.append(1)

    with LoopBudget(clock=Clock()) as budget:
        await idle_once()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            assert not budget.may_go_on
            while not ran:
                await trio.lowlevel.checkpoint()
            assert budget.may_go_on


async def test_nobody_goes_on_before_it_is_known_who_can_run() -> None:
    with LoopBudget(clock=Clock()) as budget:
        assert not budget.may_go_on
        await trio.lowlevel.checkpoint()
        assert not budget.may_go_on
    assert not LoopBudget(clock=Clock()).may_go_on


async def test_requests_of_one_turn_are_steps_of_their_own() -> None:
    """So that ten short requests are not taken for long work."""
    clock, stalls = Clock(), []
    with LoopBudget(clock=clock) as budget:
        budget.on_long_turn = stalls.append
        await trio.lowlevel.checkpoint()
        for _ in range(10):
            clock.now += 0.001
            budget.begin_next()
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
    (stall,) = stalls
    assert stall.steps == 11
    assert stall.step_seconds < 0.002


async def test_late_active_connections_are_a_crowd() -> None:
    """Many that have been idle are none; and a crowd is one for as long as some are late."""
    clock = Clock()
    with LoopBudget(clock=clock) as budget:

        async def late(count: int, *, is_active: bool) -> bool:
            async with trio.open_nursery() as nursery:
                for _ in range(count):
                    nursery.start_soon(partial(budget.admit, is_active=is_active))
            await idle_once()
            return budget.is_crowded

        assert not await late(10 * CROWD, is_active=False)
        assert not await late(CROWD, is_active=True)
        assert await late(CROWD + 1, is_active=True)
        clock.now += CROWD_SECONDS * 0.9
        assert await late(1, is_active=True)
        clock.now += CROWD_SECONDS * 0.9
        assert await late(10 * CROWD, is_active=False)
        clock.now += CROWD_SECONDS * 0.2
        await idle_once()
        assert not budget.is_crowded
