"""Keeping clients while the clock is advanced: their sessions, logins and idle connections are extended by the same time.

The rule: only deadlines that depend on a client's activity are postponed: sessions, logins, idle connections. Transactions,
retention, offsets, locks and tokens are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.app import Broker

SESSION_TIMERS = frozenset(("session", "rejoin", "resync", "join", "sync", "revocation"))
"""Timers of groups that end when a member is not heard of: sessions, and steps of a rebalance."""


def keep_clients(broker: Broker, ms: int) -> None:
    """Put off the ends of sessions of group members and of logins, and the closing of idle connections, by `ms`."""
    broker.services.group_coordinator.postpone(SESSION_TIMERS, ms)
    for connection in broker.connections:
        connection.last_active += ms / 1000
        login = connection.info.login
        if login is not None and login.expires_ms is not None:
            login.expires_ms += ms
