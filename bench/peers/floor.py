"""The floor: a process of the same Python that answers requests without looking at them, and so is no broker."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bench.peers.base import Peer, Running, free_port, spawn
from bench.tools import ROOT, BenchError, code_of

WAYS = {
    "trio": "answers Produce, Fetch and OffsetCommit without looking at them, trio",
    "blocking": "answers Produce, Fetch and OffsetCommit without looking at them, blocking",
    "epoll": "answers these and the requests of groups of one without keeping anything, in one loop over epoll",
    "writes": "checks the checksum of what is produced, writes it to a file, and does nothing else; trio",
    "reads": "checks the checksum of what is produced, writes it to a file, and sends that by sendfile; trio",
    "looks": "checks checksum and records of what is produced, writes it to a file, and does nothing else; trio",
}


class _RunningFloor(Running):
    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Every topic exists, with one partition."""
        if partitions != 1:
            raise BenchError(f"{self.peer.label} has one partition of each topic")

    def delete_topic(self, topic: str) -> None:
        """Truncate the topic's file, if it exists."""
        path = self.data / topic
        if path.exists():
            os.truncate(path, 0)  # the process still has the file open
            path.unlink()


class Floor(Peer):
    """One process; it waits for its sockets as the broker does (`trio`, `writes`, `reads`, `looks`), with a thread for each
    (`blocking`), or with nothing but the kernel's call for all (`epoll`)."""

    keeps_data = False

    def __init__(self, label: str, way: str) -> None:
        super().__init__(label)
        if way not in WAYS:
            raise BenchError(f"the floor waits in one of these ways: {', '.join(WAYS)}; not {way!r}")
        self._way = way
        self.serves_groups_of_one = way == "epoll"
        self._code = code_of(ROOT)

    def describe(self) -> str:
        return WAYS[self._way]

    def start(self, data: Path) -> Running:
        port = free_port()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(self._code), str(ROOT)])}
        command = [sys.executable, "-m", "bench.peers.floor_server", str(port), self._way, str(data)]
        started = spawn(self, command, data, port, environment)
        return _RunningFloor(**vars(started))
