"""Logging in with Kerberos: the client's side of SASL GSSAPI (RFC 4752).

The rule: the broker must prove that it has the service's key, and no security layer is negotiated. Each step may block:
the first one contacts a key distribution centre.
"""

from __future__ import annotations

from collections.abc import Generator

from barnabas.client.errors import AuthenticationError, ConnectionLostError
from barnabas.network.kerberos import KerberosError, Tickets

NO_LAYER = 1
CHOICE = bytes((NO_LAYER, 0, 0, 0))
"""No layer, and so no message of one; without an authorization id: the ticket names the principal."""


def gssapi(tickets: Tickets, host: str) -> Generator[bytes, bytes, None]:
    """Return the messages of a login to the broker on `host`.

    Raises AuthenticationError, and ConnectionLostError for transient errors.
    """
    service = f"{tickets.login.service}/{host}"
    try:
        yield from _messages(tickets, host)
    except KerberosError as error:
        text = f"the login to {service} with Kerberos fails: {error}"
        raise (ConnectionLostError if error.is_transient else AuthenticationError)(text) from error


def _messages(tickets: Tickets, host: str) -> Generator[bytes, bytes, None]:
    context = tickets.context(host)
    token = context.step(None)
    while not context.is_established:
        token = context.step((yield token or b""))
    if not context.is_mutual:
        raise AuthenticationError("the broker has not proved that it has the key of its service")
    layers = context.unwrap((yield token or b""))
    if len(layers) < len(CHOICE) or not layers[0] & NO_LAYER:
        raise AuthenticationError("the broker demands a security layer")
    yield context.wrap(CHOICE)
