"""Ends of which other brokers must hear: their producer is answered before, and what it asks next waits."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from barnabas.coordinators.transactions.coordinator import PATIENCE_SECONDS
from barnabas.coordinators.transactions.transaction import State
from barnabas.wire.generated.errors import ErrorCode

from .test_transaction_coordinator import TIMEOUT_MS, A, B, code_of, running


@pytest.mark.parametrize("elsewhere", [{A}, {B}, {A, B}], ids=["a", "b", "both"])
@pytest.mark.parametrize("version", [0, 2])
async def test_end_is_answered_when_durable_and_the_next_waits(autojump_clock, elsewhere, version):
    async with running() as world:
        world.markers.elsewhere = elsewhere
        producer = await world.begun(A, B)
        world.markers.gate = trio.Event()
        began = trio.current_time()
        producer = await world.end(producer, version=version)
        assert trio.current_time() == began, "no marker is waited for"
        assert world.state is State.PREPARE_COMMIT
        async with trio.open_nursery() as nursery:
            adding = partial(world.coordinator.add_partitions, "x", producer, frozenset({B}), version)
            nursery.start_soon(adding)
            await trio.sleep(0.7)
            assert world.state is State.PREPARE_COMMIT
            world.markers.gate.set()
        assert trio.current_time() == began + 0.7
        assert world.state is State.ONGOING


@pytest.mark.parametrize("version", [0, 2])
async def test_end_is_not_answered_before_it_is_durable(autojump_clock, version):
    async with running() as world:
        world.markers.elsewhere = {A}
        producer = await world.begun()
        world.journal.commits = trio.Event()
        async with trio.open_nursery() as nursery:
            ended = trio.Event()

            async def end() -> None:
                await world.end(producer, version=version)
                ended.set()

            nursery.start_soon(end)
            await trio.sleep(0.5)
            assert not ended.is_set()
            assert world.markers.attempts == []
            world.journal.commits.set()
        assert ended.is_set()


async def test_next_transaction_needs_no_durable_completion(autojump_clock):
    """The next request waits for all that is before it in the coordinator's log, also for the last end."""
    async with running() as world:
        producer = await world.begun()
        world.markers.gate = trio.Event()
        world.markers.elsewhere = {A}
        await world.end(producer)
        await trio.sleep(0.1)
        assert world.markers.attempts, "the marker is on its way"
        world.journal.commits = trio.Event()
        world.markers.gate.set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.coordinator.add_partitions, "x", producer, frozenset({B}), 0)
            await trio.sleep(0.1)
            assert world.state is State.ONGOING
            world.journal.commits.set()


@pytest.mark.parametrize("request_name", ["end", "init", "add"])
async def test_request_beside_a_pending_end_waits_a_second(autojump_clock, request_name):
    async with running() as world:
        world.markers.elsewhere = {A}
        producer = await world.begun()
        world.markers.gate = trio.Event()
        producer = await world.end(producer, version=2)
        requests = {
            "end": lambda: world.end(producer, commit=False, version=2),
            "init": lambda: world.coordinator.init_producer("x", TIMEOUT_MS, producer),
            "add": lambda: world.coordinator.add_partitions("x", producer, frozenset({B}), 2),
        }
        began = trio.current_time()
        assert await code_of(requests[request_name]()) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert trio.current_time() == pytest.approx(began + PATIENCE_SECONDS)
        world.markers.gate.set()
        await requests[request_name]()


async def test_request_of_a_broker_does_not_wait_for_an_end(autojump_clock):
    async with running() as world:
        world.markers.elsewhere = {A}
        producer = await world.begun()
        world.markers.gate = trio.Event()
        await world.end(producer)
        began = trio.current_time()
        coordinator = world.coordinator
        adding = coordinator.add_partitions("x", producer, frozenset({B}), 2, is_patient=False)
        assert await code_of(adding) == ErrorCode.CONCURRENT_TRANSACTIONS
        verifying = coordinator.verify_partitions("x", producer, is_patient=False)
        assert await code_of(verifying) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert trio.current_time() == began
