"""`python -m bench.workers`: one broker beside two and more workers on the same machine.

The rule: each round measures all arms in turn, on empty directories; the CPU of the load generator is measured, because
with few cores the workers share them with it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.barnabas import Barnabas
from bench.peers.base import Running, free_port, spawn
from bench.procfs import back_memory, cpu_s, describe_machine, rss_bytes
from bench.scenarios.throughput import QUEUE
from bench.tools import BenchError, build, loadgen

SIZE, PARTITIONS, WAIT_S = 1024, 16, 60
LOADS: dict[str, dict[str, Any]] = {
    "client defaults": {"acks": 1},
    "16 KB batches": {"acks": 1, "batch.size": 16_384},
    "16 KB batches, idempotent": {"acks": "all", "enable.idempotence": "true", "batch.size": 16_384},
}


class _Workers(Barnabas):
    """`serve`, or `serve --workers N`, as a peer."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} worker{'s' * (count > 1)}", {"workers": str(count)}, None)

    def start(self, data: Path) -> Running:
        port = free_port()
        return spawn(self, [sys.executable, *self.command(data, port)], data, port, self.environment())


def _measure(count: int, load: str, size_bytes: int, directory: Path) -> dict[str, float]:
    peer = _Workers(count)
    data = Path(tempfile.mkdtemp(dir=directory))
    running = peer.start(data)
    try:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(WAIT_S)
        del admin
        records = size_bytes // SIZE
        loadgen("produce", running.bootstrap, client={**QUEUE, **LOADS[load]}, topic="t", size=SIZE,
                count=records // 10, partitions=PARTITIONS)  # fmt: skip
        back_memory(int(size_bytes * 1.3))
        brokers, begun, ours = cpu_s(running.pid), time.monotonic(), _children_cpu_s()
        result = loadgen("produce", running.bootstrap, client={**QUEUE, **LOADS[load]}, topic="t", size=SIZE,
                         count=records, partitions=PARTITIONS)  # fmt: skip
        seconds = time.monotonic() - begun
        return {
            "rate": result["bytes_per_s"] / 1e6,
            "brokers": (cpu_s(running.pid) - brokers) / seconds,
            "client": (_children_cpu_s() - ours) / seconds,
            "rss": rss_bytes(running.pid) / 1e6,
        }
    finally:
        running.stop()
        subprocess.run(["rm", "-rf", str(data)], check=True)


def _children_cpu_s() -> float:
    """Return the CPU seconds of ended children of this process."""
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    parser.add_argument("--workers", default="1,2", metavar="N,M", help="how many (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=400_000_000, help="how much is produced in a round")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()), help="where the logs are")
    options = parser.parse_args()
    counts = [int(text) for text in options.workers.split(",")]
    build()
    print(describe_machine())
    try:
        for load in LOADS:
            results: dict[int, list[dict[str, float]]] = {count: [] for count in counts}
            for _ in range(options.rounds):
                for count in counts:
                    results[count].append(_measure(count, load, options.bytes, options.data))
            first = statistics.median(result["rate"] for result in results[counts[0]])
            for count in counts:
                middle = {
                    name: statistics.median(row[name] for row in results[count]) for name in results[count][0]
                }
                print(
                    f"{load}: {count} worker(s): {middle['rate']:.0f} MB/s ({middle['rate'] / first:.2f}x), cores busy: "
                    f"brokers {middle['brokers']:.2f}, client {middle['client']:.2f}; RSS {middle['rss']:.0f} MB",
                    flush=True,
                )
    except BenchError as error:
        print(f"bench.workers: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
