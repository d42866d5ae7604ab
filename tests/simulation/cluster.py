"""Histories of three whole brokers on a simulated ZooKeeper: real controllers, real replication, everything fails.

The rule: at any time at most one broker is down, and clients want acks=all with min.insync.replicas=2; so nothing that was
acknowledged may be lost, whoever is killed, whose session expires, and whichever answers of ZooKeeper get lost.
A harsh history draws from more kinds of faults, which come closer together and at the worst moments (`cluster_faults`).
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import trio

from barnabas.client import ClientError
from barnabas.testing.simulation.broker import PORT, SimulatedBroker
from barnabas.testing.simulation.world import World, run_world
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper, ZooKeeperWeather
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.simulation.checker import violations
from tests.simulation.clients import (
    LATEST_OF_KEYS,
    OUTPUT,
    TOPIC,
    TOPIC_PARTITIONS,
    Asker,
    Producer,
    asking,
    read_finals,
)
from tests.simulation.cluster_faults import HARSH, ClusterFaults
from tests.simulation.history import History
from tests.simulation.members import GROUP_ID, GROUP_PARTITIONS, Member, fetch_committed

BROKERS = (1, 2, 3)
SECONDS_MAX = 600.0
SETTINGS = {
    "zookeeper.connect": "zookeeper:2181",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "2",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.wait.max.ms": "200",
    "controlled.shutdown.retry.backoff.ms": "500",
}
HARSH_SETTINGS = {"replica.fetch.wait.max.ms": "500", "log.flush.offset.checkpoint.interval.ms": "1000"}
TOPICS = {TOPIC: TOPIC_PARTITIONS, OUTPUT: 1, LATEST_OF_KEYS: 1}
KINDS = ("plain", "idempotent", "transactional", "members")
FAULTS = ("kill", "power", "stop", "expire", "disconnect", "zookeeper", "cut")
GAP_MAX_S = 0.3
"""Between the faults of a harsh history."""


def judged(seed: int, *, harsh: bool = False) -> tuple[History, list[str]]:
    """Run the history of a seed and return it with what was broken in it."""
    history = History()

    async def program(world: World) -> None:
        async with trio.open_nursery() as nursery:
            await _Run(world, nursery, history, harsh=harsh).run()
            nursery.cancel_scope.cancel()

    try:
        run_world(seed, program, seconds_max=SECONDS_MAX)
    except TimeoutError as error:
        return history, [str(error), *violations(history)]
    except ExceptionGroup as error:
        return history, ["".join(traceback.format_exception(error))]
    return history, violations(history)


class _Run:
    """One history."""

    def __init__(self, world: World, nursery: trio.Nursery, history: History, *, harsh: bool) -> None:
        self.world = world
        self.harsh = harsh
        self.history = history
        self.random = Random(f"{world.seed}/cluster")
        random = self.random
        self.kinds = set(random.sample(KINDS, random.randint(1, 3)))
        if harsh:  # writes that are under way at the worst moment are what it is about
            self.kinds = {random.choice(("plain", "idempotent")), random.choice(KINDS)}
        self.kinds_of_faults = random.sample(HARSH if harsh else FAULTS, random.randint(1, 4))
        self.zookeeper = SimulatedZooKeeper(Random(f"{world.seed}/zookeeper"))
        self.weather = ZooKeeperWeather(
            request_max_s=random.choice((0.0, 0.002)),
            answer_max_s=random.choice((0.0, 0.002)),
            watch_max_s=random.choice((0.0, 0.05)),
            reconnect_max_s=random.choice((0.0, 0.5)),
            session_timeout_s=6.0,
            lost_request_probability=random.choice((0.0, 0.02)),
            lost_answer_probability=random.choice((0.0, 0.05)),
        )
        if harsh:
            self.weather.watch_max_s = random.choice((0.0, 0.05, 1.0))
            self.weather.lost_answer_probability = random.choice((0.0, 0.05, 0.2))
            self.weather.request_max_s = random.choice((0.0, 0.002, 0.1))
        self.zookeeper.weather = self.weather
        self.machines = {
            broker_id: SimulatedBroker(
                world,
                nursery,
                f"broker-{broker_id}",
                {**SETTINGS, **(HARSH_SETTINGS if harsh else {}), "broker.id": str(broker_id)},
                zookeeper=self.zookeeper,
            )
            for broker_id in BROKERS
        }
        self.faults = ClusterFaults(random, self.machines, self.zookeeper, world.network, self.note)
        self.bootstrap = ",".join(f"broker-{broker_id}:{PORT}" for broker_id in BROKERS)

    def note(self, text: str) -> None:
        """Add a line to the history."""
        self.history.note("*", text)

    async def run(self) -> None:
        """Start brokers, have clients work while things fail, and read what is there in the end."""
        async with trio.open_nursery() as starting:
            for machine in self.machines.values():
                starting.start_soon(machine.start)
        async with asking(self.world, self.bootstrap, "admin", self.history) as admin:
            await self._create_topics(admin)
        async with trio.open_nursery() as failing:
            async with trio.open_nursery() as working:
                failing.start_soon(self._fail)
                self._start_clients(working)
            self.note("the clients are done")
            failing.cancel_scope.cancel()
        await self._repair()
        async with asking(self.world, self.bootstrap, "judge", self.history) as judge:
            await read_finals(judge)
            if "members" in self.kinds:
                await fetch_committed(judge, list(range(GROUP_PARTITIONS)), GROUP_ID)

    async def _create_topics(self, admin: Asker) -> None:
        for name, partitions in TOPICS.items():
            configs = {"cleanup.policy": "compact"} if name == LATEST_OF_KEYS else {}
            spec = CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=3,
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                    for key, value in configs.items()
                ],
            )
            request = CreateTopicsRequest(topics=[spec], timeout_ms=5_000)
            while await self._created(admin, request) not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
                await trio.sleep(0.1)

    @staticmethod
    async def _created(admin: Asker, request: Any) -> int:
        try:
            answer = await admin.client.ask_controller(request, version=5)
        except ClientError as error:
            admin.note(f"has no answer: {error}")
            return -1
        admin.note(f"{answer.topics[0].name}: {answer.topics[0].error_code} {answer.topics[0].error_message}")
        return int(answer.topics[0].error_code)

    def _start_clients(self, nursery: trio.Nursery) -> None:
        random = self.random

        def start(name: str, work: Callable[[Asker], Awaitable[None]]) -> None:
            async def task() -> None:
                async with asking(self.world, self.bootstrap, name, self.history) as asker:
                    await work(asker)

            nursery.start_soon(task)

        async def produce(asker: Asker, rounds: int, *, is_idempotent: bool) -> None:
            producer = Producer(asker)
            if is_idempotent:
                await producer.initialize()
            for _ in range(rounds):
                await producer.produce(3)
                await asker.pause(pause_s)

        async def transact(asker: Asker, rounds: int) -> None:
            producer = Producer(asker, transactional_id="transactional")
            for _ in range(rounds):
                await producer.transact(2)
                await asker.pause(pause_s)

        rounds, pause_s = (random.randint(8, 40), 0.3) if self.harsh else (random.randint(3, 20), 2)
        if "plain" in self.kinds:
            start("plain", lambda asker: produce(asker, rounds, is_idempotent=False))
        if "idempotent" in self.kinds:
            start("idempotent", lambda asker: produce(asker, rounds, is_idempotent=True))
        if "transactional" in self.kinds:
            start("transactional", lambda asker: transact(asker, rounds))
        if "members" in self.kinds:
            for n in range(2):
                start(f"member{n}", lambda asker: Member(asker).take_part(random.randint(4, 8)))

    # --- what fails -----------------------------------------------------------------------------------------

    async def _fail(self) -> None:
        while True:
            await trio.sleep(self._gap_s())
            fault = self.random.choice(self.kinds_of_faults)
            if self.harsh:
                self.note(fault)
                await getattr(self.faults, fault)()
            else:
                await self._mild(fault, self.random.choice(BROKERS))

    def _gap_s(self) -> float:
        if self.harsh:
            return self.random.uniform(0, GAP_MAX_S)
        return self.random.choice((self.random.uniform(0, 0.3), self.random.uniform(0, 5)))

    async def _mild(self, fault: str, broker_id: int) -> None:
        machine = self.machines[broker_id]
        self.note(f"{fault}: broker {broker_id}")
        if fault in ("kill", "power", "stop"):
            await self.faults.end_and_start(broker_id, fault)
            await self.faults.until_in_sync()
        elif fault == "expire":
            self.faults.expire(broker_id)
        elif fault == "disconnect" and machine.session is not None:
            machine.session.disconnect()
            await trio.sleep(self.random.uniform(0, 12))
            machine.session.connect_soon()
        elif fault == "zookeeper":
            self.zookeeper.stop()
            await trio.sleep(self.random.uniform(0, 20))
            self.zookeeper.start()
        elif fault == "cut":
            other = self.random.choice([one for one in BROKERS if one != broker_id])
            self.world.network.cut(machine.host, f"broker-{other}")
            await trio.sleep(self.random.uniform(0, 8))
            self.world.network.heal()

    async def _repair(self) -> None:
        """End all faults, and start who is down."""
        self.zookeeper.weather = ZooKeeperWeather(session_timeout_s=6.0)
        if self.zookeeper.is_down:
            self.zookeeper.start()
        self.world.network.heal()
        for machine in self.machines.values():
            machine.disk.fault = None
            if machine.has_ended:
                await machine.start()
            elif machine.session is not None:
                machine.session.connect_soon()
        self.note("everything works again")
