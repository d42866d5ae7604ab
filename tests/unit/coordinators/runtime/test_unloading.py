"""Shards that no longer agree with their log: its topic is deleted, or an append has failed. No request waits for ever."""

from __future__ import annotations

import errno
from collections.abc import Hashable

import pytest
import trio

from barnabas.coordinators.runtime.runtime import Runtime
from barnabas.coordinators.runtime.waiting import raising
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.errors import RequestError, StorageError
from barnabas.serving.deferred import resolved
from barnabas.wire.generated.errors import ErrorCode

from .test_loading import LARGE, SMALL, Counter, code_of, journal_of, running, write


async def test_what_was_read_is_read_again(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        assert len((await runtime.read("id", lambda machine: machine)).keys) == SMALL
        journal.records.clear()
        runtime.unload()
        assert (await runtime.read("id", lambda machine: machine)).keys == []
        await runtime.write("id", write)
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
            await runtime.write("id", write)
        assert asked == 1
        runtime.unload()
        await runtime.write("id", write)
        assert asked == 2


async def test_who_waits_is_told_to_look_for_the_coordinator(autojump_clock: trio.testing.MockClock) -> None:
    async with running(journal_of(SMALL)) as runtime:
        codes = []

        async def wait() -> None:
            def nothing(machine: Counter, out: Decision, number: int) -> None:
                pass

            with pytest.raises(RequestError) as caught:
                await resolved(runtime.write_for_reply("id", nothing, raising))
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
        assert (await runtime.read("id", lambda machine: machine)).keys == []
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        assert (await runtime.read("id", lambda machine: machine)).keys == []


async def test_timers_of_what_is_forgotten_do_not_come(autojump_clock: trio.testing.MockClock) -> None:
    async with running(journal_of(SMALL)) as runtime:
        machine = await runtime.read("id", lambda machine: machine)
        runtime.unload()
        await trio.sleep(1)
        assert machine.expired == 0


# --- appends that fail --------------------------------------------------------------------------------------

NOT_ENOUGH = RequestError(ErrorCode.NOT_ENOUGH_REPLICAS)


class Ticking(Counter):
    """A machine with a timer that writes a record each time."""

    def expire(self, timer: Hashable, now_ms: int, out: Decision) -> None:
        out.records.append((b"tick", b""))
        self.expired += 1


async def test_too_few_replicas_keep_the_shard_and_delay_its_timers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    journal = journal_of(SMALL)
    runtime = Runtime(journal, Ticking, lambda: int(trio.current_time() * 1000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run)
        await trio.testing.wait_all_tasks_blocked()
        machine = await runtime.read("id", lambda machine: machine)
        journal.append_failure = NOT_ENOUGH
        with pytest.raises(RequestError) as caught:
            await runtime.write("id", write)
        assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await trio.sleep(5)
        assert await runtime.read("id", lambda machine: machine) is machine, "it agrees with its log"
        assert len(machine.keys) == SMALL
        assert machine.expired > 1, "a timer whose decision cannot be written expires again"
        journal.append_failure = None
        await trio.sleep(5)
        assert machine.keys[SMALL:] == [b"tick"]
        nursery.cancel_scope.cancel()


async def test_failed_append_reloads_the_shard_without_a_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    journal = journal_of(SMALL)
    machines: list[Counter] = []

    def make() -> Counter:
        machines.append(Counter())
        return machines[-1]

    runtime = Runtime(journal, make, lambda: int(trio.current_time() * 1000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run)
        await trio.testing.wait_all_tasks_blocked()
        journal.append_failure = StorageError("/data", OSError(errno.EIO, "broken"))
        with pytest.raises(RequestError) as caught:
            await runtime.write("id", write)
        assert caught.value.code == ErrorCode.NOT_COORDINATOR
        journal.append_failure = None
        assert len(machines) == 1
        await trio.sleep(5)
        assert len(machines) == 2
        assert machines[1].loaded_with == SMALL
        assert machines[1].expired, "its timers go on"
        nursery.cancel_scope.cancel()
