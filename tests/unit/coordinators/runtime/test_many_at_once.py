"""Decisions for thousands of members are carried out in slices: timers are set, requests are answered, or fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager
from functools import partial

import trio
import trio.testing

from barnabas.coordinators.runtime.runtime import Runtime
from barnabas.coordinators.runtime.shards import ANSWERS_PER_TURN
from barnabas.coordinators.runtime.timers import TIMERS_PER_TURN
from barnabas.coordinators.runtime.waiting import raising
from barnabas.coordinators.statemachine.decision import Decision, ManyReplies
from barnabas.errors import RequestError
from barnabas.serving.deferred import resolved
from barnabas.wire.generated.errors import ErrorCode
from tests.support.journals import MemoryJournal

from .test_loading import SMALL, Counter, journal_of

MANY = 3 * TIMERS_PER_TURN


@asynccontextmanager
async def running(journal: MemoryJournal) -> AsyncIterator[Runtime[Counter]]:
    """A runtime that lets others run in between whenever it may."""
    now_ms = lambda: int(trio.current_time() * 1000)  # noqa: E731
    runtime = Runtime(journal, Counter, now_ms, checkpoint=trio.lowlevel.checkpoint)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run)
        await trio.testing.wait_all_tasks_blocked()
        yield runtime
        nursery.cancel_scope.cancel()


def many(due_ms: int) -> Iterator[tuple[Hashable, int | None]]:
    return ((("timer", number), due_ms) for number in range(MANY))


async def test_what_is_decided_later_on_a_timer_holds(autojump_clock: trio.testing.MockClock) -> None:
    async with running(journal_of(SMALL)) as runtime:
        machine = await runtime.read("id", lambda machine: machine)
        last = ("timer", MANY - 1)

        def set_all(_: Counter, out: Decision) -> None:
            out.many_timers.append(many(2_000))
            out.timers["timer", 0] = None

        def cancel_the_last(_: Counter, out: Decision) -> None:
            out.timers[last] = None

        await trio.sleep(1)  # with the timer that it sets when it is loaded
        expired: list[Hashable] = []
        machine.expire = lambda key, now_ms, out: expired.append(key)  # type: ignore[method-assign, assignment]
        await runtime.write("id", set_all)
        await runtime.write("id", cancel_the_last)
        await trio.sleep(0.5)
        assert not expired
        await trio.sleep(1)
        assert set(expired) == {("timer", number) for number in range(1, MANY - 1)}


async def test_a_timer_that_is_due_while_many_are_set_waits_for_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(journal_of(SMALL)) as runtime:
        machine = await runtime.read("id", lambda machine: machine)
        await trio.sleep(1)  # with the timer that it sets when it is loaded
        expired: list[Hashable] = []
        machine.expire = lambda key, now_ms, out: expired.append(key)  # type: ignore[method-assign, assignment]

        def set_early(_: Counter, out: Decision) -> None:
            out.timers.update(many(0))

        def postpone(_: Counter, out: Decision) -> None:
            out.many_timers.append(many(10_000))

        await runtime.write("id", postpone)
        await runtime.write("id", set_early)
        await runtime.write("id", postpone)
        await trio.sleep(1)
        assert not expired
        await trio.sleep(10)
        assert set(expired) == {("timer", number) for number in range(MANY)}


def answer(replies: ManyReplies, _: Counter, out: Decision) -> None:
    out.many_replies.append(replies)


async def test_very_many_that_wait_are_answered_or_fail(autojump_clock: trio.testing.MockClock) -> None:
    for is_unloaded in (False, True):
        async with running(journal_of(SMALL)) as runtime:
            numbers: dict[str, int] = {}
            results: list[object] = []

            async def wait(name: str) -> None:
                def remember(machine: Counter, out: Decision, number: int) -> None:
                    numbers[name] = number  # noqa: B023

                try:
                    results.append(await resolved(runtime.write_for_reply("id", remember, raising)))  # noqa: B023
                except RequestError as error:
                    results.append(error.code)  # noqa: B023

            async with trio.open_nursery() as nursery:
                for number in range(5 * ANSWERS_PER_TURN):
                    nursery.start_soon(wait, f"m-{number}")
                await trio.testing.wait_all_tasks_blocked()
                if is_unloaded:
                    runtime.unload()
                else:
                    many_replies = ManyReplies(numbers, str.upper)
                    await runtime.write("id", partial(answer, many_replies))
            expected = [ErrorCode.NOT_COORDINATOR] * len(numbers) if is_unloaded else map(str.upper, numbers)
            assert sorted(map(str, results)) == sorted(map(str, expected))


async def test_each_of_many_timers_is_told_what_time_it_is(autojump_clock: trio.testing.MockClock) -> None:
    now_ms = lambda: int(trio.current_time() * 1000)  # noqa: E731

    async def checkpoint() -> None:
        await trio.sleep(0.1)

    runtime = Runtime(journal_of(SMALL), Counter, now_ms, checkpoint=checkpoint)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run)
        machine = await runtime.read("id", lambda machine: machine)
        await trio.sleep(1)  # with the timer that it sets when it is loaded
        late: list[int] = []
        machine.expire = lambda key, told_ms, out: late.append(now_ms() - told_ms)  # type: ignore[method-assign, assignment]
        due_ms = now_ms() + 500

        def set_some(_: Counter, out: Decision) -> None:
            out.timers.update({("timer", number): due_ms for number in range(10)})

        await runtime.write("id", set_some)
        await trio.sleep(2)
        assert late == [0] * 10
        nursery.cancel_scope.cancel()
