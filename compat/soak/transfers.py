"""Transfers between accounts by transactional workers, while workers and the broker are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from compat.kit.reading import read_to_end
from compat.matrix.brokers import BarnabasCluster, Broker, BrokerError
from compat.soak.clerks import CLIENTS
from compat.soak.worker import GROUP, LEDGER, ORDERS

ACCOUNTS = 50
PARTITIONS = 6
LEDGER_PARTITIONS = 30
"""So many get an end marker of each transaction, or nearly."""
DONE_TIMEOUT_S = 180
ROUND_S = (0.2, 1.5)
PAUSE_S = (1.0, 2.5)
"""Longer than a coordinator waits for the markers of a transaction before it answers, shorter than any session."""
ABORTABLE = ("TRANSACTION_ABORTABLE", "TransactionAbortable", "INVALID_TXN_STATE", "InvalidTxnState")
"""As clients write that their transaction was not taken for one: no correct producer is told so."""
_PASSING = frozenset((
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR,
))  # fmt: skip


class LostError(Exception):
    """A guarantee was broken; the message says which."""


@dataclass
class Figures:
    """Counters of a run."""

    orders: int = 0
    acknowledged: int = 0
    aborted_records: int = 0
    workers_killed: int = 0
    brokers_killed: int = 0
    brokers_paused: int = 0
    workers_failed: int = 0
    transactions: int = 0
    """Acknowledged commits."""
    abortable: int = 0
    """Count how often a worker has failed as its transaction was not taken for one."""
    seconds: float = 0.0


@dataclass
class Worker:
    """A worker that is started again whenever it ends."""

    name: str
    command: list[str]
    bootstrap: str
    directory: Path
    process: subprocess.Popen[bytes] | None = None
    failures: int = field(default=0)

    @property
    def acknowledged(self) -> Path:
        return self.directory / f"{self.name}.acknowledged"

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.log"

    def keep_alive(self) -> None:
        """Start it, unless it is running."""
        if self.process is not None and self.process.poll() is None:
            return
        if self.process is not None:
            self.failures += 1
        command = [*self.command, self.bootstrap, self.name, str(self.acknowledged)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, env=os.environ)

    def kill(self) -> None:
        """End it without warning."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


def run(
    broker: Broker,
    directory: Path,
    *,
    seed: int,
    rounds: int,
    orders: int,
    workers: int,
    clients: Sequence[str] = ("librdkafka",),
    replicas: int = 1,
    pauses: bool = False,
) -> Figures:
    """Kill at random for some rounds, let the workers end their work, and check. Raises LostError.

    The workers use the `clients` in turn. With `pauses` the brokers of a cluster are paused, and no process is killed.
    """
    commands = [CLIENTS[client]() for client in clients]
    crew = [
        (f"{clients[number % len(clients)]}-{number}", commands[number % len(clients)])
        for number in range(workers)
    ]
    try:
        return _run(
            broker, directory, crew, seed=seed, rounds=rounds, orders=orders, replicas=replicas, pauses=pauses
        )
    except BaseException:
        with suppress(BrokerError):
            broker.stop("kill")
        raise


def _run(
    broker: Broker,
    directory: Path,
    services: Sequence[tuple[str, list[str]]],
    *,
    seed: int,
    rounds: int,
    orders: int,
    replicas: int,
    pauses: bool,
) -> Figures:
    choose = random.Random(seed)
    begun = time.monotonic()
    figures = Figures(orders=orders)
    broker.start()
    place_orders(broker.bootstrap, choose, orders, replicas)
    crew = [Worker(name, command, broker.bootstrap, directory) for name, command in services]
    try:
        for number in range(rounds):
            for worker in crew:
                worker.keep_alive()
            time.sleep(choose.uniform(*ROUND_S))
            if isinstance(broker, BarnabasCluster) and pauses:
                broker.pause(choose.randrange(len(broker.pids)), choose.uniform(*PAUSE_S))
                figures.brokers_paused += 1
            elif number % 3 == 2:
                broker.restart("kill")
                figures.brokers_killed += 1
            else:
                choose.choice(crew).kill()
                figures.workers_killed += 1
        wait_done(broker.bootstrap, crew, orders)
    finally:
        for worker in crew:
            worker.kill()
            figures.workers_failed += worker.failures
    commits = [
        line
        for worker in crew
        if worker.acknowledged.exists()
        for line in worker.acknowledged.read_text().splitlines()
    ]
    told = [number for line in commits for number in line.split()]
    figures.acknowledged, figures.transactions = len(told), len(commits)
    refused = [
        line
        for worker in crew
        for line in worker.log.read_text(errors="replace").splitlines()
        if any(name in line for name in ABORTABLE)
    ]
    figures.abortable = len(refused)
    check(broker.bootstrap, orders, told, figures)
    broker.stop()
    figures.seconds = time.monotonic() - begun
    if refused:
        raise LostError(
            f"correct producers were refused {len(refused)} times, the first: {refused[0]}; {figures}"
        )
    return figures


