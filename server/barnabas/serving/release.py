"""A release of Kafka, as one value: APIs and versions, features, versions of records, defaults.

The rule: nothing else decides which versions are served or written. A broker is assembled with one profile: that of Kafka 4
with the versions of all releases before it, or with `kafka.version` that of one release, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from barnabas.config import broker as settings
from barnabas.config import releases
from barnabas.config.features import Feature, RecordVersions
from barnabas.config.keeper import is_in_quorum, is_on_zookeeper
from barnabas.errors import RequestError
from barnabas.serving import apis
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig

from barnabas.serving.apis import Api

PRODUCE = 0


class ReleaseProfile(NamedTuple):
    """One release, or line of releases."""

    name: str
    apis: Mapping[int, Api]
    """By key; other APIs are neither advertised nor answered."""
    features: tuple[Feature, ...]
    features_epoch: int = 0
    """Would count the changes of feature levels; they are fixed. -1 where there is nothing like it."""
    record_versions: RecordVersions = RecordVersions()
    """In which versions internal topics are written."""
    advertised_first: Mapping[int, int] = MappingProxyType({})
    """First versions that are advertised and not served, by key."""
    kept_for_all: tuple[str, ...] = ()
    """Settings that are always settings of all brokers, and never of a single one (KIP-966)."""
    advertises_member_apis: bool = False
    """True if clients see the APIs between brokers, as in releases that may run on ZooKeeper."""

    def has(self, feature: str) -> bool:
        """Return whether a feature is finalized by default, before UpdateFeatures changes it."""
        return any(entry.name == feature and entry.finalized_level for entry in self.features)

    def served_by(self, config: BrokerConfig) -> dict[int, Api]:
        """Return the APIs that a broker with these settings serves."""
        with_telemetry = config.get(settings.TELEMETRY_ENABLE)
        if with_telemetry is None:
            with_telemetry = bool(config.get(settings.METRICS_LISTENER))
        in_cluster = is_on_zookeeper(config)
        with_members = in_cluster or self.advertises_member_apis
        quorum_only = apis.QUORUM_ONLY if is_in_quorum(config) else {}
        return {
            **quorum_only,
            **{
                key: api if in_cluster or not api.member_only else _Refused(**apis.row_of(api))
                for key, api in self._with_unstable(config).items()
                if (with_telemetry or key not in apis.TELEMETRY) and (with_members or not api.member_only)
            },
        }

    def _with_unstable(self, config: BrokerConfig) -> Mapping[int, Api]:
        """Return the APIs, with the versions that are not stable where the settings ask for them."""
        has_any = releases.is_at_least(self.name, apis.UNSTABLE_SINCE)
        if not has_any or not config.get(settings.UNSTABLE_API_VERSIONS_ENABLE):
            return self.apis
        unstable = {
            key: self.apis[key].in_versions(self.apis[key].min_version, last)
            for key, last in apis.UNSTABLE.items()
        }
        return {**self.apis, **unstable}


class _Refused(Api):
    """An API between brokers that a broker without others advertises, as one on ZooKeeper did, and refuses."""

    @property
    def handler(self) -> type[Any]:
        """The handler that refuses."""
        return _Refusing


class _Refusing:
    def handle(self, _context: Any, _request: Any) -> NoReturn:
        raise RequestError(ErrorCode.STALE_CONTROLLER_EPOCH, "this broker has no controller but itself")


def _stable() -> dict[int, Api]:
    served = dict(apis.BY_KEY)
    for key, last in apis.UNSTABLE.items():
        served[key] = served[key].in_versions(served[key].min_version, last - 1)
    return served


KAFKA_4 = ReleaseProfile(
    name="4.x",
    apis=MappingProxyType(_stable()),
    kept_for_all=("min.insync.replicas",),
    features=(
        Feature(
            "transaction.version", 0, 2, 2
        ),  # 2: EndTxn bumps the epoch, Produce adds partitions (KIP-890)
        Feature("group.version", 0, 1, 1),  # KIP-848: consumer groups
        Feature("share.version", 0, 2, 2),  # share groups (KIP-932); 2: with dead letter queues (KIP-1191)
        Feature("streams.version", 0, 1, 1),  # KIP-1071: streams groups
    ),
)
"""A feature is in it when all of it is served."""


_TRANSACTIONS, _GROUPS, _SHARES, _STREAMS = KAFKA_4.features
METADATA_VERSIONS = (7, 33)
"""Levels of metadata.version with all records implemented: 3.3-IV3 to 4.4-IV2."""
IN_QUORUM = KAFKA_4._replace(
    features=(
        Feature("metadata.version", *METADATA_VERSIONS, METADATA_VERSIONS[1]),
        Feature("kraft.version", 0, 1, 0),
        _TRANSACTIONS,
        _GROUPS,
        Feature("eligible.leader.replicas.version", 0, 1, 0),
        _SHARES,
        _STREAMS,
    ),
    kept_for_all=(),
)
"""The profile of a broker in a KRaft quorum, which registers these levels: a finalized feature without its range is
refused, and blocks later upgrades. Which are finalized, the metadata say."""
_OFF = 0


def profile_of(config: BrokerConfig) -> ReleaseProfile:
    """Return the profile that the settings ask for."""
    name = config.get(settings.KAFKA_VERSION)
    if is_in_quorum(config):
        return IN_QUORUM
    return release(name) if name else KAFKA_4


def release(name: str) -> ReleaseProfile:
    """Return the profile of a release, named as in `releases.NAMES`: its APIs and features, as far as they are
    implemented.
    """
    rows = {}
    for key, (first, last) in releases.versions_of(name).items():
        api = apis.BY_KEY.get(key)
        if api is not None and max(first, api.min_version) <= min(last, api.max_version):
            rows[key] = api.in_versions(max(first, api.min_version), min(last, api.max_version))
    has_kraft = releases.is_at_least(name, "4.0")
    return ReleaseProfile(
        name=name,
        apis=MappingProxyType(rows),
        features=_features_of(name),
        features_epoch=0 if releases.is_at_least(name, "2.7") else -1,
        record_versions=_record_versions_of(name),
        advertised_first={PRODUCE: 0} if has_kraft else {},  # or librdkafka compresses nothing (KIP-896)
        kept_for_all=KAFKA_4.kept_for_all if releases.is_at_least(name, "4.1") else (),
        advertises_member_apis=not has_kraft,
    )


def _features_of(name: str) -> tuple[Feature, ...]:
    if not releases.is_at_least(name, "4.0"):
        return ()  # on ZooKeeper there were none
    features = [_TRANSACTIONS, _GROUPS]
    if releases.is_at_least(name, "4.1"):
        is_final = releases.is_at_least(name, "4.2")
        has_queues = releases.is_at_least(name, "4.4")
        shares = _SHARES if has_queues else _SHARES._replace(max_level=1, finalized_level=1)
        features += [
            feature if is_final else feature._replace(finalized_level=_OFF) for feature in (shares, _STREAMS)
        ]
    return tuple(features)


def _record_versions_of(name: str) -> RecordVersions:
    group, offset = next(
        (
            versions
            for since, versions in (("2.3", (3, 3)), ("2.1", (2, 3)), ("0.10.1", (1, 1)))
            if releases.is_at_least(name, since)
        ),
        (0, 1),
    )
    return RecordVersions(group_metadata=group, offset_commit=offset)
