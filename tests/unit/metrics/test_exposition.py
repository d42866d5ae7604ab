"""Answers for many readers: which of them share one, and what stands between two of them."""

import pytest
import trio
import trio.testing

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")

from barnabas.metrics.exposition import PAUSE_FACTOR, PAUSE_SECONDS_MAX, Exposition
from barnabas.metrics.families import Families

OPENMETRICS = "application/openmetrics-text"


class Threads:
    """Makes answers when it is told to, each of which takes `seconds`."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.begun = 0
        self.may_end = trio.Event()

    async def run(self, work, *, limiter=None):
        self.begun += 1
        await self.may_end.wait()
        await trio.sleep(self.seconds)
        return work()


class Nothing(Exposition):
    """An exposition of no metrics."""

    async def collected(self, *, is_summed):
        del is_summed
        return Families(), []


@pytest.fixture
def make():
    return Nothing


async def ask(exposition, answers, accept=""):
    answers.append(await exposition.text(accept))


async def test_who_asks_while_an_answer_is_made_shares_the_next_one(make):
    threads = Threads()
    exposition, answers = make(threads), []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, exposition, answers)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(20):
            nursery.start_soon(ask, exposition, answers)
        for _ in range(5):
            nursery.start_soon(ask, exposition, answers, OPENMETRICS)
        await trio.testing.wait_all_tasks_blocked()
        assert threads.begun == 1
        threads.may_end.set()
    assert exposition.made == 3
    assert len({id(text) for text in answers}) == 3
    assert len({id(text) for text in answers[1:] if not text.content_type.startswith(OPENMETRICS)}) == 1


async def test_a_reader_that_goes_away_leaves_the_answer_to_the_others(make):
    threads = Threads()
    exposition, answers = make(threads), []
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as leaving:
            leaving.start_soon(ask, exposition, answers)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(ask, exposition, answers)
            await trio.testing.wait_all_tasks_blocked()
            leaving.cancel_scope.cancel()
        threads.may_end.set()
    assert len(answers) == 1


@pytest.mark.parametrize("seconds", [0.1, 10.0])
async def test_an_answer_that_took_long_is_followed_by_a_pause(make, seconds, autojump_clock):
    threads = Threads(seconds)
    threads.may_end.set()
    exposition, answers = make(threads), []
    began = trio.current_time()
    for _ in range(2):
        await ask(exposition, answers)
    pause = min(PAUSE_FACTOR * seconds, PAUSE_SECONDS_MAX)
    assert trio.current_time() - began == pytest.approx(2 * seconds + pause)
