"""All scenarios, in the order of measurement."""

from __future__ import annotations

from fnmatch import fnmatch

from bench.scenarios import coordinators, fanout, footprint, latency, stalls, startup, throughput, tiered
from bench.scenarios.base import Metric, Scenario, Target
from bench.tools import BenchError

__all__ = ["ALL", "Metric", "Scenario", "Target", "choose"]

# Scenarios that start their own brokers come first, as these are then alone on the machine.
ALL: list[Scenario] = [
    *startup.SCENARIOS, *footprint.SCENARIOS, *throughput.SCENARIOS, *tiered.SCENARIOS, *latency.SCENARIOS,
    *coordinators.SCENARIOS, *fanout.SCENARIOS, *stalls.SCENARIOS,
]  # fmt: skip


def choose(patterns: list[str]) -> list[Scenario]:
    """The scenarios that any of the patterns names (`produce-*`); all without patterns."""
    for pattern in patterns:
        if not any(fnmatch(scenario.name, pattern) for scenario in ALL):
            raise BenchError(f"no scenario is called {pattern!r}; --list shows them")
    return [
        scenario for scenario in ALL if not patterns or any(fnmatch(scenario.name, glob) for glob in patterns)
    ]
