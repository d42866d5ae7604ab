"""A probe of one broker, from the first question to the last."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, field
from typing import Any

from barnabas.tools.probing import writing
from barnabas.tools.probing.exchanges import ExchangeError, Target
from barnabas.tools.probing.harmless import Names
from barnabas.tools.probing.honoured import (
    Status,
    Verdict,
    Versions,
    ask_all,
    ask_for_cluster,
    learn_versions,
)
from barnabas.tools.probing.limits import Limits, read_limits
from barnabas.tools.probing.needs import Need, needs_of_all
from barnabas.tools.probing.quirks import Quirk, look_at_all
from barnabas.tools.probing.release import Guess, guess
from barnabas.tools.probing.timing import Timing, measure_all
from barnabas.wire import registry

UNSUPPORTED_VERSION = 35
FEATURE_APIS = frozenset((68, 69, 76, 77, 78, 79, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92))


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of the cluster (KIP-584): supported levels, and the finalized one; None if it is off."""

    name: str
    supported: tuple[int, int] | None
    finalized: int | None


@dataclass(slots=True)
class Report:
    """All that a probe has found."""

    address: str
    cluster_id: str | None
    node_id: int
    controller_id: int
    brokers: list[str]
    release: Guess
    advertised: Versions
    verdicts: list[Verdict]
    features: list[Feature]
    limits: Limits
    quirks: list[Quirk]
    timings: list[Timing]
    needs: list[Need]
    written: list[writing.Written] = field(default_factory=list)
    """Results of the steps that `--write` has tried."""

    def served(self) -> Versions:
        """Return the first and last version of each API that were not refused."""
        return served(self.verdicts)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "address": self.address,
            "cluster_id": self.cluster_id,
            "node_id": self.node_id,
            "controller_id": self.controller_id,
            "brokers": self.brokers,
            "release": {
                "names": list(self.release.names),
                "exact": self.release.is_exact,
                "differing": [_name(key) for key in self.release.differing],
            },
            "apis": [self._api_as_json(key) for key in sorted(self.advertised)],
            "features": [asdict(feature) for feature in self.features],
            "limits": {"settings": self.limits.settings, "problem": self.limits.problem},
            "quirks": [asdict(quirk) for quirk in self.quirks],
            "timings": [asdict(timing) for timing in self.timings],
            "clients": [asdict(need) for need in self.needs],
            "written": [asdict(entry) for entry in self.written],
        }

    def _api_as_json(self, key: int) -> dict[str, Any]:
        low, high = self.advertised[key]
        return {
            "key": key,
            "name": _name(key),
            "advertised": [low, high],
            "versions": [
                {
                    "version": verdict.version,
                    "status": verdict.status.value,
                    "reason": verdict.reason,
                    "errors": list(verdict.errors),
                }
                for verdict in self.verdicts
                if verdict.key == key
            ],
        }


def served(verdicts: list[Verdict]) -> Versions:
    """Return the first and last version of each API that is honoured; untested APIs count as advertised."""
    ranges: Versions = {}
    for verdict in verdicts:
        if verdict.status in (Status.HONOURED, Status.NOT_TRIED, Status.UNSUPPORTED):
            low, high = ranges.get(verdict.key, (verdict.version, verdict.version))
            ranges[verdict.key] = min(low, verdict.version), max(high, verdict.version)
    return ranges


async def probe(target: Target, *, writes: bool = False) -> Report:
    """Probe a broker. Raises ClientError, ExchangeError if nothing can be found out."""
    versions, answer = await learn_versions(target)
    token = secrets.token_hex(4)
    _, cluster = await ask_for_cluster(target, versions, with_topics=True)
    nodes = {node.node_id: f"{node.host}:{node.port}" for node in cluster.brokers}
    endpoint = target.endpoint
    node_id = next(
        (
            node.node_id
            for node in cluster.brokers
            if (node.host, node.port) == (endpoint.host, endpoint.port)
        ),
        cluster.brokers[0].node_id if cluster.brokers else 0,
    )
    topics = {topic.name for topic in cluster.topics}
    names = Names(
        f"barnabas-probe-{token}",
        f"barnabas-probe-{token}",
        f"barnabas-probe-{token}",
        topic_id=secrets.token_bytes(16),
        node_id=node_id,
        has_offsets_topic=writes or "__consumer_offsets" in topics,
        has_transactions_topic=writes or "__transaction_state" in topics,
        has_shares_topic=writes or "__share_group_state" in topics,
    )
    verdicts = await ask_all(target, versions, names)
    quirks = await look_at_all(target, versions, names)
    off = frozenset(
        verdict.key
        for verdict in verdicts
        if verdict.key in FEATURE_APIS and verdict.status is Status.UNSUPPORTED
    )
    return Report(
        address=str(endpoint),
        cluster_id=cluster.cluster_id,
        node_id=node_id,
        controller_id=cluster.controller_id,
        brokers=[f"{number}: {where}" for number, where in sorted(nodes.items())],
        release=guess(versions),
        advertised=versions,
        verdicts=verdicts,
        features=_features(answer),
        limits=await _limits(target, versions, node_id),
        quirks=quirks,
        timings=await measure_all(target, versions, names),
        needs=needs_of_all(served(verdicts), versions, off),
        written=await writing.try_writing(target, versions, f"barnabas-probe-{token}") if writes else [],
    )


async def _limits(target: Target, versions: Versions, node_id: int) -> Limits:
    try:
        return await read_limits(target, versions, node_id)
    except ExchangeError as error:
        return Limits({}, f"DescribeConfigs: {error}")


def _features(answer: Any) -> list[Feature]:
    supported = {
        feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features
    }
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return [Feature(name, supported.get(name), levels.get(name)) for name in sorted({*supported, *levels})]


def _name(key: int) -> str:
    return registry.name_of(key) if registry.is_known(key) else f"API {key}"
