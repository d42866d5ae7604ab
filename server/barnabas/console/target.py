"""Cluster that a console is about: where its clients connect, and how they log in."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from barnabas.client import ClientSettings, Dial, Endpoint
from barnabas.client.connection import dial_tcp
from barnabas.client.settings import SaslCredentials

if TYPE_CHECKING:
    from barnabas.console.connect_client import ConnectClient
    from barnabas.console.live import Live
    from barnabas.registry.client_settings import RegistryAt

CLIENT_ID = "barnabas-console"
LOGINS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""Logins of a user with a password, the best first."""
PATIENCE = ClientSettings(
    client_id=CLIENT_ID, request_timeout_ms=15_000, connect_timeout_ms=5_000, retries=2, retry_backoff_ms=50
)
"""Settings for requests with a visitor that waits: errors that may pass are retried, but not for long."""


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster; `mechanisms` are the SASL mechanisms that it accepts, empty without logins."""

    bootstrap: tuple[Endpoint, ...]
    mechanisms: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None
    sasl: SaslCredentials | None = None
    """Credentials of all visitors, where the console was started with them."""
    own: SaslCredentials | None = None
    """Credentials of the console itself where visitors log in: the history is kept with them from the start on."""
    dial: Dial = dial_tcp
    client_id: str = CLIENT_ID

    def settings(self, user: str = "", password: str = "", mechanism: str = "") -> ClientSettings:
        """Return the settings of a client that logs in as a user."""
        return self._settings(SaslCredentials(mechanism, user, password) if self.mechanisms else self.sasl)

    def own_settings(self) -> ClientSettings:
        """Return the settings of the console's own client."""
        return self._settings(self.own if self.mechanisms else self.sasl)

    def _settings(self, sasl: SaslCredentials | None) -> ClientSettings:
        return replace(PATIENCE, client_id=self.client_id, tls=self.tls, sasl=sasl)


WhereNow = Callable[[], Target]
"""Returns the cluster as it can be reached now. Raises ConsoleError while it cannot."""


def no_live() -> Live | None:
    """Return None: a cluster elsewhere has no view of the broker's inside."""
    return None


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster with its schema registry, Connect clusters and inside view."""

    where: WhereNow
    registry: RegistryAt | None = None
    connects: Mapping[str, ConnectClient] = field(default_factory=dict)
    """Clusters of Kafka Connect, by their names."""
    live_of: Callable[[], Live | None] = no_live
    """Returns the broker from inside, where it is in this process; asked with the first visitor."""
