"""A coordinator's runtime, rule by rule: who is left waiting, what is decided no more, and what is read again."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.coordinators.runtime.errors import client_code
from barnabas.coordinators.runtime.runtime import Runtime
from barnabas.coordinators.runtime.shards import (
    ANSWERS_PER_TURN,
    BYTES_PER_RECORD,
    READ_AGAIN_SECONDS,
    SLICE_RECORDS,
)
from barnabas.coordinators.runtime.waiting import raising
from barnabas.coordinators.statemachine.decision import Decision, Entry, ManyReplies
from barnabas.errors import PeerError, RequestError, StorageError
from barnabas.serving.deferred import resolved
from barnabas.wire.generated.errors import ErrorCode
from tests.support.journals import MemoryJournal

from .test_large_events import SlowThreads, Turns, always, large, shard_of
from .test_large_events import running as running_with_threads
from .test_loading import SMALL, Counter, journal_of, running, write

RUNS_SOURCES = True
"""Stand-ins here are for classes that may be compiled, where nothing else is taken for them."""

REFUSAL = RequestError(ErrorCode.INVALID_REQUEST, "refused")


async def code_of(awaitable: Any) -> int:
    with pytest.raises(RequestError) as caught:
        await awaitable
    return caught.value.code


# --- who is left waiting ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["answered", "refused", "cancelled"])
async def test_nobody_is_remembered_who_waits_no_longer(outcome, autojump_clock):
    async with running(journal_of(SMALL)) as runtime:

        def event(_: Counter, out: Decision, number: int) -> None:
            if outcome == "refused":
                raise REFUSAL
            if outcome == "answered":
                out.replies.append((number, "answer"))

        if outcome == "answered":
            assert await resolved(runtime.write_for_reply("id", event, raising)) == "answer"
        elif outcome == "refused":
            assert (
                await code_of(resolved(runtime.write_for_reply("id", event, raising)))
                == ErrorCode.INVALID_REQUEST
            )
        else:
            with trio.move_on_after(1) as scope:
                await resolved(runtime.write_for_reply("id", event, raising))
            assert scope.cancelled_caught
        assert shard_of(runtime).waiting == {}


async def test_who_is_answered_before_the_runtime_runs_is_answered_at_once(autojump_clock):
    runtime = Runtime(journal_of(SMALL), Counter, lambda: 0)
    await runtime.read("id", lambda machine: machine)
    for way in ("replies", "many"):

        def event(machine: Counter, out: Decision, number: int, way: str = way) -> None:
            write(machine, out)
            if way == "replies":
                out.replies.append((number, "answer"))
            else:
                out.many_replies.append(ManyReplies({"answer": number}, lambda key: key))

        assert await resolved(runtime.write_for_reply("id", event, raising)) == "answer"


@pytest.mark.parametrize("way", ["replies", "many", "both"])
async def test_all_who_a_decision_answers_fail_with_it(way, autojump_clock):
    journal = journal_of(SMALL)
    async with running(journal) as runtime, trio.open_nursery() as nursery:
        await runtime.read("id", lambda machine: machine)
        numbers: list[int] = []
        codes: list[int] = []

        async def wait() -> None:
            codes.append(
                await code_of(
                    resolved(runtime.write_for_reply("id", lambda _, out, n: numbers.append(n), raising))
                )
            )

        for _ in range(2):
            nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        journal.commits = trio.Event()

        def answer(machine: Counter, out: Decision) -> None:
            write(machine, out)
            first, second = numbers
            if way != "many":
                out.replies.append((first, "answer"))
            if way != "replies":
                to = {"b": second} if way == "both" else {"a": first, "b": second}
                out.many_replies.append(ManyReplies(to, lambda key: key))
            else:
                out.replies.append((second, "answer"))

        nursery.start_soon(code_of, runtime.write("id", answer))
        await trio.sleep(4.9)
        assert codes == []
        await trio.sleep(0.2)
        assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2, "replicas have not followed in time"


# --- what is decided no more --------------------------------------------------------------------------------------


async def test_a_round_of_events_ends_for_a_shard_that_is_out_of_service(autojump_clock):
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        machine = await runtime.read("id", lambda machine: machine)

        def lose(_: Counter, out: Decision) -> None:
            runtime._shards.unload(shard_of(runtime), "a test")

        decided: list[str] = []
        await runtime.write_all(lambda _: [lose, lambda machine, out: decided.append("after")])
        assert decided == []
        assert await runtime.read("id", lambda machine: machine) is not machine
        await runtime.write_all(lambda _: [lambda machine, out: decided.append("next round")])
        assert decided == ["next round"]


async def test_each_event_of_a_round_is_committed_before_the_next_one_is_made(autojump_clock):
    journal = journal_of(0)
    async with running(journal) as runtime, trio.open_nursery() as nursery:
        await runtime.read("id", lambda machine: machine)
        journal.commits = trio.Event()
        made: list[int] = []

        def events_of(machine: Counter) -> Any:
            for _ in range(2):
                made.append(len(machine.keys))
                yield write

        nursery.start_soon(runtime.write_all, events_of)
        await trio.testing.wait_all_tasks_blocked()
        assert made == [0]
        journal.commits.set()
        await trio.testing.wait_all_tasks_blocked()
        assert made == [0, 1]


@pytest.mark.parametrize("error", [REFUSAL, ValueError("a defect")])
@pytest.mark.parametrize("is_ahead", [False, True])
@pytest.mark.parametrize("aside", [False, True])
async def test_only_a_defect_of_what_is_ahead_has_the_shard_read_again(
    error, is_ahead, aside, autojump_clock
):
    async with running_with_threads(journal_of(SMALL)) as runtime:
        machine = await runtime.read("id", lambda machine: machine)

        def event(machine: Counter, out: Decision) -> None:
            out.is_ahead = is_ahead
            raise error

        with pytest.raises(type(error)):
            await runtime.write("id", event, is_large=always if aside else None)
        again = await runtime.read("id", lambda machine: machine)
        assert (again is machine) is (not is_ahead or error is REFUSAL)


async def test_machines_are_told_of_when_all_of_their_state_is_committed(autojump_clock):
    journal = journal_of(SMALL)
    async with running(journal) as runtime, trio.open_nursery() as nursery:
        machine = await runtime.read("id", lambda machine: machine)
        journal.commits = trio.Event()
        told: list[Any] = []

        async def ask(asking: Any) -> None:
            told.append(await asking())

        for asking in (runtime.machines, lambda: runtime.read("id", lambda machine: machine)):
            nursery.start_soon(ask, asking)
        await trio.testing.wait_all_tasks_blocked()
        assert told == []
        journal.commits.set()
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(map(str, told)) == sorted(map(str, [[machine], machine]))


@pytest.mark.parametrize("told", [True, False])
async def test_who_acts_on_a_shard_that_it_has_is_refused_when_another_leads(told, autojump_clock):
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        await runtime.read("id", lambda machine: machine)
        shard = shard_of(runtime)
        await runtime.write_on(shard, write)
        journal.epoch = 1
        if told:
            runtime.leadership_changed()
        assert await code_of(runtime.write_on(shard, write)) == ErrorCode.NOT_COORDINATOR
        assert len(journal.records) == SMALL + 1


async def test_who_acts_on_a_shard_waits_until_that_is_free_and_what_it_decides_is_committed(autojump_clock):
    async with running_with_threads(journal_of(SMALL)) as runtime, trio.open_nursery() as nursery:
        shard = shard_of(runtime)
        nursery.start_soon(lambda: runtime.write("id", large, is_large=always))
        await trio.testing.wait_all_tasks_blocked()
        seen = await runtime.write_on(shard, lambda machine, out: len(machine.keys))
        assert seen == SMALL + 2
        runs = runtime._threads.runs  # type: ignore[union-attr]
        assert await runtime.write_on(shard, large, is_large=always) == SMALL + 2
        assert runtime._threads.runs == runs + 2  # type: ignore[union-attr]


# --- effects and timers -------------------------------------------------------------------------------------------


class Acting(Runtime[Counter]):
    """Notes the effects that it takes; one that fails is a defect."""

    def __init__(self, journal: MemoryJournal, **options: Any) -> None:
        super().__init__(journal, Counter, lambda: int(trio.current_time() * 1000), **options)
        self.taken: list[Any] = []

    async def take_effect(self, effect: Any, shard: Any) -> None:
        self.taken.append(effect)
        if effect == "broken":
            raise ValueError(effect)


@pytest.mark.parametrize("is_committed", [True, False])
async def test_what_is_to_happen_elsewhere_happens_when_it_is_certain(is_committed, autojump_clock, caplog):
    journal = journal_of(SMALL)
    runtime = Acting(journal)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run)
        await trio.testing.wait_all_tasks_blocked()
        machine = await runtime.read("id", lambda machine: machine)
        journal.commits = trio.Event()

        def event(machine: Counter, out: Decision) -> None:
            write(machine, out)
            out.effects += ["broken", "effect"]

        async def perform() -> None:
            with suppress(RequestError):
                await runtime.write("id", event)

        nursery.start_soon(perform)
        await trio.sleep(1)
        assert runtime.taken == []
        if is_committed:
            journal.commits.set()
        await trio.sleep(10)
        assert sorted(runtime.taken) == (["broken", "effect"] if is_committed else [])
        assert ("ValueError: broken" in caplog.text) is is_committed
        journal.commits.set()
        assert (await runtime.read("id", lambda machine: machine) is machine) is is_committed, (
            "else the next one finds what is to be done"
        )
        nursery.cancel_scope.cancel()


async def test_a_timer_that_is_ended_by_hand_waits_for_the_shard(autojump_clock):
    async with running_with_threads(journal_of(SMALL)) as runtime, trio.open_nursery() as nursery:
        machine = await runtime.read("id", lambda machine: machine)
        ended: list[tuple[Any, int]] = []
        machine.expire = lambda key, now_ms, out: ended.append((key, len(machine.keys)))  # type: ignore[method-assign]

        def set_timer(_: Counter, out: Decision) -> None:
            out.timers["later"] = int(trio.current_time() * 1000) + 10**6

        await runtime.write("id", set_timer)
        nursery.start_soon(lambda: runtime.write("id", large, is_large=always))
        await trio.testing.wait_all_tasks_blocked()
        assert runtime.end_timer("later")
        assert ended == []
        await trio.sleep(20)
        assert ended == [("later", SMALL + 2)]


@pytest.mark.parametrize(
    "failure", [RequestError(ErrorCode.NOT_ENOUGH_REPLICAS), StorageError("/d", OSError(5, "x"))]
)
async def test_a_timer_whose_decision_cannot_be_written_comes_again_a_second_later(failure, autojump_clock):
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        machine = await runtime.read("id", lambda machine: machine)
        await trio.sleep(1)
        times: list[float] = []

        def expire(key: Any, now_ms: int, out: Decision) -> None:
            times.append(round(trio.current_time() - began, 2))
            write(machine, out)

        machine.expire = expire  # type: ignore[method-assign, assignment]
        journal.append_failure = failure
        began = trio.current_time()

        def set_timer(_: Counter, out: Decision) -> None:
            out.timers["due"] = int(trio.current_time() * 1000)

        await runtime.write("id", set_timer)
        await trio.sleep(2.5)
        if isinstance(failure, StorageError):
            assert len(times) == 1
        else:
            assert times == pytest.approx([0, READ_AGAIN_SECONDS, 2 * READ_AGAIN_SECONDS], abs=0.01)


# --- what is read -------------------------------------------------------------------------------------------------


class Marked(MemoryJournal):
    """A journal with a marker, as no coordinator's but the groups' has, before its records."""

    def read(self, partition: int) -> Any:
        yield Entry([], 7, True, offsets=[40])
        yield from super().read(partition)


async def test_a_marker_that_is_nobodys_and_records_that_cannot_be_read_are_named_and_left_out(
    autojump_clock, caplog
):
    class Picky(Counter):
        def replay(self, key: bytes, value: bytes | None, *, loading: bool) -> None:
            assert loading
            if key == b"1":
                raise PeerError("what is this")
            super().replay(key, value, loading=loading)

    runtime = Runtime(Marked([(b"0", b""), (b"1", b""), (b"2", b"")]), Picky, lambda: 0)
    assert (await runtime.read("id", lambda machine: machine)).keys == [b"0", b"2"]
    assert "offset 40, which changes nothing: no coordinator can have written it: no transaction" in (
        caplog.text
    )
    assert "offset 1, which changes nothing: no coordinator can have written it: what is this" in (
        caplog.text
    )


async def test_a_shard_that_is_given_up_twice_is_read_again_once(autojump_clock):
    journal = journal_of(SMALL)
    made: list[Counter] = []

    def make() -> Counter:
        made.append(Counter())
        return made[-1]

    runtime = Runtime(journal, make, lambda: int(trio.current_time() * 1000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(2):
            await runtime.read("id", lambda machine: machine)
            runtime._shards.read_again(shard_of(runtime), "a test")
        assert len(made) == 2
        assert runtime._shards.get(0) is None
        await trio.sleep(READ_AGAIN_SECONDS * 0.9)
        assert len(made) == 2, "soon, not at once"
        await trio.sleep(READ_AGAIN_SECONDS * 5)
        assert len(made) == 3
        runtime._shards.read_again(shard_of(runtime), "a test")
        machine = await runtime.read("id", lambda machine: machine)
        await trio.sleep(READ_AGAIN_SECONDS * 5)
        assert await runtime.read("id", lambda machine: machine) is machine, (
            "somebody has asked for it before"
        )
        assert len(made) == 4
        nursery.cancel_scope.cancel()


async def test_what_was_to_be_read_again_is_not_when_its_topic_was_deleted_meanwhile(autojump_clock):
    async with running(journal_of(SMALL)) as runtime:
        await runtime.read("id", lambda machine: machine)
        await trio.testing.wait_all_tasks_blocked()  # so that nobody else is about to load it
        runtime._shards.read_again(shard_of(runtime), "a test")
        runtime.unload()
        await trio.sleep(READ_AGAIN_SECONDS * 5)
        assert runtime._shards.get(0) is None


async def test_a_large_shard_that_fails_while_it_is_read_lets_nobody_wait(autojump_clock):
    journal = journal_of(SLICE_RECORDS * 3)
    async with running(journal) as runtime, trio.open_nursery() as nursery:
        codes: list[int] = []

        async def wait() -> None:
            codes.append(await code_of(runtime._shards.when_active(0)))

        nursery.start_soon(wait)
        journal.failure = ValueError("cannot be")
        await trio.sleep(1)
        assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        journal.failure = None
        assert len((await runtime._shards.when_active(0)).machine.keys) == SLICE_RECORDS * 3


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode.NOT_COORDINATOR),
        (RequestError(ErrorCode.FENCED_LEADER_EPOCH), ErrorCode.NOT_COORDINATOR),
        (RequestError(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.NOT_COORDINATOR),
        (StorageError("/d", OSError(5, "x")), ErrorCode.NOT_COORDINATOR),
        (RequestError(ErrorCode.NOT_ENOUGH_REPLICAS), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (RequestError(ErrorCode.INVALID_PRODUCER_EPOCH), ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
async def test_a_shard_that_cannot_be_read_fails_with_what_that_means_to_a_client(
    error, code, autojump_clock
):
    assert client_code(error) == code
    journal = journal_of(SMALL)
    journal.failure = error
    async with running(journal) as runtime:
        assert await code_of(runtime.read("id", lambda machine: machine)) == code
        journal.failure = None
        assert len((await runtime.read("id", lambda machine: machine)).keys) == SMALL


@pytest.mark.parametrize("moves", [False, True])
async def test_a_long_record_that_cannot_be_replayed_fails_its_shard_and_no_other(moves, autojump_clock):
    class Broken(Counter):
        def replay(self, key: bytes, value: bytes | None, *, loading: bool) -> None:
            if self.is_broken:
                raise ValueError("cannot be")
            super().replay(key, value, loading=loading)

        is_broken = True

    journal = MemoryJournal([(b"long", bytes(SLICE_RECORDS * BYTES_PER_RECORD * 2))])
    runtime = Runtime(journal, Broken, lambda: 0, threads=SlowThreads())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run)
        await trio.sleep(0.5)
        codes: list[int] = []

        async def wait() -> None:
            codes.append(await code_of(runtime._shards.when_active(0)))

        nursery.start_soon(wait)
        await trio.sleep(0.1)
        if moves:
            journal.epoch = 1
            runtime._shards.unload_moved()
        await trio.sleep(10)
        assert codes == [ErrorCode.NOT_COORDINATOR if moves else ErrorCode.COORDINATOR_NOT_AVAILABLE]
        Broken.is_broken = False
        assert (await runtime._shards.when_active(0)).machine.keys == [b"long"]
        nursery.cancel_scope.cancel()


async def test_very_many_who_wait_fail_in_several_turns(autojump_clock):
    async with running(journal_of(SMALL)) as runtime, trio.open_nursery() as nursery:
        await runtime.read("id", lambda machine: machine)
        count = 10 * ANSWERS_PER_TURN
        codes: list[int] = []

        async def wait() -> None:
            codes.append(
                await code_of(
                    resolved(runtime.write_for_reply("id", lambda machine, out, number: None, raising))
                )
            )

        for _ in range(count):
            nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        turns = Turns()
        trio.lowlevel.add_instrument(turns)
        runtime.unload()
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.remove_instrument(turns)
        assert codes == [ErrorCode.NOT_COORDINATOR] * count
        assert turns.count >= count // ANSWERS_PER_TURN - 1
