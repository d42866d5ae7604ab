"""The latest metrics of each client instance, kept for whoever looks at them. Pure.

The rule: what clients push may never fill the broker's memory. A client's metrics go when it has been silent for as
long as its instance would be remembered; and when all together are too large, those of the client that has pushed
nothing for the longest time go first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from barnabas.telemetry.payload import Distribution, Labels, Point
from barnabas.telemetry.subscriptions import Attributes

BYTES_MAX = 32 * 1024 * 1024
_SERIES_BYTES = 300  # of the objects that hold one series, besides its texts
_STEP_BYTES = 100

SeriesKey = tuple[str, str, Labels]
"""A metric's name, its kind, and its labels, sorted."""


@dataclass(slots=True)
class ClientMetrics:
    """What one client instance has pushed; differences are added up."""

    attributes: Attributes
    resource: Labels = ()
    series: dict[SeriesKey, float | Distribution] = field(default_factory=dict)
    pushes: int = 0
    last_push_ms: int = 0
    expires_ms: int = 0
    size_bytes: int = 0


class PushedMetrics:
    """The metrics of all client instances by their ids, in the order of their last pushes."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._clients: dict[bytes, ClientMetrics] = {}
        self.size_bytes = 0
        self.evicted = 0

    @property
    def clients(self) -> Mapping[bytes, ClientMetrics]:
        """All that is kept, by client instance id."""
        return self._clients

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
        """Take up a push; the client's metrics after it."""
        client = self._clients.pop(instance_id, None)
        if client is None:
            client = ClientMetrics(attributes)
        else:
            self.size_bytes -= client.size_bytes
        client.resource = resource
        client.pushes += 1
        client.last_push_ms = now_ms
        client.expires_ms = now_ms + lifetime_ms
        for point in points:
            _add(client.series, point)
        client.size_bytes = _size(client)
        self._clients[instance_id] = client
        self.size_bytes += client.size_bytes
        while self.size_bytes > self._bytes_max:
            self._forget(next(iter(self._clients)))
            self.evicted += 1
        return client

    def expire(self, now_ms: int) -> None:
        """Forget the clients that have pushed nothing for too long."""
        for instance_id in [key for key, client in self._clients.items() if client.expires_ms <= now_ms]:
            self._forget(instance_id)

    def _forget(self, instance_id: bytes) -> None:
        self.size_bytes -= self._clients.pop(instance_id).size_bytes


def _add(series: dict[SeriesKey, float | Distribution], point: Point) -> None:
    key = (point.name, point.kind, tuple(sorted(point.labels)))
    known = series.get(key) if point.delta else None
    value = point.value
    if isinstance(known, Distribution) and isinstance(value, Distribution):
        value = known.plus(value)
    elif isinstance(known, float) and isinstance(value, float):
        value = known + value
    series[key] = value


def _size(client: ClientMetrics) -> int:
    """About how many bytes of memory a client's metrics take."""
    size = 0
    for (name, _, labels), value in client.series.items():
        size += _SERIES_BYTES + len(name) + sum(100 + len(key) + len(text) for key, text in labels)
        if isinstance(value, Distribution):
            size += _STEP_BYTES * (2 + len(value.steps))
    return size + sum(len(key) + len(text) for key, text in client.resource)
