"""Failures of commands, as sentences for the user.

The rule: a sentence names the request, its result, and the option or command that helps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    from barnabas.client import ClientError, ConnectionLostError

CLOSED = "closed the connection"
_ADVICE = {
    "UNKNOWN_TOPIC_OR_PARTITION": "`barnabas topics list` shows what there is",
    "GROUP_ID_NOT_FOUND": "`barnabas groups list` shows what there is",
    "NON_EMPTY_GROUP": "stop its members first, or remove them with `barnabas groups remove-members`",
    "TOPIC_ALREADY_EXISTS": "--if-not-exists treats that as success",
    "SECURITY_DISABLED": "the broker has no authorizer: set authorizer.class.name",
    "DELEGATION_TOKEN_AUTH_DISABLED": "the broker has no delegation.token.secret.key",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "log in with SASL or a certificate; a token cannot make tokens",
}
"""Advice by error code, where one helps nearly always."""


_UNKNOWN_SETTING = re.compile(
    r"(?i)unknown (topic|group|client[- ]metrics)? ?(?:setting|config(?:uration)? ?(?:name)?):? '?([a-z][\w.]+)"
)


class CommandError(Exception):
    """A command cannot do its work; the message is shown to the user."""


def explain(error: BaseException) -> str:
    """Return the message for an error of a client or a command."""
    from barnabas.client import (
        AuthenticationError,
        ConnectionLostError,
        ResponseError,
        UnsupportedVersionError,
    )

    if isinstance(error, ConnectionLostError):
        return _connection(error)
    if isinstance(error, AuthenticationError):
        return f"{error}; check --user, the password and --mechanism"
    if isinstance(error, UnsupportedVersionError):
        return f"{error}: the broker is too old for this, or does not have it"
    if isinstance(error, ResponseError):
        return advised(str(error))
    return str(error)


def advised(text: str) -> str:
    """Append advice to the text of an error, if there is any."""
    advice = next((_ADVICE[name] for name in re.findall(r"[A-Z][A-Z_]+", text) if name in _ADVICE), "")
    advice = advice or _nearest_setting(text)
    return f"{text}; {advice}" if advice else text


def _nearest_setting(text: str) -> str:
    """Return a hint at a setting with a name like the refused one, for our messages and for Kafka's."""
    match = _UNKNOWN_SETTING.search(text)
    if match is None:
        return ""
    from difflib import get_close_matches

    from barnabas.config import client_metrics, group, topic

    kind, name = (match[1] or "topic").replace(" ", "-").lower(), match[2]
    tables: dict[str, Iterable[str]] = {
        "topic": topic.SETTINGS,
        "group": group.rows(),
        "client-metrics": client_metrics.SETTINGS,
    }
    near = get_close_matches(name, list(tables.get(kind, topic.SETTINGS)), n=1, cutoff=0.75)
    return f"did you mean {near[0]}?" if near else ""


def _connection(error: ConnectionLostError) -> str:
    import socket
    import ssl

    address, _, reason = str(error).partition(": ")
    for cause in causes(error):
        if isinstance(cause, ConnectionRefusedError):
            return f"nothing listens on {address}: start a broker with `barnabas serve`, or give --bootstrap HOST:PORT"
        if isinstance(cause, socket.gaierror):
            return f"the name of {address} does not resolve ({cause.strerror}): check --bootstrap"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"{address}: its certificate is refused: {cause.verify_message}; give --ca FILE, or its right name"
        if isinstance(cause, ssl.SSLError):
            return (
                f"{address} does not speak TLS as we do ({_plain(cause)}): leave out --tls if it is plaintext"
            )
    if reason.endswith(CLOSED):
        return f"{address} {CLOSED}: it may want TLS (--tls) or a login (--user); `barnabas doctor {address}` finds out"
    if reason.startswith("no connection in"):
        return f"{address} does not answer: {reason}; check the address and firewalls"
    return str(error)


def _plain(error: ssl.SSLError) -> str:
    import ssl

    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "it ends the connection"
    return (error.reason or str(error)).lower().replace("_", " ")


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, in turn."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def name_of(error: ClientError) -> str:
    """Return the text of an error for the column of a table."""
    from barnabas.client.errors import ResponseError, describe

    if isinstance(error, ResponseError):
        name = describe(error.code)
        return f"{name}: {error.message}" if error.message else name
    return str(error)
