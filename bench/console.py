"""`python -m bench.console`: views of the console with 10,000 topics, and the cost of a console for a quiet client.

The rule: short rounds with each view open, with none, and with a broker without a console follow each other in a new order
each time, beside the same producers, so that all see the same load of the machine.
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
from contextlib import ExitStack
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.procfs import cpu_s, describe_machine

_TABLE = "filter=&sort={}&order={}&page={}&size={}"


def _table(path: str, sort: str = "", order: str = "asc", page: int = 1, size: int = 25) -> str:
    """Return the request of a table, with the parameters that the page sends."""
    return f"{path}?{_TABLE.format(sort, order, page, size)}"


VIEWS: dict[str, tuple[str, ...]] = {
    "overview": ("/api/overview", "/api/history", _table("/api/topics")),
    "controllers": ("/api/quorum",),
    "brokers": ("/api/brokers",),
    "settings of a broker": ("/api/brokers/{broker}/settings",),
    "topics": (_table("/api/topics"),),
    "topics, page 200": (_table("/api/topics", page=200),),
    "topics, 200 rows": (_table("/api/topics", size=200),),
    "topics, filtered": ("/api/topics?filter=99",),
    "topics by partitions": (_table("/api/topics", "partitions", "desc"),),
    "topics by lag": (_table("/api/topics", "lag", "desc"),),
    "topics by size": (_table("/api/topics", "bytes", "desc"),),
    "topics by records": (_table("/api/topics", "records", "desc"),),
    "topics by rate": (_table("/api/topics", "rate", "desc"),),
    "records of a topic": ("/api/topics/busy?size=1", "/api/topics/busy/records?partition=&as=auto&columns="),
    "partitions of a topic": ("/api/topics/busy?size=1", _table("/api/topics/busy", size=50)),
    "settings of a topic": ("/api/topics/busy?size=1", "/api/topics/busy/settings"),
    "consumers of a topic": ("/api/topics/busy?size=1", "/api/topics/busy/groups"),
    "producers of a topic": ("/api/topics/busy?size=1", "/api/topics/busy/producers"),
    "groups": (_table("/api/groups"),),
    "a group": ("/api/groups/g-0001", _table("/api/groups/g-0001")),
    "transactions": (_table("/api/transactions"),),
    "users, quotas": ("/api/users", "/api/quotas"),
    "clients": (_table("/api/connections", size=50),),
    "metrics": ("/api/metrics", "/api/metrics/history", "/api/metrics?names={plotted}"),
    "log": ("/api/log?since=0",),
}
"""The requests of each view, as the page sends them when it is opened."""
GROUPS = 1_000
GOAL_CPU_MS = 100
PAGE_SECONDS = 3.0
"""Interval between the requests of an open page."""
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


QUIET = """
import json, sys, time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 0})
for line in sys.stdin:
    waits_ms, end = [], time.monotonic() + float(line)
    while time.monotonic() < end:
        begun = time.perf_counter()
        producer.produce("t-00001", b"quiet")
        producer.flush(10)
        waits_ms.append((time.perf_counter() - begun) * 1000)
        time.sleep(0.005)
    print(json.dumps(waits_ms[20:]), flush=True)
