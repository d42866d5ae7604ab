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
