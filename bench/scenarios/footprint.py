"""Memory of an idle broker, without and with connections."""

from __future__ import annotations

import time

from bench.arms import Arm
from bench.procfs import cpu_s, rss_bytes
from bench.scenarios.base import Metric, Scenario, Target
from bench.tools import idle_connections

MB = 1e6
SETTLE_S = 1.0


class Footprint(Scenario):
    """Idle RSS, RSS with 5,000 connections after ApiVersions, and the CPU of an idle broker."""

    name = "idle"
    title = "nothing to do"
    metrics = (
        Metric("rss_mb", "RSS", "MB", targets=(Target(35),)),
        Metric("rss_connected_mb", "RSS, 5,000 connections", "MB"),
        Metric("kb_per_connection", "per connection", "KB"),
        Metric("cpu_percent", "CPU while idle", "%"),
    )
    warmups = 0
    rounds_max = 3
    connections = 5_000

    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        with arm.fresh() as running:
            time.sleep(SETTLE_S)
            idle = rss_bytes(running.pid)
            cpu, start = cpu_s(running.pid), time.monotonic()
            time.sleep(1 if arm.quick else 5)
            cpu_percent = (cpu_s(running.pid) - cpu) / (time.monotonic() - start) * 100
            with idle_connections(running.bootstrap, self.connections):
                time.sleep(SETTLE_S)
                connected = rss_bytes(running.pid)
        return {
            "rss_mb": idle / MB,
            "rss_connected_mb": connected / MB,
            "kb_per_connection": (connected - idle) / self.connections / 1e3,
            "cpu_percent": cpu_percent,
        }


SCENARIOS: list[Scenario] = [Footprint()]