def place_orders(bootstrap: str, choose: random.Random, count: int, replicas: int) -> None:
    """Make the topics, and fill the one with orders."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics(
        [NewTopic(ORDERS, PARTITIONS, replicas), NewTopic(LEDGER, LEDGER_PARTITIONS, replicas)]
    ).values():
        created.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        giver, taker = choose.sample(range(ACCOUNTS), 2)
        producer.produce(
            ORDERS, f"{number} {giver} {taker} {choose.randint(1, 100)}", partition=number % PARTITIONS
        )
    if producer.flush(60):
        raise LostError("the orders could not be placed")


def wait_done(bootstrap: str, crew: list[Worker], orders: int) -> None:
    """Wait until the group has committed the offsets of all orders."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    places = [TopicPartition(ORDERS, partition) for partition in range(PARTITIONS)]
    deadline = time.monotonic() + DONE_TIMEOUT_S
    while True:
        for worker in crew:
            worker.keep_alive()
        done = committed_orders(admin, places)
        if done == orders:
            return
        if time.monotonic() > deadline:
            raise LostError(f"after {DONE_TIMEOUT_S} s only {done} of {orders} orders are done")
        time.sleep(0.5)


def committed_orders(admin: AdminClient, places: list[TopicPartition]) -> int:
    """Return the number of orders that the group has committed; 0 while its coordinator loads after a kill."""
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP, places)])[GROUP]
    try:
        answer = asked.result(30)
    except KafkaException as error:
        if error.args[0].code() in _PASSING:
            return 0
        raise
    return sum(max(place.offset, 0) for place in answer.topic_partitions)


def wait_settled(bootstrap: str) -> None:
    """Wait until no transaction is open in the ledger; that of a killed worker ends with its timeout."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    expected = {
        TopicPartition(LEDGER, partition): OffsetSpec.latest() for partition in range(LEDGER_PARTITIONS)
    }
    deadline = time.monotonic() + DONE_TIMEOUT_S
    while True:
        ends = [
            [
                future.result(30).offset
                for future in admin.list_offsets(expected, isolation_level=level).values()
            ]
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ]
        if ends[0] == ends[1]:
            return
        if time.monotonic() > deadline:
            raise LostError(f"transactions stay open: committed up to {ends[0]}, written up to {ends[1]}")
        time.sleep(0.5)


def read_all(bootstrap: str, isolation: str) -> list[str]:
    """All values of the ledger, as far as the isolation level shows them."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "auditor",
        "isolation.level": isolation,
        "enable.auto.commit": False,
    }
    values: list[str] = []
    try:
        for message in read_to_end(settings, LEDGER, LEDGER_PARTITIONS, seconds=DONE_TIMEOUT_S):
            if message.error():
                raise LostError(str(message.error()))
            values.append((message.value() or b"").decode())
    except TimeoutError as error:
        raise LostError(f"under {isolation}: {error}") from error
    return values


def check(bootstrap: str, orders: int, told: list[str], figures: Figures) -> None:
    """Check that each order is there once, each pair complete, and each reported commit there. Raises LostError."""
    wait_settled(bootstrap)
    committed = read_all(bootstrap, "read_committed")
    figures.aborted_records = len(read_all(bootstrap, "read_uncommitted")) - len(committed)
    amounts: dict[str, list[int]] = defaultdict(list)
    for value in committed:
        number, amount = value.split()
        amounts[number].append(int(amount))
    wrong = {number: pair for number, pair in amounts.items() if len(pair) != 2 or sum(pair)}
    if wrong:
        raise LostError(
            f"{len(wrong)} orders are not in the ledger exactly once: {dict(list(wrong.items())[:5])}"
        )
    if len(amounts) != orders:
        raise LostError(f"{orders - len(amounts)} orders are not in the ledger")
    if len(set(told)) != len(told):
        raise LostError("an order was done twice, as workers were told")
