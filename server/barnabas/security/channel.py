"""What may be asked on a connection before its client has authenticated. Pure."""

from __future__ import annotations

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36

BEFORE_AUTHENTICATION = frozenset((SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE))
"""The keys of the APIs that a SASL listener answers to everybody, as Apache Kafka does."""

_SASL = ("SASL_PLAINTEXT", "SASL_SSL")


def allowed_at_first(security_protocol: str) -> frozenset[int] | None:
    """Return the APIs that a new connection may ask, by key; None for all of them."""
    return BEFORE_AUTHENTICATION if security_protocol in _SASL else None
