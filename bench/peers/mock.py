"""librdkafka's mock cluster: C, one thread, memory only, no validation: a bound rather than a broker."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from bench.peers.base import Peer, Running, wait_until_ready
from bench.tools import MOCK_CLUSTER, BenchError


class _RunningMock(Running):
    def create_topic(self, topic: str, partitions: int = 1) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"create {topic} {partitions}\n".encode())
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode().strip()
        if answer != "ok":
            raise BenchError(f"the mock cluster cannot create {topic}: {answer}")

    def delete_topic(self, topic: str) -> None:
        """Do nothing: the mock cluster cannot delete topics, and keeps a few megabytes of a partition at most."""


class Mock(Peer):
    """A mock broker in a separate process."""

    keeps_data = False
    serves_consumers = False
    serves_groups_of_one = False

    def describe(self) -> str:
        done = subprocess.run(
            ["pkg-config", "--modversion", "rdkafka"], capture_output=True, text=True, check=False
        )
        return f"librdkafka {done.stdout.strip()} mock cluster"

    def start(self, data: Path) -> Running:
        start = time.monotonic()
        with data.with_name(f"{data.name}.out").open("ab") as log:
            process = subprocess.Popen(
                [str(MOCK_CLUSTER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        assert process.stdout is not None
        words = process.stdout.readline().decode().split()
        if len(words) != 2:
            raise BenchError(f"the mock cluster did not start; see {data}.out")
        running = _RunningMock(self, process, words[1], data)
        wait_until_ready(running)
        running.is_ready(since=start)
        return running
