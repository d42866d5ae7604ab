"""Supported levels of the features of a cluster, and those of a new cluster (KIP-584). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cluster.kraft.controller.versions import ELR_LEVEL
from barnabas.cluster.kraft.image import METADATA_VERSION
from barnabas.cluster.kraft.transitions import KRAFT_VERSION
from barnabas.cluster.kraft.values import LevelRange

if TYPE_CHECKING:
    from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord

LEVEL: Final = 33
"""The metadata.version of a new cluster where none is asked for: that of 4.4."""
LEVEL_MIN: Final = 7
ELR: Final = "eligible.leader.replicas.version"


class FeatureLevel(NamedTuple):
    """A level of a feature: the metadata.version from which on new clusters have it, and its dependencies."""

    default_from: int
    needs: tuple[tuple[str, int], ...] = ()


LEVELS: Mapping[str, tuple[FeatureLevel, ...]] = MappingProxyType(
    {
        KRAFT_VERSION: (FeatureLevel(LEVEL_MIN), FeatureLevel(21)),
        "transaction.version": (FeatureLevel(LEVEL_MIN), FeatureLevel(24), FeatureLevel(24)),
        "group.version": (FeatureLevel(LEVEL_MIN), FeatureLevel(22)),
        ELR: (FeatureLevel(LEVEL_MIN), FeatureLevel(26, ((METADATA_VERSION, ELR_LEVEL),))),
        "share.version": (FeatureLevel(LEVEL_MIN), FeatureLevel(28), FeatureLevel(31)),
        "streams.version": (FeatureLevel(LEVEL_MIN), FeatureLevel(29)),
    }
)
"""Levels of each feature, from 0 on."""
SUPPORTED: Mapping[str, LevelRange] = MappingProxyType(
    {
        METADATA_VERSION: LevelRange(LEVEL_MIN, LEVEL),
        **{name: LevelRange(0, len(levels) - 1) for name, levels in LEVELS.items()},
    }
)
"""Levels that this controller supports, as registered."""


def formatting_records(level: int) -> tuple[FeatureLevelRecord, ...]:
    """Return the feature records of a cluster that is formatted with a metadata.version.

    kraft.version is not among them: it is in control records.
    """
    from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord

    records = [FeatureLevelRecord(METADATA_VERSION, level)]
    for name, levels in sorted(LEVELS.items()):
        newest = max(
            number for number, feature_level in enumerate(levels) if feature_level.default_from <= level
        )
        if newest and name != KRAFT_VERSION:
            records.append(FeatureLevelRecord(name, newest))
    return tuple(records)
