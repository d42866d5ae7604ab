"""Counts of tiered storage, by topic, for metrics; and the limits on bytes per second (KIP-956)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.config import broker as settings
from barnabas.serving.quotas.rate import Rate

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig
    from barnabas.config.setting import Setting


@dataclass(slots=True)
class TopicCounts:
    """Counts of one topic since the broker's start: requests to the store, failed requests, and bytes."""

    copies: int = 0
    failed_copies: int = 0
    copied_bytes: int = 0
    reads: int = 0
    failed_reads: int = 0
    read_bytes: int = 0
    deletions: int = 0
    failed_deletions: int = 0
    starts: int = 0
    failed_starts: int = 0


@dataclass(slots=True)
class TierCounts:
    """Counts of all topics; `late_reads` are reads that took longer than `remote.fetch.max.wait.ms`."""

    topics: dict[str, TopicCounts] = field(default_factory=dict)
    late_reads: int = 0
    late_look_ups: int = 0
    throttled_copies_ms: int = 0
    throttled_reads: int = 0

    def of(self, topic: str) -> TopicCounts:
        """Return the counts of a topic."""
        counts = self.topics.get(topic)
        if counts is None:
            counts = self.topics[topic] = TopicCounts()
        return counts


class LimitSettings(NamedTuple):
    """Settings of a limit: bytes per second, number of samples, seconds of each."""

    bytes_per_second: Setting[int]
    samples: Setting[int]
    window_seconds: Setting[int]


COPIES: Final = LimitSettings(
    settings.REMOTE_LOG_MANAGER_COPY_MAX_BYTES_PER_SECOND,
    settings.REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_NUM,
    settings.REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_SIZE_SECONDS,
)
READS: Final = LimitSettings(
    settings.REMOTE_LOG_MANAGER_FETCH_MAX_BYTES_PER_SECOND,
    settings.REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_NUM,
    settings.REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_SIZE_SECONDS,
)


class BytesLimit:
    """A limit on bytes per second, by Kafka's samples, with the settings of copies or of reads."""

    def __init__(self, config: BrokerConfig, of: LimitSettings, now_ms: Callable[[], int]) -> None:
        self._config = config
        self._setting = of.bytes_per_second
        self._now_ms = now_ms
        self._rate = Rate(config.get(of.samples), config.get(of.window_seconds) * 1000, now_ms())

    def throttle_ms(self) -> int:
        """Return the ms until the next copy or read is allowed, 0 if it is allowed now."""
        return self._rate.throttle_ms(self._config.get(self._setting), self._now_ms())

    def record(self, size: int) -> None:
        """Count bytes of a copy or a read."""
        self._rate.record(size, self._now_ms())
