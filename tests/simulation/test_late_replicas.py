"""Ends of transactions beside a partition with replicas that do not follow its leader, and stay in sync for long.

The rule: only the transactions that have written to such a partition wait. Its marker goes to the leader in one request
with those of other transactions, or before them, and the leader is not held up itself.
"""

from __future__ import annotations

from random import Random

import pytest
import trio

from barnabas.handlers import write_txn_markers
from barnabas.testing.simulation.broker import PORT, SimulatedBroker, quiet_logs
from barnabas.testing.simulation.world import World, run_world
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.update_features import UpdateFeaturesRequest
from tests.simulation.clients import TRANSACTION, Asker, Producer, asking
from tests.simulation.cluster import BROKERS, SETTINGS
from tests.simulation.history import History, Transaction

STUCK, FREE = "stuck", "free"
PRODUCERS, TRANSACTIONS = 4, 3
STUCK_S = 20.0
"""Time for which the follower of one partition hears nothing from its leader."""
FREE_S_MAX = 5.0
"""Time that all other transactions may take together."""
LATE_SETTINGS = {
    **SETTINGS,
    "replica.lag.time.max.ms": "120000",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logs():
        yield


class Clock:
    """Times of what has happened, in seconds from the moment when the follower was cut off."""

    def __init__(self) -> None:
        self.began = 0.0
        self.free: list[float] = []
        self.stuck_answered = self.stuck_ended = -1.0

    @property
    def now(self) -> float:
        """The time."""
        return trio.current_time() - self.began


def run(seed: int) -> Clock:
    """Return when the transactions of a history have ended."""
    clock = Clock()

    async def program(world: World) -> None:
        async with trio.open_nursery() as nursery:
            await transact(world, nursery, clock)
            nursery.cancel_scope.cancel()

    run_world(seed, program, seconds_max=300.0)
    return clock


async def transact(world: World, nursery: trio.Nursery, clock: Clock) -> None:
    history = History()
    zookeeper = SimulatedZooKeeper(Random(f"{world.seed}/zookeeper"))
    machines = [
        SimulatedBroker(
            world, nursery, f"broker-{id_}", {**LATE_SETTINGS, "broker.id": str(id_)}, zookeeper=zookeeper
        )
        for id_ in BROKERS
    ]
    async with trio.open_nursery() as starting:
        for machine in machines:
            starting.start_soon(machine.start)
    bootstrap = ",".join(f"broker-{id_}:{PORT}" for id_ in BROKERS)
    async with trio.open_nursery() as working:
        async with asking(world, bootstrap, "admin", history) as admin:
            await raise_version(admin)
            await Producer(admin, transactional_id="first").initialize()  # makes the coordinator's topic
            coordinator = await admin.client.coordinator("first", TRANSACTION)
            leader, follower = (id_ for id_ in BROKERS if id_ != coordinator)
            await create(admin, {STUCK: [leader, follower], FREE: [leader]})
        world.network.cut(f"broker-{leader}", f"broker-{follower}")
        clock.began = trio.current_time()

        async def be_stuck() -> None:
            async with asking(world, bootstrap, "stuck", history) as asker:
                producer = Producer(asker, acks=1, transactional_id="stuck", transaction_version=2)
                await one_transaction(producer, STUCK)
                clock.stuck_answered = clock.now
                await producer.end(Transaction("nothing"), commit=False)
                clock.stuck_ended = clock.now

        async def be_free(number: int) -> None:
            async with asking(world, bootstrap, f"free{number}", history) as asker:
                producer = Producer(asker, transactional_id=f"free{number}", transaction_version=2)
                for _ in range(TRANSACTIONS):
                    await one_transaction(producer, FREE)
                await producer.end(Transaction("nothing"), commit=False)
                clock.free.append(clock.now)

        working.start_soon(be_stuck)
        await trio.sleep(0.2)
        for number in range(PRODUCERS):
            working.start_soon(be_free, number)
        await trio.sleep(STUCK_S)
        world.network.heal()


async def one_transaction(producer: Producer, topic: str) -> None:
    if producer.producer_id < 0:
        await producer.initialize()
    transaction = Transaction(topic)
    assert await producer.send((topic, 0), 1, transaction) == 0
    await producer.end(transaction, commit=True)
    assert transaction.outcome == "committed"


async def raise_version(admin: Asker) -> None:
    level = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="transaction.version", max_version_level=2, upgrade_type=1
    )
    request = UpdateFeaturesRequest(timeout_ms=60_000, feature_updates=[level])
    assert not (await admin.client.ask_controller(request, version=1)).error_code


async def create(admin: Asker, replicas: dict[str, list[int]]) -> None:
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=broker_ids)
            ],
            configs=[CreateTopicsRequest.CreatableTopicConfig(name="min.insync.replicas", value="1")],
        )
        for name, broker_ids in replicas.items()
    ]
    answer = await admin.client.ask_controller(
        CreateTopicsRequest(topics=topics, timeout_ms=60_000), version=5
    )
    assert not any(topic.error_code for topic in answer.topics), answer


@pytest.mark.parametrize("seed", range(4))
def test_late_replicas_hold_up_only_their_own_transactions(seed):
    clock = run(seed)
    assert len(clock.free) == PRODUCERS
    assert max(clock.free) < FREE_S_MAX
    assert clock.stuck_answered < FREE_S_MAX, "an end is answered before its markers are written"
    assert STUCK_S < clock.stuck_ended < STUCK_S + 35.0


def test_handler_that_waits_for_all_replicas_is_found(monkeypatch):
    monkeypatch.setattr(write_txn_markers, "PATIENCE_SECONDS", 1_000.0)
    assert max(run(0).free) > FREE_S_MAX
