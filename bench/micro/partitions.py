"""A whole broker with 1 to 10,000 partitions: memory, open files, and restart times after a clean stop and a kill.

The rule: each partition has records, and each start is followed by a check of all partitions: a changed end offset is an
error, not a number.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.micro.timing import Timing
from bench.peers.barnabas import Barnabas
from bench.peers.base import Running
from bench.procfs import rss_bytes
from bench.tools import ROOT, BenchError
from bench.wire import Connection, produce_v7, produce_v7_results, record_batch

COUNTS = (1, 100, 1_000, 10_000)
TOPIC_PARTITIONS = 1_000
VALUE = b"x" * 1_000
STOP_SECONDS_MAX = 600  # all logs are synced


def run() -> Iterator[Timing]:
    """Ready in seconds from exec to the first answer, once each; the rest in words."""
    (ROOT / ".data").mkdir(exist_ok=True)
    peer = Barnabas("barnabas", {}, None)
    for count in COUNTS:
        with TemporaryDirectory(dir=ROOT / ".data") as directory:
            data = Path(directory) / "data"
            peer.format(data)
            running = peer.start(data)
            try:
                yield from _grow(running, count)
                for what, end in (("clean stop", signal.SIGTERM), ("kill -9", signal.SIGKILL)):
                    running.process.send_signal(end)
                    running.process.wait(STOP_SECONDS_MAX)
                    running = peer.start(data)
                    _look(running, count)
                    name = f"{count:,} partitions: ready after a {what}"
                    cpu = f"  {running.ready_cpu_s:.2f} s of CPU"
                    yield Timing(name, running.ready_s, running.ready_s, 0, cpu)
            finally:
                running.stop()


def _topics(count: int) -> list[tuple[str, int]]:
    whole, rest = divmod(count, TOPIC_PARTITIONS)
    topics = [(f"topic-{n}", TOPIC_PARTITIONS) for n in range(whole)]
    return [*topics, ("rest", rest)] if rest else topics


def _grow(running: Running, count: int) -> Iterator[Timing]:
    before = rss_bytes(running.pid)
    start = time.perf_counter()
    for topic, partitions in _topics(count):
        running.create_topic(topic, partitions)
    made_s = time.perf_counter() - start
    batch = record_batch([VALUE], time.time_ns() // 1_000_000)
    with Connection(running.bootstrap) as connection:
        for topic, partitions in _topics(count):
            results = produce_v7_results(connection.call(produce_v7(topic, range(partitions), batch)))
            if results != [(0, 0)] * partitions:
                raise BenchError(f"{topic} was not written to: {set(results)}")
    rss, opened = rss_bytes(running.pid), len(os.listdir(f"/proc/{running.pid}/fd"))
    each = f"  {(rss - before) / count / 1024:,.1f} KB RSS each, {rss / 1e6:,.0f} MB in all, {opened:,} files open"
    yield Timing(f"{count:,} partitions: created", made_s, made_s, 0, each)


def _look(running: Running, count: int) -> None:
    with Connection(running.bootstrap) as connection:
        for topic, partitions in _topics(count):
            if connection.wait_for_topic(topic, partitions) != [1] * partitions:
                raise BenchError(f"{topic} is not as it was")
