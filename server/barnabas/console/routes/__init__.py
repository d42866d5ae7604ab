"""Routes of the console: all that it shows is available as JSON, and each of its actions is one request.

The rule: a route is a row of a module's `ROUTES`; the server and the reference use these rows. An exception of a handler
becomes an answer only here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from barnabas.client import (
    AuthenticationError,
    ClientError,
    ConnectionLostError,
    ResponseError,
    UnsupportedVersionError,
)
from barnabas.client.errors import describe
from barnabas.console.base import Call, ConsoleError, Route
from barnabas.console.live import check_view
from barnabas.console.outcomes import sentence_of
from barnabas.errors import AnswerError, leaves
from barnabas.network.routes import NoRouteError, Router, router_of
from barnabas.wire.errors import EncodeError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.console.backend import Backend

log = logging.getLogger(__name__)

MODULES = (
    "cluster", "topics", "topic_changes", "records", "dead_letters", "groups", "transactions", "access", "inside",
    "subjects", "connect",
)  # fmt: skip
_NO_NAMES: Mapping[str, str] = {}
DOING_CHARS_MAX, REASON_CHARS_MAX = 200, 300
_STATUS: dict[int, int] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: 403,
}


@cache
def router() -> Router[Route]:
    """Return the router of all routes, in the order of their modules."""
    return router_of(__name__, MODULES)


async def dispatch(
    backend: Backend, method: str, path: str, query: Mapping[str, str], body: Any
) -> tuple[int, Any]:
    """Answer a request: HTTP status, and a JSON value, None, `Events` or a `Download`."""
    try:
        return await _answered(backend, method, path, query, body)
    except Exception as error:
        return failure_of(error, f"{method} {path}", _names_of(method, path, body))


def failure_of(
    error: Exception, doing: str, names: Mapping[str, str] = _NO_NAMES
) -> tuple[int, dict[str, Any]]:
    """Return HTTP status and text for an error; `names` are those of the request, by kind."""
    error = _first(error)
    if isinstance(error, AnswerError | NoRouteError):
        return error.status, {"error": str(error)}
    if isinstance(error, ClientError):
        return _status_of(error), {"error": _text_of(error, names), "code": _code_of(error)}
    if isinstance(error, EncodeError | UnicodeEncodeError):
        return 400, {
            "error": f"a name or text of the request cannot be sent to a broker: {_reason_of(error)}"
        }
    log.error("%s failed", doing[:DOING_CHARS_MAX], exc_info=error)
    return 500, {"error": f"internal error: {type(error).__name__}"}


def _reason_of(error: EncodeError | UnicodeEncodeError) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "half of a surrogate pair is no character"
    return str(error)[:REASON_CHARS_MAX]


def _first(error: Exception) -> Exception:
    """Return the first of several errors that were raised together: an unexpected one before all others."""
    errors = [leaf for leaf in leaves(error) if isinstance(leaf, Exception)]
    unexpected = [leaf for leaf in errors if not isinstance(leaf, AnswerError | ClientError | EncodeError)]
    return (unexpected or errors or [error])[0]


def _names_of(method: str, path: str, body: Any) -> Mapping[str, str]:
    """Return the names in a request: those of its path, and of created objects."""
    try:
        names = dict(router().find(method, path)[1])
    except NoRouteError:
        return _NO_NAMES
    if path == "/api/topics" and isinstance(body, dict) and isinstance(body.get("name"), str):
        names["topic"] = body["name"]
    return names


async def _answered(
    backend: Backend, method: str, path: str, query: Mapping[str, str], body: Any
) -> tuple[int, Any]:
    route, parameters = router().find(method, path)
    if body is not None and not isinstance(body, dict):
        raise ConsoleError(400, "a JSON object is expected as the body")
    if route.view:
        await check_view(backend, route.view)
    value = await route.handler(Call(backend, parameters, query, body or {}))
    return (204, None) if value is None else (200, value)


def _status_of(error: ClientError) -> int:
    if isinstance(error, ResponseError):
        return _STATUS.get(error.code, 409)
    if isinstance(error, AuthenticationError):
        return 401
    if isinstance(error, ConnectionLostError):
        return 503
    return 501 if isinstance(error, UnsupportedVersionError) else 502


def _code_of(error: ClientError) -> str:
    return (
        describe(error.code)
        if isinstance(error, ResponseError)
        else type(error).__name__.removesuffix("Error")
    )


def _text_of(error: ClientError, names: Mapping[str, str]) -> str:
    if not isinstance(error, ResponseError):
        return str(error)
    text = f"{describe(error.code)}: {error.message}" if error.message else str(error)
    return sentence_of(error, names) or text
