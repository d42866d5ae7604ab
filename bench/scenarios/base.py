"""A scenario: the measurements of an arm in one round, and the direction in which better lies."""

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
    """One thing to measure. The same object serves all arms; what belongs to an arm is kept by its label.

    `warmups` rounds are run and forgotten. `rounds_max` bounds what is slow and hardly varies.
    """

    warmups = 1
    rounds_max: int | None = None
    name: str
    title: str
    metrics: tuple[Metric, ...]

    def serves(self, arm: Arm) -> bool:
        """Say whether the arm can take part."""
        return bool(arm)

    def prepare(self, arm: Arm) -> None:  # noqa: B027
        """Set up what all rounds need."""

    @abstractmethod
    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        """One round; a value for each metric."""

    def finish(self, arm: Arm) -> None:  # noqa: B027
        """Remove what `prepare` set up."""
