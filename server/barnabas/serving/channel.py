"""TLS and SASL for the clients of one listener, by its current settings.

The rule: a connection keeps the settings with which it began; changes apply to new connections. The number of concurrent
handshakes is limited: a signature takes one or more milliseconds of a core, and a client that requests many must not
occupy all cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.network.sockets import PlainTransport
from barnabas.serving.context import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.environment import Environment, Threads
    from barnabas.network.tls import TlsTransport
    from barnabas.network.tls_context import ServerTls
    from barnabas.network.transport import Transport
    from barnabas.security.credentials import Credentials
    from barnabas.security.principals import CertificateNames
    from barnabas.security.sasl.server import SaslOffer, SaslServer

SECRET_BYTES = 32
HANDSHAKES_MAX = 2


class LoginParts(NamedTuple):
    """Parts of the broker that SASL mechanisms need."""

    credentials: Callable[[], Credentials]
    """Makes them when a mechanism first needs them."""
    environment: Environment
    secret: bytes
    """Random, `SECRET_BYTES` long; the challenges of unknown users are made with it."""


class Channel(NamedTuple):
    """SASL and TLS for new connections of a listener."""

    offer: SaslOffer | None = None
    """None on a listener without SASL."""
    tls: ServerTls | None = None
    """None on a listener without TLS."""
    names: CertificateNames | None = None
    """Naming of clients with a certificate; None on a listener without TLS."""

    @property
    def authenticates(self) -> bool:
        """True if every client has to authenticate."""
        return self.offer is not None or (self.tls is not None and self.tls.requires_certificate)

    @property
    def is_open(self) -> bool:
        """True if clients are served immediately, without a handshake or a login."""
        return self.offer is None and self.tls is None

    def new_login(self) -> SaslServer | None:
        """Return the login of a new connection, None on a listener without SASL."""
        if self.offer is None:
            return None
        from barnabas.security.sasl.server import SaslServer

        return SaslServer(self.offer)

    def secured(self, accepted: Transport) -> TlsTransport | None:
        """Return an accepted connection with TLS before its handshake; None where there is no TLS. Raises OSError."""
        if self.tls is None:
            return None
        from barnabas.network.tls import TlsTransport

        assert isinstance(accepted, PlainTransport), "TLS is for sockets of the operating system"
        return TlsTransport(accepted, self.tls)

    def principal_of(self, certificate: bytes | None) -> str:
        """Return the principal of a client by its certificate. Raises ValueError where no rule names it."""
        if certificate is None or self.names is None:
            return ANONYMOUS
        from barnabas.security.principals import subject_of

        return f"User:{self.names.name_of(subject_of(certificate))}"


NO_SECURITY = Channel()


class Handshakes:
    """Runs steps of handshakes in threads; steps beyond the limit wait in the order of their arrival."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._limiter: trio.CapacityLimiter | None = None

    async def run(self, step: Callable[[], None]) -> None:
        """Run a step. Raises its errors."""
        if self._limiter is None:
            self._limiter = trio.CapacityLimiter(HANDSHAKES_MAX)
        await self._threads.run(step, limiter=self._limiter)
