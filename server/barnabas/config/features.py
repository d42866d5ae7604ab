"""Features of a cluster (KIP-584): finalized and supported levels.

Clients read them for behaviour that no API version shows, such as whether EndTxn bumps the producer's epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Feature(NamedTuple):
    """One feature: the supported levels, and the finalized level (0 is off)."""

    name: str
    min_level: int
    max_level: int
    finalized_level: int


class RecordVersions(NamedTuple):
    """Versions in which the values of internal topics are written; every known version is read.

    The defaults are those of Apache Kafka since 2.3. Before 2.1 it wrote 1 for both (0 for groups before 0.10.1), 2 for
    groups from 2.1 on. Releases do not write the newest version that they read, so that the previous release can still read
    it.
    """

    group_metadata: int = 3
    offset_commit: int = 3
    expiring_offset_commit: int = 1
    """The only version that can say when an offset expires; it has no leader epoch."""
    transaction_log: tuple[int, ...] = (0, 1, 1)
    """By the level of `transaction.version`."""

    def of_transactions(self, features: Iterable[Feature]) -> int:
        """Return the version of transactional ids at these features' levels."""
        level = next(
            (feature.finalized_level for feature in features if feature.name == "transaction.version"), 0
        )
        return self.transaction_log[min(level, len(self.transaction_log) - 1)]


def finalized(features: Iterable[Feature], levels: Mapping[str, int] | None) -> tuple[Feature, ...]:
    """Return features at the cluster's levels; at their own if the cluster has none (None)."""
    if levels is None:
        return tuple(features)
    return tuple(feature._replace(finalized_level=levels.get(feature.name, 0)) for feature in features)


UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Upgrade types of UpdateFeatures."""


def reason_against(
    features: Iterable[Feature], name: str, level: int, upgrade_type: int, *, is_fixed: bool
) -> str:
    """Return why a feature cannot be finalized at a level; empty if it can.

    `is_fixed`: only the present level is allowed. Kafka's refusals take precedence, in Kafka's order.
    """
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"there is no upgrade type {upgrade_type}"
    if level < 0:
        return "a level cannot be less than 0"
    feature = next((feature for feature in features if feature.name == name), None)
    if feature is None:
        return "this broker does not support the feature"
    if not feature.min_level <= level <= feature.max_level:
        return f"this broker supports levels {feature.min_level} to {feature.max_level}"
    if level < feature.finalized_level and upgrade_type == UPGRADE:
        return "a lower level needs the upgrade type of a safe or unsafe downgrade"
    if is_fixed and level != feature.finalized_level:
        return f"levels are fixed on this broker; this one is {feature.finalized_level}"
    return ""
