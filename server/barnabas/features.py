"""THE table of features (KIP-584): what a cluster of this broker's kind has switched on, and could.

Clients look here for what no API version tells them, such as whether EndTxn bumps the producer's epoch. ApiVersions
is derived from it. A feature is in the table when all of it is served.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature: the levels that are supported, and the level that is switched on (0 is off)."""

    name: str
    min_level: int
    max_level: int
    finalized_level: int


FEATURES: tuple[Feature, ...] = (
    Feature("transaction.version", 0, 2, 2),  # 2: EndTxn bumps the epoch, Produce adds partitions (KIP-890)
    Feature("group.version", 0, 1, 1),  # KIP-848: consumer groups
    Feature("share.version", 0, 1, 1),  # KIP-932: share groups
    Feature("streams.version", 0, 1, 1),  # KIP-1071: streams groups
)
FEATURES_EPOCH = 0
"""Would count the changes of levels; they are fixed."""

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Upgrade types of UpdateFeatures."""


def reason_against(name: str, level: int, upgrade_type: int) -> str:
    """Why a feature cannot be finalized at a level; empty if it can, which is where it already is.

    What Kafka refuses is refused first, in the same order.
    """
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"there is no upgrade type {upgrade_type}"
    if level < 0:
        return "a level cannot be less than 0"
    feature = next((feature for feature in FEATURES if feature.name == name), None)
    if feature is None:
        return "this broker does not support the feature"
    if not feature.min_level <= level <= feature.max_level:
        return f"this broker supports levels {feature.min_level} to {feature.max_level}"
    if level < feature.finalized_level and upgrade_type == UPGRADE:
        return "a lower level needs the upgrade type of a safe or unsafe downgrade"
    if level != feature.finalized_level:
        return f"levels are fixed on this broker; this one is {feature.finalized_level}"
    return ""
