"""Meaning of an internal topic's error, for the coordinator that writes to it and for its clients. Pure."""

from __future__ import annotations

from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode

_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_OF_PRODUCER = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
_REFUSED = (*_TOO_LARGE, *_OF_PRODUCER, ErrorCode.NOT_ENOUGH_REPLICAS)


def is_refusal(error: RequestError | StorageError) -> bool:
    """Return whether records were refused, and the log is unchanged."""
    return isinstance(error, RequestError) and error.code in _REFUSED


def is_in_log(error: RequestError | StorageError) -> bool:
    """Return whether the records are in the log in spite of the error; they may be lost with the leader."""
    return isinstance(error, RequestError) and error.code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def client_code(error: RequestError | StorageError) -> int:
    """Translate an error of the internal topic for a client, as Kafka does."""
    if isinstance(error, StorageError) or error.code in _MOVED:
        return ErrorCode.NOT_COORDINATOR
    if error.code in _TOO_LARGE:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if error.code in _OF_PRODUCER:
        return error.code
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
