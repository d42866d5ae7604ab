"""One history from one seed: which clients take part, what befalls them, and in the end what all of them find.

The rule: everything is drawn from the seed. Faults end after a while, so that all clients can come to an end; then
everything is read once more, often by a broker that was started again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from random import Random

import trio

from barnabas.testing.simulation.broker import SimulatedBroker
from barnabas.testing.simulation.network import Weather
from barnabas.testing.simulation.world import World, run_world
from tests.simulation import epoch_members, share_members
from tests.simulation.checker import failures_of, violations
from tests.simulation.clients import PARTITIONS, TOPIC, Asker, Producer, Reader, asking, read_finals
from tests.simulation.epoch_members import CONSUMERS, STREAMS, EpochMember, StreamsMember
from tests.simulation.history import History
from tests.simulation.members import GROUP_ID, GROUP_PARTITIONS, Member, fetch_committed
from tests.simulation.processors import Processor, find_processed
from tests.simulation.share_members import ShareMember, read_from_the_beginning
from tests.simulation.topics import create_topics

SECONDS_MAX = 240.0
"""Of the simulated clock; a history that is not at its end by then hangs."""
MOMENT_S = 0.003
"""Time of a request, its work and its answer on a quick network."""
CLOCK_STEP_MS_MAX = 30_000
"""Longer than the session of a group's member, shorter than the timeout of a transaction."""


