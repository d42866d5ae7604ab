"""Guess of a broker's release of Apache Kafka, by its advertised versions.

The rule: only APIs for clients count; those that depend on the mode or on plugins (KRaft's quorum, telemetry) do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.config import releases
from barnabas.tools.probing.harmless import BETWEEN_BROKERS

Versions = Mapping[int, tuple[int, int]]
PRODUCE = 0
_BY_MODE = frozenset((38, 39, 40, 41, 48, 49, 50, 51, 55, 57, 64, 71, 72, 80, 81, 94))


@dataclass(frozen=True, slots=True)
class Guess:
    """Releases that advertise the most alike, and in how many APIs they differ; 0: exactly these."""

    names: tuple[str, ...]
    differing: tuple[int, ...]
    """Keys of the APIs in which the last of these releases differs."""

    @property
    def is_exact(self) -> bool:
        """True if nothing differs."""
        return not self.differing

    def __str__(self) -> str:
        names = self.names[0] if len(self.names) == 1 else f"{self.names[0]} to {self.names[-1]}"
        if self.is_exact:
            return f"Apache Kafka {names}"
        return f"nearest to Apache Kafka {names}, which differs in {len(self.differing)} APIs"


def guess(advertised: Versions) -> Guess:
    """Return the releases that are nearest, oldest first."""
    by_distance: dict[int, list[str]] = {}
    for name in releases.NAMES:
        by_distance.setdefault(len(_differing(advertised, name)), []).append(name)
    names = by_distance[min(by_distance)]
    return Guess(tuple(names), tuple(_differing(advertised, names[-1])))


def _differing(advertised: Versions, name: str) -> list[int]:
    published = dict(releases.versions_of(name))
    seen = dict(advertised)
    # Since 4.0 the first version of Produce is advertised as 0 for the sake of clients that look for it (KIP-896).
    if PRODUCE in seen and PRODUCE in published and published[PRODUCE][0] == 3:
        seen[PRODUCE] = max(3, seen[PRODUCE][0]), seen[PRODUCE][1]
    keys = (published.keys() | seen.keys()) - BETWEEN_BROKERS - _BY_MODE
    return sorted(key for key in keys if published.get(key) != seen.get(key))


def is_at_least(advertised: Versions, name: str) -> bool:
    """Return whether the newest release that matches is this one or a later one."""
    return releases.is_at_least(guess(advertised).names[-1], name)
