"""What a release of Kafka serves, as one value: APIs and versions, features, versions of records, defaults.

The rule: nothing else decides which versions are served or written. A broker is assembled with one profile; today there
is one, that of Kafka 4 with the versions of all releases before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from barnabas import apis
from barnabas.config import broker as settings
from barnabas.config.cluster import is_clustered
from barnabas.features import Feature, RecordVersions

if TYPE_CHECKING:
    from barnabas.apis import Api
    from barnabas.config.loading import BrokerConfig


@dataclass(frozen=True, slots=True)
class ReleaseProfile:
    """One release, or line of releases."""

    name: str
    apis: Mapping[int, Api]
    """By key; what is not in it is neither advertised nor answered."""
    features: tuple[Feature, ...]
    features_epoch: int = 0
    """Would count the changes of feature levels; they are fixed."""
    record_versions: RecordVersions = field(default_factory=RecordVersions)
    """In which versions internal topics are written."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Defaults of settings that differ from those of the tables in `config`."""
    kept_for_all: tuple[str, ...] = ()
    """Settings that are always settings of all brokers, and never of a single one (KIP-966)."""

    def served_by(self, config: BrokerConfig) -> dict[int, Api]:
        """Return the APIs that a broker with these settings serves."""
        with_telemetry = config.get(settings.TELEMETRY_ENABLE)
        if with_telemetry is None:
            with_telemetry = bool(config.get(settings.METRICS_LISTENER))
        in_cluster = is_clustered(config)
        return {
            key: api
            for key, api in self.apis.items()
            if (with_telemetry or key not in apis.TELEMETRY) and (in_cluster or not api.member_only)
        }


KAFKA_4 = ReleaseProfile(
    name="4.x",
    apis=MappingProxyType(apis.BY_KEY),
    kept_for_all=("min.insync.replicas",),
    features=(
        Feature(
            "transaction.version", 0, 2, 2
        ),  # 2: EndTxn bumps the epoch, Produce adds partitions (KIP-890)
        Feature("group.version", 0, 1, 1),  # KIP-848: consumer groups
        Feature("share.version", 0, 1, 1),  # KIP-932: share groups
        Feature("streams.version", 0, 1, 1),  # KIP-1071: streams groups
    ),
)
"""A feature is in it when all of it is served."""
