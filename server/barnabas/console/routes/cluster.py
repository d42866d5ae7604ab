"""Routes over the cluster as a whole, and its brokers."""

from __future__ import annotations

from typing import Any

import trio

from barnabas.client import ClientError
from barnabas.client.admin import ConfigEntry, LogDir, Resource
from barnabas.client.administration.configs import ConfigChange
from barnabas.console.base import Call, ConsoleError, Parameter, Route
from barnabas.console.measuring import log_dirs_of
from barnabas.console.outcomes import error_text, good, settled
from barnabas.tools.probing.release import guess


async def overview(call: Call) -> object:
    """Return what a first look shows: the cluster in numbers."""
    backend = call.backend
    found: dict[str, Any] = {}

    async def cluster() -> None:
        info = await backend.admin.describe_cluster()
        connection = await backend.client.any_connection()
        found["cluster"] = {
            "id": info.cluster_id,
            "controller": info.controller_id,
            "brokers": len(info.brokers),
            "release": str(guess(connection.versions)),
        }

    async def groups() -> None:
        listed, failures = await backend.admin.list_groups()
        states: dict[str, int] = {}
        for one in listed.values():
            states[one.state or "Unknown"] = states.get(one.state or "Unknown", 0) + 1
        found["groups"] = {"count": len(listed), "states": states, "failures": len(failures)}

    async def topics() -> None:
        rows = await backend.topics.rows()
        found["topics"] = {
            "count": len(rows),
            "internal": sum(row.is_internal for row in rows),
            "partitions": sum(row.partitions for row in rows),
            "under_replicated": sum(row.under_replicated for row in rows),
            "offline": sum(row.offline for row in rows),
        }

    async with trio.open_nursery() as nursery:
        for work in (cluster, groups, topics):
            nursery.start_soon(_quietly, work, found)
    if "cluster" not in found:
        raise found["error"]
    error = found.pop("error", None)
    found["note"] = error_text(error) if error is not None else None
    return found


async def _quietly(work: Any, found: dict[str, Any]) -> None:
    """Leave out what a visitor may not see, and remember why."""
    try:
        await work()
    except ClientError as error:
        found["error"] = error


async def list_brokers(call: Call) -> object:
    """Return the brokers, with their log dirs and features."""
    admin = call.backend.admin
    info = await admin.describe_cluster()
    dirs: dict[int, Any] = {}

    async def look(broker: int) -> None:
        try:
            dirs[broker] = [_log_dir(one) for one in await log_dirs_of(call.backend.admin, broker)]
        except ClientError as error:
            dirs[broker] = error

    async with trio.open_nursery() as nursery:
        for one in info.brokers:
            nursery.start_soon(look, one.broker_id)
    return {
        "cluster_id": info.cluster_id,
        "controller": info.controller_id,
        "brokers": [
            {
                "id": one.broker_id,
                "host": one.host,
                "port": one.port,
                "rack": one.rack,
                "fenced": one.is_fenced,
                "controller": one.broker_id == info.controller_id,
                "log_dirs": good(dirs[one.broker_id]) or [],
                "error": error_text(dirs[one.broker_id])
                if isinstance(dirs[one.broker_id], ClientError)
                else None,
            }
            for one in info.brokers
        ],
        "features": [
            {"name": one.name, "min": one.min_level, "max": one.max_level, "finalized": one.finalized_level}
            for one in await admin.features()
        ],
    }


def _log_dir(one: LogDir) -> dict[str, Any]:
    return {
        "path": one.path,
        "total_bytes": one.total_bytes if one.total_bytes >= 0 else None,
        "usable_bytes": one.usable_bytes if one.usable_bytes >= 0 else None,
        "error": error_text(one.error) if one.error is not None else None,
    }


def entry_as_json(entry: ConfigEntry) -> dict[str, Any]:
    """Return a setting with where its value comes from."""
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source,
        "sensitive": entry.is_sensitive,
        "read_only": entry.is_read_only,
        "documentation": entry.documentation,
        "synonyms": [
            {"name": name, "value": value, "source": source} for name, value, source in entry.synonyms
        ],
    }


async def settings_of(call: Call, resource: Resource) -> object:
    """Return the settings of a resource. Raises ClientError."""
    found = (await call.backend.admin.describe_configs([resource], documentation=True))[resource]
    if isinstance(found, ClientError):
        raise found
    return {"settings": [entry_as_json(one) for one in sorted(found, key=lambda one: one.name)]}


async def change_settings(call: Call, resource: Resource) -> None:
    """Change settings of a resource as a body says. Raises ClientError, ConsoleError."""
    wanted, removed = call.field("set", dict, {}), call.field("remove", list, [])
    if not all(isinstance(one, str) for one in (*wanted.values(), *removed)):
        raise ConsoleError(400, "set: names with texts, remove: names expected")
    changes = [ConfigChange(name, 0, value) for name, value in wanted.items()]
    changes += [ConfigChange(name, 1, None) for name in removed]
    if not changes:
        raise ConsoleError(400, "nothing to change: give set or remove")
    settled(
        await call.backend.admin.alter_configs(
            {resource: changes}, only_check=call.field("check", bool, False)
        )
    )


def _broker(call: Call) -> Resource:
    if not call.path["broker"].isdecimal():
        raise ConsoleError(400, "a broker is a number")
    return Resource("broker", call.path["broker"])


async def broker_settings(call: Call) -> object:
    """Return a broker's settings."""
    return await settings_of(call, _broker(call))


async def change_broker_settings(call: Call) -> object:
    """Change a broker's settings."""
    await change_settings(call, _broker(call))
    return None


CHANGES = (
    Parameter("set", "an object: new values by name"),
    Parameter("remove", "an array: names that go back to their default"),
    Parameter("check", "true to have the broker only check it (false)"),
)
ROUTES = (
    Route("GET", "/api/overview", overview, "The cluster in numbers"),
    Route("GET", "/api/brokers", list_brokers, "Brokers, controller, log dirs, features"),
    Route("GET", "/api/brokers/{broker}/settings", broker_settings, "Settings of a broker, and where each comes from"),
    Route("PATCH", "/api/brokers/{broker}/settings", change_broker_settings, "Change settings of a broker", body=CHANGES),
)  # fmt: skip
