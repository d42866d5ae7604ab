"""Rounds over arms: interleaved, in a rotating order, so that drift and other load affect all arms alike.

The rule: ratios are computed within a round; the result is the median of the rounds' ratios.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TypeVar

from bench.arms import Arm
from bench.scenarios import Scenario
from bench.tools import BenchError
from bench.wire import WireError

T = TypeVar("T")
FAILURES = BenchError, WireError, OSError, subprocess.TimeoutExpired
"""Errors of a run."""


@dataclass
class Outcome:
    """The values of one scenario: by arm, then by metric, one for each round."""

    scenario: Scenario
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # arm: why it has no values

    def median(self, arm: str, metric: str) -> float | None:
        values = self.values.get(arm, {}).get(metric)
        return median(values) if values else None

    def ratios(self, arm: str, other: str, metric: str) -> list[float]:
        """arm / other, round by round."""
        mine = self.values.get(arm, {}).get(metric, [])
        theirs = self.values.get(other, {}).get(metric, [])
        return [mine_n / two for mine_n, two in zip(mine, theirs, strict=False) if two]


def run_scenario(scenario: Scenario, arms: list[Arm], rounds: int, say: Callable[[str], None]) -> Outcome:
    """Measure a scenario on all arms that support it. Raises an error of FAILURES if a run fails.

    A peer that may fail is skipped after its failure; `Outcome.missing` has the reason.
    """
    outcome = Outcome(scenario)
    taking_part = [arm for arm in arms if scenario.serves(arm)]
    rounds = min(rounds, scenario.rounds_max or rounds)

    def attempt(arm: Arm, act: Callable[[], T]) -> T | None:
        try:
            return act()
        except FAILURES as error:
            if not arm.peer.may_fail:
                raise
            outcome.missing[arm.label] = str(error)
            outcome.values.pop(arm.label, None)
            say(f"  {arm.label} fails: {error}")
            arm.stop_shared()  # the next scenario has a fresh broker
            return None

    for arm in taking_part:
        attempt(arm, partial(scenario.prepare, arm))
    try:
        for number in range(-scenario.warmups, rounds):
            shift = number % len(taking_part)
            for arm in taking_part[shift:] + taking_part[:shift]:
                if arm.label in outcome.missing:
                    continue
                values = attempt(arm, partial(scenario.measure, arm, number))
                if number < 0 or values is None:
                    continue
                for key, value in values.items():
                    outcome.values.setdefault(arm.label, {}).setdefault(key, []).append(value)
                say(f"  {arm.label}: " + ", ".join(f"{key} {value:,.1f}" for key, value in values.items()))
    finally:
        for arm in taking_part:
            if arm.label not in outcome.missing:
                attempt(arm, partial(scenario.finish, arm))
    return outcome
