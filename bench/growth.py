"""`python -m bench.growth`: how the cost of a request grows with what a broker holds.

CPU per request of a broker over the number of its partitions, the size of a log, the number of connections and of groups:
a table, all values as JSON, and a plot of each as SVG.

The rule: one request in flight; successive requests are for different partitions, places in the log, connections or
groups, in an order given by a seed. The client is in this process, and its CPU is not counted.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import plots
from bench.peers import Peer, Running, parse_peer
from bench.procfs import cpu_s, describe_machine
from bench.tools import ROOT, RUN_TIMEOUT_S, BenchError, build, loadgen
from bench.wire import (
    Connection,
    WireError,
    fetch_v11,
    fetch_v11_results,
    offset_commit_v2,
    offset_commit_v2_errors,
    produce_v7,
    produce_v7_results,
    record_batch,
)

SEED = 1
VALUE = b"x" * 100
FETCH_BYTES_MAX = 4096
SLOWEST_MB_S = 20
"""Lowest rate at which a log is filled, for its timeout."""
MB = 1_000_000
TOPIC = "growth"
FILES_SPARE = 200
WARMUP_REQUESTS = 20_000
"""Of each kind, before the first size is measured: a JVM compiles for so long."""
PARTITIONS_OF_A_TOPIC = 5_000
"""Apache Kafka refuses to make 10,000 in one request."""

Ask = Callable[[int], None]
"""Sends the request of a number, and checks the answer."""


@dataclass(frozen=True)
class Growth:
    """A quantity that may grow: the sizes to measure, and the set-up of each."""

    name: str
    title: str
    unit: str
    sizes: tuple[int, ...]
    grown: Callable[[Running, int], AbstractContextManager[dict[str, Ask]]]
    has_file_each: bool = True
    """True if a broker, or this process, holds a file or socket open for each of them."""


# --- quantities -------------------------------------------------------------------------------------------------


@contextmanager
def _partitions(running: Running, count: int) -> Iterator[dict[str, Ask]]:
    """Set up `count` non-empty partitions: produce to, and fetch from one at a time."""
    topics = {
        f"{TOPIC}-partitions-{count}-{first}": min(PARTITIONS_OF_A_TOPIC, count - first)
        for first in range(0, count, PARTITIONS_OF_A_TOPIC)
    }
    partitions = [(topic, partition) for topic, size in topics.items() for partition in range(size)]
    with Connection(running.bootstrap, 300) as connection:
        batch = _batch()
        for topic, size in topics.items():
            connection.create_topic(topic, size)
            for first in range(0, size, 500):
                _produced(connection.call(produce_v7(topic, range(first, min(first + 500, size)), batch)))

        def produce(number: int) -> None:
            topic, partition = partitions[number % count]
            _produced(connection.call(produce_v7(topic, [partition], batch)))

        def fetch(number: int) -> None:
            topic, partition = partitions[number % count]
            _fetched(connection.call(fetch_v11(topic, [partition], 0, FETCH_BYTES_MAX)))

        yield {"produce to one partition": produce, "fetch from one partition": fetch}
        for topic in topics:
            connection.delete_topic(topic)


@contextmanager
def _log_size(running: Running, megabytes: int) -> Iterator[dict[str, Ask]]:
    """Set up a log of batches of 16 KB: produce to it, and fetch from any place of it."""
    topic = f"{TOPIC}-log-{megabytes}"
    running.create_topic(topic)
    client = {"acks": 1, "batch.size": 16_384, "queue.buffering.max.messages": 200_000, "linger.ms": 50}
    loadgen(
        "produce",
        running.bootstrap,
        client=client,
        topic=topic,
        size=1024,
        count=megabytes * MB // 1024,
        partitions=1,
        timeout_s=RUN_TIMEOUT_S + megabytes / SLOWEST_MB_S,
    )
    with Connection(running.bootstrap, 300) as connection:
        ((_, end),) = connection.end_offsets(topic, 1)
        batch = _batch()

        def produce(_: int) -> None:
            _produced(connection.call(produce_v7(topic, [0], batch)))

        def fetch(number: int) -> None:
            _fetched(connection.call(fetch_v11(topic, [0], number % end, FETCH_BYTES_MAX)))

        yield {"produce": produce, "fetch from any offset": fetch}
        connection.delete_topic(topic)


@contextmanager
def _connections(running: Running, count: int) -> Iterator[dict[str, Ask]]:
    """Set up `count` connections, which send requests in turn."""
    topic = f"{TOPIC}-connections-{count}"
    running.create_topic(topic)
    with ExitStack() as stack:
        all_of_them = [stack.enter_context(Connection(running.bootstrap, 300)) for _ in range(count)]
        for connection in all_of_them:
            connection.hello()
        produced, fetched = produce_v7(topic, [0], _batch()), fetch_v11(topic, [0], 0, FETCH_BYTES_MAX)

        def produce(number: int) -> None:
            _produced(all_of_them[number % count].call(produced))

        def fetch(number: int) -> None:
            _fetched(all_of_them[number % count].call(fetched))

        yield {"produce": produce, "fetch": fetch}
    running.delete_topic(topic)


@contextmanager
def _groups(running: Running, count: int) -> Iterator[dict[str, Ask]]:
    """Set up `count` groups with a committed offset each: commit to one at a time."""
    topic = f"{TOPIC}-groups-{count}"
    running.create_topic(topic)
    with Connection(running.bootstrap, 300) as connection:
        connection.wait_for_coordinator(f"{topic}-0")

        def commit(number: int) -> None:
            frame = offset_commit_v2(f"{topic}-{number % count}", topic, 0, number)
            errors = offset_commit_v2_errors(connection.call(frame))
            if errors != [0]:
                raise WireError(f"OffsetCommit was answered with {errors}")

        _retry(lambda: commit(0))
        for number in range(count):
            commit(number)
        yield {"commit an offset": commit}
    running.delete_topic(topic)


GROWTHS = {
    growth_kind.name: growth_kind
    for growth_kind in (
        Growth(
            "partitions", "partitions of the broker", "partitions", (1, 10, 100, 1_000, 10_000), _partitions
        ),
        Growth("log", "size of the log", "MB", (1, 10, 100, 1_000, 20_000), _log_size, has_file_each=False),
        Growth("connections", "connections", "connections", (1, 10, 100, 1_000, 10_000), _connections),
        Growth("groups", "consumer groups", "groups", (1, 10, 100, 1_000, 10_000), _groups),
    )
}


def _batch() -> bytes:
    return record_batch([VALUE], time.time_ns() // MB)


def _produced(reply: bytes) -> None:
    if any(error for error, _ in produce_v7_results(reply)):
        raise WireError(f"Produce was answered with {produce_v7_results(reply)[:10]}")


def _fetched(reply: bytes) -> None:
    if any(error or not size for error, size in fetch_v11_results(reply)):
        raise WireError(f"Fetch was answered with {fetch_v11_results(reply)[:10]}")


def _retry(call: Callable[[], None], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return call()
        except WireError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


# --- measuring --------------------------------------------------------------------------------------------------

Values = dict[str, dict[str, dict[int, float]]]
"""Microseconds of CPU per request, by request, peer and size."""


def measure(
    growth: Growth, peers: Sequence[Peer], sizes: Sequence[int], options: argparse.Namespace
) -> Values:
    """Measure one quantity on all peers, size by size and in turns; returns the medians of the rounds."""
    times: dict[tuple[str, str, int], list[float]] = {}
    directory = options.data.resolve() / f"growth-{growth.name}"
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        running = {peer.label: _started(peer, directory, stack) for peer in peers}
        for size in sizes:
            for label, running_peer in running.items():
                with growth.grown(running_peer, size) as asks:
                    for name, ask in asks.items():
                        if size == sizes[0]:
                            _cpu_us(running_peer, ask, WARMUP_REQUESTS)
                        for _ in range(options.rounds):
                            us = _cpu_us(running_peer, ask, options.requests)
                            times.setdefault((name, label, size), []).append(us)
                        middle = median(times[name, label, size])
                        print(
                            f"{growth.name} {size:>7,}  {label:10} {name:28} {middle:10,.1f} us", flush=True
                        )
    values: Values = {}
    for (name, label, size), rounds in times.items():
        values.setdefault(name, {}).setdefault(label, {})[size] = round(median(rounds), 1)
    return values


def _started(peer: Peer, directory: Path, stack: ExitStack) -> Running:
    data = directory / peer.label
    peer.format(data)
    running = peer.start(data)
    stack.callback(running.stop)
    return running


def _cpu_us(running: Running, ask: Ask, requests: int) -> float:
    """Return the broker's CPU time per request, in us."""
    numbers = random.Random(SEED)
    order = [numbers.randrange(1 << 31) for _ in range(requests)]
    for number in order[: requests // 4]:
        ask(number)
    before = cpu_s(running.pid)
    for number in order:
        ask(number)
    return (cpu_s(running.pid) - before) / requests * 1e6


def _allow_files(count: int) -> None:
    """Raise the limit of open files for this process and the brokers that it starts. Raises BenchError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise BenchError(f"{count} files must be open at a time, and {hard} are allowed (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))


def main(argv: list[str] | None = None) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("growths", nargs="*", choices=[*GROWTHS, []], help="all by default")
    parser.add_argument("--peers", default="barnabas,kafka", help="as of `python -m bench`")
    parser.add_argument(
        "--max", type=int, metavar="N", help="leave out sizes beyond this (partitions, MB, ...)"
    )
    parser.add_argument("--requests", type=int, default=10_000, help="in a round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--data", type=Path, default=ROOT / ".data", metavar="DIR", help="where brokers keep their data"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write growth.json and the plots there (needs matplotlib)"
    )
    options = parser.parse_args(argv)
    try:
        if options.out is not None:
            plots.require()
        build()
        for name in options.growths or GROWTHS:
            growth = GROWTHS[name]
            sizes = [size for size in growth.sizes if options.max is None or size <= options.max]
            _allow_files(FILES_SPARE + (max(sizes) if growth.has_file_each else 0))
            results = measure(growth, [parse_peer(text) for text in options.peers.split(",")], sizes, options)
            if options.out is not None:
                _write(name, results, options.out)
    except (BenchError, WireError, OSError, struct.error, subprocess.TimeoutExpired) as error:
        print(f"bench.growth: {error}", file=sys.stderr)
        return 1
    return 0


def _write(name: str, results: Values, out: Path) -> None:
    """Plot one quantity, and replace its earlier values; those of other quantities stay."""
    out.mkdir(parents=True, exist_ok=True)
    history = out / "growth.json"
    kept = json.loads(history.read_text()) if history.exists() else {}
    kept[name] = {"machine": describe_machine(), "us": results}
    growth = GROWTHS[name]
    plots.plot(
        out / f"growth-{name}.svg", f"Broker CPU per request over the {growth.title}", growth.unit, results
    )
    history.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
