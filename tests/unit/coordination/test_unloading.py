"""A coordinator whose internal topic is deleted: nothing of it is believed any more, and nobody waits for ever."""

from __future__ import annotations

import pytest
import trio

from barnabas.errors import RequestError
from barnabas.statemachine.decision import Decision
from barnabas.wire.generated.errors import ErrorCode

from .test_loading import LARGE, SMALL, Counter, code_of, journal_of, running, write


async def test_what_was_read_is_read_again(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        assert len((await runtime.machine("id")).keys) == SMALL
        journal.records.clear()
        runtime.unload()
        assert (await runtime.machine("id")).keys == []
        await runtime.perform("id", write)
        assert journal.records == [(b"written", b"")]


async def test_the_topic_is_asked_for_again(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(0)
    asked = 0

    async def ensure() -> int:
        nonlocal asked
        asked += 1
        return 1

    journal.ensure = ensure  # type: ignore[method-assign]
    async with running(journal) as runtime:
        for _ in range(3):
            await runtime.perform("id", write)
        assert asked == 1
        runtime.unload()
        await runtime.perform("id", write)
        assert asked == 2


async def test_who_waits_is_told_to_look_for_the_coordinator(autojump_clock: trio.testing.MockClock) -> None:
    async with running(journal_of(SMALL)) as runtime:
        codes = []

        async def wait() -> None:
            def nothing(machine: Counter, out: Decision, number: int) -> None:
                pass

            with pytest.raises(RequestError) as caught:
                await runtime.perform_and_wait("id", nothing)
            codes.append(caught.value.code)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            runtime.unload()
        assert codes == [ErrorCode.NOT_COORDINATOR] * 3


async def test_what_is_being_read_is_not_believed(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(LARGE)
    async with running(journal) as runtime:
        assert await code_of(runtime) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        journal.records.clear()
        runtime.unload()
        assert (await runtime.machine("id")).keys == []
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        assert (await runtime.machine("id")).keys == []


async def test_timers_of_what_is_forgotten_do_not_come(autojump_clock: trio.testing.MockClock) -> None:
    async with running(journal_of(SMALL)) as runtime:
        machine = await runtime.machine("id")
        runtime.unload()
        await trio.sleep(1)
        assert machine.expired == 0
