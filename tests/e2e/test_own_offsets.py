"""The programs of docs/how-to/own-offsets.md as printed: killed at random, two at once, each record is saved once."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing import RunningBroker
from barnabas.testing.running import import_path
from tests.support.effort import drawing
from tests.support.pages import EXAMPLES

pytestmark = pytest.mark.e2e

PROGRAMS = ("ledger_with_trio_client", "ledger_with_confluent_kafka")
PARTITIONS, ROUNDS, PER_ROUND = 3, 60, 100
KILLS = 6
SECONDS_MAX = 90


class Sending:
    """Payments that are sent while others are read, a part of them in transactions, of which some are taken back."""

    def __init__(self, bootstrap: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("payments", PARTITIONS, 1)])["payments"].result(10)
        self.sent: list[int] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": "till", "linger.ms": 0}
        )
        self.thread = threading.Thread(target=self._send)
        self.thread.start()

    def _send(self) -> None:
        self._producer.init_transactions(30)
        for number in range(ROUNDS):
            amounts = range(number * PER_ROUND, (number + 1) * PER_ROUND)
            self._producer.begin_transaction()
            for amount in amounts:
                value = json.dumps({"account": f"a{amount % 7}", "amount": amount})
                self._producer.produce("payments", value, partition=amount % PARTITIONS)
            if number % 5 == 4:
                self._producer.abort_transaction(30)
            else:
                self._producer.commit_transaction(30)
                self.sent += amounts


@pytest.fixture
def sending() -> Iterator[tuple[str, Sending]]:
    with RunningBroker() as broker:
        result = Sending(broker.bootstrap)
        yield broker.bootstrap, result
        result.thread.join(SECONDS_MAX)


class Programs:
    """Processes that run a sample of the page on one file."""

    def __init__(self, directory: Path, number: int, bootstrap: str) -> None:
        for name in ("ledger", PROGRAMS[number]):
            shutil.copy(EXAMPLES / f"{name}.py", directory)
        self.path = directory / "ledger.db"
        self._command = [sys.executable, f"{PROGRAMS[number]}.py", bootstrap, str(self.path)]
        self._environment = {**os.environ, "PYTHONPATH": f"{import_path()}{os.pathsep}{directory}"}
        self._directory = directory

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command, cwd=self._directory, env=self._environment, stderr=subprocess.PIPE, text=True
        )

    def rows(self) -> list[tuple[int, int, int]]:
        """Saved payments: partition, offset and amount."""
        if not self.path.exists():
            return []
        store = sqlite3.connect(self.path, timeout=30)
        try:
            return store.execute("SELECT source, place, amount FROM payments").fetchall()
        except sqlite3.OperationalError:
            return []  # there are no tables yet
        finally:
            store.close()

    def wait_for(self, count: int, process: subprocess.Popen[str]) -> None:
        """Wait until a process has saved so many."""
        until = time.monotonic() + SECONDS_MAX
        while len(self.rows()) < count:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until, f"{len(self.rows())} of {count}"
            time.sleep(0.02)


@pytest.mark.parametrize("number", [0, 1], ids=["trio", "confluent-kafka"])
def test_each_record_is_saved_once_whoever_is_killed(
    tmp_path: Path, sending: tuple[str, Sending], number: int
) -> None:
    rng = drawing()
    bootstrap, sent = sending
    programs = Programs(tmp_path, number, bootstrap)
    for _ in range(KILLS):
        process = programs.start()
        try:
            if sent.thread.is_alive():
                programs.wait_for(len(programs.rows()) + rng.randrange(PER_ROUND), process)
            time.sleep(rng.random() * 0.05)
        finally:
            process.kill()
            process.communicate()
    sent.thread.join(SECONDS_MAX)
    process = programs.start()
    try:
        programs.wait_for(len(sent.sent), process)
    finally:
        process.kill()
        process.communicate()
    rows = programs.rows()
    assert sorted(amount for *_, amount in rows) == sent.sent
    assert len({(source, place) for source, place, _ in rows}) == len(rows)
    for partition in range(PARTITIONS):
        mine = [(place, amount) for source, place, amount in rows if source == partition]
        assert mine == sorted(mine), "in the order of the log"


def test_second_reader_is_refused_and_nothing_is_saved_twice(
    tmp_path: Path, sending: tuple[str, Sending]
) -> None:
    bootstrap, sent = sending
    programs = Programs(tmp_path, 0, bootstrap)
    sent.thread.join(SECONDS_MAX)
    running = [programs.start(), programs.start()]
    overtaken = 0
    until = time.monotonic() + SECONDS_MAX
    try:
        while len(programs.rows()) < len(sent.sent):
            assert time.monotonic() < until
            for entry in [entry for entry in running if entry.poll() is not None]:
                assert "OvertakenError" in entry.communicate()[1]
                overtaken += 1
                running[running.index(entry)] = programs.start()
            time.sleep(0.02)
        assert sorted(amount for *_, amount in programs.rows()) == sent.sent
    finally:
        for entry in running:
            entry.kill()
            entry.communicate()
    print(f"{overtaken} were overtaken")
