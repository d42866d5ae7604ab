"""A large event decides in a thread while its shard waits: others see all of it or nothing, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import pytest
import trio
import trio.testing

from barnabas.coordinators.runtime.runtime import Runtime
from barnabas.coordinators.runtime.shard import WOKEN_PER_TURN_MAX, Shard
from barnabas.coordinators.runtime.shards import BYTES_PER_RECORD, SLICE_RECORDS
from barnabas.coordinators.runtime.waiting import raising
from barnabas.coordinators.statemachine.decision import Decision, Large, Refused
from barnabas.errors import RequestError
from barnabas.serving.deferred import resolved
from barnabas.wire.generated.errors import ErrorCode
from tests.support.journals import MemoryJournal

from .test_loading import SMALL, Counter, journal_of, write

T = TypeVar("T")


class SlowThreads:
    """Threads in which work takes a second, before it is done and after."""

    def __init__(self) -> None:
        self.runs = 0

    async def run(self, work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None) -> T:
        del limiter
        self.runs += 1
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
            result = work()
            await trio.sleep(1)
        return result

    def check_cancelled(self) -> None:
        return


def shard_of(runtime: Runtime[Counter]) -> Shard[Counter]:
    shard = runtime._shards.get(0)
    assert shard is not None
    return shard


@asynccontextmanager
async def running(journal: MemoryJournal) -> AsyncIterator[Runtime[Counter]]:
    """A runtime with timers that are large events."""
    runtime = Runtime(
        journal,
        Counter,
        lambda: int(trio.current_time() * 1000),
        threads=SlowThreads(),
        is_large_timer=lambda machine, key: True,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run)
        await trio.testing.wait_all_tasks_blocked()
        await runtime.read("id", lambda machine: machine)
        await trio.sleep(10)  # with the timer that it sets when it is loaded
        yield runtime
        nursery.cancel_scope.cancel()


def large(machine: Counter, out: Decision) -> int:
    """Decide on two records; returns how many there were."""
    out.records += [(b"large", b"1"), (b"large", b"2")]
    return len(machine.keys)


def always(machine: Counter) -> bool:
    return True


async def test_whoever_comes_meanwhile_waits_and_sees_all_of_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        seen: list[object] = []

        async def decide() -> None:
            seen.append(await runtime.write("id", large, is_large=always))

        async def look() -> None:
            seen.append(await runtime.read("id", lambda machine: len(machine.keys)))

        async def look_at_all() -> None:
            seen.append(await runtime.read_all(lambda machine: [len(machine.keys)]))

        async def wait() -> None:
            def event(machine: Counter, out: Decision, number: int) -> None:
                out.replies.append((number, len(machine.keys)))

            seen.append(await resolved(runtime.write_for_reply("id", event, raising)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(decide)
            await trio.testing.wait_all_tasks_blocked()
            for other in (look, look_at_all, wait):
                nursery.start_soon(other)
            await trio.testing.wait_all_tasks_blocked()
            assert not seen, "the shard is held"
        after = SMALL + 2
        assert sorted(seen, key=str) == sorted([SMALL, after, [after], after], key=str)
        assert journal.records[-2:] == [(b"large", b"1"), (b"large", b"2")]


class Turns(trio.abc.Instrument):
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


async def test_many_who_have_waited_share_turns(autojump_clock: trio.testing.MockClock) -> None:
    async with running(journal_of(SMALL)) as runtime:
        seen: list[int] = []

        async def look(number: int) -> None:
            await runtime.read("id", lambda machine: seen.append(number))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(runtime.write, "id", large, is_large=always))
            await trio.testing.wait_all_tasks_blocked()
            for number in range(1_000):
                nursery.start_soon(look, number)
                await trio.testing.wait_all_tasks_blocked()
            assert not seen, "the shard is held"
            turns = Turns()
            trio.lowlevel.add_instrument(turns)
        trio.lowlevel.remove_instrument(turns)
        assert max(abs(number - place) for place, number in enumerate(seen)) < WOKEN_PER_TURN_MAX
        assert sorted(seen) == list(range(1_000))
        assert turns.count < 3 * 1_000 / WOKEN_PER_TURN_MAX


class Steps(trio.abc.Instrument):
    """Counts how often a task goes on."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        del task
        self.count += 1


async def steps_of(runtime: Runtime[Counter], members: int) -> int:
    """Number of steps of tasks until so many that come at once have all decided on large events."""
    order: list[int] = []
    asked: list[int] = []
    steps = Steps()

    async def join(number: int) -> None:
        def event(machine: Counter, out: Decision) -> None:
            order.append(number)
            large(machine, out)

        asked.append(number)
        await runtime.write("id", event, is_large=always)

    trio.lowlevel.add_instrument(steps)
    try:
        async with trio.open_nursery() as nursery:
            for number in range(members):
                nursery.start_soon(join, number)
    finally:
        trio.lowlevel.remove_instrument(steps)
    assert order == asked, "they decide in the order in which they came"
    return steps.count


async def test_those_who_wait_do_not_wake_each_other(autojump_clock: trio.testing.MockClock) -> None:
    async with running(journal_of(SMALL)) as runtime:
        few, many = await steps_of(runtime, 20), await steps_of(runtime, 200)
        assert many < 15 * few, "ten times as many take ten times as many steps, not a hundred times"


