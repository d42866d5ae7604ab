"""A shard belongs to one leader epoch of its partition: a former leader answers NOT_COORDINATOR, a new one reads first."""

from __future__ import annotations

import pytest
import trio

from barnabas.coordinators.runtime.runtime import Runtime
from barnabas.coordinators.runtime.waiting import raising
from barnabas.errors import RequestError
from barnabas.serving.deferred import resolved
from barnabas.wire.generated.errors import ErrorCode
from tests.support.journals import MemoryJournal

from .test_loading import LARGE, SMALL, Counter, code_of, journal_of, running, write


async def wait_for_answer(runtime: Runtime[Counter], codes: list[int]) -> None:
    """A request that some other event must answer."""
    with pytest.raises(RequestError) as caught:
        await resolved(runtime.write_for_reply("id", lambda machine, out, number: None, raising))
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
        machine = await runtime.read("id", lambda machine: machine)
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
        await runtime.write("id", write)
        journal.epoch = None
        runtime.leadership_changed()
        assert await code_of(runtime) == ErrorCode.NOT_COORDINATOR
        with pytest.raises(RequestError) as caught:
            await runtime.read("id", lambda machine: machine.keys)
        assert caught.value.code == ErrorCode.NOT_COORDINATOR


async def test_who_comes_back_reads_what_others_have_written(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        first = await runtime.read("id", lambda machine: machine)
        journal.epoch = None
        runtime.leadership_changed()
        await trio.testing.wait_all_tasks_blocked()
        journal.records.append((b"of another leader", b""))
        journal.epoch = 2
        runtime.leadership_changed()
        await trio.testing.wait_all_tasks_blocked()
        second = await runtime.read("id", lambda machine: machine)
        assert second is not first
        assert second.keys[-1] == b"of another leader"


async def test_another_epoch_is_seen_before_its_event_comes(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(0)
    async with running(journal) as runtime:
        await runtime.read("id", lambda machine: machine)
        journal.records.append((b"of another leader", b""))
        journal.epoch = 2
        await runtime.write("id", write)
        assert (await runtime.read("id", lambda machine: machine)).keys == [b"of another leader", b"written"]


async def test_an_append_that_is_refused_unloads(autojump_clock: trio.testing.MockClock) -> None:
    """The event was decided, and then the partition was no longer led here."""
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        first = await runtime.read("id", lambda machine: machine)

        def lose_and_write(machine, out) -> None:
            journal.epoch = None
            write(machine, out)

        with pytest.raises(RequestError) as caught:
            await runtime.write("id", lose_and_write)
        assert caught.value.code == ErrorCode.NOT_COORDINATOR
        journal.epoch = 1
        assert await runtime.read("id", lambda machine: machine) is not first
        assert len(journal.records) == SMALL


async def test_who_loses_it_while_reading_begins_again(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(LARGE)
    async with running(journal) as runtime:
        assert await code_of(runtime) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        journal.epoch = 1
        del journal.records[SMALL:]
        runtime.leadership_changed()
        await trio.testing.wait_all_tasks_blocked()
        assert len((await runtime.read("id", lambda machine: machine)).keys) == SMALL


async def test_new_leader_loads_without_a_request(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(LARGE)
    journal.epoch = None
    async with running(journal) as runtime:
        await trio.testing.wait_all_tasks_blocked()
        journal.epoch = 1
        runtime.leadership_changed()
        await trio.sleep(1)
        machine = await runtime.read("id", lambda machine: machine)
        assert (machine.loaded_with, machine.expired) == (LARGE, 1)


async def test_queries_wait_until_what_they_saw_is_committed(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(0)
    async with running(journal) as runtime:
        await runtime.write("id", write)
        journal.commits = trio.Event()
        seen: list[object] = []

        async def look() -> None:
            seen.append(await runtime.read("id", lambda machine: len(machine.keys)))

        async def look_at_all() -> None:
            seen.append(await runtime.read_all(lambda machine: [len(machine.keys)]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.write, "id", write)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(look)
            nursery.start_soon(look_at_all)
            await trio.testing.wait_all_tasks_blocked()
            assert not seen
            journal.commits.set()
        assert sorted(seen, key=str) == [2, [2]]


class TwoPartitions(MemoryJournal):
    """A journal of two partitions: another broker leads the second, or it is offline."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def partition_count(self) -> int:
        return 2

    def leader_epoch(self, partition: int) -> int:
        if partition:
            raise RequestError(self.code)
        return super().leader_epoch(partition)


async def test_what_another_broker_leads_is_no_part_of_what_is_listed(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    journal = TwoPartitions([(b"a", b"")])
    async with running(journal) as runtime:
        await trio.testing.wait_all_tasks_blocked()
        assert await runtime.read_all(lambda machine: machine.keys) == [b"a"]
        assert len(await runtime.machines()) == 1
        await runtime.write_all(lambda machine: [write])
        assert journal.records[1:] == [(b"written", b"")]
        assert not caplog.records


async def test_what_is_offline_is_missed_in_what_is_listed(autojump_clock: trio.testing.MockClock) -> None:
    journal = TwoPartitions([(b"a", b"")])
    journal.code = ErrorCode.KAFKA_STORAGE_ERROR
    async with running(journal) as runtime:
        with pytest.raises(RequestError) as caught:
            await runtime.read_all(lambda machine: machine.keys)
        assert caught.value.code == ErrorCode.NOT_COORDINATOR


async def test_what_was_read_is_told_once_it_is_committed(autojump_clock: trio.testing.MockClock) -> None:
    """The last leader may have gone before anybody else had it."""
    journal = journal_of(SMALL)
    journal.commits = trio.Event()
    told: list[int] = []

    async def look() -> None:
        told.append(await runtime.read("id", lambda machine: len(machine.keys)))

    async with running(journal) as runtime, trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await trio.testing.wait_all_tasks_blocked()
        assert not told
        journal.commits.set()
        await trio.testing.wait_all_tasks_blocked()
        assert told == [SMALL]


async def test_too_few_replicas_do_not_unload_what_is_in_the_log(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Failing(MemoryJournal):
        def is_committed(self, partition: int, end_offset: int) -> bool:
            return False

        async def wait_committed(self, partition: int, end_offset: int) -> None:
            raise RequestError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    journal = MemoryJournal()
    async with running(journal) as runtime:
        machine = await runtime.read("id", lambda machine: machine)
        journal.__class__ = Failing
        assert await code_of(runtime) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        journal.__class__ = MemoryJournal
        assert await runtime.read("id", lambda machine: machine) is machine
        assert machine.keys == [b"written"]