"""


class _Served:
    """A broker as a process, with a console or without."""

    def __init__(self, *, has_console: bool) -> None:
        command = [sys.executable, "-m", "barnabas", "serve", "--ephemeral", "--listen", "127.0.0.1:0"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        console = ["--console", "127.0.0.1:0"] if has_console else []
        self.process = subprocess.Popen(
            [*command, *console], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        words = dict(word.split("=", 1) for word in self.process.stdout.readline().split() if "=" in word)
        self.bootstrap, self.code = words["bootstrap.servers"], words["code"]
        self.address = words.get("console", "").removeprefix("http://")

    def ask(self, connection: http.client.HTTPConnection, path: str) -> tuple[float, Any]:
        """Return the ms that an answer takes, and its JSON."""
        begun = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        content = answer.read()
        took = (time.perf_counter() - begun) * 1000
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {content!r}")
        return took, json.loads(content)

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait(30)


def _fill(bootstrap: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [f"t-{number:05}" for number in range(count - 1)]
    for at in range(0, len(names), 500):
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in names[at : at + 500]]).values():
            future.result()
    admin.create_topics([NewTopic("busy", 4, 1)])["busy"].result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for name in [*names, *["busy"] * 100]:  # none is empty
        producer.produce(name, b"x" * 100)
        producer.poll(0)
    assert not producer.flush(120)
    commits = [
        admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(f"g-{number:04}", [TopicPartition("busy", number % 4, 0)])]
        )
        for number in range(GROUPS)
    ]
    for futures in commits:
        for future in futures.values():
            future.result()
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "open"})
    transactional.init_transactions(60)


def _views(served: _Served, times: int) -> None:
    """Print the CPU time of each view: of its first request, and of later ones."""
    connection = http.client.HTTPConnection(served.address, timeout=60)
    took, page = served.ask(connection, "/api/topics")
    print(f"first request, with imports and the index of {page['total']} topics: {took:.0f} ms")
    broker = served.ask(connection, "/api/brokers")[1]["brokers"][0]["id"]
    families = served.ask(connection, "/api/metrics")[1]["families"]
    usual = ("messagesin", "_bytesin", "_bytesout")
    plotted = [row["name"] for row in families if any(text in row["name"] for text in usual)]

    def look(paths: tuple[str, ...]) -> float:
        filled = [path.format(broker=broker, plotted=",".join(plotted)) for path in paths]
        return sum(served.ask(connection, path)[0] for path in filled)

    print("| view | CPU, ms | its first look, CPU, ms | median, ms | longest, ms |\n|---|---|---|---|---|")
    for name, paths in VIEWS.items():
        time.sleep(1.0)  # reads started by the previous view must not count for this one
        before = cpu_s(served.process.pid)
        first_ms = look(paths)
        time.sleep(0.5)
        now = cpu_s(served.process.pid)
        first_cpu_ms, before = (now - before) * 1000, now
        durations = sorted(look(paths) for _ in range(times))
        cpu_ms = (cpu_s(served.process.pid) - before) * 1000 / times
        longest_ms = max(first_ms, *durations)
        mark = "" if max(cpu_ms, first_cpu_ms) <= GOAL_CPU_MS else f" (above {GOAL_CPU_MS})"
        print(
            f"| {name} | {cpu_ms:.1f} | {first_cpu_ms:.0f}{mark} | {statistics.median(durations):.1f} "
            f"| {longest_ms:.0f} |",
            flush=True,
        )


class _Quiet:
    """A client that sends little, in a separate process, so that it does no work for the page."""

    def __init__(self, bootstrap: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", QUIET, bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def waits_ms(self, seconds: float) -> list[float]:
        """Return the latencies (ms) of acknowledgements, of one record each 5 ms."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(seconds, file=self.process.stdin, flush=True)
        waits: list[float] = json.loads(self.process.stdout.readline())
        return waits

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def _tail(served: _Served, ends: threading.Event) -> None:
    connection = http.client.HTTPConnection(served.address, timeout=60)
    connection.request("GET", "/api/topics/busy/tail")
    answer = connection.getresponse()
    while not ends.is_set():
        answer.readline()
    answer.close()
    connection.close()


def _looking(*paths: str) -> Callable[[_Served, threading.Event], None]:
    """Return a function that requests paths as often as an open page does."""

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
    "overview": _looking(*VIEWS["overview"]),
    "topics": _looking(*VIEWS["topics"]),
    "topics by rate": _looking(*VIEWS["topics by rate"]),
    "groups": _looking(*VIEWS["groups"]),
}
WITHOUT, CLOSED = "without a console", "no page open"


class Round(NamedTuple):
    """Waits of the quiet client in a round (ms), and CPU of the broker a second."""

    waits_ms: list[float]
    cpu: float


