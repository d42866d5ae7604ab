"""Errors between a client and a broker.

The rule: an error says whether asking again may help; the client itself asks again only where it does.
"""

from __future__ import annotations

from barnabas.wire.generated.errors import ErrorCode

_CODES = {int(code): code for code in ErrorCode}


class ClientError(Exception):
    """Whatever a client's user has to expect; `is_retriable` says whether the same request may succeed later."""

    is_retriable = False


class ConnectionLostError(ClientError):
    """The broker cannot be reached, went away, answered nonsense, or did not answer in time.

    It is not known whether a request that was under way has taken effect.
    """

    is_retriable = True


class ClosedError(ClientError):
    """The client was closed, by its user or because its event loop has ended."""


class AuthenticationError(ClientError):
    """The broker refuses the credentials, or could not prove its own."""


class UnsupportedVersionError(ClientError):
    """Broker and client have no version of the API in common."""


class ResponseError(ClientError):
    """The broker answered with an error code."""

    def __init__(self, code: int, doing: str, message: str | None = None) -> None:
        super().__init__(code, doing, message)
        self.code = code
        self.doing = doing
        self.message = message

    @property
    def is_retriable(self) -> bool:  # type: ignore[override]
        """True if Kafka lists the error as one that may pass."""
        return is_retriable(self.code)

    def __str__(self) -> str:
        text = f"{self.doing}: {describe(self.code)}"
        return f"{text} ({self.message})" if self.message else text


def describe(code: int) -> str:
    """Return the name of an error code, as in `NOT_LEADER_OR_FOLLOWER`."""
    known = _CODES.get(code)
    return known.name if known is not None else f"error {code}"


def is_retriable(code: int) -> bool:
    """Say whether the same request may succeed later or elsewhere."""
    known = _CODES.get(code)
    return known is not None and known.retriable


def check(code: int, doing: str, message: str | None = None) -> None:
    """Raise a ResponseError for any code but 0."""
    if code:
        raise ResponseError(code, doing, message)
