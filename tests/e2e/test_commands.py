"""Commands that ask a cluster, run as a user runs them: processes, a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.testing.running import RunningBroker, import_path

from .conftest import ROOT

pytestmark = pytest.mark.e2e

WAIT_S = 60


def barnabas(*arguments: str, bootstrap: str = "", code: int = 0) -> str:
    """Run a command; returns what it writes to standard output."""
    environment = {**os.environ, "PYTHONPATH": import_path(ROOT), "BARNABAS_BOOTSTRAP": bootstrap}
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", *arguments],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment, timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_a_topic_lives_from_its_creation_to_its_deletion(tmp_path: Path) -> None:
    with RunningBroker(data=tmp_path / "data") as broker:
        at = broker.bootstrap
        barnabas("topics", "create", "orders", "-p", "2", bootstrap=at)
        producer = Producer({"bootstrap.servers": at})
        for number in range(6):
            producer.produce("orders", str(number).encode(), partition=0)
        assert producer.flush(WAIT_S) == 0
        consumer = Consumer({"bootstrap.servers": at, "group.id": "readers"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
        consumer.close()
        described = json.loads(barnabas("groups", "describe", "readers", "--json", bootstrap=at))
        assert [(row["partition"], row["lag"]) for row in described["offsets"]] == [(0, 4)]
        barnabas(
            "groups", "reset-offsets", "readers", "--all-topics", "--to-latest", "--execute", bootstrap=at
        )
        assert json.loads(barnabas("lag", "readers", "--json", bootstrap=at))["groups"][0]["lag"] == 0
        assert barnabas("doctor", bootstrap=at).endswith("0 problems\n")
        barnabas("topics", "delete", "orders", bootstrap=at, code=1)
        barnabas("topics", "delete", "orders", "--yes", bootstrap=at)
        assert barnabas("topics", "list", bootstrap=at) == "no topics\n"
