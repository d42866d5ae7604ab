"""Errors of the REST API: an HTTP status, a code (five digits, or the status), and a message.

The rule: statuses and codes are those of Confluent's REST proxy, since clients depend on them; the messages are our own.
"""

from __future__ import annotations

import logging

from barnabas.client import (
    AuthenticationError,
    ClientError,
    ConnectionLostError,
    NotAssignedError,
    RecordTooLargeError,
    ResponseError,
    TimedOutError,
    UnsupportedVersionError,
)
from barnabas.client.errors import describe
from barnabas.errors import AnswerError, detached, leaves
from barnabas.network.routes import NoRouteError
from barnabas.registry.errors import RegistryError, SchemaError
from barnabas.sandbox.messages import SandboxError
from barnabas.wire.errors import EncodeError
from barnabas.wire.generated.errors import ErrorCode

log = logging.getLogger(__name__)

UNAUTHENTICATED, FORBIDDEN = 40101, 40301
TOPIC_NOT_FOUND, PARTITION_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION, INSTANCE_NOT_FOUND = (
    40401,
    40402,
    40403,
    40403,
)
FORMAT_MISMATCH = 40601
SERIALIZATION = 40801
ALREADY_EXISTS, ILLEGAL_STATE = 40902, 40903
INVALID_CONSTRAINT, KAFKA_BAD_REQUEST = 40001, 40002
KEY_SCHEMA_MISSING, VALUE_SCHEMA_MISSING, INVALID_CONSUMER, INVALID_SCHEMA = 42201, 42202, 42204, 42205
INVALID_PAYLOAD, SCHEMA_SERIALIZATION, INVALID_BATCH = 42206, 42207, 42208
TOO_MANY_REQUESTS = 42901
KAFKA_ERROR, KAFKA_RETRIABLE = 50002, 50003
BROKER_NOT_AVAILABLE = 50302

_BAD_REQUEST = (400, KAFKA_BAD_REQUEST)
BY_KAFKAS: dict[int, tuple[int, int]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (403, FORBIDDEN),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (403, FORBIDDEN),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (403, FORBIDDEN),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (403, FORBIDDEN),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (403, FORBIDDEN),
    ErrorCode.SASL_AUTHENTICATION_FAILED: (401, UNAUTHENTICATED),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (404, UNKNOWN_TOPIC_OR_PARTITION),
    ErrorCode.UNKNOWN_TOPIC_ID: (404, UNKNOWN_TOPIC_OR_PARTITION),
    ErrorCode.GROUP_ID_NOT_FOUND: (404, 404),
    ErrorCode.INVALID_REPLICATION_FACTOR: _BAD_REQUEST,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: _BAD_REQUEST,
    ErrorCode.SECURITY_DISABLED: _BAD_REQUEST,
    ErrorCode.UNSUPPORTED_VERSION: _BAD_REQUEST,
    ErrorCode.INVALID_PARTITIONS: _BAD_REQUEST,
    ErrorCode.INVALID_REQUEST: _BAD_REQUEST,
    ErrorCode.UNKNOWN_SERVER_ERROR: _BAD_REQUEST,
    ErrorCode.POLICY_VIOLATION: _BAD_REQUEST,
    ErrorCode.TOPIC_ALREADY_EXISTS: _BAD_REQUEST,
    ErrorCode.INVALID_CONFIG: _BAD_REQUEST,
    ErrorCode.TOPIC_DELETION_DISABLED: _BAD_REQUEST,
    ErrorCode.INVALID_TOPIC_EXCEPTION: _BAD_REQUEST,
    ErrorCode.MESSAGE_TOO_LARGE: (413, 413),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: (429, TOO_MANY_REQUESTS),
    ErrorCode.BROKER_NOT_AVAILABLE: (503, BROKER_NOT_AVAILABLE),
}
"""Status and code of the broker's errors; others are 500, with 50003 if transient, else 50002."""


class RestError(AnswerError):
    """A request that cannot be done: an HTTP status, a code, and the fault."""

    def __init__(self, status: int, code: int, text: str) -> None:
        super().__init__(status, text)
        self.args = (status, code, text)
        self.code = code


def failure_of(error: Exception, doing: str) -> RestError:
    """Return the response to an error; unexpected errors are logged, with `doing`, the action."""
    return detached(_failure_of(error, doing))


def _failure_of(error: Exception, doing: str) -> RestError:
    errors = [leaf for leaf in leaves(error) if isinstance(leaf, Exception)]
    unexpected = [leaf for leaf in errors if not isinstance(leaf, _EXPECTED)]
    error = (unexpected or errors or [error])[0]
    if isinstance(error, RestError):
        return error
    if isinstance(error, AnswerError):
        return RestError(error.status, error.status, error.text)
    if isinstance(error, NoRouteError):
        return RestError(error.status, error.status, str(error))
    if isinstance(error, ClientError):
        return of_client(error)
    if isinstance(error, RegistryError):
        if error.status == 0 or error.status >= 500:
            return RestError(500, KAFKA_RETRIABLE, f"the schema registry: {error.message}")
        if error.status in (401, 403):
            return RestError(403, FORBIDDEN, f"the schema registry: {error.message}")
        return RestError(422, SCHEMA_SERIALIZATION, f"the schema registry: {error.message}")
    if isinstance(error, SchemaError):
        return RestError(422, INVALID_SCHEMA, str(error))
    if isinstance(error, SandboxError):
        return RestError(413, 413, f"this is more than is read: {error}")
    if isinstance(error, EncodeError | UnicodeEncodeError):
        return RestError(400, 400, "a name or text of the request cannot be sent to a broker")
    log.error("%s failed", doing[:200], exc_info=error)
    return RestError(500, 500, f"internal error: {type(error).__name__}")


def of_client(error: ClientError) -> RestError:
    """Return the response to an error of the client."""
    if isinstance(error, ResponseError):
        text = f"{describe(error.code)}: {error.message}" if error.message else str(error)
        usual = (500, KAFKA_RETRIABLE if error.is_retriable else KAFKA_ERROR)
        return RestError(*BY_KAFKAS.get(error.code, usual), text)
    if isinstance(error, AuthenticationError):
        return RestError(401, UNAUTHENTICATED, str(error))
    if isinstance(error, NotAssignedError):
        return RestError(409, ILLEGAL_STATE, str(error))
    if isinstance(error, RecordTooLargeError):
        return RestError(413, 413, str(error))
    if isinstance(error, UnsupportedVersionError):
        return RestError(*_BAD_REQUEST, str(error))
    may_pass = isinstance(error, ConnectionLostError | TimedOutError)
    return RestError(500, KAFKA_RETRIABLE if may_pass else KAFKA_ERROR, str(error))


_EXPECTED = (
    AnswerError, NoRouteError, ClientError, RegistryError, SchemaError, SandboxError, EncodeError, UnicodeEncodeError,
)  # fmt: skip
