"""Routes over the broker as a whole and its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas import __version__
from barnabas.network.transport import url_address
from barnabas.tools.control.host import NotRunningError
from barnabas.tools.control.routes.base import Call, ControlError, Parameter, Route

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.serving.connection import Connection

DOWN_MS_MAX = 3_600_000


async def show_broker(call: Call) -> object:
    """Return a description of the broker, and whether it serves."""
    host = call.host
    description: dict[str, Any] = {
        "ready": host.node is not None,
        "bootstrap": host.bootstrap,
        "version": __version__,
        "starts": host.starts,
        "data": list(host.config.log_dirs),
    }
    if host.node is not None:
        description["listeners"] = {
            listener.name: [f"{name}:{port}" for name, port in listener.addresses]
            for listener in host.node.listeners
        }
    if host.broker is not None:
        services = host.broker.services
        description["broker_id"] = services.broker_id
        description["cluster_id"] = services.metadata.image.cluster_id
    return description


async def restart_broker(call: Call) -> object:
    """Stop the broker and start it again."""
    body = call.body or {}
    down_ms, is_crash = body.get("down_ms", 0), body.get("crash", False)
    if not isinstance(down_ms, int) or isinstance(down_ms, bool) or not 0 <= down_ms <= DOWN_MS_MAX:
        raise ControlError(400, f"down_ms: a whole number from 0 to {DOWN_MS_MAX} expected")
    if not isinstance(is_crash, bool):
        raise ControlError(400, "crash: true or false expected")
    await call.host.restart(is_clean=not is_crash, down_s=down_ms / 1000)
    return await show_broker(call)


async def stop_broker(call: Call) -> object:
    """Stop the broker, and its process if it has a separate one."""
    call.host.stop()
    return None


async def list_connections(call: Call) -> object:
    """Return the open connections of clients."""
    return {"connections": [_described(connection) for connection in _broker(call).connections]}


async def close_connection(call: Call) -> object:
    """Close a connection, or all of a client id."""
    broker, connection_id = _broker(call), call.path["connection"]
    for connection in broker.connections:
        if str(connection.info.connection_id) == connection_id:
            if call.query.get("reset", "false") == "true":
                connection.reset()
            connection.scope.cancel()
            return None
    raise ControlError(404, f"there is no connection {connection_id}")


def _described(connection: Connection) -> dict[str, Any]:
    info = connection.info
    request = info.request
    return {
        "id": info.connection_id,
        "listener": info.listener,
        "peer": url_address(*info.peer_address),
        "principal": info.principal,
        "client_id": request.client_id if request is not None else None,
        "software": " ".join(filter(None, (info.client_software_name, info.client_software_version))),
        "answering": connection.answering,
    }


def _broker(call: Call) -> Broker:
    if call.host.broker is None:
        raise ControlError(503, "the broker is down")
    return call.host.broker


def status_of(error: Exception) -> int | None:
    """Return the HTTP status for an error of these routes, None for another error."""
    return 503 if isinstance(error, NotRunningError) else None


_BROKER = {
    "type": "object",
    "properties": {
        "ready": {"type": "boolean"},
        "bootstrap": {"type": "string", "description": "For a client's bootstrap.servers."},
        "listeners": {
            "type": "object",
            "additionalProperties": {"type": "array", "items": {"type": "string"}},
        },
        "broker_id": {"type": "integer"},
        "cluster_id": {"type": "string"},
        "version": {"type": "string"},
        "starts": {"type": "integer"},
        "data": {"type": "array", "items": {"type": "string"}},
    },
}
_RESTART = {
    "type": "object",
    "properties": {
        "down_ms": {
            "type": "integer",
            "minimum": 0,
            "maximum": DOWN_MS_MAX,
            "description": "For how long it is down (0).",
        },
        "crash": {"type": "boolean", "description": "Whether it ends as by kill -9 (false)."},
    },
    "additionalProperties": False,
}
_CONNECTIONS = {
    "type": "object",
    "properties": {
        "connections": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "integer"},
                    "listener": {"type": "string"},
                    "peer": {"type": "string"},
                    "principal": {"type": "string"},
                    "client_id": {"type": ["string", "null"]},
                    "software": {"type": "string"},
                    "answering": {"type": "boolean"},
                },
            },
        }
    },
}

ROUTES = (
    Route("GET", "/v1/broker", show_broker, "The broker: addresses, ids, whether it is ready", answer=_BROKER),
    Route(
        "POST", "/v1/broker/restart", restart_broker, "Restart the broker on the same ports; answered when it serves again",
        body=_RESTART, answer=_BROKER,
    ),
    Route("POST", "/v1/broker/stop", stop_broker, "Stop the broker and its process"),
    Route("GET", "/v1/connections", list_connections, "Open connections of clients", answer=_CONNECTIONS),
    Route(
        "DELETE", "/v1/connections/{connection}", close_connection, "Close a connection",
        query=(Parameter("reset", "boolean", "whether it is broken off with a TCP reset (false)"),),
    ),
)  # fmt: skip
