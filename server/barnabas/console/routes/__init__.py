"""Routes of the console: all that it shows can be had as JSON, and all that it does is one request.

The rule: a route is a row of a module's `ROUTES`; the server and the reference go by these rows. What a handler raises
becomes an answer here, and nowhere else.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

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
from barnabas.errors import leaves
from barnabas.wire.errors import EncodeError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.console.backend import Backend

log = logging.getLogger(__name__)

MODULES = (
    "cluster", "topics", "topic_changes", "records", "groups", "transactions", "access", "inside", "subjects",
)  # fmt: skip
DOING_CHARS_MAX, REASON_CHARS_MAX = 200, 300
_PARAMETER = re.compile(r"\{(\w+)\}")
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
def routes() -> tuple[Route, ...]:
    """Return all routes, in the order of their modules."""
    found = [import_module(f"barnabas.console.routes.{name}").ROUTES for name in MODULES]
    return tuple(route for part in found for route in part)


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], Route], ...]:
    return tuple((re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", route.path)), route) for route in routes())


def _matching(path: str) -> Iterator[tuple[Route, dict[str, str]]]:
    for pattern, route in _patterns():
        found = pattern.fullmatch(path)
        if found is not None:
            yield route, {name: unquote(value) for name, value in found.groupdict().items()}


async def dispatch(
    backend: Backend, method: str, path: str, query: Mapping[str, str], body: Any
) -> tuple[int, Any]:
    """Answer a request: HTTP status, and a JSON value, None, `Events` or a `Download`."""
    try:
        return await _answered(backend, method, path, query, body)
    except Exception as error:
        return failure_of(error, f"{method} {path}")


def failure_of(error: Exception, doing: str) -> tuple[int, dict[str, Any]]:
    """Return HTTP status and text of what was raised."""
    error = _first(error)
    if isinstance(error, ConsoleError):
        return error.status, {"error": str(error)}
    if isinstance(error, ClientError):
        return _status_of(error), {"error": _text_of(error), "code": _code_of(error)}
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
    """Return the first of several errors that were raised together: one that nobody has expected before all others."""
    found = [one for one in leaves(error) if isinstance(one, Exception)]
    unexpected = [one for one in found if not isinstance(one, ConsoleError | ClientError | EncodeError)]
    return (unexpected or found or [error])[0]


async def _answered(
    backend: Backend, method: str, path: str, query: Mapping[str, str], body: Any
) -> tuple[int, Any]:
    matching = list(_matching(path))
    if not matching:
        raise ConsoleError(404, f"there is nothing at {path}")
    for route, parts in matching:
        if route.method != method:
            continue
        if body is not None and not isinstance(body, dict):
            raise ConsoleError(400, "a JSON object is expected as the body")
        if route.view:
            await check_view(backend, route.view)
        value = await route.handler(Call(backend, parts, query, body or {}))
        return (204, None) if value is None else (200, value)
    raise ConsoleError(405, f"{path} takes {', '.join(route.method for route, _ in matching)}")


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


def _text_of(error: ClientError) -> str:
    if isinstance(error, ResponseError):
        return f"{describe(error.code)}: {error.message}" if error.message else str(error)
    return str(error)
