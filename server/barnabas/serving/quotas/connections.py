"""Rates of new connections: of the broker, of each listener, of each address (KIP-612). Pure.

The rule: connections beyond the rate of the broker or a listener are accepted later; those beyond the rate of an address
are refused, and are not counted. No connection waits for longer than one window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.serving.quotas.entities import (
    CONNECTION_CREATION_RATE,
    INT_MAX,
    QuotaEntity,
    Quotas,
    normal_ip,
)
from barnabas.serving.quotas.kept import PERIOD_MS, Kept
from barnabas.serving.quotas.rate import Rate


class Throttling:
    """Number of times that connections were throttled, and for how many ms in all."""

    __slots__ = ("count", "ms")

    def __init__(self) -> None:
        self.count = self.ms = 0

    def add(self, ms: int) -> None:
        """Count a throttle time."""
        self.count += 1
        self.ms += ms


class ConnectionRates:
    """Counts new connections. Limits are in connections per second; times are in ms of a monotonic clock."""

    def __init__(self, samples: int, window_ms: int, now_ms: int) -> None:
        self._window_ms = window_ms
        self._broker = Rate(samples, window_ms, now_ms)

        def new_rate(_: str, now_ms: int) -> Rate:
            return Rate(samples, window_ms, now_ms)

        self._new_rate = new_rate
        self._listeners: dict[str, Rate] = {}
        self._addresses: Kept[str, Rate] = Kept(new_rate, period_ms=max(PERIOD_MS, (samples + 1) * window_ms))

    def record(self, listener: str, broker_limit: float | None, listener_limit: float, now_ms: int) -> int:
        """Count a new connection; return for how many ms it has to wait. `broker_limit` is None where it does not count."""
        of_listener = self._listeners.get(listener)
        if of_listener is None:
            of_listener = self._listeners[listener] = self._new_rate(listener, now_ms)
        of_listener.record(1, now_ms)
        wait_ms = of_listener.throttle_ms(listener_limit, now_ms)
        if broker_limit is not None:
            self._broker.record(1, now_ms)
            wait_ms = max(wait_ms, self._broker.throttle_ms(broker_limit, now_ms))
        return min(wait_ms, self._window_ms)

    def record_address(self, address: str, limit: float, now_ms: int) -> int:
        """Count a new connection of an address; return for how many ms it is throttled: then it has not been counted."""
        rate = self._addresses.get(address, now_ms)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(limit, now_ms), self._window_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
        return throttle_ms

    def take_back(self, listener: str, now_ms: int, *, of_broker: bool) -> None:
        """Count a connection no longer that its address was not allowed."""
        self._listeners[listener].record(-1, now_ms)
        if of_broker:
            self._broker.record(-1, now_ms)


class AddressLimits:
    """The connection rates that the quotas of addresses allow."""

    def __init__(self) -> None:
        self._limits: dict[str, float] = {}
        self._default: float | None = None
        self.is_set = False

    def follow(self, quotas: Mapping[QuotaEntity, Quotas], changed: Iterable[QuotaEntity]) -> list[str]:
        """Apply these quotas; returns the names that are no addresses: quotas on them have no effect."""
        unknown = []
        for entity in changed:
            if entity.ip is None:
                continue
            limit = quotas.get(entity, {}).get(CONNECTION_CREATION_RATE)
            if not entity.ip:
                self._default = limit
                continue
            address = normal_ip(entity.ip)
            if address is None:
                unknown.append(entity.ip)
            elif limit is None:
                self._limits.pop(address, None)
            else:
                self._limits[address] = limit
        self.is_set = bool(self._limits) or self._default is not None
        return unknown

    def of(self, host: str) -> tuple[str, float | None]:
        """Return the key under which an address is counted, and its rate; None for no limit."""
        address = normal_ip(host) or host
        limit = self._limits.get(address, self._default)
        return address, None if limit is not None and limit >= INT_MAX else limit