async def test_one_who_goes_away_holds_nobody_up(autojump_clock: trio.testing.MockClock) -> None:
    async with running(journal_of(SMALL)) as runtime:
        seen: list[str] = []

        async def decide(name: str, is_large: Callable[[Counter], bool] | None) -> None:
            await runtime.write("id", large, is_large=is_large)
            seen.append(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(decide, "first", always)
            await trio.testing.wait_all_tasks_blocked()
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as leaving:
                    leaving.start_soon(decide, "leaves", always)
                    await trio.testing.wait_all_tasks_blocked()
                    for name in ("small", "another"):
                        nursery.start_soon(decide, name, None)
                        await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
        assert seen == ["first", "small", "another"]


async def test_who_goes_away_leaves_the_machine_as_its_log(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        with trio.move_on_after(0.5):
            await runtime.write("id", large, is_large=always)
        assert (await runtime.read("id", lambda machine: machine)).keys == [key for key, _ in journal.records]
        assert len(journal.records) == SMALL + 2


async def test_a_shard_that_moves_away_meanwhile_decides_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        codes: list[int] = []

        async def decide() -> None:
            with pytest.raises(RequestError) as caught:
                await runtime.write("id", large, is_large=always)
            codes.append(caught.value.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(decide)
            nursery.start_soon(decide)
            await trio.sleep(0.5)
            journal.epoch = None
            runtime.leadership_changed()
        assert codes == [ErrorCode.NOT_COORDINATOR] * 2
        assert len(journal.records) == SMALL


@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_failed_large_event_releases_its_shard(
    is_refused: bool, autojump_clock: trio.testing.MockClock
) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:

        def event(machine: Counter, out: Decision) -> Refused:
            large(machine, out)
            error = RequestError(ErrorCode.INVALID_REQUEST, "refused")
            if is_refused:
                return Refused(error)
            raise error

        with pytest.raises(RequestError):
            await runtime.write("id", event, is_large=always)
        assert len(journal.records) == SMALL + (2 if is_refused else 0)
        await runtime.write("id", write)


async def test_what_is_in_the_log_already_comes_before_whoever_waits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(journal_of(SMALL)) as runtime:
        seen: list[bytes] = []

        async def look() -> None:
            seen.append(await runtime.read("id", lambda machine: machine.keys[-1]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: runtime.write("id", large, is_large=always))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(look)
            shard = shard_of(runtime)
            shard.after_hold.append(lambda: shard.machine.keys.append(b"marker"))
        assert seen == [b"marker"]


async def test_timers_wait_for_the_shard_and_may_be_large(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        machine = await runtime.read("id", lambda machine: machine)
        ended: list[tuple[float, int]] = []

        def expire(timer: object, now_ms: int, out: Decision) -> None:
            ended.append((trio.current_time(), len(machine.keys)))
            out.records.append((b"expired", b""))

        machine.expire = expire  # type: ignore[method-assign, assignment]

        def set_timer(_: Counter, out: Decision) -> None:
            out.timers["soon"] = int(trio.current_time() * 1000) + 100

        await runtime.write("id", set_timer)
        await runtime.write("id", large, is_large=always)
        await trio.sleep(10)
        ((_, count),) = ended
        assert count == SMALL + 2
        assert machine.keys[-1] == b"expired"


async def test_a_periodic_task_may_have_large_events(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        await runtime.write_all(lambda _: [write, Large(large), write])
        assert [key for key, _ in journal.records[SMALL:]] == [b"written", b"large", b"large", b"written"]


async def test_long_record_is_replayed_in_a_thread(autojump_clock: trio.testing.MockClock) -> None:
    records = [(b"first", b""), (b"long", bytes(SLICE_RECORDS * BYTES_PER_RECORD * 2)), (b"last", b"")]
    threads = SlowThreads()
    runtime = Runtime(
        MemoryJournal(records), Counter, lambda: int(trio.current_time() * 1000), threads=threads
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RequestError) as caught:
            await runtime.read("id", lambda machine: machine)
        assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await trio.sleep(2.5)
        assert (await runtime.read("id", lambda machine: machine)).keys == [key for key, _ in records]
        assert threads.runs == 1
        nursery.cancel_scope.cancel()


async def test_shard_moving_during_a_long_record_is_loaded_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    journal = MemoryJournal([(b"long", bytes(SLICE_RECORDS * BYTES_PER_RECORD * 2))])
    runtime = Runtime(journal, Counter, lambda: int(trio.current_time() * 1000), threads=SlowThreads())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run)
        await trio.testing.wait_all_tasks_blocked()
        journal.epoch = 1
        runtime.leadership_changed()
        await trio.sleep(10)
        assert (await runtime.read("id", lambda machine: machine)).keys == [b"long"]
        nursery.cancel_scope.cancel()


async def test_failed_replay_of_a_long_record_is_repeated_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Failing(Counter):
        def replay(self, key: bytes, value: bytes | None, *, loading: bool) -> None:
            if trio.current_time() < 100:
                raise ValueError("cannot be")
            super().replay(key, value, loading=loading)

    journal = MemoryJournal([(b"long", bytes(SLICE_RECORDS * BYTES_PER_RECORD * 2))])
    runtime = Runtime(journal, Failing, lambda: 0, threads=SlowThreads())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run)
        await trio.sleep(0.5)
        with pytest.raises(RequestError) as caught:
            await runtime._shards.when_active(0)
        assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await trio.sleep(100)
        assert (await runtime._shards.when_active(0)).machine.keys == [b"long"]
        nursery.cancel_scope.cancel()
