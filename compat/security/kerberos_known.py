"""Differences between logins with Kerberos on Apache Kafka and on Barnabas that are known, each with both answers.

The rule: where we are stricter, a login is refused in words, and the user may do nothing afterwards.
"""

from __future__ import annotations

from compat.kit.known import KnownDifference
from compat.kit.predicates import pair, pairs

REFUSAL = "58 Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI no token 0"
OTHER_MECHANISM = (
    "58 SASL mechanism 'PLAIN' requested by client is not supported for re-authentication of mechanism 'GSSAPI' "
    "no token 0"
)
WELCOME = "0  no token 600000"
"""End of a login that succeeds: an empty text, no token, and how long the session may last."""

_ALWAYS: tuple[KnownDifference, ...] = (
    KnownDifference(
        ("a principal whose name is not simple", "a principal of three parts"),
        "/4",
        "Kafka lets the client in and closes the connection upon its next request; here the login is refused",
        accepts=pair(WELCOME, REFUSAL),
    ),
    KnownDifference(
        "a choice that is empty",
        "/3",
        "an exception of Java's ends the connection; here the login is refused",
        accepts=pair("closed", REFUSAL),
    ),
    KnownDifference(
        "a token and more",
        ("/1", "/2"),
        "Java's library leaves out what follows a token, MIT's refuses it",
        accepts=pairs(("0  a token 0", REFUSAL), ("operations -2147483648", "closed")),
    ),
    KnownDifference(
        "a login again with another mechanism",
        "/7",
        "Kafka closes the connection; here the client is told why",
        accepts=pair("closed", OTHER_MECHANISM),
    ),
)
_WITH_KAFKA_4 = (
    KnownDifference(
        "bare tokens without a handshake",
        "",
        "the login of Kafka 0.9's clients, which Kafka 4 does not serve any more",
        accepts=pair(
            ["closed", "KerberosError: Invalid token was supplied"],
            ["a token", "a token", "offer 01010000", "no token", "operations 8096"],
        ),
    ),
)


def of(*, of_kafka_3: bool) -> tuple[KnownDifference, ...]:
    """Return what is known of a comparison with a Kafka before 4 or of 4."""
    return _ALWAYS if of_kafka_3 else (*_ALWAYS, *_WITH_KAFKA_4)
