"""`python -m bench.clients`: the Trio client beside aiokafka and confluent-kafka, on one broker.

The rule: each run is a separate process; within a round the clients run one after the other, in a rotating order. The first
round is discarded; medians and spans of the others are shown. CPU is the client's own, over all of its threads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, TopicPartition

from bench.clients import programs
from bench.peers import Running
from bench.peers.barnabas import Barnabas
from bench.procfs import describe_machine
from bench.tools import ROOT, BenchError, code_of
from compat.clients.shared.setup import Client, python

RECORDS = {100: 300_000, 1024: 100_000}
"""Records of a run, by their size."""
OPERATIONS = {
    "produce": "send each record, then flush",
    "consume": "receive one by one",
    "consume-batches": f"receive up to {programs.BATCH_RECORDS} in a call",
}
FILLING = "confluent-kafka"
"""The client that writes the records for consumers."""
RUN_TIMEOUT_S = 300


class Clients:
    """The clients' programs, each in its own environment, on one broker."""

    def __init__(self, names: list[str], running: Running) -> None:
        self.names = names
        self.versions: dict[str, str] = {}
        self._running = running
        self._code = code_of(ROOT)
        self._pythons = {name: _python(name) for name in {*names, FILLING}}

    def run(self, name: str, operation: str, topic: str, size: int, count: int) -> tuple[float, float]:
        """Let a client work; returns its microseconds of CPU for each record, and its thousands of records a second."""
        words = [name, operation, self._running.bootstrap, topic, str(size), str(count)]
        done = subprocess.run(
            [self._pythons[name], programs.__file__, *words],
            env={**os.environ, "PYTHONPATH": str(self._code) if name == "barnabas" else ""},
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise BenchError(f"{' '.join(words)}\n{done.stderr[-3000:]}")
        result = json.loads(done.stdout.splitlines()[-1])
        self.versions[name] = result["version"]
        return result["cpu_s"] / count * 1e6, count / result["wall_s"] / 1e3

    def end_offset(self, topic: str) -> int:
        """Return how many records a topic has."""
        consumer = Consumer({"bootstrap.servers": self._running.bootstrap, "group.id": "bench"})
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=programs.WAIT_S)
            return int(end)
        finally:
            consumer.close()


def _python(name: str) -> str:
    """Return the Python that has a client: aiokafka's is made as for `make compat`."""
    if name != "aiokafka":
        return sys.executable
    client = Client(str(ROOT / "compat/clients/aiokafka/run"))
    client.place.mkdir(parents=True, exist_ok=True)
    return python(client, "aio.py")[0][0]


@contextmanager
def _broker(data: Path) -> Iterator[Running]:
    with tempfile.TemporaryDirectory(dir=data, prefix="bench-clients-") as directory:
        running = Barnabas("barnabas", {}, None).start(Path(directory, "log"))
        try:
            yield running
        finally:
            running.stop()


def measure(clients: Clients, running: Running, operation: str, size: int, count: int, rounds: int) -> str:
    """Measure one operation; returns its row of the table."""
    names = clients.names
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    prepared = f"prepared-{operation}-{size}"
    if operation != "produce":
        running.create_topic(prepared)
        clients.run(FILLING, "produce", prepared, size, count)
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            topic = prepared
            if operation == "produce":
                topic = f"produced-{size}-{number}-{name}"
                running.create_topic(topic)
            values = clients.run(name, operation, topic, size, count)
            if operation == "produce":
                if (end := clients.end_offset(topic)) != count:
                    raise BenchError(f"{name} has written {end} of {count} records")
                running.delete_topic(topic)
            if number:  # the first round is discarded
                results[name].append(values)
                print(
                    f"{operation} {size} B, {name}: {values[0]:.2f} us, {values[1]:.0f} k/s", file=sys.stderr
                )
    title = (
        f"{operation.partition('-')[0]} {'1 KB' if size == 1024 else f'{size} B'}: {OPERATIONS[operation]}"
    )
    cells = [title, *(_cell([cpu for cpu, _ in results[name]], 1) for name in names)]
    cells += [_cell([rate for _, rate in results[name]], 0) for name in names]
    return f"| {' | '.join(cells)} |"


def _cell(values: list[float], digits: int) -> str:
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a fifth of the records")
    parser.add_argument("--clients", default=",".join(programs.CLIENTS), help="which, with commas")
    parser.add_argument("--operations", default=",".join(OPERATIONS), help="which, with commas")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()), help="where the log is")
    options = parser.parse_args()
    with _broker(options.data) as running:
        clients = Clients(options.clients.split(","), running)
        rows = [
            measure(clients, running, operation, size, count // (5 if options.quick else 1), options.rounds)
            for operation in options.operations.split(",")
            for size, count in RECORDS.items()
        ]
        described = ", ".join(f"{name} {value}" for name, value in describe_machine().items())
    print(f"{described}; {'; '.join(f'{name} {version}' for name, version in clients.versions.items())}\n")
    heads = [f"{name}, {unit}" for unit in ("us of CPU", "k records/s") for name in clients.names]
    print(f"| one partition | {' | '.join(heads)} |\n|{' --- |' * (len(heads) + 1)}")
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(str(error))
