"""A scenario: the measurements of an arm in one round, and the better direction of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from bench.arms import Arm


@dataclass(frozen=True)
class Target:
    """Goal of the first peer: a bound for the number itself, or for its ratio to a peer's."""

    bound: float
    peer: str = ""  # "" bounds the number itself
    moonshot: float | None = None


@dataclass(frozen=True)
class Metric:
    """One number of a scenario."""

    key: str
    title: str
    unit: str
    more_is_better: bool = False
    targets: tuple[Target, ...] = ()


class Scenario(ABC):
    """A thing to measure. One object serves all arms; state of an arm is stored by its label.

    `warmups` rounds are run and discarded. `rounds_max` bounds slow scenarios with little variance.
    """

    warmups = 1
    rounds_max: int | None = None
    name: str
    title: str
    metrics: tuple[Metric, ...]

    def serves(self, arm: Arm) -> bool:
        """Return whether the arm supports the scenario."""
        return bool(arm)

    def prepare(self, arm: Arm) -> None:  # noqa: B027
        """Set up the state that all rounds share."""

    @abstractmethod
    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        """One round; a value for each metric."""

    def finish(self, arm: Arm) -> None:  # noqa: B027
        """Remove the state of `prepare`."""
