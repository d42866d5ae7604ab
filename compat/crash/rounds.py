"""Rounds of load and SIGKILL, and the invariants after them.

The rule: the partition itself is checked: it is read to its end, and every record is accounted for.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.running import import_path
from compat.crash.producers import KafkaPython, Librdkafka, Load
from compat.matrix.brokers import Barnabas

TOPIC = "crash"
# Small segments, so that kills often interrupt rolling, sealing and flushing.
TOPIC_SETTINGS = {
    "internal.segment.bytes": "65536",
    "index.interval.bytes": "512",
    "compression.type": "producer",
}
LOADS: tuple[type[Load], ...] = (Librdkafka, KafkaPython, Librdkafka)
ROUND_S = (0.05, 1.0)
READ_TIMEOUT_S = 120


class LostError(Exception):
    """A guarantee was violated; the message names it."""


def judge(directory: Path, seed: int, run_all: Callable[[], Any]) -> int:
    """Run, and print the verdict with the figures, a dataclass; returns the exit code. The logs of a failure stay."""
    try:
        figures = run_all()
    except LostError as error:
        print(f"FAIL seed {seed}: {error}; see {directory}")
        return 1
    shutil.rmtree(directory)
    print("PASS", ", ".join(f"{name} {value}" for name, value in asdict(figures).items()))
    return 0


@dataclass
class Figures:
    """Counters of a run."""

    kills: int = 0
    clean_stops: int = 0
    sent: int = 0
    acknowledged: int = 0
    segments: int = 0
    seconds: float = 0.0


def run(directory: Path, *, seed: int, rounds: int) -> Figures:
    """Kill the broker `rounds` times under load, at moments drawn from `seed`, and check. Raises LostError."""
    choose = random.Random(seed)
    begun = time.monotonic()
    figures = Figures()
    broker = Barnabas(directory)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = NewTopic(TOPIC, len(LOADS), 1, config=TOPIC_SETTINGS)
    for created in admin.create_topics([topic]).values():
        created.result(30)
    loads = [load(broker.bootstrap, TOPIC, partition) for partition, load in enumerate(LOADS)]
    for load in loads:
        load.start()
    for _ in range(rounds):
        time.sleep(choose.uniform(*ROUND_S))
        how = "term" if choose.random() < 0.1 else "kill"
        broker.restart(how)
        figures.kills += how == "kill"
        figures.clean_stops += how == "term"
    for load in loads:
        load.stop()
        figures.sent += load.sent
        figures.acknowledged += len(load.acknowledged)
    for load in loads:
        check(load, read(broker.bootstrap, load.partition))
    broker.stop()
    figures.segments = verify(directory / "data")
    figures.seconds = time.monotonic() - begun
    return figures


def read(bootstrap: str, partition: int) -> list[tuple[int, int]]:
    """All records of a partition as (number, offset)."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "witness", "log_level": 0, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    records: list[tuple[int, int]] = []
    deadline = time.monotonic() + READ_TIMEOUT_S
    while True:
        message = consumer.poll(0.5)
        if time.monotonic() > deadline:
            raise LostError(f"partition {partition} cannot be read to its end")
        if message is None:
            continue
        error = message.error()
        if error is None:
            records.append((int((message.value() or b"").split()[0]), message.offset() or 0))
        elif error.code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return records
        else:
            raise LostError(str(error))


def check(load: Load, records: list[tuple[int, int]]) -> None:
    """Check that every sent number is present, in order, once, at its acknowledged offset. Raises LostError."""
    where = f"{type(load).__name__} on partition {load.partition}"
    if load.errors:
        raise LostError(f"{where}: {load.errors[:3]}")
    if len(load.acknowledged) != load.sent:
        raise LostError(f"{where}: {load.sent - len(load.acknowledged)} records were never answered")
    numbers = [number for number, _ in records]
    if numbers != list(range(load.sent)):
        at = next((n for n, number in enumerate(numbers) if number != n), len(numbers))
        raise LostError(
            f"{where}: {len(numbers)} of {load.sent} records, and record {at} is not in its place"
        )
    offsets = dict(records)
    # After a restart the response to a repeated batch may lack its offset: then no comparison is possible.
    wrong = [
        (n, offset, offsets[n]) for n, offset in load.acknowledged if offset not in (offsets[n], -1, None)
    ]
    if wrong:
        raise LostError(f"{where}: told another offset than the record has: {wrong[:3]}")


def verify(data: Path) -> int:
    """Run `barnabas log verify` on the data; returns the number of segments."""
    command = [sys.executable, "-m", "barnabas", "log", "verify", "--deep", "--quiet", "--json", str(data)]
    environment = {**os.environ, "PYTHONPATH": import_path()}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        errors = [json.loads(line) for line in done.stdout.splitlines()]
        raise LostError(f"the log dir is damaged: {errors[:3]}{done.stderr}")
    return len(list(data.glob(f"{TOPIC}-*/*.log")))
