"""The transaction coordinator over a journal in memory: ends, markers that are retried, and requests that wait."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.coordinators.runtime.journal import is_led_in, led_partitions
from barnabas.coordinators.statemachine.decision import EVENT_SIZE_MAX
from barnabas.coordinators.transactions import coordinator as transaction_coordinator
from barnabas.coordinators.transactions.coordinator import PATIENCE_SECONDS, TransactionCoordinator
from barnabas.coordinators.transactions.settings import TransactionSettings
from barnabas.coordinators.transactions.transaction import EPOCH_MAX_OF_CLIENTS, Producer, State
from barnabas.coordinators.transactions.verification import LocalVerifier
from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.journals import MemoryJournal

A, B = ("t", 0), ("t", 1)
TIMEOUT_MS = 60_000


class Markers:
    """Partitions that get markers: `failures` are raised first, one for each attempt; `gate` holds all of them up."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.written: list[Any] = []
        self.attempts: list[float] = []
        self.versions: list[int] = []
        """Of the clients that have ended what was written."""
        self.gate = trio.Event()
        self.gate.set()
        self.elsewhere: set[tuple[str, int]] = set()
        """Partitions that other brokers must hear of."""

    def is_at_hand(self, topic_partition):
        return topic_partition not in self.elsewhere

    async def write(self, topic_partition, producer, coordinator_epoch, commit, client_version):
        self.attempts.append(trio.current_time())
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.written.append((topic_partition, producer, coordinator_epoch, commit))
        self.versions.append(client_version)


class World:
    def __init__(self, coordinator: TransactionCoordinator, journal: MemoryJournal, markers: Markers) -> None:
        self.coordinator = coordinator
        self.journal = journal
        self.markers = markers

    async def begun(self, *topic_partitions: tuple[str, int]) -> Producer:
        producer = await self.coordinator.init_producer("x", TIMEOUT_MS, None)
        await self.coordinator.add_partitions("x", producer, frozenset(topic_partitions or (A,)), 0)
        return producer

    async def end(self, producer: Producer, *, commit: bool = True, version: int = 0) -> Producer:
        return await self.coordinator.end("x", producer, commit=commit, client_version=version)

    @property
    def state(self) -> State:
        transaction = self.coordinator.transaction_of("x")
        assert transaction is not None
        return transaction.state


class Threads:
    """Counts what is done in threads."""

    def __init__(self) -> None:
        self.runs = 0

    async def run(self, work: Any) -> Any:
        self.runs += 1
        return work()


@asynccontextmanager
async def running(threads: Threads | None = None) -> AsyncIterator[World]:
    journal, markers, ids = MemoryJournal(), Markers(), count(100)
    journal.epoch = 5

    async def new_id() -> int:
        return next(ids)

    coordinator = TransactionCoordinator(
        journal, TransactionSettings(), lambda: round(trio.current_time() * 1000),
        new_producer_id=new_id, markers=markers, threads=threads,  # type: ignore[arg-type]
    )  # fmt: skip
    async with trio.open_nursery() as nursery:
        nursery.start_soon(coordinator.run)
        await trio.testing.wait_all_tasks_blocked()
        yield World(coordinator, journal, markers)
        nursery.cancel_scope.cancel()


async def code_of(awaitable: Any) -> int:
    with pytest.raises(RequestError) as refused:
        await awaitable
    return refused.value.code


@pytest.mark.parametrize("commit", [True, False])
async def test_end_in_partitions_at_hand_is_answered_when_complete(autojump_clock, commit):
    async with running() as world:
        producer = await world.begun(A, B)
        began = trio.current_time()
        assert await world.end(producer, commit=commit) == producer
        assert trio.current_time() == began
        assert sorted(world.markers.written) == [(A, producer, 5, commit), (B, producer, 5, commit)]
        assert world.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)


async def test_no_marker_is_written_before_the_end_is_certain(autojump_clock):
    async with running() as world, trio.open_nursery() as nursery:
        producer = await world.begun()
        world.journal.commits = trio.Event()
        nursery.start_soon(partial(world.end, producer))
        await trio.sleep(0.5)
        assert world.state is State.PREPARE_COMMIT
        assert world.markers.attempts == []
        world.journal.commits.set()
        await trio.sleep(0.1)
        assert world.markers.written == [(A, producer, 5, True)]


