"""`barnabas cluster` as a user has it: three brokers, one killed, all stopped and started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.running import import_path
from tests.support.effort import EFFORT

WAIT_S = 60
READY = "barnabas cluster is ready: bootstrap.servers="


class Running:
    """A cluster with what it says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []

    def until(self, words: str) -> str:
        """Read what it says up to a line with these words."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if words in line:
                return line
        raise AssertionError("".join(self.said))


@contextmanager
def cluster(directory: Path) -> Iterator[Running]:
    command = [sys.executable, "-m", "barnabas", "cluster", "--port", "0", "--dir", str(directory)]
    environment = {**os.environ, "PYTHONPATH": import_path()}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield Running(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.slow
def test_cluster_survives_a_kill_and_a_restart_of_all(tmp_path: Path) -> None:
    with cluster(tmp_path) as running:
        bootstrap = running.until(READY).removeprefix(READY).split()[0]
        assert not any("not served" in line for line in running.said)
        for path in tmp_path.glob("**/meta.properties"):  # Kafka 3.9 opens no other in such a cluster
            assert "version=0" in path.read_text().splitlines()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(WAIT_S)
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "retry.backoff.ms": 50, "log_level": 0}
        producer = Producer(settings)
        acknowledged: list[bytes] = []

        def produce(values: list[bytes]) -> None:
            for number, value in enumerate(values):
                producer.produce(
                    "t", value, partition=number % 3,
                    on_delivery=lambda error, message: acknowledged.append(message.value()) if not error else None,
                )  # fmt: skip
            assert producer.flush(WAIT_S) == 0

        produce([b"before %d" % n for n in range(30)])
        pids = {
            int(found[1]): int(found[2])
            for line in running.said
            if (found := re.match(r"broker (\d) is ready: .* pid=(\d+)", line))
        }
        os.kill(pids[2], signal.SIGKILL)
        assert "broker 2 has ended (killed by SIGKILL), 2 of 3 are left" in running.until("has ended")
        produce([b"after %d" % n for n in range(30)])
        assert len(acknowledged) == 60
    if EFFORT == 1:
        return  # the second start takes as long as the first
    with cluster(tmp_path) as running:
        again = running.until(READY).removeprefix(READY).split()[0]
        assert again == bootstrap
        consumer = Consumer(
            {"bootstrap.servers": again, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
        )
        consumer.subscribe(["t"])
        found: set[bytes] = set()
        while len(found) < 60:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{len(found)} of 60 records are there"
            if message.error() is None:
                found.add(message.value())
        consumer.close()
        assert found == set(acknowledged)
