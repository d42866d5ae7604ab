"""Errors between a client and a broker.

The rule: an error is marked as retriable or not; the client retries only retriable ones.
"""

from __future__ import annotations

from barnabas.wire.generated.errors import ErrorCode

_CODES = {int(code): code for code in ErrorCode}


class ClientError(Exception):
    """Base of all errors of the client; `is_retriable`: whether the same request may succeed later."""

    is_retriable = False


class ConnectionLostError(ClientError):
    """The broker cannot be reached, has disconnected, sent an invalid response, or did not answer in time.

    Whether a request in flight has taken effect is unknown.
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
        """True if Kafka lists the error as retriable."""
        return is_retriable(self.code)

    def __str__(self) -> str:
        text = f"{self.doing}: {describe(self.code)}"
        return f"{text} ({self.message})" if self.message else text


class TimedOutError(ClientError):
    """An operation did not finish within its timeout."""


class BufferFullError(TimedOutError):
    """The buffer of a producer stayed full for `max_block_ms`."""


class DeliveryTimeoutError(TimedOutError):
    """A record was not acknowledged in `delivery_timeout_ms`; it may be in the log or not."""


class RecordTooLargeError(ClientError):
    """A record is larger than a request, or the whole buffer, may be."""


class ProducerFencedError(ClientError):
    """Another producer has taken over the transactional id; this producer can do nothing more."""


class TransactionFailedError(ClientError):
    """The transaction cannot be committed, only aborted; `__cause__` is the reason."""


class TransactionAbortedError(ClientError):
    """The transaction was aborted before the record was sent."""


class NotAssignedError(ClientError):
    """The consumer does not have the partition."""


class NoOffsetError(ClientError):
    """The group has committed no offset to begin at, and `offset_reset` is "none"."""


class OffsetOutOfRangeError(ClientError):
    """The position is outside of the log, and `offset_reset` is "none"."""


class LogTruncatedError(ClientError):
    """Records that were read were removed from the log, as its leader epochs show, and `offset_reset` is "none"."""


class DamagedRecordsError(ClientError):
    """A batch that was fetched does not fit its checksum, or cannot be read."""


class CommitFailedError(ClientError):
    """Another member owns the partitions: the group has rebalanced without this member."""


class FencedInstanceError(ClientError):
    """Another consumer has joined the group with the same instance id."""


def copy_of(error: ClientError) -> ClientError:
    """Return a copy of an error, to be raised by one of several waiting tasks."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy


def describe(code: int) -> str:
    """Return the name of an error code, as in `NOT_LEADER_OR_FOLLOWER`."""
    error = _CODES.get(code)
    return error.name if error is not None else f"error {code}"


def is_retriable(code: int) -> bool:
    """Return whether the same request may succeed later or elsewhere."""
    error = _CODES.get(code)
    return error is not None and error.retriable


def check(code: int, doing: str, message: str | None = None) -> None:
    """Raise a ResponseError for any code but 0."""
    if code:
        raise ResponseError(code, doing, message)
