"""`python -m bench.console`: views of the console with 10,000 topics, and what an open page costs a quiet client.

The rule: short rounds with each view and without follow each other in a new order each time, beside the same producer, so
that all see the same machine; a view is compared with the round without of its own turn.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.procfs import cpu_s, describe_machine

VIEWS = {
    "overview": "/api/overview", "brokers": "/api/brokers", "topics": "/api/topics", "page 200": "/api/topics?page=200",
    "filter": "/api/topics?filter=99", "by partitions": "/api/topics?sort=partitions&order=desc",
    "by size": "/api/topics?sort=bytes&order=desc", "by rate": "/api/topics?sort=rate&order=desc",
    "a topic": "/api/topics/t-00042", "its settings": "/api/topics/t-00042/settings",
    "its records": "/api/topics/busy/records", "groups": "/api/groups", "connections": "/api/connections",
    "metrics": "/api/metrics", "a metric": "/api/metrics?names=kafka_server_brokertopicmetrics_bytesin_total",
}  # fmt: skip
PAGE_SECONDS = 3.0
"""Time after which an open page asks again."""
PRODUCING = """
import sys, time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 20, "compression.type": "lz4"})
rate, value = int(sys.argv[2]), b"x" * 200
begun, sent = time.monotonic(), 0
while True:
    due = int((time.monotonic() - begun) * rate)
    while sent < due:
        try:
            producer.produce("busy", value)
        except BufferError:
            break
        sent += 1
    producer.poll(0.005)
"""


class _Served:
    """A broker with a console, as a process."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "barnabas", "serve", "--ephemeral", "--listen", "127.0.0.1:0"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            [*command, "--console", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        words = dict(word.split("=", 1) for word in self.process.stdout.readline().split() if "=" in word)
        self.bootstrap, self.code = words["bootstrap.servers"], words["code"]
        self.address = words["console"].removeprefix("http://")

    def ask(self, connection: http.client.HTTPConnection, path: str) -> tuple[float, Any]:
        """Return the ms that an answer takes, and its JSON."""
        begun = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        content = answer.read()
        took = (time.perf_counter() - begun) * 1000
        assert answer.status == 200, content
        return took, json.loads(content)


def _fill(bootstrap: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [f"t-{number:05}" for number in range(count - 1)]
    for at in range(0, len(names), 500):
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in names[at : at + 500]]).values():
            future.result()
    admin.create_topics([NewTopic("busy", 4, 1)])["busy"].result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for name in names:  # none is empty
        producer.produce(name, b"x" * 100)
        producer.poll(0)
    assert not producer.flush(120)


def _views(served: _Served, times: int) -> None:
    connection = http.client.HTTPConnection(served.address, timeout=60)
    took, page = served.ask(connection, "/api/topics")
    print(f"first view, with imports and the index of {page['total']} topics: {took:.0f} ms")
    for name, path in VIEWS.items():
        before = cpu_s(served.process.pid)
        first_ms = served.ask(connection, path)[0]
        now = cpu_s(served.process.pid)
        first_cpu_ms, before = (now - before) * 1000, now
        durations = sorted(served.ask(connection, path)[0] for _ in range(times))
        cpu_ms = (cpu_s(served.process.pid) - before) * 1000 / times
        print(
            f"{name}: median {statistics.median(durations):.1f} ms, most {durations[-1]:.1f} ms, CPU {cpu_ms:.1f} ms; "
            f"the first look {first_ms:.0f} ms, CPU {first_cpu_ms:.0f} ms"
        )


def _quiet_ms(bootstrap: str, seconds: float) -> list[float]:
    """Return the ms of the acknowledgements of one record each 10 ms."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    waits_ms: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        producer.produce("t-00001", b"quiet")
        producer.flush(10)
        waits_ms.append((time.perf_counter() - begun) * 1000)
        time.sleep(0.01)
    return waits_ms[20:]


def _tail(served: _Served, ends: threading.Event) -> None:
    connection = http.client.HTTPConnection(served.address, timeout=60)
    connection.request("GET", "/api/topics/busy/tail")
    answer = connection.getresponse()
    while not ends.is_set():
        answer.readline()
    answer.close()
    connection.close()


def _looking(*paths: str) -> Callable[[_Served, threading.Event], None]:
    """Return what asks for paths as often as a page that is open does."""

    def look(served: _Served, ends: threading.Event) -> None:
        connection = http.client.HTTPConnection(served.address, timeout=60)
        while not ends.is_set():
            for path in paths:
                served.ask(connection, path)
            ends.wait(PAGE_SECONDS)
        connection.close()

    return look


OPEN: dict[str, Callable[[_Served, threading.Event], None]] = {
    "tail": _tail,
    "overview": _looking("/api/overview"),
    "topics": _looking("/api/topics"),
    "topics by rate": _looking("/api/topics?sort=rate&order=desc"),
}


def _round(served: _Served, arm: str, seconds: float) -> tuple[float, float, float]:
    """Return p50 and p99 of a quiet client (ms), and CPU of the broker a second, while a view is open."""
    ends = threading.Event()
    thread = threading.Thread(target=OPEN[arm], args=(served, ends)) if arm in OPEN else None
    if thread is not None:
        thread.start()
        time.sleep(0.5)
    before, begun = cpu_s(served.process.pid), time.monotonic()
    waits_ms = _quiet_ms(served.bootstrap, seconds)
    cpu = (cpu_s(served.process.pid) - before) / (time.monotonic() - begun)
    ends.set()
    if thread is not None:
        thread.join()
    parts = statistics.quantiles(waits_ms, n=100)
    return parts[49], parts[98], cpu


def _cost(served: _Served, rounds: int, seconds: float) -> None:
    costs: dict[str, list[tuple[float, float, float]]] = {arm: [] for arm in ("nothing", *OPEN)}
    for _ in range(rounds):
        for arm in random.sample(list(costs), len(costs)):
            costs[arm].append(_round(served, arm, seconds))
    for arm, rows in costs.items() if rounds else ():
        p50, p99, cpu = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{arm} open: p50 {p50:.2f} ms, p99 {p99:.2f} ms, CPU {cpu:.3f} s a second ({rounds} rounds)")
        for number, name in ((0, "p50"), (1, "p99"), (2, "CPU")) if arm in OPEN else ():
            ratios = [
                pair[number] / without[number] for pair, without in zip(rows, costs["nothing"], strict=True)
            ]
            low, high = _middle(ratios)
            print(
                f"  {name}: {statistics.median(ratios):.3f} of that without (95 %: {low:.3f} to {high:.3f})"
            )


def _middle(values: list[float]) -> tuple[float, float]:
    """Return between what the median is in 95 of 100 samples drawn from these."""
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(2_000))
    return medians[50], medians[1949]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench.console")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=100_000, help="records a second of the busy topic")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    served = _Served()
    producing = None
    try:
        print(f"{describe_machine()}; code {served.code}")
        _fill(served.bootstrap, options.topics)
        _views(served, 20)
        producing = subprocess.Popen([sys.executable, "-c", PRODUCING, served.bootstrap, str(options.rate)])
        time.sleep(3.0)
        print(f"beside a producer of {options.rate} records a second:")
        _cost(served, options.rounds, options.seconds)
    finally:
        if producing is not None:
            producing.kill()
            producing.wait()
        served.process.terminate()
        served.process.wait(30)


if __name__ == "__main__":
    main()
