"""The routes of the control API, and the lookup of a request's route.

The rule: a route is a row of a module's `ROUTES`; the server, the OpenAPI document and callers in the same process use
these rows. An exception of a handler becomes an answer only here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from barnabas.network.routes import NoRouteError, Router, router_of
from barnabas.tools.control.routes.base import Call, ControlError, Route

if TYPE_CHECKING:
    from barnabas.tools.control.host import Host

log = logging.getLogger(__name__)

MODULES = ("broker", "faults", "requests", "clock", "state", "snapshots", "cluster")
_INTERNAL_ERROR = 500


@cache
def router() -> Router[Route]:
    """Return the router of all routes, in the order of their modules."""
    return router_of(__name__, MODULES)


async def dispatch(
    host: Host, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None
) -> tuple[int, Any]:
    """Answer a request: HTTP status, and a JSON value or None."""
    try:
        return await _answered(host, method, path, query or {}, body)
    except (ControlError, NoRouteError) as error:
        return error.status, {"error": str(error)}
    except Exception as error:
        status = _status_of(error)
        if status == _INTERNAL_ERROR:
            log.exception("%s %s failed", method, path)
        return status, {"error": str(error) or type(error).__name__}


async def _answered(
    host: Host, method: str, path: str, query: Mapping[str, str], body: Any
) -> tuple[int, Any]:
    route, parts = router().find(method, path)
    _refuse_half_characters(parts, query, body)
    parameters = [parameter.name for parameter in route.query]
    for name in query:
        if name not in parameters:
            raise ControlError(
                400, f"there is no parameter {name}; there are: {', '.join(parameters) or 'none'}"
            )
    if route.body is not None and not isinstance(body, dict) and not (body is None and _is_optional(route)):
        raise ControlError(400, "a JSON object is expected as the body")
    value = await route.handler(Call(host, parts, query, body))
    return (204, None) if value is None else (200, value)


def _is_optional(route: Route) -> bool:
    """Return whether a request may omit the body, since every field of it is optional."""
    body = route.body or {}
    return not body.get("required") and not body.get("minProperties") and bool(body.get("properties"))


def _refuse_half_characters(parts: Mapping[str, str], *values: Any) -> None:
    """Raise ControlError for text that is no Unicode, as "\\ud800": nothing that a broker keeps can hold it.

    In a body, "\\udc80" to "\\udcff" stand for bytes of records that are no UTF-8.
    """
    for value, errors in ((parts, "strict"), (values, "surrogateescape")):
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8", errors)
        except UnicodeEncodeError as error:
            half = f"\\u{ord(error.object[error.start]):04x}"
            raise ControlError(400, f"half a character ({half}) is no text") from None


def _status_of(error: Exception) -> int:
    for name in MODULES:
        status_of = getattr(import_module(f"barnabas.tools.control.routes.{name}"), "status_of", None)
        status = status_of(error) if status_of is not None else None
        if status is not None:
            return int(status)
    return _INTERNAL_ERROR
