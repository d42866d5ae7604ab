"""Subscriptions to clients' metrics (KIP-714): the clients that each of them matches, and the metrics to push. Pure.

The rule: all subscriptions that match a client are combined: every metric that one of them names, at the shortest of their
intervals, but never less often than the default interval, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.cluster.metadata.image import CLIENT_METRICS, ResourceKey, Settings
from barnabas.config import client_metrics
from barnabas.config.setting import SettingError
from barnabas.patterns import TURN_STEPS_MAX, steps
from barnabas.records.crc import crc32c

ALL_METRICS = "*"
INTERVAL_MS_DEFAULT: int = client_metrics.SETTINGS["interval.ms"].default

Attributes = Mapping[str, str]
"""Attributes of a client, by the keys of `match`; unknown ones are not in it."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Metrics that a client is to push, as sorted prefixes, `*` alone for all; and the interval."""

    metrics: tuple[str, ...]
    push_interval_ms: int

    def subscription_id(self, client_instance_id: bytes) -> int:
        """Return the number, a signed int32, by which a client shows that it has exactly this subscription.

        As in Kafka: CRC-32C of the metrics and the interval, combined with the hash of the client's id.
        """
        text = f"[{', '.join(self.metrics)}]{self.push_interval_ms}"
        words = [int.from_bytes(client_instance_id[at : at + 4]) for at in range(0, 16, 4)]
        number = crc32c(text.encode()) ^ words[0] ^ words[1] ^ words[2] ^ words[3]
        return number - 2**32 if number >= 2**31 else number


@dataclass(frozen=True, slots=True)
class Subscription:
    """One resource of type CLIENT_METRICS."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, Any] | None
    """Patterns by attribute; None where one cannot be had, so that the subscription is for no client."""

    @classmethod
    def of(cls, settings: Settings) -> Subscription:
        """Return a subscription from its settings, which are validated, except if another broker has set the patterns."""

        def value(name: str) -> object:
            row = client_metrics.SETTINGS[name]
            return row.parse(settings[name]) if name in settings else row.default

        metrics, interval_ms, match = value("metrics"), value("interval.ms"), value("match")
        assert isinstance(metrics, tuple)
        assert isinstance(interval_ms, int)
        assert isinstance(match, tuple)
        try:
            return cls(metrics, interval_ms, dict(client_metrics.parse_match(item) for item in match))
        except SettingError:
            return cls(metrics, interval_ms, None)

    def matches(self, attributes: Attributes) -> bool:
        """Return whether all its patterns match the client.

        An attribute that is not known, or that is too long to be matched in a turn of the event loop, matches nothing.
        """
        return self.patterns is not None and all(
            key in attributes
            and steps(pattern, attributes[key]) <= TURN_STEPS_MAX
            and pattern.fullmatch(attributes[key]) is not None
            for key, pattern in self.patterns.items()
        )


class Subscriptions:
    """All subscriptions; `version` grows whenever one of them changes."""

    def __init__(self) -> None:
        self.version = 0
        self._texts: dict[str, Settings] = {}
        self._all: dict[str, Subscription] = {}

    def take(self, configs: Mapping[ResourceKey, Settings]) -> None:
        """Apply the present settings of all resources."""
        texts = {name: settings for (kind, name), settings in configs.items() if kind == CLIENT_METRICS}
        if texts != self._texts:
            kept = {name: self._all[name] for name in texts if self._texts.get(name) == texts[name]}
            self._all = {name: kept.get(name) or Subscription.of(texts[name]) for name in texts}
            self._texts = texts
            self.version += 1

    def selection_for(self, attributes: Attributes) -> Selection:
        """Return the metrics that a client is to push."""
        return _together(
            subscription for subscription in self._all.values() if subscription.matches(attributes)
        )


def _together(subscriptions: Iterable[Subscription]) -> Selection:
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS_DEFAULT
    for subscription in subscriptions:
        metrics.update(subscription.metrics)
        interval_ms = min(interval_ms, subscription.interval_ms)
    return Selection((ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)), interval_ms)