async def test_uncommitted_end_is_resumed_by_the_next_shard(autojump_clock, caplog):
    async with running() as world:
        producer = await world.begun()
        world.journal.commits = trio.Event()
        codes = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)  # whichever wait ends first
        assert await code_of(world.end(producer)) in codes
        assert world.markers.attempts == []
        world.journal.commits.set()
        await trio.sleep(5)
        assert world.markers.written == [(A, producer, 5, True)]
        assert "effects in partition 0 are delayed until it is read again" in caplog.text


async def test_end_in_local_partitions_is_answered_after_a_second(autojump_clock):
    async with running() as world:
        producer = await world.begun()
        world.markers.gate = trio.Event()
        began = trio.current_time()
        await world.end(producer)
        assert trio.current_time() == began + PATIENCE_SECONDS
        assert world.state is State.PREPARE_COMMIT
        began = trio.current_time()
        assert await code_of(world.begun()) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert trio.current_time() == pytest.approx(began + PATIENCE_SECONDS)
        world.markers.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert world.state is State.COMPLETE_COMMIT


async def test_each_end_is_awaited_separately(autojump_clock):
    async with running() as world:
        producer = await world.begun()
        await world.end(producer)
        began = trio.current_time()
        assert await world.end(producer) == producer, "asked again"
        assert trio.current_time() == began
        await world.coordinator.add_partitions("x", producer, frozenset({B}), 0)
        world.markers.gate = trio.Event()
        await world.end(producer)
        assert trio.current_time() == began + PATIENCE_SECONDS, "it is not the end of the one before"
        world.markers.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert world.coordinator._ended == {}


