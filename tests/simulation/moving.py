"""Histories of two brokers between which the coordinators move at random, judged as those of one broker.

The rule: leaders move only to a broker in the ISR, so nothing that was acknowledged may be lost, whatever is under way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import trio

from barnabas.cluster.metadata.changes import ControllerChanged
from barnabas.cluster.metadata.internal_topics import OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from barnabas.testing.simulation.broker import PORT
from barnabas.testing.simulation.world import World, run_world
from tests.simulation import epoch_members, share_members
from tests.simulation.checker import failures_of, violations
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
from tests.simulation.epoch_members import CONSUMERS, EpochMember
from tests.simulation.history import History
from tests.simulation.members import GROUP_ID, GROUP_PARTITIONS, Member, fetch_committed
from tests.simulation.processors import Processor, find_processed
from tests.support.replicating import ReplicatingCluster, replicating

BROKERS = (1, 2)
SECONDS_MAX = 240.0
TOPICS = {
    TOPIC: TOPIC_PARTITIONS,
    OUTPUT: 1,
    LATEST_OF_KEYS: 1,
    OFFSETS_TOPIC: 2,
    TRANSACTION_TOPIC: 2,
    SHARE_TOPIC: 1,
}
PARTITION_COUNTS = {"offsets_topic_num_partitions": "2", "transaction_state_log_num_partitions": "2"}
KINDS = ("transactional", "members", "consumers", "processors")


def judged(seed: int) -> tuple[History, list[str]]:
    """Run the history of a seed and return it with what was broken in it."""
    history = History()

    async def program(world: World) -> None:
        settings = {**PARTITION_COUNTS, **{k.replace(".", "_"): v for k, v in epoch_members.SETTINGS.items()}}
        settings |= {k.replace(".", "_"): v for k, v in share_members.SETTINGS.items()}
        async with replicating(world, **settings) as cluster:
            await _Run(world, cluster, history).run()

    failures = failures_of(lambda: run_world(seed, program, seconds_max=SECONDS_MAX))
    return history, failures or violations(history)


class _Run:
    """One history."""

    def __init__(self, world: World, cluster: ReplicatingCluster, history: History) -> None:
        self.world = world
        self.cluster = cluster
        self.history = history
        self.random = Random(f"{world.seed}/moves")
        self.bootstrap = ",".join(f"broker-{broker_id}:{PORT}" for broker_id in BROKERS)
        self.kinds = set(self.random.sample(KINDS, self.random.randint(1, 3)))

    async def run(self) -> None:
        """Start brokers, have clients work while leaders move, and read what is there in the end."""
        await self.cluster.start(*BROKERS)
        self.cluster.metadata.change(ControllerChanged(self.random.choice(BROKERS), 1))
        for number, (name, count) in enumerate(TOPICS.items()):
            assignments = [tuple(self.random.sample(BROKERS, 2)) for _ in range(count)]
            self.cluster.metadata.create(name, *assignments, topic_id=bytes([number + 1]) * 16)
        async with trio.open_nursery() as moving:
            async with trio.open_nursery() as working:
                moving.start_soon(self._move)
                self._start_clients(working)
            moving.cancel_scope.cancel()
        async with asking(self.world, self.bootstrap, "judge", self.history) as judge:
            await read_finals(judge)
            if "processors" in self.kinds:
                await find_processed(judge)
            for kind, group_id in (("members", GROUP_ID), ("consumers", CONSUMERS)):
                if kind in self.kinds:
                    await fetch_committed(judge, list(range(GROUP_PARTITIONS)), group_id)

    def _start_clients(self, nursery: trio.Nursery) -> None:
        random = self.random

        def start(name: str, work: Callable[[Asker], Awaitable[None]]) -> None:
            async def task() -> None:
                async with asking(self.world, self.bootstrap, name, self.history) as asker:
                    if "consumers" in self.kinds:
                        await asker.learn_topic_ids()
                    await work(asker)

            nursery.start_soon(task)

        for n in range(2 if self.kinds & {"transactional", "processors"} else 0):
            name, count = f"transactional{n}", random.randint(2, 6)
            start(
                name,
                lambda asker, name=name, count=count: Producer(asker, transactional_id=name).transact(count),
            )
        for kind, member in (("members", Member), ("consumers", EpochMember)):
            for n in range(2 if kind in self.kinds else 0):
                rounds = random.randint(4, 8)
                start(
                    f"{kind}{n}", lambda asker, member=member, rounds=rounds: member(asker).take_part(rounds)
                )
        if "processors" in self.kinds:
            start("processor", lambda asker: Processor(asker).process(4))

    async def _move(self) -> None:
        """Let another broker lead a partition, now and then; sometimes one hears of it late, or is killed."""
        random = self.random
        names = [name for name, count in TOPICS.items() for _ in range(count + 2)]
        crashes = random.choice((0, 0, 1, 2))
        while True:
            await trio.sleep(random.choice((random.uniform(0, 0.05), random.uniform(0, 1.0))))
            if crashes and random.random() < 0.2:
                crashes -= 1
                await self._crash(random.choice(BROKERS))
            late = random.choice(BROKERS) if random.random() < 0.3 else None
            if late is not None:
                self.cluster.metadata.views[late].hold()
            try:
                for _ in range(random.randint(1, 3)):
                    self._elect_another(random.choice(names))
                if late is not None:
                    await trio.sleep(random.uniform(0, 0.3))
            finally:
                if late is not None:
                    self.cluster.metadata.views[late].hold(is_held=False)

    async def _crash(self, broker_id: int) -> None:
        """End a broker at once; the cluster hears of it later, and what no other broker can lead is offline meanwhile."""
        random, cluster = self.random, self.cluster
        with trio.CancelScope(shield=True):
            self.history.note("*", f"broker {broker_id} is killed")
            cluster.kill(broker_id)
            await trio.sleep(random.uniform(0, 0.5))
            cluster.metadata.broker_failed(broker_id)
            self.history.note("*", f"broker {broker_id} is missed")
            await trio.sleep(random.uniform(0, 1.0))
            await cluster.start(broker_id)
            cluster.metadata.broker_came(broker_id)
            self.history.note("*", f"broker {broker_id} is back")

    def _elect_another(self, name: str) -> None:
        """Let another broker of the ISR lead a partition of a topic."""
        metadata = self.cluster.metadata
        index = self.random.randrange(TOPICS[name])
        info = metadata.partition(name, index)
        others = [id_ for id_ in info.isr if id_ != info.leader]
        if others:
            new = self.random.choice(others)
            self.history.note("*", f"{name}-{index} is led by {new}")
            metadata.elect(name, index, new)
