"""Routes over recorded requests: requests of clients and their answers, decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.tools.control.recorder import Filter, Recorder
from barnabas.tools.control.routes.base import Call, ControlError, Parameter, Route
from barnabas.wire import registry

LIMIT_DEFAULT, LIMIT_MAX = 100, 10_000
WAIT_MS_DEFAULT, WAIT_MS_MAX = 10_000, 3_600_000

FILTER = (
    Parameter("api", "string", "the name of an API"),
    Parameter("version", "integer", "its version"),
    Parameter("client_id", "string", "a client id, or a pattern with * and ?"),
    Parameter("topic", "string", "a topic that the request names, or a pattern"),
    Parameter("group", "string", "a group that it names, or a pattern"),
    Parameter("error_code", "integer", "an error code that the answer holds somewhere"),
    Parameter("since", "integer", "those after the request with this id (0)"),
)


def filter_of(query: Mapping[str, str]) -> Filter:
    """Return the filter in a query, or in a body with the same names. Raises ControlError."""
    api = query.get("api")
    if api is not None and api.lower() not in {
        name.lower() for name in map(registry.name_of, registry.keys())
    }:
        raise ControlError(400, f"api: {api} is not the name of an API of Kafka")
    return Filter(
        api,
        _whole(query, "version"),
        query.get("client_id"),
        query.get("topic"),
        query.get("group"),
        _whole(query, "error_code"),
        _whole(query, "since") or 0,
    )


def recorder_of(call: Call) -> Recorder:
    """Return the host's recorder. Raises ControlError if it has none."""
    if call.host.recorder is None:
        raise ControlError(409, "requests are not recorded here")
    return call.host.recorder


def _whole(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise ControlError(400, f"{name}: {text!r} is not a whole number") from error


async def list_requests(call: Call) -> object:
    """Return recorded requests, oldest first."""
    recorder = recorder_of(call)
    limit = _whole(call.query, "limit")
    if limit is not None and not 0 < limit <= LIMIT_MAX:
        raise ControlError(400, f"limit: a number from 1 to {LIMIT_MAX} expected")
    requests = recorder.find(filter_of(call.query), limit=limit or LIMIT_DEFAULT)
    return {"last_id": recorder.last_id, "requests": [request.as_json() for request in requests]}


async def forget_requests(call: Call) -> object:
    """Drop the recorded requests."""
    recorder_of(call).clear()
    return None


async def wait_for_request(call: Call) -> object:
    """Wait until there is a request that is answered."""
    timeout_ms = _whole(call.query, "timeout_ms")
    timeout_ms = WAIT_MS_DEFAULT if timeout_ms is None else timeout_ms
    if not 0 <= timeout_ms <= WAIT_MS_MAX:
        raise ControlError(400, f"timeout_ms: a whole number from 0 to {WAIT_MS_MAX} expected")
    request = await recorder_of(call).wait(filter_of(call.query), timeout_s=timeout_ms / 1000)
    if request is None:
        raise ControlError(408, f"no such request in {timeout_ms} ms")
    return request.as_json()


_REQUEST: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "at_ms": {"type": "integer"},
        "connection": {"type": "integer"},
        "client_id": {"type": ["string", "null"]},
        "principal": {"type": "string"},
        "api": {"type": "string"},
        "version": {"type": "integer"},
        "correlation_id": {"type": "integer"},
        "request": {"type": "object", "description": "Its fields; secrets are masked, records counted."},
        "answered": {"type": "boolean"},
        "response": {"type": ["object", "null"]},
        "error_codes": {"type": "array", "items": {"type": "integer"}},
    },
}
_ANSWER = {
    "type": "object",
    "properties": {
        "last_id": {
            "type": "integer",
            "description": "The id of the newest request; later ones are `since` it.",
        },
        "requests": {"type": "array", "items": _REQUEST},
    },
}

ROUTES = (
    Route(
        "GET", "/v1/requests", list_requests, "What clients have asked and were answered, oldest first",
        query=(*FILTER, Parameter("limit", "integer", f"at most so many, the newest ({LIMIT_DEFAULT})")), answer=_ANSWER,
    ),
    Route(
        "GET", "/v1/wait/request", wait_for_request, "Wait for a request that was answered; 408 if none comes",
        query=(*FILTER, Parameter("timeout_ms", "integer", f"for how long to wait, in ms ({WAIT_MS_DEFAULT})")),
        answer=_REQUEST,
    ),
    Route("DELETE", "/v1/requests", forget_requests, "Forget what was recorded; ids continue"),
)  # fmt: skip
