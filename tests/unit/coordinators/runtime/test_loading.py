"""A coordinator loads its state at once if that is quick, and otherwise beside the broker's other work."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from barnabas.coordinators.runtime.runtime import Runtime
from barnabas.coordinators.runtime.shards import SLICE_RECORDS
from barnabas.coordinators.statemachine.decision import Decision, Entry
from barnabas.errors import PeerError, RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.journals import MemoryJournal

SMALL, LARGE = SLICE_RECORDS - 1, SLICE_RECORDS * 10


class Counter:
    """A machine that remembers the keys that it was given; on being loaded it notes when, and sets a timer."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.loaded_with = -1
        self.expired = 0

    def replay(self, key: bytes, value: bytes | None, *, loading: bool) -> None:
        self.keys.append(key)

    def loaded(self, now_ms: int, out: Decision) -> None:
        self.loaded_with = len(self.keys)
        out.timers["due"] = now_ms + 10

    def expire(self, timer: Hashable, now_ms: int, out: Decision) -> None:
        self.expired += 1


def journal_of(count: int) -> MemoryJournal:
    return MemoryJournal([(b"%d" % number, b"") for number in range(count)])


def runtime_of(journal: MemoryJournal) -> Runtime[Counter]:
    return Runtime(journal, Counter, lambda: int(trio.current_time() * 1000))


@asynccontextmanager
async def running(journal: MemoryJournal) -> AsyncIterator[Runtime[Counter]]:
    runtime = runtime_of(journal)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run)
        for _ in range(2):
            await trio.lowlevel.checkpoint()
        yield runtime
        nursery.cancel_scope.cancel()


def write(_: Counter, out: Decision) -> None:
    out.records.append((b"written", b""))


async def code_of(runtime: Runtime[Counter]) -> int:
    with pytest.raises(RequestError) as caught:
        await runtime.write("id", write)
    return caught.value.code


async def test_what_is_quick_to_read_is_there_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with running(journal_of(SMALL)) as runtime:
        assert len((await runtime.read("id", lambda machine: machine)).keys) == SMALL


async def test_who_asks_while_it_is_read_is_told_so(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(LARGE)
    async with running(journal) as runtime:
        assert await code_of(runtime) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await code_of(runtime) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it is read once, not twice"
        with pytest.raises(RequestError):
            await runtime.read("id", lambda machine: machine)
        with pytest.raises(RequestError):
            await runtime.machines()
        assert len(journal.records) == LARGE, "nothing was written meanwhile"
        await trio.testing.wait_all_tasks_blocked()
        await runtime.write("id", write)
        machine = await runtime.read("id", lambda machine: machine)
        assert machine.loaded_with == LARGE
        assert machine.keys == [key for key, _ in journal.records]


async def test_others_have_their_turn_while_it_is_read(autojump_clock: trio.testing.MockClock) -> None:
    async with running(journal_of(LARGE)) as runtime:
        assert await code_of(runtime) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        turns = 0
        while True:
            try:
                await runtime.read("id", lambda machine: machine)
                break
            except RequestError:
                turns += 1
                await trio.lowlevel.checkpoint()
        assert turns >= LARGE // SLICE_RECORDS - 3


async def test_what_is_appended_meanwhile_is_not_missed(autojump_clock: trio.testing.MockClock) -> None:
    """Another coordinator writes the end of a transaction, also while the groups are read."""
    journal = journal_of(LARGE)
    async with running(journal) as runtime:
        assert await code_of(runtime) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        journal.append(0, [(b"marker", b"")], 0)
        await trio.testing.wait_all_tasks_blocked()
        assert (await runtime.read("id", lambda machine: machine)).keys[-1] == b"marker"
        assert (await runtime.read("id", lambda machine: machine)).loaded_with == LARGE + 1


async def test_what_concerns_everything_waits_for_it(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(LARGE)
    async with running(journal) as runtime:
        await runtime.write_all(lambda _: (write,))
        assert journal.records[-1][0] == b"written"


async def test_it_is_loaded_without_being_asked_for(autojump_clock: trio.testing.MockClock) -> None:
    """A member that is gone for good is missed without another request for its group."""
    async with running(journal_of(LARGE)) as runtime:
        await trio.sleep(1)
        machine = await runtime.read("id", lambda machine: machine)
        assert machine.loaded_with == LARGE
        assert machine.expired == 1


async def test_nothing_is_made_of_an_empty_partition(autojump_clock: trio.testing.MockClock) -> None:
    machines: list[Counter] = []

    def make() -> Counter:
        machines.append(Counter())
        return machines[-1]

    runtime = Runtime(journal_of(0), make, lambda: 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run)
        await trio.testing.wait_all_tasks_blocked()
        assert not machines
        await runtime.write("id", write)
        assert len(machines) == 1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (StorageError("dir", OSError(errno.EIO, "broken")), ErrorCode.NOT_COORDINATOR),
        (RequestError(ErrorCode.CORRUPT_MESSAGE, "broken"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_what_cannot_be_read_is_tried_again(
    failure: Exception, code: int, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    journal = journal_of(LARGE)
    journal.failure = failure
    async with running(journal) as runtime:
        assert await code_of(runtime) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await trio.testing.wait_all_tasks_blocked()
        assert "cannot be read" in caplog.text
        await runtime.write_all(lambda _: (write,))
        assert len(journal.records) == LARGE
        journal.failure = None
        assert await code_of(runtime) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await trio.testing.wait_all_tasks_blocked()
        assert (await runtime.read("id", lambda machine: machine)).loaded_with == LARGE
    small = journal_of(4)
    small.failure = failure
    async with running(small) as runtime:
        assert await code_of(runtime) == code


async def test_what_shards_need_is_prepared_once() -> None:
    prepared: list[float] = []

    async def prepare() -> None:
        prepared.append(trio.current_time())

    runtime = Runtime(journal_of(SMALL), Counter, lambda: 0, prepare=prepare)
    for _ in range(2):
        await runtime.read("id", lambda machine: machine)
        await runtime.prepare()
        await runtime.load_all()
        runtime.unload()
    assert len(prepared) == 1


async def test_records_that_cannot_be_read_are_logged_and_skipped(autojump_clock, caplog):
    class Marked(MemoryJournal):
        def read(self, partition: int) -> Iterator[Entry]:
            yield Entry([], 7, True, offsets=[40])
            yield from super().read(partition)

    class Picky(Counter):
        def replay(self, key: bytes, value: bytes | None, *, loading: bool) -> None:
            if key == b"1":
                raise PeerError("what is this")
            super().replay(key, value, loading=loading)

    runtime = Runtime(Marked([(b"0", b""), (b"1", b""), (b"2", b"")]), Picky, lambda: 0)
    assert (await runtime.read("id", lambda machine: machine)).keys == [b"0", b"2"]
    for place in ("offset 40, which changes nothing", "offset 1, which changes nothing"):
        assert f"{place}: no coordinator can have written it" in caplog.text


@pytest.mark.parametrize("count", [SMALL, LARGE])
async def test_failed_replay_is_repeated_by_a_later_request(count, autojump_clock):
    journal = journal_of(count)
    journal.failure = ValueError("cannot be")
    async with running(journal) as runtime:
        await trio.sleep(1)
        refused = await code_of(runtime)
        assert refused in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        journal.failure = None
        with suppress(RequestError):
            await runtime.read("id", lambda machine: machine)
        await trio.sleep(1)
        assert await runtime.read("id", lambda machine: len(machine.keys)) == count
