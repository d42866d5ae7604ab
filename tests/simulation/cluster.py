"""Histories of three whole brokers on a simulated ZooKeeper: real controllers, real replication, everything fails.

The rule: at any time at most one broker is down, and clients want acks=all with min.insync.replicas=2; so nothing that was
acknowledged may be lost, whatever is killed, whichever session expires, and whichever answers of ZooKeeper get lost.
A harsh history draws from more kinds of faults, which come closer together (`cluster_faults`); the faults of a directed
one bring about the conditions under which bugs of replication would show (`worst_moments`).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from random import Random
from typing import Any

import trio

from barnabas.client import ClientError
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.testing.simulation.broker import PORT, SimulatedBroker
from barnabas.testing.simulation.world import World, run_world
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper, ZooKeeperWeather
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest
from tests.simulation.checker import failures_of
from tests.simulation.clients import (
    LATEST_OF_KEYS,
    OUTPUT,
    TOPIC,
    TOPIC_PARTITIONS,
    Asker,
    Producer,
    Reader,
    asking,
    read_finals,
)
from tests.simulation.cluster_checker import cluster_violations
from tests.simulation.cluster_faults import HARSH
from tests.simulation.history import Described, History, State
from tests.simulation.members import GROUP_ID, GROUP_PARTITIONS, Member, fetch_committed
from tests.simulation.worst_moments import WORST, WorstMoments

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
DIRECTED_S = 90.0
"""Time that the faults of a directed history may take: others wait for replicas that are in sync, as the end does."""
FAULTS_S = 120.0
"""No fault begins later in other histories: where sessions end several times a second, no client gets anything done."""
IN_SYNC_S = 120.0
SENT_MAX = 75_000
"""Most histories end after 300 to 8,000 messages, and clients send up to 600 a second: more than these in the time that
faults may take are of a client that asks for the same thing for ever.
"""
METADATA_S = 0.2
OLD_TOOLS_PROBABILITY = 0.3
"""Of a history with topics rewritten in ZooKeeper without their ids, beside everything that fails."""
BROKER_ANSWER_S = 1.0


class Kind(StrEnum):
    """The kind of the faults in a history."""

    MILD = "mild"
    HARSH = "harsh"
    DIRECTED = "directed"


KINDS_OF_FAULTS = {Kind.MILD: FAULTS, Kind.HARSH: HARSH, Kind.DIRECTED: WORST}


def judged(seed: int, kind: Kind = Kind.MILD, *, faults: Sequence[str] = ()) -> tuple[History, list[str]]:
    """Run the history of a seed and return it with what was broken in it; `faults` are the only ones to draw from."""
    history = History()

    async def program(world: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_count_messages, world)
            await _Run(world, nursery, history, kind, faults).run()
            nursery.cancel_scope.cancel()

    failures = failures_of(lambda: run_world(seed, program, seconds_max=SECONDS_MAX))
    return history, failures or cluster_violations(history)


async def _count_messages(world: World) -> None:
    """Raises TimeoutError for a history in which messages do not come to an end."""
    while world.network.sent < SENT_MAX:
        await trio.sleep(1.0)
    raise TimeoutError(f"seed {world.seed}: not done after {world.network.sent} messages")


class _Run:
    """One history."""

    def __init__(
        self, world: World, nursery: trio.Nursery, history: History, kind: Kind, faults: Sequence[str]
    ) -> None:
        self.world = world
        self.is_harsh = harsh = kind is not Kind.MILD
        self.is_directed = kind is Kind.DIRECTED
        self.history = history
        self.is_over = trio.Event()
        """Set when a directed history has had its faults."""
        self.random = Random(f"{world.seed}/cluster")
        random = self.random
        self.kinds = set(random.sample(KINDS, random.randint(1, 3)))
        if harsh:  # writes that are under way at the worst moment are what it is about
            self.kinds = {random.choice(("plain", "idempotent")), random.choice(KINDS)}
        self.kinds_of_faults = list(faults) or random.sample(KINDS_OF_FAULTS[kind], random.randint(1, 4))
        settings = dict(HARSH_SETTINGS) if harsh else {}
        if self.is_directed and random.random() < 0.5:  # a follower that was away catches up batch by batch
            settings["replica.fetch.response.max.bytes"] = "1"
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
                {**SETTINGS, **settings, "broker.id": str(broker_id)},
                zookeeper=self.zookeeper,
            )
            for broker_id in BROKERS
        }
        self.faults = WorstMoments(random, self.machines, self.zookeeper, world.network, self.note)
        self.old_tools = Random(f"{world.seed}/old tools")
        """Numbers of their own: what else a seed draws does not depend on rewritten znodes beside it."""
        self.has_old_tools = not faults and self.old_tools.random() < OLD_TOOLS_PROBABILITY
        self.bootstrap = ",".join(f"broker-{broker_id}:{PORT}" for broker_id in BROKERS)

    def note(self, text: str) -> None:
        """Add a line to the history."""
        self.history.note("*", text)

    async def run(self) -> None:
        """Start brokers, have clients work while things fail, and read what is there in the end."""
        with self.zookeeper.observed(self._observe):
            await self._run()

    def _observe(self, path: str, data: bytes | None) -> None:
        if data is not None and path.startswith("/brokers/topics/") and path.endswith("/state"):
            topic, _, index, _ = path.removeprefix("/brokers/topics/").split("/")
            state = json.loads(data)
            self.history.states.append(
                State((topic, int(index)), state["leader"], state["leader_epoch"], tuple(state["isr"]))
            )

    async def _run(self) -> None:
        async with trio.open_nursery() as starting:
            for machine in self.machines.values():
                starting.start_soon(machine.start)
        async with asking(self.world, self.bootstrap, "admin", self.history) as admin:
            await self._create_topics(admin)
        async with trio.open_nursery() as failing:
            async with trio.open_nursery() as working:
                failing.start_soon(self._fail_directed if self.is_directed else self._fail)
                if self.has_old_tools:
                    failing.start_soon(self._rewrite_topics)
                if self.is_directed:
                    working.start_soon(self._watch_metadata)
                self._start_clients(working)
            self.note("the clients are done")
            failing.cancel_scope.cancel()
        await self._repair()
        await self._compare_replicas()
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
            request = CreateTopicsRequest(topics=[spec], timeout_ms=60_000)
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

        def is_done(rounds_done: int) -> bool:
            return self.is_over.is_set() if self.is_directed else rounds_done >= rounds

        async def produce(asker: Asker, *, is_idempotent: bool) -> None:
            producer = Producer(asker)
            if is_idempotent:
                await producer.initialize()
            rounds_done = 0
            while not is_done(rounds_done):
                await producer.produce(3)
                await asker.pause(pause_s)
                rounds_done += 1

        async def transact(asker: Asker) -> None:
            producer = Producer(asker, transactional_id="transactional")
            rounds_done = 0
            while not is_done(rounds_done):
                await producer.transact(2)
                await asker.pause(pause_s)
                rounds_done += 1

        rounds, pause_s = (random.randint(8, 40), 0.3) if self.is_harsh else (random.randint(3, 20), 2)
        if "plain" in self.kinds:
            start("plain", lambda asker: produce(asker, is_idempotent=False))
        if "idempotent" in self.kinds:
            start("idempotent", lambda asker: produce(asker, is_idempotent=True))
        if "transactional" in self.kinds:
            start("transactional", transact)
        if "members" in self.kinds:
            for n in range(2):
                start(f"member{n}", lambda asker: Member(asker).take_part(random.randint(4, 8)))
        if self.is_directed and random.random() < 0.5:
            start("reader", lambda asker: Reader(asker, committed_only=False).follow(self.is_over))

    async def _watch_metadata(self) -> None:
        """Ask each broker again and again what it knows of the partitions that are written to."""
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
        async with asking(self.world, self.bootstrap, "observer", self.history) as asker:
            while not self.is_over.is_set():
                for broker_id, machine in self.machines.items():
                    run = machine.starts
                    if machine.broker is None:
                        continue
                    try:
                        with trio.fail_after(BROKER_ANSWER_S):
                            answer = await (await asker.client.broker(broker_id)).ask(request, version=9)
                    except (ClientError, trio.TooSlowError):
                        asker.client.forget()
                        continue
                    if machine.starts == run:
                        self.history.described += [
                            Described(
                                f"broker {broker_id} (start {run})",
                                (topic.name, part.partition_index),
                                part.leader_id,
                                part.leader_epoch,
                            )
                            for topic in answer.topics
                            for part in topic.partitions
                        ]
                await trio.sleep(METADATA_S)

    # --- what fails -----------------------------------------------------------------------------------------

    async def _fail_directed(self) -> None:
        with trio.move_on_after(DIRECTED_S):
            for _ in range(self.random.randint(1, 2)):
                fault = self.random.choice(self.kinds_of_faults)
                self.note(fault)
                await getattr(self.faults, fault)()
        self.is_over.set()

    async def _fail(self) -> None:
        begun = trio.current_time()
        while trio.current_time() - begun < FAULTS_S:
            await trio.sleep(self._gap_s())
            fault = self.random.choice(self.kinds_of_faults)
            if self.is_harsh:
                self.note(fault)
                await getattr(self.faults, fault)()
            else:
                await self._mild(fault, self.random.choice(BROKERS))

    async def _rewrite_topics(self) -> None:
        """Let old tools rewrite znodes of topics now and then, whatever else fails."""
        for _ in range(self.old_tools.randint(1, 6)):
            await trio.sleep(self.old_tools.uniform(0, 8))
            self.note("an old tool rewrites znodes of topics")
            await self.faults.rewrite_topics(self.old_tools)

    def _gap_s(self) -> float:
        if self.is_harsh:
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
        elif fault == "rewritten":
            await self.faults.rewritten()
        elif fault == "disconnect" and machine.session is not None:
            machine.session.disconnect()
            await trio.sleep(self.random.uniform(0, 12))
            machine.session.connect_soon()
        elif fault == "zookeeper":
            self.zookeeper.stop()
            await trio.sleep(self.random.uniform(0, 20))
            self.zookeeper.start()
        elif fault == "cut":
            other = self.random.choice([id_ for id_ in BROKERS if id_ != broker_id])
            self.world.network.cut(machine.host, f"broker-{other}")
            await trio.sleep(self.random.uniform(0, 8))
            self.world.network.heal()

    async def _repair(self) -> None:
        """End all faults, and start stopped brokers."""
        self.zookeeper.weather = ZooKeeperWeather(session_timeout_s=6.0)
        if self.zookeeper.is_down:
            self.zookeeper.start()
        self.world.network.heal()
        for machine in self.machines.values():
            if self._needs_start(machine):
                machine.kill()
            machine.disk.fault = None
            if machine.has_ended:
                await machine.start()
            elif machine.session is not None:
                machine.session.connect_soon()
        self.note("everything works again")

    @staticmethod
    def _needs_start(machine: SimulatedBroker) -> bool:
        """Say whether a broker has met a disk that fails: it may be ending by itself, or never write again."""
        return machine.disk.fault is not None

    # --- the end --------------------------------------------------------------------------------------------

    async def _compare_replicas(self) -> None:
        """Wait until all replicas are in sync and the same, and keep what they are after too long a time, too."""
        with trio.move_on_after(IN_SYNC_S):
            while (
                self.faults.lost_topic_ids()
                or not self.faults.is_in_sync()
                or any(len(set(contents.values())) > 1 for contents in self._contents().values())
            ):
                await trio.sleep(0.1)
        self.history.lost_topic_ids = self.faults.lost_topic_ids()
        self.history.replicas = self._contents()
        if not self.faults.is_in_sync():
            self.history.out_of_sync = [f"{path}: {state}" for path, state in self.faults.states().items()]

    def _contents(self) -> dict[tuple[str, int], dict[int, bytes]]:
        """The bytes of the replicas of all topics that are not compacted, by broker."""
        return {
            (topic, index): {
                broker_id: _log_content(machine.disk, f"/data/{topic}-{index}")
                for broker_id, machine in self.machines.items()
            }
            for topic, count in TOPICS.items()
            for index in range(count)
            if topic != LATEST_OF_KEYS
        }


def _log_content(disk: MemoryDisk, directory: str) -> bytes:
    """The records of a log; none where there is no log."""
    try:
        names = sorted(entry.name for entry in disk.list(directory) if entry.name.endswith(".log"))
    except FileNotFoundError:
        return b""
    return b"".join(disk.read(f"{directory}/{name}") for name in names)