def _round(served: _Served, quiet: _Quiet, arm: str, seconds: float) -> Round:
    ends = threading.Event()
    thread = threading.Thread(target=OPEN[arm], args=(served, ends)) if arm in OPEN else None
    if thread is not None:
        thread.start()
        time.sleep(0.5)
    before, begun = cpu_s(served.process.pid), time.monotonic()
    waits_ms = quiet.waits_ms(seconds)
    cpu = (cpu_s(served.process.pid) - before) / (time.monotonic() - begun)
    ends.set()
    if thread is not None:
        thread.join()
    return Round(waits_ms, cpu)


def _cost(with_console: _Served, without: _Served, options: argparse.Namespace) -> None:
    """Print the cost of each open view for a quiet client and the broker, beside a broker without a console."""
    served = dict.fromkeys((CLOSED, *OPEN), with_console) | {WITHOUT: without}
    quiet = {broker: _Quiet(broker.bootstrap) for broker in (with_console, without)}
    rounds: dict[str, list[Round]] = {arm: [] for arm in (WITHOUT, CLOSED, *OPEN)}
    try:
        if options.realtime:
            for process in (
                with_console.process,
                without.process,
                *(client.process for client in quiet.values()),
            ):
                os.sched_setscheduler(process.pid, os.SCHED_RR, os.sched_param(1))
        for client in quiet.values():
            client.waits_ms(1.0)
        for _ in range(options.rounds):
            for arm in random.sample(list(rounds), len(rounds)):
                rounds[arm].append(_round(served[arm], quiet[served[arm]], arm, options.seconds))
    finally:
        for client in quiet.values():
            client.stop()
    print("| | p50, ms | p99, ms | p99 of that without (95 %) | CPU, s a second |\n|---|---|---|---|---|")
    for arm, own in rounds.items():
        waits_ms = sorted(wait for taken in own for wait in taken.waits_ms)
        ratio, low, high = _ratio(own, rounds[WITHOUT])
        cpu = statistics.median(taken.cpu for taken in own)
        print(
            f"| {arm} | {_quantile(waits_ms, 0.5):.2f} | {_quantile(waits_ms, 0.99):.2f} "
            f"| {ratio:.3f} ({low:.3f}-{high:.3f}) | {cpu:.3f} |"
        )


def _quantile(ordered: list[float], part: float) -> float:
    return ordered[int(len(ordered) * part)]


def _ratio(own: list[Round], others: list[Round]) -> tuple[float, float, float]:
    """Return the ratio of two p99 over all rounds, and its 95 % interval over samples of the rounds."""

    def p99(rounds: list[Round]) -> float:
        return _quantile(sorted(wait for taken in rounds for wait in taken.waits_ms), 0.99)

    indexes = range(len(own))
    samples = []
    for _ in range(500):
        drawn = random.choices(indexes, k=len(own))
        samples.append(p99([own[index] for index in drawn]) / p99([others[index] for index in drawn]))
    samples.sort()
    return p99(own) / p99(others), samples[12], samples[487]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench.console", description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=2_000, help="records a second of the busy topic")
    parser.add_argument("--rounds", type=int, default=20, help="of quiet clients; 0 for the views alone")
    parser.add_argument("--seconds", type=float, default=4.0, help="of a round with one view")
    parser.add_argument(
        "--realtime", action="store_true",
        help="let brokers and quiet clients go before everything else on the machine (as root)",
    )  # fmt: skip
    options = parser.parse_args()
    with ExitStack() as stack:
        with_console = _Served(has_console=True)
        stack.callback(with_console.stop)
        brokers = [with_console]
        print(f"{describe_machine()}; code {with_console.code}")
        _fill(with_console.bootstrap, options.topics)
        _views(with_console, 20)
        if not options.rounds:
            return
        brokers.append(_Served(has_console=False))
        stack.callback(brokers[1].stop)
        _fill(brokers[1].bootstrap, options.topics)
        for broker in brokers:
            producing = subprocess.Popen(
                [sys.executable, "-c", PRODUCING, broker.bootstrap, str(options.rate)]
            )
            stack.callback(producing.wait)
            stack.callback(producing.kill)
        time.sleep(3.0)
        print(f"beside producers of {options.rate} records a second:")
        _cost(brokers[0], brokers[1], options)


if __name__ == "__main__":
    main()
