"""Steps of long work, done in turns with others."""

import pytest
import trio

from barnabas.environment.real import OsThreads
from barnabas.records.steps import Reserve, Work
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.step_runner import LANES, StepRunner


def steps(*each, error=None):
    got = []
    for step in each:
        got.append((yield step))  # noqa: PERF401 (not allowed in a comprehension)
    if error is not None:
        raise error
    return got


def make():
    return StepRunner(LoopBudget(budget_seconds=0), OsThreads())


@pytest.mark.parametrize(
    "each",
    [(), (None,), (None, Work(lambda: 7)), (Reserve(9), Work(lambda: 7), None), (Reserve(9), Reserve(1 << 30))],
)  # fmt: skip
async def test_the_result_comes_back_whatever_the_last_step_was(each):
    assert await make().run(steps(*each)) == [7 if isinstance(step, Work) else None for step in each]
    with pytest.raises(KeyError):
        await make().run(steps(*each, error=KeyError()))


async def test_the_error_of_work_is_met_by_the_steps():
    def work():
        try:
            yield Work(lambda: 1 // 0)
        except ZeroDivisionError:
            return "caught"

    assert await make().run(work()) == "caught"


async def test_others_run_between_two_steps():
    seen = []

    def work(name):
        for n in range(3):
            seen.append((name, n))
            yield None

    pieces = make()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pieces.run, work("a"))
        nursery.start_soon(pieces.run, work("b"))
    assert [n for _, n in seen] == [0, 0, 1, 1, 2, 2]


async def test_so_much_of_each_size_is_in_hand_at_a_time():
    pieces = make()
    now = {"small": 0, "large": 0}
    most = dict(now)

    def work(name, size):
        yield Reserve(size)
        now[name] += 1
        most[name] = max(most[name], now[name])
        for _ in range(5):
            yield None
        now[name] -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(pieces.run, work("large", 1 << 30))
        for _ in range(4):
            nursery.start_soon(pieces.run, work("small", 1000))
    assert most == {"small": 4, "large": LANES[-1][1]}


async def test_whoever_is_cancelled_leaves_its_lane():
    pieces = make()

    def work():
        yield Reserve(1 << 30)
        while True:
            yield None

    with trio.CancelScope() as scope:
        scope.cancel()
        await pieces.run(work())
    with trio.fail_after(10):
        assert await pieces.run(steps(Reserve(1 << 30))) == [None]