COMPACTION = {
    "log.segment.bytes": "512",
    "log.roll.ms": "200",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
"""Settings that have the cleaner find something each time that it looks."""
_WRITERS = ["producers", "idempotent", "transactional"]
_GROUPS = ["members", "consumers", "streams", "sharers"]
_OTHERS = ["processors", "keyed"]


@dataclass(slots=True)
class Plan:
    """The plan that a seed has drawn."""

    producers: int = 0
    idempotent: int = 0
    transactional: int = 0
    readers: int = 0
    members: int = 0
    """Of a classic group."""
    consumers: int = 0
    streams: int = 0
    sharers: int = 0
    processors: int = 0
    keyed: int = 0
    """Producers to a compacted topic."""
    are_static: bool = False
    """True if members of groups have instance ids."""
    compacts: bool = False
    """True if internal topics are compacted all the time, too."""
    keeps_synced_only: bool = False
    """True if power is cut; then everything is synced before it is acknowledged."""
    faults: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    weather: Weather = field(default_factory=Weather)

    @classmethod
    def drawn(cls, seed: int) -> Plan:
        """Draw one."""
        random = Random(f"{seed}/plan")
        kinds = random.sample([*_WRITERS, *_GROUPS, *_OTHERS], random.randint(1, 2))
        if {"sharers", "processors"} & set(kinds) and not set(_WRITERS) & set(kinds):
            kinds.append(random.choice(_WRITERS))
        plan = cls(readers=random.choice((0, 0, 1, 2)), faults=random.randint(1, 3))
        for kind in kinds:
            setattr(plan, kind, random.randint(2, 3) if kind in _GROUPS else random.choice((1, 1, 2)))
        plan.are_static = random.random() < 0.3
        plan.compacts = bool(plan.keyed) or random.random() < 0.2
        if plan.compacts:
            plan.settings |= COMPACTION
        if plan.consumers or plan.streams or plan.sharers:
            plan.settings |= epoch_members.SETTINGS | share_members.SETTINGS
        plan.keeps_synced_only = random.random() < 0.4
        if plan.keeps_synced_only:
            plan.settings["log.flush.interval.messages"] = "1"
        if random.random() < 0.3:
            plan.settings.setdefault("log.segment.bytes", "1024")
        if random.random() < 0.3:
            plan.settings["num.recovery.threads.per.data.dir"] = "4"
        if random.random() < 0.2:
            plan.weather = Weather(latency_max_s=0.05, split_probability=0.5)
        return plan


def run(seed: int, history: History | None = None) -> History:
    """Run the history of a seed, into `history` if that is given.

    Raises TimeoutError when it does not come to its end, and ExceptionGroup when a broker cannot start again.
    """
    plan, seen = Plan.drawn(seed), history or History()

    async def program(world: World) -> None:
        await _Run(world, plan, seen).run()

    run_world(seed, program, weather=plan.weather, seconds_max=SECONDS_MAX)
    return seen


def judged(seed: int) -> tuple[History, list[str]]:
    """Run the history of a seed and return it with what was broken in it."""
    history = History()
    return history, failures_of(lambda: run(seed, history)) or violations(history)


class _Run:
    """The parts of one run."""

    def __init__(self, world: World, plan: Plan, history: History) -> None:
        self.world = world
        self.plan = plan
        self.history = history
        self.random = Random(f"{world.seed}/faults")
        self.is_over = trio.Event()
        self.names: list[str] = []
        """The clients that have been started."""
        self.machine: SimulatedBroker

    async def run(self) -> None:
        """Run everything."""
        async with trio.open_nursery() as nursery:
            self.machine = SimulatedBroker(self.world, nursery, settings=self.plan.settings)
            await self.machine.start()
            async with self._client("admin") as admin:
                await create_topics(admin)
                if self.plan.sharers:
                    await read_from_the_beginning(admin)
            async with trio.open_nursery() as others:
                others.start_soon(self._readers)
                async with trio.open_nursery() as working:
                    self._start_clients(working)
                    working.start_soon(self._faults)
                self.is_over.set()
            await self._end()
            self.machine.kill()

    def _client(self, name: str) -> AbstractAsyncContextManager[Asker]:
        return asking(self.world, self.machine.bootstrap, name, self.history)

    def _start_clients(self, nursery: trio.Nursery) -> None:
        random, plan = self.random, self.plan

        def start(name: str, work: Callable[[Asker], Awaitable[None]]) -> None:
            async def task() -> None:
                async with self._client(name) as asker:
                    if self.needs_topic_ids:
                        await asker.learn_topic_ids()
                    await work(asker)

            self.names.append(name)
            nursery.start_soon(task)

        async def produce(asker: Asker, acks: int, batches: int) -> None:
            await Producer(asker, acks=acks).produce(batches)

        async def produce_keys(asker: Asker, batches: int) -> None:
            producer = Producer(asker)
            await producer.initialize()
            await producer.produce_keys(batches)

        async def produce_once(asker: Asker, batches: int) -> None:
            producer = Producer(asker)
            await producer.initialize()
            await producer.produce(batches)

        for n in range(plan.producers):
            acks, batches = random.choice((1, -1)), random.randint(3, 8)
            start(f"plain{n}", lambda asker, acks=acks, batches=batches: produce(asker, acks, batches))
        for n in range(plan.idempotent):
            batches = random.randint(3, 8)
            start(f"idempotent{n}", lambda asker, batches=batches: produce_once(asker, batches))
        for n in range(plan.transactional):
            name, count = f"transactional{n}", random.randint(1, 4)
            start(
                name,
                lambda asker, name=name, count=count: Producer(asker, transactional_id=name).transact(count),
            )
        for n in range(plan.keyed):
            batches = random.randint(5, 20)
            start(f"keyed{n}", lambda asker, batches=batches: produce_keys(asker, batches))
        for n in range(plan.processors):
            rounds = random.randint(2, 6)
            start(f"processor{n}", lambda asker, rounds=rounds: Processor(asker).process(rounds))
        for kind, member, count in (
            ("member", Member, plan.members),
            ("consumer", EpochMember, plan.consumers),
            ("streams", StreamsMember, plan.streams),
        ):
            for n in range(count):
                rounds = random.randint(3, 8)
                start(
                    f"{kind}{n}",
                    lambda asker, member=member, rounds=rounds: member(
                        asker, is_static=plan.are_static
                    ).take_part(rounds),
                )
        for n in range(plan.sharers):
            rounds = random.randint(3, 8)
            start(f"sharer{n}", lambda asker, rounds=rounds: ShareMember(asker).take_part(rounds))

    @property
    def has_groups(self) -> bool:
        """Say whether anything takes seconds, as sessions do."""
        return any(getattr(self.plan, kind) for kind in _GROUPS)

    @property
    def needs_topic_ids(self) -> bool:
        """Say whether clients name topics by their ids."""
        return bool(self.plan.consumers or self.plan.sharers)

    async def _readers(self) -> None:
        async with trio.open_nursery() as nursery:
            for n in range(self.plan.readers):
                nursery.start_soon(self._read, f"reader{n}", self.random.random() < 0.5)

    async def _read(self, name: str, committed_only: bool) -> None:
        async with self._client(name) as asker:
            await Reader(asker, committed_only=committed_only).follow(self.is_over)

    # --- what goes wrong ------------------------------------------------------------------------------------

    async def _faults(self) -> None:
        random = self.random
        span_s = 3.0 if self.has_groups else 0.4
        for _ in range(self.plan.faults):
            await self._wait_for_moment(span_s)
            await random.choice((self._crash, self._crash, self._reset, self._cut, self._step_clock))()

    async def _wait_for_moment(self, span_s: float) -> None:
        """Wait for any moment, or for one while a request or its answer is on its way."""
        random = self.random
        if random.random() < 0.3:
            await trio.sleep(random.uniform(0, span_s))
            return
        with trio.move_on_after(span_s):
            await self.history.wait_events(random.randint(1, 15))
            await trio.sleep(random.choice((0.0, random.uniform(0, MOMENT_S))))

    def _note(self, text: str) -> None:
        self.history.note("*", text)

    async def _crash(self) -> None:
        """End the broker in some way, and start it again a little later."""
        random = self.random
        if self.plan.keeps_synced_only and random.random() < 0.7:
            self._note("power is cut")
            self.machine.cut_power(random)
        elif random.random() < 0.2:
            self._note("the broker is stopped")
            await self.machine.stop()
        else:
            self._note("the broker is killed")
            self.machine.kill()
        await trio.sleep(random.uniform(0, 0.5))
        await self.machine.start()
        self._note("the broker is there again")

    async def _reset(self) -> None:
        self._note("connections are reset")
        self.world.network.reset(lambda *_: self.random.random() < 0.7)

    async def _cut(self) -> None:
        host = self.random.choice(self.names)
        both_ways = self.random.random() < 0.5
        self._note(f"{host} is cut off")
        self.world.network.cut(self.machine.host, host, both_ways=both_ways)
        await trio.sleep(self.random.uniform(0, 4.0))
        self.world.network.heal()
        self._note("all can reach each other again")

    async def _step_clock(self) -> None:
        by_ms = self.random.randint(-CLOCK_STEP_MS_MAX, CLOCK_STEP_MS_MAX)
        self._note(f"the broker's clock steps by {by_ms} ms")
        self.machine.clock.step(by_ms)

    # --- the end --------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        if self.random.random() < 0.5:
            await self._crash()
        async with self._client("judge") as judge:
            await read_finals(judge)
            if self.plan.processors:
                await find_processed(judge)
            if self.plan.sharers:
                await judge.learn_topic_ids()
                await ShareMember(judge).drain(self._records())
            for kind, group_id in (("members", GROUP_ID), ("consumers", CONSUMERS), ("streams", STREAMS)):
                if getattr(self.plan, kind):
                    await fetch_committed(judge, list(range(GROUP_PARTITIONS)), group_id)

    def _records(self) -> set[tuple[int, int]]:
        """Return partition and offset of all that is to be read."""
        return {
            (partition, offset)
            for partition in range(PARTITIONS)
            for batch in self.history.finals[TOPIC, partition].batches
            for offset in batch.values
        }
