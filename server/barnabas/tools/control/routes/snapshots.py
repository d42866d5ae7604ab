"""Routes over snapshots of the broker's data: taken while it runs, restored, forked."""

from __future__ import annotations

from barnabas.tools.control.routes.base import Call, ControlError, Route
from barnabas.tools.control.snapshots import SnapshotError
from barnabas.tools.control.state import state_of

_NAMED = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "replace": {"type": "boolean"}},
    "required": ["name"],
    "additionalProperties": False,
}
_FORK = {
    "type": "object",
    "properties": {
        "snapshot": {"type": "string", "description": "what to begin with (what the broker holds now)"}
    },
    "additionalProperties": False,
}


async def list_snapshots(call: Call) -> object:
    """Return which snapshots there are."""
    return {"snapshots": state_of(call.host).snapshots.names()}


async def take_snapshot(call: Call) -> object:
    """Take a snapshot of the broker's present data."""
    name, replace = call.body.get("name"), call.body.get("replace", False)
    if not isinstance(name, str) or not isinstance(replace, bool):
        raise ControlError(400, "a name expected, and replace as true or false")
    await state_of(call.host).snapshot(name, replace=replace)
    return {"name": name, "directories": state_of(call.host).snapshots.directories(name)}


async def delete_snapshot(call: Call) -> object:
    """Remove a snapshot."""
    await state_of(call.host).remove(call.path["snapshot"])
    return None


async def restore_snapshot(call: Call) -> object:
    """Restore the broker's state of a snapshot; connections are closed, addresses stay."""
    await state_of(call.host).restore(call.path["snapshot"])
    return {"bootstrap": call.host.bootstrap}


async def reset(call: Call) -> object:
    """Restore the broker's state at its start."""
    await state_of(call.host).reset()
    return {"bootstrap": call.host.bootstrap}


async def fork(call: Call) -> object:
    """Start another broker in this process that holds the same."""
    snapshot = (call.body or {}).get("snapshot")
    if snapshot is not None and not isinstance(snapshot, str):
        raise ControlError(400, "snapshot: a name expected")
    return await state_of(call.host).fork(snapshot)


def status_of(error: Exception) -> int | None:
    """Return the HTTP status for an error of these routes, None for another error."""
    return 409 if isinstance(error, SnapshotError) else None


ROUTES = (
    Route("GET", "/v1/snapshots", list_snapshots, "All snapshots"),
    Route("POST", "/v1/snapshots", take_snapshot, "Take a snapshot while the broker runs", body=_NAMED),
    Route("DELETE", "/v1/snapshots/{snapshot}", delete_snapshot, "Remove a snapshot"),
    Route("POST", "/v1/snapshots/{snapshot}/restore", restore_snapshot, "Go back to a snapshot"),
    Route("POST", "/v1/reset", reset, "Go back to what the broker was started with"),
    Route("POST", "/v1/fork", fork, "Start another broker that holds the same", body=_FORK),
)
