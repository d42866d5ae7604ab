"""Guarantees at the end: each acknowledged record is at its reported offset, and all replicas are equal.

The rule: the evidence are the topics, read to their ends by a stock consumer.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from compat.cluster.load import QUICK
from compat.cluster.logs import content, difference
from compat.cluster.nodes import wait_until
from compat.faults.clients import PARTITIONS, Acknowledging, Reader
from compat.faults.machines import FaultyCluster
from compat.kit.reading import read_to_end

READ_S = 90.0
SHOWN = 3


def read(bootstrap: str, topic: str) -> dict[tuple[int, int], bytes]:
    """All values by partition and offset. Raises TimeoutError."""
    settings = {
        **QUICK,
        "bootstrap.servers": bootstrap,
        "group.id": f"witness-{time.monotonic_ns()}",
        "auto.offset.reset": "earliest",
    }
    return {
        (message.partition(), message.offset()): message.value()
        for message in read_to_end(settings, topic, PARTITIONS, seconds=READ_S)
        if message.error() is None
    }


def broken_promises(producer: Acknowledging, records: dict[tuple[int, int], bytes]) -> list[str]:
    """Return the broken guarantees of a producer."""
    broken = [f"{len(producer.errors)} errors, the first: {producer.errors[0]}"] if producer.errors else []
    numbers = {where: int(value) for where, value in records.items()}
    counts = Counter(numbers.values())
    lost = sorted(producer.acknowledged.keys() - counts.keys())
    if lost:
        where = {number: producer.acknowledged[number] for number in lost[:SHOWN]}
        broken.append(f"{len(lost)} acknowledged records are lost, the first: {where}")
    elsewhere = {
        number: (where, numbers.get(where))
        for number, where in producer.acknowledged.items()
        if where[1] >= 0 and numbers.get(where) != number
    }
    if elsewhere:
        first = dict(list(elsewhere.items())[:SHOWN])
        broken.append(f"{len(elsewhere)} records are not where it was said, the first: {first}")
    twice = [number for number, count in counts.items() if count > 1]
    if producer.is_idempotent and twice:
        broken.append(f"{len(twice)} records are there twice, the first: {sorted(twice)[:SHOWN]}")
    for partition in range(PARTITIONS):
        of_partition = [(offset, number) for (index, offset), number in numbers.items() if index == partition]
        in_order = [number for _, number in sorted(of_partition)]
        if producer.is_idempotent and in_order != sorted(in_order):
            broken.append(f"partition {partition} is out of order")
        if sorted(offset for offset, _ in of_partition) != list(range(len(of_partition))):
            broken.append(f"partition {partition} has a gap in its offsets")
    return [f"{producer.topic}: {text}" for text in broken]


def lost_reads(reader: Reader, topic: str, records: dict[tuple[int, int], bytes]) -> list[str]:
    """Return the records that the reader has received and that are lost."""
    wrong = [
        (where, value) for (of, *where), value in reader.seen.items() if of == topic and records.get(tuple(where)) != value
    ]  # fmt: skip
    if not wrong:
        return []
    return [f"{topic}: {len(wrong)} records were read that are not there, the first: {wrong[:SHOWN]}"]


def compare_replicas(cluster: FaultyCluster, topics: Iterable[str]) -> int:
    """Check that all replicas have equal bytes; returns the number of compared partitions. Raises ClusterError."""
    names = [name for name in cluster.states() if name.rpartition("-")[0] in set(topics)]
    for name in names:

        def contents(name: str = name) -> dict[int, bytes]:
            return {
                broker_id: content(broker.partition_dir(name))
                for broker_id, broker in cluster.brokers.items()
            }

        wait_until(
            lambda contents=contents: len(set(contents().values())) == 1,
            f"the replicas of {name} have the same bytes",
            lambda contents=contents: difference(contents()),
            seconds=20,
        )
    return len(names)
