"""Coordinators: successive transactions, synchronous commits of offsets, joins of many members, and their heartbeats.

The client is in this process: confluent-kafka for the former, which waits for the broker nearly all of the time, and bare
sockets (`bench.members`) for the latter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.arms import Arm
from bench.members import ALONE_S, POLL_S, ClassicMember, ConsumerMember, Crowd, Member
from bench.peers import Running
from bench.procfs import cpu_s
from bench.scenarios.base import Metric, Scenario, Target
from bench.wire import Connection

TIMEOUT_S = 30
RECORDS = 10


class _OneAfterTheOther(Scenario):
    """Calls the function that `begin` returns for a time; measures calls per second."""

    target = Target(1.0, "kafka", 2.0)

    def __init__(self) -> None:
        self.metrics = (Metric("rate", "throughput", "1/s", more_is_better=True, targets=(self.target,)),)

    def serves(self, arm: Arm) -> bool:
        return arm.peer.keeps_data

    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        topic = f"{self.name}-{round_number}"
        arm.running.create_topic(topic)
        step = self.begin(arm.running.bootstrap, topic)
        seconds = 1.0 if arm.quick else 5.0
        count, start = 0, time.monotonic()
        while time.monotonic() - start < seconds:
            step()
            count += 1
        rate = count / (time.monotonic() - start)
        arm.running.delete_topic(topic)
        return {"rate": rate}

    def begin(self, bootstrap: str, topic: str) -> Callable[[], None]:
        """Set up the client; returns the function of one step."""
        raise NotImplementedError


class Transactions(_OneAfterTheOther):
    name = "transactions"
    title = f"transactions of {RECORDS} records, one after the other"

    def begin(self, bootstrap: str, topic: str) -> Callable[[], None]:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0})
        producer.init_transactions(TIMEOUT_S)

        def step() -> None:
            producer.begin_transaction()
            for _ in range(RECORDS):
                producer.produce(topic, b"x" * 100, partition=0)
            producer.commit_transaction(TIMEOUT_S)

        step()
        return step


class Commits(_OneAfterTheOther):
    name = "commits"
    title = "commits of an offset, one after the other"
    target = Target(1.5, "kafka")

    def serves(self, arm: Arm) -> bool:
        return arm.peer.serves_consumers

    def begin(self, bootstrap: str, topic: str) -> Callable[[], None]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0)])
        offset = 0

        def step() -> None:
            nonlocal offset
            offset += 1
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)

        step()
        return step


def _find_coordinator(running: Running, group: str) -> None:
    with Connection(running.bootstrap) as connection:
        connection.wait_for_coordinator(group)


class _Joins(Scenario):
    """Members that join, and then join again; a member is content when it has its assignment in the last generation."""

    warmups = 1
    rounds_max = 3
    metrics = (
        Metric("join_s", "until all have joined", "s", targets=(Target(1.0, "kafka", 0.5),)),
        Metric("join_median_s", "until half of them have", "s"),
        Metric("join_cpu_s", "broker CPU for it", "s"),
        Metric("rejoin_ms", "all again", "ms", targets=(Target(1.0, "kafka", 0.5),)),
        Metric("rejoin_median_ms", "half of them", "ms"),
        Metric("rejoin_cpu_ms", "broker CPU for it", "ms"),
    )
    members_count = 1_000
    groups_count = 1
    partitions_max = 1_000
    """Largest number of partitions of the topic: some brokers are slow to create more, and classic members need none."""
    settings: Mapping[str, str] = {}
    """Settings that the broker needs besides its defaults."""

    def serves(self, arm: Arm) -> bool:
        return arm.peer.keeps_data

    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        running = arm.with_settings(self.settings)
        topic, pid = f"{self.name}-{round_number}", running.pid
        poll_s = ALONE_S if self.groups_count == self.members_count else POLL_S
        members = [
            ClassicMember(f"{topic}-{number % self.groups_count}", topic, poll_s)
            for number in range(self.members_count)
        ]
        partitions = min(self.members_count // self.groups_count, self.partitions_max)
        figures: dict[str, float] = {}
        with _crowd(running, topic, partitions, members) as crowd:
            for key, unit in (("join", 1.0), ("rejoin", 1e3)):
                before = max(member.view[0] for member in crowd.members)
                suffix = "s" if key == "join" else "ms"
                cpu = cpu_s(pid)
                crowd.begin()
                figures[f"{key}_{suffix}"] = crowd.run(lambda least=before: _agreed(crowd, least)) * unit
                figures[f"{key}_median_{suffix}"] = crowd.median_s * unit
                figures[f"{key}_cpu_{suffix}"] = (cpu_s(pid) - cpu) * unit
        return figures


@contextmanager
def _crowd(running: Running, topic: str, partitions: int, members: Sequence[Member]) -> Iterator[Crowd]:
    """Yield members with a connection each, and a topic for them that is deleted afterwards."""
    running.create_topic(topic, partitions)
    _find_coordinator(running, topic)
    crowd = Crowd(running.bootstrap, members)
    try:
        yield crowd
    finally:
        crowd.close()
    running.delete_topic(topic)


def _agreed(crowd: Crowd, least: int) -> bool:
    """Return whether all members of a group have an assignment in the same new generation."""
    generations: dict[bytes, set[int]] = {}
    for member in crowd.members:
        generation, assigned = member.view
        if generation <= least or not assigned:
            return False
        generations.setdefault(member.group, set()).add(generation)
    return all(len(seen) == 1 for seen in generations.values())


class JoinOne(_Joins):
    name = "join-1000"
    title = "join of 1,000 members to a classic group"


class JoinGroups(_Joins):
    name = "join-groups"
    title = "join of a member to each of 1,000 classic groups"
    groups_count = 1_000

    def serves(self, arm: Arm) -> bool:
        return arm.peer.serves_groups_of_one


class JoinConsumer(Scenario):
    """Members of KIP-848: content when each owns its partition and all are in the same epoch."""

    name = "join-848"
    title = "join of 1,000 members to a group of KIP-848"
    warmups = 1
    rounds_max = 3
    metrics = _Joins.metrics[:3]

    def serves(self, arm: Arm) -> bool:
        return arm.peer.keeps_data

    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        topic, pid, count = f"{self.name}-{round_number}", arm.running.pid, _Joins.members_count
        with _crowd(arm.running, topic, count, [ConsumerMember(topic, topic) for _ in range(count)]) as crowd:
            cpu = cpu_s(pid)
            crowd.begin()
            seconds = crowd.run(lambda: len({member.view for member in crowd.members}) == 1)
            return {
                "join_s": seconds,
                "join_median_s": crowd.median_s,
                "join_cpu_s": cpu_s(pid) - cpu,
            }


class JoinMany(_Joins):
    """By default neither broker can have such a group: its record would be over 1 MB.

    Measured once: it takes Apache Kafka three minutes to accept so many connections, which is not counted.
    """

    name = "join-10000"
    title = "join of 10,000 members to a classic group"
    warmups = 0
    rounds_max = 1
    members_count = 10_000
    settings: Mapping[str, str] = {"message.max.bytes": str(10 * 1024 * 1024)}


class JoinManyGroups(_Joins):
    """Measured once, as `JoinMany`."""

    name = "join-groups-10000"
    title = "join of a member to each of 10,000 classic groups"
    warmups = 0
    rounds_max = 1
    members_count = groups_count = 10_000


class Heartbeats(Scenario):
    """Heartbeats of joined members, each sent after the response to the previous one."""

    rounds_max = 3
    metrics = (
        Metric("rate", "throughput", "1/s", more_is_better=True, targets=(Target(1.0, "kafka"),)),
        Metric("cpu_us", "broker CPU for each", "us", targets=(Target(1.0, "kafka"),)),
    )
    members_count = 1_000

    def __init__(self, name: str, title: str, member: type[ClassicMember | ConsumerMember]) -> None:
        self.name = name
        self.title = title
        self._member = member

    def serves(self, arm: Arm) -> bool:
        return arm.peer.keeps_data

    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        topic, pid, count = f"{self.name}-{round_number}", arm.running.pid, self.members_count
        with _crowd(arm.running, topic, count, [self._member(topic, topic) for _ in range(count)]) as crowd:
            crowd.begin()
            crowd.run(lambda: len({member.view for member in crowd.members}) == 1)
            seconds = 1.0 if arm.quick else 5.0
            cpu = cpu_s(pid)
            rate = crowd.beat(seconds)
            cpu = cpu_s(pid) - cpu
        return {"rate": rate, "cpu_us": cpu / (rate * seconds) * 1e6}


SCENARIOS: list[Scenario] = [
    Transactions(),
    Commits(),
    JoinOne(),
    JoinGroups(),
    JoinConsumer(),
    JoinMany(),
    JoinManyGroups(),
    Heartbeats("heartbeats", "heartbeats of 1,000 members of a classic group", ClassicMember),
    Heartbeats("heartbeats-848", "heartbeats of 1,000 members of a group of KIP-848", ConsumerMember),
]
