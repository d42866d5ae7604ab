"""A shard belongs to one leader epoch of its partition: who loses it answers NOT_COORDINATOR, who has it reads first."""

from __future__ import annotations

import pytest
import trio

from barnabas.coordination.runtime import Runtime
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

from .test_loading import LARGE, SMALL, Counter, code_of, journal_of, running, write


async def wait_for_answer(runtime: Runtime[Counter], codes: list[int]) -> None:
    """A request that some other event must answer."""
    with pytest.raises(RequestError) as caught:
        await runtime.perform_and_wait("id", lambda machine, out, number: None)
    codes.append(caught.value.code)


async def wait_for_commit(runtime: Runtime[Counter], codes: list[int]) -> None:
    codes.append(await code_of(runtime))


@pytest.mark.parametrize("request_that_waits", [wait_for_answer, wait_for_commit])
@pytest.mark.parametrize("epoch", [None, 1], ids=["led elsewhere", "another epoch"])
async def test_who_waits_when_leadership_is_lost_is_answered(
    request_that_waits, epoch, autojump_clock: trio.testing.MockClock
) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        machine = await runtime.machine("id")
        journal.commits = trio.Event()
        codes: list[int] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(request_that_waits, runtime, codes)
            await trio.testing.wait_all_tasks_blocked()
            assert not codes
            began = trio.current_time()
            journal.epoch = epoch
            runtime.leadership_changed()
        assert codes == [ErrorCode.NOT_COORDINATOR]
        assert trio.current_time() == began, "at once, not by a timeout"
        expired = machine.expired
        await trio.sleep(1)
        assert machine.expired == expired, "its timers have stopped"


async def test_requests_are_refused_while_another_leads(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        await runtime.perform("id", write)
        journal.epoch = None
        runtime.leadership_changed()
        assert await code_of(runtime) == ErrorCode.NOT_COORDINATOR
        with pytest.raises(RequestError) as caught:
            await runtime.query("id", lambda machine: machine.keys)
        assert caught.value.code == ErrorCode.NOT_COORDINATOR


async def test_who_comes_back_reads_what_others_have_written(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        first = await runtime.machine("id")
        journal.epoch = None
        runtime.leadership_changed()
        await trio.testing.wait_all_tasks_blocked()
        journal.records.append((b"of another leader", b""))
        journal.epoch = 2
        runtime.leadership_changed()
        await trio.testing.wait_all_tasks_blocked()
        second = await runtime.machine("id")
        assert second is not first
        assert second.keys[-1] == b"of another leader"


async def test_another_epoch_is_seen_before_its_event_comes(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(0)
    async with running(journal) as runtime:
        await runtime.machine("id")
        journal.records.append((b"of another leader", b""))
        journal.epoch = 2
        await runtime.perform("id", write)
        assert (await runtime.machine("id")).keys == [b"of another leader", b"written"]


async def test_an_append_that_is_refused_unloads(autojump_clock: trio.testing.MockClock) -> None:
    """The event was decided, and then the partition was no longer led here."""
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        first = await runtime.machine("id")

        def lose_and_write(machine, out) -> None:
            journal.epoch = None
            write(machine, out)

        with pytest.raises(RequestError) as caught:
            await runtime.perform("id", lose_and_write)
        assert caught.value.code == ErrorCode.NOT_COORDINATOR
        journal.epoch = 1
        assert await runtime.machine("id") is not first
        assert len(journal.records) == SMALL


async def test_who_loses_it_while_reading_begins_again(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(LARGE)
    async with running(journal) as runtime:
        assert await code_of(runtime) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        journal.epoch = 1
        del journal.records[SMALL:]
        runtime.leadership_changed()
        await trio.testing.wait_all_tasks_blocked()
        assert len((await runtime.machine("id")).keys) == SMALL


async def test_what_is_led_from_now_on_is_loaded_without_being_asked_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    journal = journal_of(LARGE)
    journal.epoch = None
    async with running(journal) as runtime:
        await trio.testing.wait_all_tasks_blocked()
        journal.epoch = 1
        runtime.leadership_changed()
        await trio.sleep(1)
        machine = await runtime.machine("id")
        assert (machine.loaded_with, machine.expired) == (LARGE, 1)


async def test_queries_wait_until_what_they_saw_is_committed(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(0)
    async with running(journal) as runtime:
        await runtime.perform("id", write)
        journal.commits = trio.Event()
        seen: list[object] = []

        async def look() -> None:
            seen.append(await runtime.query("id", lambda machine: len(machine.keys)))

        async def look_at_all() -> None:
            seen.append(await runtime.query_all(lambda machine: [len(machine.keys)]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.perform, "id", write)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(look)
            nursery.start_soon(look_at_all)
            await trio.testing.wait_all_tasks_blocked()
            assert not seen
            journal.commits.set()
        assert sorted(seen, key=str) == [2, [2]]
