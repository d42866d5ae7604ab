"""Limits on the number and the rate of connections: of the broker, of a listener, of an address.

The rule: a connection beyond a limit of the broker or of a listener waits, and with it all later ones of this listener;
a connection beyond a limit of its address is closed: immediately if the address has too many, after a delay if its rate is
too high (KIP-612). The listener between brokers does not wait for the others if there are several. Changes of settings
and quotas apply immediately.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import trio

from barnabas.config import broker as settings
from barnabas.config.listeners import ListenerSettings, inter_broker_listener
from barnabas.serving.quotas.connections import AddressLimits, ConnectionRates, Throttling
from barnabas.serving.quotas.entities import INT_MAX, QuotaEntity, Quotas

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.log_limit import LogLimit

log = logging.getLogger(__name__)


def most_from(host: str, config: BrokerConfig) -> int:
    """Return the most connections from an address: max.connections.per.ip, or an override for that address."""
    overrides = config.get(settings.MAX_CONNECTIONS_PER_IP_OVERRIDES)
    for item in overrides.split(",") if overrides else ():
        name, _, count = item.strip().rpartition(":")
        if name == host.removeprefix("::ffff:"):
            return int(count)
    return config.get(settings.MAX_CONNECTIONS_PER_IP)


class ConnectionLimits:
    """Counts open and new connections, and decides which must wait or be closed.

    Lifecycle of a connection: `wait_for_turn`, `throttle_ms`, `refuses`, then `opened` and `closed`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        listeners: Mapping[str, str],
        now_s: Callable[[], float],
        log_limit: LogLimit,
    ) -> None:
        """`listeners` maps the names of the listeners to their protocols; `now_s` is a monotonic clock."""
        self._config = config
        self._now_s = now_s
        self._log_limit = log_limit
        self._settings = {name: ListenerSettings(config, name, kind) for name, kind in listeners.items()}
        among_brokers = inter_broker_listener(config)
        self._protected = among_brokers if len(listeners) > 1 and among_brokers in listeners else None
        self._rates = ConnectionRates(
            config.get(settings.QUOTA_WINDOW_NUM),
            config.get(settings.QUOTA_WINDOW_SIZE_SECONDS) * 1000,
            self._now_ms(),
        )
        self._addresses = AddressLimits()
        self._changed: trio.Event | None = None
        self.open = 0
        self.per_ip: Counter[str] = Counter()
        self.per_listener: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        """Number of connections accepted since the start, by the name of the listener."""
        self.delayed: dict[str, Throttling] = {name: Throttling() for name in listeners}
        """Waits of connections, by listener, because they came too fast to the broker or to that listener."""
        self.throttled: dict[str, Throttling] = {name: Throttling() for name in listeners}
        """For how long connections were throttled since they come too fast from an address."""
        self._limits_changed()

    def _now_ms(self) -> int:
        return int(self._now_s() * 1000)

    def open_on(self, listener: str) -> int:
        """Return the number of open connections on a listener."""
        return self.per_listener[listener]

    # --- present limits -------------------------------------------------------------------------------------

    def _limits_changed(self) -> None:
        config = self._config
        self._most = config.get(settings.MAX_CONNECTIONS)
        self._rate = config.get(settings.MAX_CONNECTION_CREATION_RATE)
        self._most_on = {name: of.get(settings.MAX_CONNECTIONS) for name, of in self._settings.items()}
        self._rate_on = {
            name: of.get(settings.MAX_CONNECTION_CREATION_RATE) for name, of in self._settings.items()
        }
        self._is_rated = min(self._rate, *self._rate_on.values(), INT_MAX) < INT_MAX

    def settings_changed(self) -> None:
        """Apply the present settings; waiting tasks check again."""
        self._limits_changed()
        self._wake()

    def quotas_changed(self, quotas: Mapping[QuotaEntity, Quotas], changed: Iterable[QuotaEntity]) -> None:
        """Obey these quotas of addresses."""
        for name in self._addresses.follow(quotas, changed):
            log.warning("the quota of ip %r has no effect, since it is no address", name)

    # --- taking a connection --------------------------------------------------------------------------------

    def has_room(self, listener: str) -> bool:
        """Return whether a listener may have another open connection."""
        if self.per_listener[listener] >= self._most_on[listener]:
            return False
        return listener == self._protected or self.open < self._most

    def delay_ms(self, listener: str) -> int:
        """Count a new connection; return its delay in ms for a rate above the limit."""
        if not self._is_rated and not self._addresses.is_set:
            return 0
        limit = None if listener == self._protected else float(self._rate)
        wait_ms = self._rates.record(listener, limit, float(self._rate_on[listener]), self._now_ms())
        if wait_ms:
            self.delayed[listener].add(wait_ms)
        return wait_ms

    async def wait_for_turn(self, listener: str, delay_ms: int) -> None:
        """Wait for this many ms, and then until there is room."""
        await trio.sleep(delay_ms / 1000)
        while not self.has_room(listener):
            self._log_limit.log(
                log, logging.WARNING, "pauses in accepting", listener,
                "no connection is accepted on %s until one is closed: %d are open, %d of them there",
                listener, self.open, self.per_listener[listener],
            )  # fmt: skip
            await self.wait_for_change()

    def throttle_ms(self, listener: str, host: str) -> int:
        """Count a new connection of an address; return the ms after which it is to be closed, 0 if it may stay."""
        if not self._addresses.is_set:
            return 0
        address, limit = self._addresses.of(host)
        if limit is None:
            return 0
        now_ms = self._now_ms()
        throttle_ms = self._rates.record_address(address, limit, now_ms)
        if throttle_ms:
            self._rates.take_back(listener, now_ms, of_broker=listener != self._protected)
            self.throttled[listener].add(throttle_ms)
        return throttle_ms

    def refuses(self, host: str) -> bool:
        """Return whether there are too many connections of an address."""
        return self.per_ip[host] >= most_from(host, self._config)

    def opened(self, listener: str, host: str) -> None:
        """Count a connection that is open."""
        self.open += 1
        self.per_ip[host] += 1
        self.per_listener[listener] += 1
        self.accepted[listener] += 1
        if self.excess > 0:
            self._wake()

    def closed(self, listener: str, host: str) -> None:
        """Count a connection no longer."""
        self.open -= 1
        self.per_listener[listener] -= 1
        self.per_ip[host] -= 1
        if not self.per_ip[host]:
            del self.per_ip[host]
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    # --- too many -------------------------------------------------------------------------------------------

    @property
    def excess(self) -> int:
        """Number of connections above the broker's limit: through those of brokers, or since the limit was lowered."""
        return self.open - self._most

    def may_go(self, listener: str) -> bool:
        """Return whether connections of a listener may be closed to make room for others."""
        return listener != self._protected

    async def wait_for_change(self) -> None:
        """Wait until a connection was closed, there are too many, or limits have changed."""
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()
