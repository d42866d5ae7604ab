"""Events with an immediate result, and events with a deferred one."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.coordinators.statemachine.decision import Decision, Refused
from barnabas.errors import RequestError
from barnabas.serving.deferred import Deferred, Future
from barnabas.wire.generated.errors import ErrorCode

from .test_large_events import always, large
from .test_large_events import running as running_with_threads
from .test_loading import LARGE, SMALL, Counter, journal_of, running, write

REFUSAL = RequestError(ErrorCode.INVALID_REQUEST, "refused")


def count(machine: Counter, out: Decision) -> int:
    write(machine, out)
    return len(machine.keys)


def remember(_: Counter, out: Decision, number: int) -> None:
    waiters.append(number)


def answer(_: Counter, out: Decision) -> None:
    out.replies += [(number, "answered") for number in waiters]


def respond(outcome: object) -> object:
    return outcome.code if isinstance(outcome, RequestError) else outcome


waiters: list[int] = []


@pytest.fixture(autouse=True)
def nobody_waits() -> None:
    waiters.clear()


async def test_a_result_is_there_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with running(journal_of(SMALL)) as runtime:
        assert await rest_of(runtime.write_nowait("id", count)) == SMALL, "the first has the topic made"
        assert runtime.write_nowait("id", count) == SMALL + 1
        with pytest.raises(RequestError) as caught:
            runtime.write_nowait("id", lambda machine, out: Refused(REFUSAL))
        assert caught.value is REFUSAL


async def rest_of(later: Any) -> Any:
    assert isinstance(later, Deferred)
    return await later.wait()


async def test_a_shard_that_is_being_read_refuses_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with running(journal_of(LARGE)) as runtime:
        with pytest.raises(RequestError):
            await runtime.read("id", lambda machine: machine)
        for call in (
            lambda: runtime.write_nowait("id", count),
            lambda: runtime.write_for_reply("id", remember, respond),
        ):
            with pytest.raises(RequestError) as caught:
                call()
            assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_what_is_not_committed_yet_comes_later(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        await runtime.read("id", lambda machine: machine)
        journal.commits = trio.Event()
        seen: list[object] = []

        async def wait(later: Any) -> None:
            try:
                seen.append(await rest_of(later))
            except RequestError as error:
                seen.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, runtime.write_nowait("id", count))
            nursery.start_soon(wait, runtime.write_nowait("id", lambda machine, out: Refused(REFUSAL)))
            await trio.testing.wait_all_tasks_blocked()
            assert not seen
            journal.commits.set()
        assert {str(value) for value in seen} == {str(SMALL), str(REFUSAL)}
        assert len(journal.records) == SMALL + 1


async def test_large_event_and_later_ones_are_deferred(autojump_clock: trio.testing.MockClock) -> None:
    async with running_with_threads(journal_of(SMALL)) as runtime:
        seen: list[object] = []

        async def wait(later: Any) -> None:
            seen.append(await rest_of(later))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, runtime.write_nowait("id", large, is_large=always))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(wait, runtime.write_nowait("id", count))
            nursery.start_soon(wait, runtime.write_for_reply("id", remember, respond))
            await trio.testing.wait_all_tasks_blocked()
            assert not seen
            while not waiters:
                await trio.sleep(1)
            await runtime.write("id", answer)
        assert sorted(seen, key=str) == [SMALL, SMALL + 2, "answered"]


async def test_an_answer_is_announced(autojump_clock: trio.testing.MockClock) -> None:
    async with running(journal_of(SMALL)) as runtime:
        shard_waits = (await announced_in(runtime)).add_done_callback
        told: list[str] = []
        shard_waits(lambda: told.append("told"))
        later = runtime.write_for_reply("id", remember, respond)
        assert isinstance(later, Future)
        later.add_done_callback(lambda: told.append("also told"))
        await runtime.write("id", answer)
        assert told == ["told", "also told"]
        assert later.result() == "answered"


async def announced_in(runtime: Any) -> Future[Any]:
    await runtime.read("id", lambda machine: machine)
    later = runtime.write_for_reply("id", remember, respond)
    assert isinstance(later, Future)
    return later


def is_awaited(runtime: Any) -> bool:
    shard = runtime._shards.get(0)
    assert shard is not None
    return bool(shard.waiting)


async def test_an_answer_that_the_event_itself_gives_is_there_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(journal_of(SMALL)) as runtime:
        await runtime.read("id", lambda machine: machine)
        result = runtime.write_for_reply(
            "id", lambda machine, out, number: out.replies.append((number, "own")), respond
        )
        assert result == "own"
        assert not is_awaited(runtime)


async def test_an_event_that_raises_leaves_nobody_waiting(autojump_clock: trio.testing.MockClock) -> None:
    def event(_: Counter, out: Decision, number: int) -> None:
        raise REFUSAL

    async with running(journal_of(SMALL)) as runtime:
        await runtime.read("id", lambda machine: machine)
        with pytest.raises(RequestError):
            runtime.write_for_reply("id", event, respond)
        assert not is_awaited(runtime)
