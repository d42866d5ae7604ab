"""The latest metrics of each client instance, kept for display. Pure.

The rule: pushed metrics never fill the broker's memory. A client's metrics are removed when it has been silent for as
long as its instance would be remembered. If a client has too many series, those that it has not pushed for the
longest time are removed first; if all clients together have too many, those of the client that has been silent longest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from barnabas.metrics.telemetry.payload import Distribution, Labels, Point
from barnabas.metrics.telemetry.subscriptions import Attributes

_SERIES_BYTES = 300  # of the objects that hold one series, besides its texts
_LABEL_BYTES = 100
_STEP_BYTES = 100
_EVICTED_SHARE = 8
"""A client that has too much loses this part of its series, an eighth, at a time: each is looked for from the first."""

SeriesKey = tuple[str, str, Labels]
"""A metric's name, its kind, and its labels, sorted."""


@dataclass(slots=True)
class ClientMetrics:
    """Metrics that one client instance has pushed; differences are added up."""

    instance_id: bytes
    attributes: Attributes
    resource: Labels = ()
    series: dict[SeriesKey, float | Distribution] = field(default_factory=dict)
    pushes: int = 0
    last_push_ms: int = 0
    expires_ms: int = 0
    size_bytes: int = 0

    def copy(self) -> ClientMetrics:
        """Return an immutable copy, unaffected by later pushes."""
        return replace(self, series=self.series.copy())


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on retained series and estimated bytes, of one client and of all together."""

    series: int = 100_000
    size_bytes: int = 32 * 1024 * 1024
    client_series: int = 10_000
    client_size_bytes: int = 4 * 1024 * 1024


class PushedMetrics:
    """The metrics of all client instances by their ids, in the order of their last pushes."""

    def __init__(self, bounds: Bounds = Bounds()) -> None:
        self._bounds = bounds
        self._clients: dict[bytes, ClientMetrics] = {}
        self.size_bytes = 0
        self.series_count = 0
        self.evicted = 0
        """Number of clients with metrics that were dropped for those of others."""
        self.evicted_series = 0
        """Number of series that have been evicted, those of evicted clients included."""

    @property
    def clients(self) -> Mapping[bytes, ClientMetrics]:
        """All that is kept, by client instance id."""
        return self._clients

    def begin(
        self, instance_id: bytes, attributes: Attributes, resource: Labels, *, now_ms: int, lifetime_ms: int
    ) -> ClientMetrics:
        """Begin a push of points, which are added next to the client's metrics."""
        client = self._clients.pop(instance_id, None)
        if client is None:
            client = ClientMetrics(instance_id, attributes)
        self._grow(client, 0, _labels_bytes(resource) - _labels_bytes(client.resource))
        client.resource = resource
        client.pushes += 1
        client.last_push_ms = now_ms
        client.expires_ms = now_ms + lifetime_ms
        self._clients[instance_id] = client
        return client

    def add(self, client: ClientMetrics, points: Iterable[Point]) -> None:
        """Add points of the push that has begun, unless the client has been evicted meanwhile."""
        for point in points:
            if self._clients.get(client.instance_id) is not client:
                return
            self._add(client, point)
            if (
                len(client.series) > self._bounds.client_series
                or client.size_bytes > self._bounds.client_size_bytes
            ):
                self._evict_series(client)
            while self.series_count > self._bounds.series or self.size_bytes > self._bounds.size_bytes:
                self._evict_client()

    def take(
        self,
        instance_id: bytes,
        attributes: Attributes,
        resource: Labels,
        points: Iterable[Point],
        *,
        now_ms: int,
        lifetime_ms: int,
    ) -> ClientMetrics:
        """Take a whole push; the client's metrics after it."""
        client = self.begin(instance_id, attributes, resource, now_ms=now_ms, lifetime_ms=lifetime_ms)
        self.add(client, points)
        return client

    def _add(self, client: ClientMetrics, point: Point) -> None:
        key = (point.name, point.kind, tuple(sorted(point.labels)))
        before = client.series.pop(key, None)
        value = point.value
        if before is not None:
            self._grow(client, -1, -_series_bytes(key, before))
            if not point.delta:
                pass
            elif isinstance(before, Distribution) and isinstance(value, Distribution):
                value = before.plus(value)
            elif isinstance(before, float) and isinstance(value, float):
                value = before + value
        client.series[key] = value  # as the last: the first ones are those not pushed for the longest time
        self._grow(client, 1, _series_bytes(key, value))

    def _grow(self, client: ClientMetrics, series: int, size_bytes: int) -> None:
        client.size_bytes += size_bytes
        self.size_bytes += size_bytes
        self.series_count += series

    def _evict_series(self, client: ClientMetrics) -> None:
        count = len(client.series) // _EVICTED_SHARE + 1
        for key in list(islice(client.series, count)):
            self._grow(client, -1, -_series_bytes(key, client.series.pop(key)))
        self.evicted_series += count

    def _evict_client(self) -> None:
        instance_id, client = next(iter(self._clients.items()))
        self.evicted += 1
        self.evicted_series += len(client.series)
        self._forget(instance_id)

    def expire(self, now_ms: int) -> None:
        """Remove the clients that have pushed no metrics for too long."""
        for instance_id in [key for key, client in self._clients.items() if client.expires_ms <= now_ms]:
            self._forget(instance_id)

    def _forget(self, instance_id: bytes) -> None:
        client = self._clients.pop(instance_id)
        self.size_bytes -= client.size_bytes
        self.series_count -= len(client.series)


def _series_bytes(key: SeriesKey, value: float | Distribution) -> int:
    """Return the approximate memory of a series in bytes."""
    name, _, labels = key
    size = _SERIES_BYTES + len(name) + _labels_bytes(labels)
    return size + _STEP_BYTES * (2 + len(value.steps)) if isinstance(value, Distribution) else size


def _labels_bytes(labels: Labels) -> int:
    return sum(_LABEL_BYTES + len(key) + len(text) for key, text in labels)
