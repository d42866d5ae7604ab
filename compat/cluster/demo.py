"""`make cluster-demo`: three brokers, stock clients under load, one broker killed, nothing lost; told step by step.

The rule: only a user's means are used: `barnabas cluster`, librdkafka, kafka-python, SIGKILL.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from barnabas.testing.running import import_path
from compat.cluster.load import QUICK, Load, check, read_all
from compat.cluster.nodes import ClusterError, wait_until
from compat.kit.ending import end_servers_at_sigterm

TOPIC = "orders"
PARTITIONS = 12
READY = "barnabas cluster is ready: bootstrap.servers="
START_S = 120
BEFORE_S = 4.0
AFTER_S = 6.0


class Demo:
    """One `barnabas cluster` with its output."""

    def __init__(self, directory: Path, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "barnabas", "cluster", "--brokers", "3", "--port", "0"]
        command += ["--dir", str(directory), *arguments]
        step(f"$ {shlex.join(['barnabas', *command[3:]])}")
        end_servers_at_sigterm()
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": import_path()}
        )
        self.pids: dict[int, int] = {}
        self.restart: dict[int, list[str]] = {}
        self.bootstrap = ""
        self._ended: int | None = None
        self._lines = threading.Thread(target=self._read, daemon=True)
        self._ready = threading.Event()
        self._lines.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            print(f"    {line}", end="", flush=True)
            words = line.split()
            if line.startswith("broker ") and " is ready: " in line:
                pid = next(word for word in words if word.startswith("pid="))
                self.pids[int(words[1])] = int(pid.removeprefix("pid="))
            elif line.startswith("broker ") and " has ended " in line:
                self._ended = int(words[1])
            elif self._ended is not None and line.startswith("  "):
                self.restart[self._ended] = shlex.split(line)
            elif line.startswith(READY):
                self.bootstrap = line.removeprefix(READY).split()[0]
                self._ready.set()
        self._ready.set()

    def wait_ready(self) -> None:
        if not self._ready.wait(START_S) or not self.bootstrap:
            raise ClusterError("the cluster does not start")

    def stop(self) -> int:
        """Ctrl-C; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(120)
        self._lines.join()
        return code


def step(text: str) -> None:
    print(text, flush=True)


def states(admin: AdminClient) -> dict[int, Any]:
    """Return each partition's leader and ISR, from a live broker."""
    topic = admin.list_topics(TOPIC, timeout=10).topics[TOPIC]
    return topic.partitions


def in_sync(admin: AdminClient, count: int) -> bool:
    partition_states = states(admin)
    return len(partition_states) == PARTITIONS and all(
        p.leader >= 0 and len(p.isrs) == count for p in partition_states.values()
    )


def consume(bootstrap: str, stop: threading.Event, seen: set[int]) -> None:
    """Read with kafka-python, in a group, until `stop` is set and no more records arrive."""
    consumer = KafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap.split(","), group_id="demo", auto_offset_reset="earliest",
        metadata_max_age_ms=1000, request_timeout_ms=10_000, session_timeout_ms=8000,
    )  # fmt: skip
    idle = 0
    while not stop.is_set() or idle < 10:
        batches = consumer.poll(timeout_ms=200)
        idle = 0 if batches else idle + 1
        for records in batches.values():
            seen.update(int(record.value.split()[0]) for record in records)
    consumer.close()


def run(directory: Path, arguments: list[str]) -> None:
    """Run the demo. Raises ClusterError if a guarantee is violated."""
    begun = time.monotonic()
    demo = Demo(directory, arguments)
    restarted: subprocess.Popen[bytes] | None = None
    try:
        demo.wait_ready()
        step(f"1. Three brokers serve after {time.monotonic() - begun:.1f} s, each a process of its own.")
        admin = AdminClient({**QUICK, "bootstrap.servers": demo.bootstrap})
        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(30)
        wait_until(lambda: in_sync(admin, 3), "all replicas are in sync", lambda: str(states(admin)))
        led = [p.leader for p in states(admin).values()]
        spread = ", ".join(f"broker {b} leads {led.count(b)}" for b in sorted(demo.pids))
        step(f"2. Topic {TOPIC}: {PARTITIONS} partitions, 3 replicas each, min.insync.replicas=2: {spread}.")

        load = Load(demo.bootstrap, TOPIC, PARTITIONS)
        seen: set[int] = set()
        stop = threading.Event()
        reader = threading.Thread(target=consume, args=(demo.bootstrap, stop, seen), daemon=True)
        reader.start()
        with load:
            wait_until(lambda: bool(load.acknowledged), "records are acknowledged")
            time.sleep(BEFORE_S)
            rate = len(load.acknowledged) / BEFORE_S
            step(
                f"3. librdkafka (acks=all, idempotent) writes about {rate:.0f} records a second, kafka-python reads "
                f"them in a group: {len(load.acknowledged)} acknowledged, {len(seen)} read."
            )
            victim = max(sorted(demo.pids), key=led.count)
            step(
                f"4. $ kill -9 {demo.pids[victim]}    # broker {victim}, which leads {led.count(victim)} partitions"
            )
            killed = time.monotonic()
            os.kill(demo.pids[victim], signal.SIGKILL)
            wait_until(
                lambda: all(p.leader not in (-1, victim) for p in states(admin).values()),
                "others lead what it led", lambda: str(states(admin)),
            )  # fmt: skip
            step(
                f"   All partitions have a leader again after {time.monotonic() - killed:.1f} s "
                "(the session's time-out is 6 s)."
            )
            here = len(load.acknowledged)
            wait_until(lambda: len(load.acknowledged) > here + 1000, "records are acknowledged again")
            time.sleep(AFTER_S)
            step(f"5. Broker {victim} is started again with the command that was shown.")
            back = time.monotonic()
            restarted = subprocess.Popen(
                demo.restart[victim],
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": import_path()},
            )
            wait_until(lambda: in_sync(admin, 3), "it has caught up", lambda: str(states(admin)))
            step(f"   It is in sync for all partitions after {time.monotonic() - back:.1f} s.")
        stop.set()
        reader.join(60)
        pause = load.longest_pause(killed)
        values = read_all(demo.bootstrap, TOPIC, PARTITIONS)
        check(load, values)
        missed = load.acknowledged.keys() - seen
        step(
            f"6. {load.sent} records were sent, {len(load.acknowledged)} acknowledged, "
            f"{sum(map(len, values.values()))} are there: none that was acknowledged is lost, none is there twice. "
            f"The longest pause of the producer was {pause:.1f} s."
        )
        if missed:
            raise ClusterError(f"the group has not read {len(missed)} records, the first {min(missed)}")
        step("   The group has read all of them.")
    finally:
        step("7. Ctrl-C")
        if restarted is not None:
            restarted.terminate()
            restarted.wait(60)
        code = demo.stop()
    if code:
        raise ClusterError(f"barnabas cluster has ended with {code}")


def main(argv: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.cluster.demo", description=__doc__)
    parser.add_argument("--dir", type=Path, help="where to keep the data (default: a temporary directory)")
    options, more = parser.parse_known_args(argv)
    try:
        if options.dir:
            run(options.dir, more)
        else:
            with tempfile.TemporaryDirectory(prefix="barnabas-cluster-") as directory:
                run(Path(directory), more)
    except ClusterError as error:
        print(f"FAIL: {error}")
        return 1
    print("PASS")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
