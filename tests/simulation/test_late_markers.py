"""Version 2 of transactions over three brokers: end markers and the coordinator's word are on their way for long.

The rule: nothing fails here, so no producer is refused anything. An end is answered before its markers are written, and a
marker may be later than the second for which requests wait: the producer comes with its next transaction meanwhile, or
with the next end at once, as clients do that abort what they have not begun.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
import trio

from barnabas.coordinators.transactions.markers import LocalMarkers
from barnabas.coordinators.transactions.verification import LocalVerifier
from barnabas.handlers.shared.transactional import Admission, Part
from barnabas.handlers.write_txn_markers import WriteTxnMarkers
from barnabas.testing.simulation.broker import PORT, SimulatedBroker, quiet_logs
from barnabas.testing.simulation.world import World, run_world
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.update_features import UpdateFeaturesRequest
from tests.simulation.checker import violations
from tests.simulation.clients import Asker, Producer, asking, read_finals
from tests.simulation.cluster import BROKERS, SETTINGS, TOPICS
from tests.simulation.history import History, Transaction

SEEDS = range(6 * int(os.environ.get("BARNABAS_TEST_EFFORT", "1")))
PRODUCERS = 2
TRANSACTIONS = 6
MARKER_MAX_S = 1.6
ANSWER_MAX_S = 0.3


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logs():
        yield


@pytest.fixture
def delays(monkeypatch):
    """Have markers and answers of coordinators take as long as this draws."""
    random = Random()
    write, handle, verify = LocalMarkers.write, WriteTxnMarkers.handle, LocalVerifier.verify

    async def write_late(*args: Any) -> None:
        await trio.sleep(random.uniform(0, MARKER_MAX_S))
        await write(*args)

    async def handle_late(*args: Any) -> Any:
        await trio.sleep(random.uniform(0, MARKER_MAX_S))
        return await handle(*args)

    async def verify_late(*args: Any, **options: Any) -> Any:
        result = await verify(*args, **options)
        await trio.sleep(random.uniform(0, ANSWER_MAX_S))
        return result

    monkeypatch.setattr(LocalMarkers, "write", write_late)
    monkeypatch.setattr(WriteTxnMarkers, "handle", handle_late)
    monkeypatch.setattr(LocalVerifier, "verify", verify_late)
    return random


class ImpatientProducer(Producer):
    """Often aborts once more after an end, with the epoch that it has just been told, while nothing is open."""

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        """End a transaction, and perhaps the next one, which has not begun."""
        await super().end(transaction, commit=commit)
        if self.asker.random.random() < 0.5:
            nothing = Transaction(f"{transaction.name}, and nothing")
            await super().end(nothing, commit=False)
            self.asker.note(
                f"abort of nothing {'succeeds' if nothing.outcome == 'aborted' else 'is answered an error'}"
            )


def history_of(seed: int, delays: Random) -> History:
    delays.seed(seed)
    history = History()

    async def program(world: World) -> None:
        async with trio.open_nursery() as nursery:
            await run(world, nursery, history)
            nursery.cancel_scope.cancel()

    run_world(seed, program, seconds_max=600.0)
    return history


async def run(world: World, nursery: trio.Nursery, history: History) -> None:
    zookeeper = SimulatedZooKeeper(Random(f"{world.seed}/zookeeper"))
    machines = [
        SimulatedBroker(
            world, nursery, f"broker-{id_}", {**SETTINGS, "broker.id": str(id_)}, zookeeper=zookeeper
        )
        for id_ in BROKERS
    ]
    async with trio.open_nursery() as starting:
        for machine in machines:
            starting.start_soon(machine.start)
    bootstrap = ",".join(f"broker-{id_}:{PORT}" for id_ in BROKERS)
    async with asking(world, bootstrap, "admin", history) as admin:
        await prepare(admin)

    async def transact(number: int) -> None:
        async with asking(world, bootstrap, f"producer{number}", history) as asker:
            producer = ImpatientProducer(asker, transactional_id=f"id{number}", transaction_version=2)
            await producer.transact(TRANSACTIONS)

    async with trio.open_nursery() as working:
        for number in range(PRODUCERS):
            working.start_soon(transact, number)
    await trio.sleep(2 * MARKER_MAX_S)  # the last ends come, too
    async with asking(world, bootstrap, "judge", history) as judge:
        await read_finals(judge)


async def prepare(admin: Asker) -> None:
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=3)
        for name, count in TOPICS.items()
    ]
    answer = await admin.client.ask_controller(
        CreateTopicsRequest(topics=topics, timeout_ms=60_000), version=5
    )
    assert not any(topic.error_code for topic in answer.topics), answer
    level = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="transaction.version", max_version_level=2, upgrade_type=1
    )
    request = UpdateFeaturesRequest(timeout_ms=60_000, feature_updates=[level])
    assert not (await admin.client.ask_controller(request, version=1)).error_code


def refused(history: History) -> list[str]:
    """Return what was told to producers that have done nothing wrong."""
    return [line for line in history.events if "is answered" in line and "is answered 0 " not in line]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_transaction_is_refused_for_the_end_of_the_one_before(seed, delays):
    history = history_of(seed, delays)
    assert not violations(history)
    assert not refused(history)
    assert {transaction.outcome for transaction in history.transactions} <= {"committed", "aborted"}
    assert len(history.transactions) == PRODUCERS * TRANSACTIONS


def test_broker_that_takes_an_earlier_marker_for_the_end_fails(delays, monkeypatch):
    def refusal(admission: Admission, part: Part) -> Any:
        if admission._has_begun(part) or admission._admitted.get(part) == admission._seen(part):
            return None
        return admission._missing()

    monkeypatch.setattr(Admission, "refusal", refusal)
    assert any(refused(history_of(seed, delays)) for seed in SEEDS)
