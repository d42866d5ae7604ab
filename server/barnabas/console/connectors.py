"""Answers of Kafka Connect's workers, for the page. Pure; runs in a child process.

The rule: a worker's answer is foreign input of any size: it is parsed here, and possible passwords are removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from barnabas.console.base import Query, as_json
from barnabas.console.connect_client import Passwords, is_secret, masked, masked_value, without_secrets
from barnabas.console.paging import page_of

TRACE_CHARS_MAX = 20_000
TASKS_MAX = 1_000
SETTINGS_MAX = 2_000
DOCUMENTATION_CHARS_MAX = 2_000
FAILED = "FAILED"


def connectors_page(data: bytes, query: Mapping[str, str]) -> bytes:
    """Return the requested page of a list of connectors, both as JSON. Raises ConsoleError, ValueError."""
    listed = _object(data)
    rows = [_row(name, entry) for name, entry in listed.items() if isinstance(entry, dict)]
    state = query.get("state", "")
    if state:
        rows = [row for row in rows if state in (row["state"], *row["tasks"])]
    orders = {
        "name": lambda row: row["name"],
        "state": lambda row: (row["state"], row["name"]),
        "type": lambda row: (row["type"], row["name"]),
        "failed": lambda row: (row["tasks"].get(FAILED, 0) + (row["state"] == FAILED), row["name"]),
    }
    page = page_of(Query(query), rows, orders, lambda row: row["name"])
    failed = sum(row["state"] == FAILED or FAILED in row["tasks"] for row in rows)
    return as_json({**page.as_json(page.rows), "failed": failed})


def _row(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    status, info = entry.get("status") or {}, entry.get("info") or {}
    connector = status.get("connector") or {}
    counts: dict[str, int] = {}
    for task in status.get("tasks") or []:
        counts[str(task.get("state"))] = counts.get(str(task.get("state")), 0) + 1
    return {
        "name": name,
        "type": str(status.get("type") or info.get("type") or "unknown").lower(),
        "state": str(connector.get("state") or "UNASSIGNED"),
        "worker": connector.get("worker_id"),
        "tasks": counts,
        "class": (info.get("config") or {}).get("connector.class"),
    }


def connector(status_data: bytes, info_data: bytes, topics_data: bytes, passwords: Passwords) -> bytes:
    """Return a connector as JSON: its state, tasks with their errors, config, topics. Raises ValueError."""
    status, info, topics = _object(status_data), _object(info_data), _object(topics_data)
    config = info.get("config") or {}
    state = status.get("connector") or {}
    name = str(info.get("name") or "")
    tasks = status.get("tasks") or []
    return as_json(
        {
            "name": name,
            "type": str(status.get("type") or info.get("type") or "unknown").lower(),
            "state": state.get("state") or "UNASSIGNED",
            "worker": state.get("worker_id"),
            "version": state.get("version"),
            "trace": _trace(state, config, passwords),
            "tasks_total": len(tasks),
            "tasks": [
                {
                    "id": task.get("id"),
                    "state": task.get("state"),
                    "worker": task.get("worker_id"),
                    "trace": _trace(task, config, passwords),
                }
                for task in tasks[:TASKS_MAX]
            ],
            "config": masked(config, passwords),
            "topics": (topics.get(name) or {}).get("topics") or [],
        }
    )


def _trace(part: Mapping[str, Any], config: Mapping[str, object], passwords: Passwords) -> str | None:
    trace = part.get("trace")
    return None if not trace else without_secrets(str(trace), config, passwords)[:TRACE_CHARS_MAX]


def validation(data: bytes, config: Mapping[str, str]) -> bytes:
    """Return a plugin's validation of a config as JSON: its settings, and errors of values. Raises ValueError."""
    answer = _object(data)
    entries = (answer.get("configs") or [])[:SETTINGS_MAX]
    definitions = [entry.get("definition") or {} for entry in entries]
    passwords = frozenset(
        str(definition.get("name")) for definition in definitions if definition.get("type") == "PASSWORD"
    )
    settings = []
    for entry in entries:
        definition, value = entry.get("definition") or {}, entry.get("value") or {}
        name = str(definition.get("name") or value.get("name"))
        settings.append(
            {
                "name": name,
                "type": definition.get("type"),
                "required": bool(definition.get("required")),
                "default": masked_value(name, definition.get("default_value"), passwords),
                "importance": definition.get("importance"),
                "group": definition.get("group"),
                "documentation": str(definition.get("documentation") or "")[:DOCUMENTATION_CHARS_MAX],
                "secret": is_secret(name, passwords),
                "allowed": []
                if is_secret(name, passwords)
                else (value.get("recommended_values") or [])[:100],
                "errors": [
                    without_secrets(str(error), config, passwords) for error in value.get("errors") or []
                ],
            }
        )
    return as_json({"error_count": int(answer.get("error_count") or 0), "settings": settings})


def as_list(data: bytes) -> bytes:
    """Return a list of a worker's as JSON. Raises ValueError."""
    value = json.loads(data)
    if not isinstance(value, list):
        raise ValueError("the response is not a list")
    return as_json(value)


def _object(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("the response is not an object")
    return value
