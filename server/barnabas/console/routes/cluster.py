"""Routes over the cluster as a whole, and its brokers."""

from __future__ import annotations

from typing import Any

import trio

from barnabas.client import ClientError, UnsupportedVersionError
from barnabas.client.admin import ConfigEntry, LogDir, Resource
from barnabas.client.administration.configs import ConfigChange
from barnabas.client.administration.words import CLASSIC
from barnabas.client.errors import ResponseError
from barnabas.console.base import Call, ConsoleError, Parameter, Route
from barnabas.console.measuring import log_dirs_of
from barnabas.console.outcomes import error_text, good, settled
from barnabas.tools.probing.release import guess
from barnabas.wire.generated.errors import ErrorCode


async def overview(call: Call) -> object:
    """Return the overview: the cluster in numbers."""
    backend = call.backend
    summary: dict[str, Any] = {}

    async def cluster() -> None:
        info = await backend.admin.describe_cluster()
        connection = await backend.client.any_connection()
        summary["cluster"] = {
            "id": info.cluster_id,
            "controller": info.controller_id,
            "brokers": len(info.brokers),
            "release": str(guess(connection.versions)),
        }

    async def groups() -> None:
        listed, failures = await backend.admin.list_groups()
        states: dict[str, int] = {}
        for group in listed.values():
            states[group.state or "Unknown"] = states.get(group.state or "Unknown", 0) + 1
        summary["groups"] = {"count": len(listed), "states": states, "failures": len(failures)}

    async def topics() -> None:
        rows = await backend.topics.rows()
        summary["topics"] = {
            "count": len(rows),
            "internal": sum(row.is_internal for row in rows),
            "partitions": sum(row.partitions for row in rows),
            "under_replicated": sum(row.under_replicated for row in rows),
            "offline": sum(row.offline for row in rows),
        }

    async with trio.open_nursery() as nursery:
        for work in (cluster, groups, topics):
            nursery.start_soon(_quietly, work, summary)
    if "cluster" not in summary:
        raise summary["error"]
    error = summary.pop("error", None)
    summary["note"] = error_text(error) if error is not None else None
    return summary


async def _quietly(work: Any, summary: dict[str, Any]) -> None:
    """Run `work`; values that the visitor may not see are omitted, with the error as the reason."""
    try:
        await work()
    except ClientError as error:
        summary["error"] = error


async def show_history(call: Call) -> object:
    """Return the cluster in numbers over the last 15 minutes, with the lags of groups that the visitor may describe."""
    history = await call.backend.history()
    samples = await history.samples()
    error = history.error
    hidden = await _hidden_groups(call, {group for sample in samples for group in sample.groups})
    return {
        "samples": [sample.as_json(hidden) for sample in samples],
        "notes": {"cluster": error} if error else samples[-1].notes if samples else {},
    }


async def _hidden_groups(call: Call, groups: set[str]) -> set[str]:
    """Return the groups that the visitor may not describe, if visitors log in."""
    backend = call.backend
    if not backend.target.mechanisms or not groups:
        return set()
    listed, _ = await backend.admin.list_groups()
    kinds = {group: listed[group].kind if group in listed else CLASSIC for group in groups}
    infos = await backend.admin.describe_groups(kinds)
    return {
        group
        for group, info in infos.items()
        if isinstance(info, ResponseError) and info.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    }


async def list_brokers(call: Call) -> object:
    """Return the brokers, with their log dirs and features."""
    admin = call.backend.admin
    info = await admin.describe_cluster()
    dirs: dict[int, Any] = {}

    async def look(broker: int) -> None:
        try:
            dirs[broker] = [_log_dir(log_dir) for log_dir in await log_dirs_of(call.backend.admin, broker)]
        except ClientError as error:
            dirs[broker] = error

    async with trio.open_nursery() as nursery:
        for broker in info.brokers:
            nursery.start_soon(look, broker.broker_id)
    return {
        "cluster_id": info.cluster_id,
        "controller": info.controller_id,
        "brokers": [
            {
                "id": broker.broker_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "fenced": broker.is_fenced,
                "controller": broker.broker_id == info.controller_id,
                "log_dirs": good(dirs[broker.broker_id]) or [],
                "error": error_text(dirs[broker.broker_id])
                if isinstance(dirs[broker.broker_id], ClientError)
                else None,
            }
            for broker in info.brokers
        ],
        "features": [
            {
                "name": feature.name,
                "min": feature.min_level,
                "max": feature.max_level,
                "finalized": feature.finalized_level,
            }
            for feature in await admin.features()
        ],
    }


async def show_quorum(call: Call) -> object:
    """Return the quorum of controllers; without nodes if the cluster has no quorum."""
    admin = call.backend.admin
    try:
        leader, epoch, nodes = await admin.quorum()
    except UnsupportedVersionError:
        return {
            "leader": None,
            "epoch": None,
            "nodes": [],
            "controller": (await admin.describe_cluster()).controller_id,
        }
    end = max((node.log_end_offset for node in nodes), default=0)
    return {
        "leader": leader,
        "epoch": epoch,
        "controller": leader,
        "nodes": [
            {
                "id": node.node_id,
                "role": "leader" if node.node_id == leader else node.role,
                "votes": node.role == "voter",
                "log_end": node.log_end_offset,
                "lag": max(end - node.log_end_offset, 0),
                "fetched_at": node.fetched_at_ms if node.fetched_at_ms >= 0 else None,
                "caught_up_at": node.caught_up_at_ms if node.caught_up_at_ms >= 0 else None,
                "addresses": node.addresses,
            }
            for node in nodes
        ],
    }


def _log_dir(log_dir: LogDir) -> dict[str, Any]:
    return {
        "path": log_dir.path,
        "total_bytes": log_dir.total_bytes if log_dir.total_bytes >= 0 else None,
        "usable_bytes": log_dir.usable_bytes if log_dir.usable_bytes >= 0 else None,
        "error": error_text(log_dir.error) if log_dir.error is not None else None,
    }


def entry_as_json(entry: ConfigEntry) -> dict[str, Any]:
    """Return a setting with the source of its value."""
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
    entries = (await call.backend.admin.describe_configs([resource], documentation=True))[resource]
    if isinstance(entries, ClientError):
        raise entries
    return {"settings": [entry_as_json(entry) for entry in sorted(entries, key=lambda entry: entry.name)]}


async def change_settings(call: Call, resource: Resource) -> None:
    """Change settings of a resource, from a body. Raises ClientError, ConsoleError."""
    values, removed = call.field("set", dict, {}), call.field("remove", list, [])
    if not all(isinstance(value, str) for value in (*values.values(), *removed)):
        raise ConsoleError(400, "set: names with texts, remove: names expected")
    changes = [ConfigChange(name, 0, value) for name, value in values.items()]
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
    Route("GET", "/api/history", show_history,
          "The cluster over the last 15 minutes, from the first such request of a session on: throughput, lag by group, "
          "open transactions, replicas, disk, stalls"),
    Route("GET", "/api/brokers", list_brokers, "Brokers, controller, log dirs, features"),
    Route("GET", "/api/quorum", show_quorum, "The quorum of controllers: its leader, voters and observers"),
    Route("GET", "/api/brokers/{broker}/settings", broker_settings, "Settings of a broker, and where each comes from"),
    Route("PATCH", "/api/brokers/{broker}/settings", change_broker_settings, "Change settings of a broker", body=CHANGES),
)  # fmt: skip
