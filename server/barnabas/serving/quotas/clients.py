"""The quotas of clients: their rates, and the throttle times of clients above their limits. Pure.

The rule: as long as no quota of a kind is set, nothing is looked up and nothing is counted for it. Limits are those of the
newest image, also for clients that are counted already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from barnabas.serving.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    Quotas,
)
from barnabas.serving.quotas.kept import KEPT_MAX, PERIOD_MS, Forgettable, Kept
from barnabas.serving.quotas.limits import Limits, Share
from barnabas.serving.quotas.rate import Rate
from barnabas.serving.quotas.token_bucket import TokenBucket

M = TypeVar("M", bound=Forgettable)


class Meter(Generic[M]):
    """Meter of the clients that share a limit: their counts, the limit, and their throttling."""

    __slots__ = ("counted", "limit", "throttled_count", "throttled_ms")

    def __init__(self, counted: M) -> None:
        self.counted = counted
        self.limit = 0.0
        self.throttled_count = 0
        """Number of times that they were throttled."""
        self.throttled_ms = 0
        """For how long, added up."""

    def is_forgettable(self, now_ms: int) -> bool:
        """Return whether a new meter would return the same rate."""
        return self.counted.is_forgettable(now_ms)

    def throttled(self, ms: int) -> None:
        """Count a throttle time."""
        self.throttled_count += 1
        self.throttled_ms += ms


class QuotaOf(Generic[M]):
    """One quota of all clients. `is_set`: whether any client has such a limit."""

    __slots__ = ("_clients", "_kept", "_limits", "name")

    def __init__(self, name: str, kept: Kept[Share, Meter[M]]) -> None:
        self.name = name
        self._limits = Limits(name)
        self._kept = kept
        self._clients: dict[tuple[str, str], Meter[M] | None] = {}
        kept.on_forgotten = self._clients.clear

    @property
    def is_set(self) -> bool:
        """True if any client has such a limit."""
        return self._limits.is_set

    def follow(self, quotas: Mapping[QuotaEntity, Quotas], changed: Iterable[QuotaEntity]) -> None:
        """Apply these quotas."""
        self._limits.follow(quotas, changed)
        self._clients.clear()

    def of(self, user: str, client_id: str, now_ms: int) -> Meter[M] | None:
        """Return the meter of a user with a client id, None if no limit applies."""
        key = user, client_id
        if key in self._clients:
            return self._clients[key]
        share, limit = self._limits.applying_to(user, client_id)
        if limit is None:
            meter = None
        else:
            meter = self._kept.get(share, now_ms)
            meter.limit = limit
        if len(self._clients) >= KEPT_MAX:
            self._clients.clear()
        self._clients[key] = meter
        return meter

    def meters(self) -> list[tuple[Share, Meter[M]]]:
        """Return the present meters, each with the clients that share it."""
        return self._kept.items()


class ClientQuotas:
    """All quotas of clients: produced and fetched bytes, time of requests, changes of the cluster."""

    def __init__(
        self,
        *,
        samples: int,
        window_ms: int,
        mutation_samples: int,
        mutation_window_ms: int,
    ) -> None:
        """`samples` of `window_ms` are quota.window.num and .size.seconds; the others are controller.quota.window.*."""
        self.window_ms = window_ms
        self.span_s = (samples - 1) * window_ms / 1000
        """For how many seconds a limit may be used up at once."""
        period_ms = max(PERIOD_MS, (samples + 1) * window_ms)

        def rates() -> Kept[Share, Meter[Rate]]:
            return Kept(lambda _, now_ms: Meter(Rate(samples, window_ms, now_ms)), period_ms=period_ms)

        def bucket(_: Share, now_ms: int) -> Meter[TokenBucket]:
            return Meter(TokenBucket(mutation_samples * mutation_window_ms / 1000, now_ms))

        self.produce = QuotaOf(PRODUCER_BYTE_RATE, rates())
        self.fetch = QuotaOf(CONSUMER_BYTE_RATE, rates())
        self.request = QuotaOf(REQUEST_PERCENTAGE, rates())
        self.mutation = QuotaOf(CONTROLLER_MUTATION_RATE, Kept(bucket))
        self.is_set = False
        """True if there is any quota of clients."""

    @property
    def every(self) -> tuple[QuotaOf[Rate], QuotaOf[Rate], QuotaOf[Rate], QuotaOf[TokenBucket]]:
        """All quotas."""
        return self.produce, self.fetch, self.request, self.mutation

    def follow(self, quotas: Mapping[QuotaEntity, Quotas], changed: Iterable[QuotaEntity]) -> None:
        """Apply these quotas; `changed` names the entities with other quotas than before."""
        entities = tuple(changed)
        for quota in self.every:
            quota.follow(quotas, entities)
        self.is_set = any(quota.is_set for quota in self.every)