@pytest.mark.parametrize("more", [0, 1])
async def test_a_transaction_of_very_many_partitions_decides_aside(autojump_clock, more):
    """Those that it has count, and those that come."""
    many = [("t", number) for number in range(EVENT_SIZE_MAX + more)]
    async with running(threads := Threads()) as world:
        await world.coordinator.prepare()
        producer = await world.begun(*many[: EVENT_SIZE_MAX // 2])
        assert threads.runs == 1, "what is imported"

        async def runs(asking: Any) -> int:
            before = threads.runs
            await asking
            return threads.runs - before

        of_large = 2 * more  # it decides, and is replayed
        rest = frozenset(many[EVENT_SIZE_MAX // 2 :])
        assert await runs(world.coordinator.add_partitions("x", producer, rest, 0)) == of_large
        assert await runs(world.coordinator.init_producer("y", TIMEOUT_MS, None)) == 0
        if more:
            assert await runs(world.end(producer)) == of_large
        else:
            assert await runs(trio.sleep(TIMEOUT_MS / 1000 + 1)) == 0, "nor is its end by time a large event"
        assert len(world.markers.written) == len(many)


async def test_large_transaction_times_out_in_a_thread(autojump_clock):
    async with running(threads := Threads()) as world:
        await world.begun(*(("t", number) for number in range(EVENT_SIZE_MAX + 1)))
        before = threads.runs
        await trio.sleep(TIMEOUT_MS / 1000 + 1)
        assert threads.runs == before + 2
        assert world.state is State.COMPLETE_ABORT


@pytest.mark.parametrize("version", [0, 2])
async def test_markers_have_the_version_of_the_ending_client(autojump_clock, version):
    async with running() as world:
        producer = await world.begun(A, B)
        await world.end(producer, version=version)
        assert world.markers.versions == [version] * 2


async def test_markers_are_written_topic_by_topic_in_order(autojump_clock, monkeypatch):
    monkeypatch.setattr(transaction_coordinator, "MARKERS_CONCURRENT", 1)
    places = [(topic, number) for topic in ("a", "b", "c") for number in (2, 10, 33)]
    async with running() as world:
        await world.end(await world.begun(*places))
        assert [topic_partition for topic_partition, *_ in world.markers.written] == places


@pytest.mark.parametrize("way", ["end", "init"])
async def test_used_up_epochs_lead_to_a_new_producer_id(autojump_clock, way):
    async with running() as world:
        producer = await world.begun()
        machine = await world.coordinator.read("x", lambda machine: machine)
        last = Producer(producer.id, EPOCH_MAX_OF_CLIENTS)
        machine.transactions["x"] = replace(machine.transactions["x"], epoch=last.epoch)
        if way == "end":
            assert await world.end(last, version=2) == (101, 0)
            assert world.markers.written == [(A, (100, EPOCH_MAX_OF_CLIENTS + 1), 5, True)]
        else:
            await world.end(last)
            assert await world.coordinator.init_producer("x", TIMEOUT_MS, last) == (101, 0)
        transaction = world.coordinator.transaction_of("x")
        assert transaction is not None
        assert (transaction.producer, transaction.previous_producer_id) == ((101, 0), 100)
        assert (await world.coordinator.init_producer("y", TIMEOUT_MS, None)).id == 102


async def test_ids_that_nobody_uses_are_forgotten(autojump_clock):
    async with running() as world:
        await world.coordinator.init_producer("x", TIMEOUT_MS, None)
        await world.coordinator.expire_ids()
        assert world.coordinator.transaction_of("x") is not None
        await trio.sleep(TransactionSettings().id_expiration_ms / 1000 + 1)
        await world.coordinator.expire_ids()
        assert world.coordinator.transaction_of("x") is None


async def test_committed_end_is_written_after_topic_deletion(autojump_clock):
    """No other coordinator will go on with it."""
    async with running() as world:
        producer = await world.begun()
        world.markers.gate = trio.Event()
        await world.end(producer)
        world.coordinator.unload()
        world.markers.failures = [RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
        world.markers.gate.set()
        await trio.sleep(5)
        assert world.markers.written == [(A, producer, 5, True)]


async def test_who_comes_while_a_transaction_ends_waits_for_that(autojump_clock):
    async with running() as world:
        producer = await world.begun()
        world.markers.gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(world.end, producer))
            await trio.sleep(0.3)
            nursery.start_soon(world.coordinator.add_partitions, "x", producer, frozenset({B}), 0)
            await trio.sleep(0.3)
            assert not world.coordinator.is_open("x", producer, frozenset({A}))
            world.markers.gate.set()
        assert world.state is State.ONGOING
        assert await world.coordinator.verify_partitions("x", producer) == {B}


@pytest.mark.parametrize(
    "failure",
    [
        RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        RequestError(ErrorCode.NOT_ENOUGH_REPLICAS),
        StorageError("/dir", OSError(5, "broken")),
    ],
    ids=["moved", "alone", "disk"],
)
async def test_failing_marker_is_retried_with_backoff(autojump_clock, failure):
    async with running() as world:
        producer = await world.begun()
        world.markers.failures = [failure] * 6
        began = trio.current_time()
        await world.end(producer)
        await trio.sleep(60)
        assert [round(at - began, 3) for at in world.markers.attempts] == [0, 0.1, 0.3, 0.7, 1.5, 2.5, 3.5]
        assert world.markers.written == [(A, producer, 5, True)]
        assert world.state is State.COMPLETE_COMMIT


async def test_retried_marker_is_logged_once(autojump_clock, caplog):
    async with running() as world:
        producer = await world.begun()
        world.markers.failures = [RequestError(ErrorCode.NETWORK_EXCEPTION)] * 4
        await world.end(producer)
        await trio.sleep(60)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.partition(":")[0] for line in lines] == [
        "the end of transaction 'x' in t-0 is retried until it can be written"
    ]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    ],
)
async def test_unneeded_marker_does_not_block_the_end(autojump_clock, code):
    async with running() as world:
        producer = await world.begun(A, B)
        world.markers.failures = [RequestError(code)]
        await world.end(producer)
        assert len(world.markers.attempts) == 2
        assert world.state is State.COMPLETE_COMMIT


@pytest.mark.parametrize("topic_partitions", [(A,), (A, B)])
async def test_fenced_coordinator_stops_writing_markers(autojump_clock, topic_partitions):
    async with running() as world:
        producer = await world.begun(*topic_partitions)
        world.markers.failures = [RequestError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)]
        await world.end(producer)
        await trio.sleep(60)
        assert len(world.markers.attempts) == len(topic_partitions)
        assert world.state is State.PREPARE_COMMIT


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("epoch", [None, 6])
async def test_a_coordinator_that_leads_no_more_writes_no_more_markers(
    autojump_clock, caplog, epoch, is_told
):
    async with running() as world:
        producer = await world.begun()
        world.markers.failures = [RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 100
        await world.end(producer)
        world.journal.epoch = epoch
        world.markers.gate = trio.Event()  # for whoever goes on with it
        if is_told:
            world.coordinator.leadership_changed()
        attempts = len(world.markers.attempts)
        await trio.sleep(60)
        assert len(world.markers.attempts) <= attempts + 1
        assert world.markers.written == []
        assert "not written down" not in caplog.text, (
            "it does not even try to say that all have their markers"
        )


async def test_next_coordinator_writes_remaining_markers(autojump_clock):
    async with running() as world:
        producer = await world.begun()
        world.markers.gate = trio.Event()
        await world.end(producer)
        world.journal.epoch = 6
        world.coordinator.leadership_changed()
        world.markers.gate.set()
        await trio.sleep(5)
        assert world.markers.written[-1] == (A, producer, 6, True)
        assert world.state is State.COMPLETE_COMMIT


async def test_timed_out_transaction_is_aborted(autojump_clock):
    async with running() as world:
        producer = await world.begun()
        await trio.sleep(TIMEOUT_MS / 1000 - 1)
        assert world.coordinator.is_open("x", producer, frozenset({A}))
        await trio.sleep(2)
        assert world.markers.written == [(A, Producer(producer.id, producer.epoch + 1), 5, False)]
        assert world.state is State.COMPLETE_ABORT
        assert await code_of(world.end(producer)) == ErrorCode.PRODUCER_FENCED


async def test_open_transaction_covers_its_producer_and_partitions(autojump_clock):
    async with running() as world:
        producer = await world.begun(A)
        is_open = world.coordinator.is_open
        assert is_open("x", producer, frozenset({A}))
        assert not is_open("x", producer, frozenset({A, B}))
        assert not is_open("x", Producer(producer.id, producer.epoch + 1), frozenset({A}))
        assert not is_open("y", producer, frozenset({A}))
        await world.end(producer)
        assert not is_open("x", producer, frozenset({A}))


async def test_nothing_is_open_for_a_shard_that_is_out_of_service(autojump_clock):
    async with running() as world:
        producer = await world.begun(A)
        shard = world.coordinator._shards.get(0)
        assert shard is not None
        shard.unload(RequestError(ErrorCode.NOT_COORDINATOR))
        assert not world.coordinator.is_open("x", producer, frozenset({A}))


async def test_partition_outside_the_transaction_is_abortable(autojump_clock):
    async with running() as world:
        producer = await world.begun(A)
        verifier = LocalVerifier(world.coordinator)
        codes = await verifier.verify("x", producer, frozenset({A, B}), implicit=False)
        assert codes == {B: ErrorCode.TRANSACTION_ABORTABLE}
        assert await verifier.verify("x", producer, frozenset({A, B}), implicit=True) == {}
        assert await verifier.verify("x", producer, frozenset({A, B}), implicit=False) == {}
        assert not world.coordinator.is_open("x", producer, frozenset({("t", 2)}))
        transaction = world.coordinator.transaction_of("x")
        assert transaction is not None
        assert transaction.client_version == 2, (
            "who writes without adding partitions has the second version of transactions"
        )


async def test_each_transactional_id_gets_its_own_producer_id(autojump_clock):
    async with running() as world:
        ids = [(await world.coordinator.init_producer(name, TIMEOUT_MS, None)).id for name in "abc"]
        assert ids == [100, 101, 102]
        assert (await world.coordinator.init_producer("a", TIMEOUT_MS, None)) == (100, 1)


# --- who leads ------------------------------------------------------------------------------------------------------


class Partitions(MemoryJournal):
    """A journal with partitions that are led in these epochs; an exception is raised."""

    def __init__(self, *epochs: int | Exception) -> None:
        super().__init__()
        self.epochs = epochs

    def partition_count(self) -> int:
        return len(self.epochs)

    def leader_epoch(self, partition: int) -> int:
        epoch = self.epochs[partition]
        if isinstance(epoch, Exception):
            raise epoch
        return epoch


def test_offline_partitions_count_as_led():
    moved, gone = RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER), RequestError(ErrorCode.KAFKA_STORAGE_ERROR)
    journal = Partitions(3, moved, gone, StorageError("/dir", OSError(5, "broken")), 0)
    assert led_partitions(journal) == [0, 2, 3, 4]
    assert [is_led_in(journal, partition, 3) for partition in range(5)] == [True, False, False, False, False]
    assert not is_led_in(journal, 0, 2)
