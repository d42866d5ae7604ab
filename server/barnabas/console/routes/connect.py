"""Routes over Kafka Connect: its clusters, connectors and tasks, and actions on them, by its REST interface.

The rule: reading requires the right to describe the cluster, actions the right to alter it; no password is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import trio

from barnabas.console import connectors
from barnabas.console.base import Call, ConsoleError, Parameter, Route
from barnabas.console.connect_client import NONE, ConnectClient, unmasked, without_secrets
from barnabas.console.paging import QUERY
from barnabas.registry.errors import RegistryError
from barnabas.sandbox.messages import SandboxError

CONFIG_BYTES_MAX = 1 << 20
SETTINGS_MAX = 2_000
ACTS = ("pause", "resume", "stop")
_SERVER_ERROR = 500
_EMPTY = b"{}"
_NO_CONFIG: Mapping[str, str] = {}


async def _client(call: Call, right: str) -> ConnectClient:
    """Return the client of a Connect cluster for a visitor with a right. Raises ConsoleError, ClientError."""
    await _admit(call, right)
    name = call.path["connect"]
    client: ConnectClient | None = call.backend.connects.get(name)
    if client is None:
        raise ConsoleError(
            404, f"there is no Kafka Connect cluster {name!r}: add it with --connect {name}=URL"
        )
    return client


async def _admit(call: Call, right: str) -> None:
    if right not in await call.backend.operations():
        raise ConsoleError(403, f"this needs the right to {right} the cluster")


def _path(call: Call, rest: str = "") -> str:
    return f"/connectors/{quote(call.path['connector'], safe='')}{rest}"


async def _ask(
    client: ConnectClient,
    path: str,
    method: str = "GET",
    body: Any = None,
    config: Mapping[str, str] = _NO_CONFIG,
) -> bytes:
    """Return a worker's answer. Raises ConsoleError with its error, without passwords of `config`."""
    try:
        return await client.ask_unread(path, method, body)
    except RegistryError as error:
        passwords = await client.passwords(config.get("connector.class", "")) if config else NONE
        raise _failure(error, without_secrets(error.message, config, passwords)) from None


def _failure(error: RegistryError, message: str) -> ConsoleError:
    """Return the error of a worker as an error of the console; a status of 401 or 5xx is not the visitor's fault."""
    is_refusal = 400 <= error.status < _SERVER_ERROR and error.status != 401
    return ConsoleError(error.status if is_refusal else 502, f"Kafka Connect: {message}")


async def _shown(call: Call, work: Callable[..., bytes], *parts: Any) -> bytes:
    """Return the displayed form of answers, which are parsed in a child process. Raises ConsoleError."""
    backend = call.backend
    try:
        return await backend.sandbox.call(work, *parts, owner=backend.owner)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConsoleError(502, "Kafka Connect: the response of the worker is not as expected") from None
    except SandboxError as error:
        raise ConsoleError(503, f"the response of Kafka Connect cannot be read: {error}") from None


async def list_clusters(call: Call) -> object:
    """Return the clusters of Kafka Connect, each with its version, or why it does not respond."""
    await _admit(call, "describe")
    rows: dict[str, dict[str, Any]] = {
        name: {"name": name, "url": client.url, "version": None, "error": None}
        for name, client in call.backend.connects.items()
    }

    async def look(name: str, client: ConnectClient) -> None:
        try:
            answer = await client.ask("GET", "/")
            rows[name]["version"] = str(answer.get("version")) if isinstance(answer, dict) else None
        except RegistryError as error:
            rows[name]["error"] = error.message

    async with trio.open_nursery() as nursery:
        for name, client in call.backend.connects.items():
            nursery.start_soon(look, name, client)
    return {"clusters": [*rows.values()]}


async def list_connectors(call: Call) -> object:
    """Return a page of connectors with the states of their tasks."""
    client = await _client(call, "describe")
    data = await _ask(client, "/connectors?expand=status&expand=info")
    return await _shown(call, connectors.connectors_page, data, dict(call.query))


async def show_connector(call: Call) -> object:
    """Return a connector: its state, tasks with their errors, config, topics."""
    client = await _client(call, "describe")
    status = await _ask(client, _path(call, "/status"))
    info = await _ask(client, _path(call))
    passwords = await client.passwords(_plugin_of(info))
    try:
        topics = await _ask(client, _path(call, "/topics"))
    except ConsoleError:  # an older worker, or one without topic tracking
        topics = _EMPTY
    return await _shown(call, connectors.connector, status, info, topics, passwords)


async def list_plugins(call: Call) -> object:
    """Return the plugins that a worker has."""
    client = await _client(call, "describe")
    return await _shown(call, connectors.as_list, await _ask(client, "/connector-plugins"))


def _small(data: bytes) -> dict[str, Any]:
    """Return a small object of a worker; empty for any other value. Raises ConsoleError."""
    if len(data) > CONFIG_BYTES_MAX:
        raise ConsoleError(413, f"a config of more than {CONFIG_BYTES_MAX} bytes is not shown here")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _plugin_of(info: bytes) -> str:
    config = _small(info).get("config")
    return str(config.get("connector.class")) if isinstance(config, dict) else ""


def _config(call: Call) -> dict[str, str]:
    """Return the config of a body. Raises ConsoleError."""
    config = call.field("config", dict)
    if len(config) > SETTINGS_MAX or not all(isinstance(value, str) for value in config.values()):
        raise ConsoleError(400, f"config: an object of texts expected, at most {SETTINGS_MAX}")
    return dict(config)


async def _filled(call: Call, client: ConnectClient, name: str) -> dict[str, str]:
    """Return the config of a body, with masked values taken from the existing connector. Raises ConsoleError."""
    config = _config(call)
    before: dict[str, object] = {}
    if name:
        data = await _ask(client, f"/connectors/{quote(name, safe='')}/config")
        before = _small(data)
    try:
        return unmasked(config, before, await client.passwords(str(before.get("connector.class"))))
    except ValueError as error:
        raise ConsoleError(400, str(error)) from None


async def validate_config(call: Call) -> object:
    """Return the plugin's validation of a config: its settings, and their errors."""
    client = await _client(call, "alter")
    config = await _filled(call, client, call.field("connector", str, ""))
    return await _validated(call, client, config)


async def _validated(call: Call, client: ConnectClient, config: dict[str, str]) -> bytes:
    plugin = config.get("connector.class", "")
    if not plugin:
        raise ConsoleError(400, "the config lacks connector.class")
    path = f"/connector-plugins/{quote(plugin, safe='')}/config/validate"
    data = await _ask(client, path, "PUT", config, config)
    return await _shown(call, connectors.validation, data, config)


async def create_connector(call: Call) -> object:
    """Create a connector."""
    client = await _client(call, "alter")
    name = call.field("name", str)
    if (
        not name.strip() or "/" in name
    ):  # Jetty 12 takes no path with %2F: the worker itself could not delete it
        raise ConsoleError(
            400, "name: a text without a slash expected, as no request to the workers could name it"
        )
    config = await _filled(call, client, "")
    await _ask(client, "/connectors", "POST", {"name": name, "config": {**config, "name": name}}, config)
    return None


async def change_config(call: Call) -> object:
    """Replace the config of a connector; values that are masked stay as they are."""
    client = await _client(call, "alter")
    config = await _filled(call, client, call.path["connector"])
    await _ask(client, _path(call, "/config"), "PUT", config, config)
    return None


async def restart_connector(call: Call) -> object:
    """Restart a connector, and its tasks if that is asked for."""
    client = await _client(call, "alter")
    tasks, failed = call.field("tasks", bool, False), call.field("failed", bool, False)
    query = f"?includeTasks={str(tasks).lower()}&onlyFailed={str(failed).lower()}"
    await _ask(client, _path(call, f"/restart{query}"), "POST")
    return None


async def restart_task(call: Call) -> object:
    """Restart a task."""
    client = await _client(call, "alter")
    if not call.path["task"].isdecimal():
        raise ConsoleError(400, "a task is a number")
    await _ask(client, _path(call, f"/tasks/{call.path['task']}/restart"), "POST")
    return None


async def set_state(call: Call) -> object:
    """Pause, resume or stop a connector."""
    client = await _client(call, "alter")
    act = call.field("state", str)
    if act not in ACTS:
        raise ConsoleError(400, f"state: one of {', '.join(ACTS)} expected")
    await _ask(client, _path(call, f"/{act}"), "PUT")
    return None


async def delete_connector(call: Call) -> object:
    """Delete a connector."""
    client = await _client(call, "alter")
    call.confirmed(call.path["connector"])
    await _ask(client, _path(call), "DELETE")
    return None


_ONE = "/api/connect/{connect}/connectors/{connector}"
_CONFIG = Parameter("config", "an object of texts; a value that is the mask stays as it was")
ROUTES = (
    Route("GET", "/api/connect", list_clusters, "Clusters of Kafka Connect, with version, or why they do not respond"),
    Route("GET", "/api/connect/{connect}/connectors", list_connectors, "A page of connectors, with states of their tasks",
          query=(*QUERY, Parameter("state", "only those that are in it, or have a task that is, as FAILED"))),
    Route("POST", "/api/connect/{connect}/connectors", create_connector, "Create a connector",
          body=(Parameter("name", "its name"), _CONFIG)),
    Route("GET", "/api/connect/{connect}/plugins", list_plugins, "Plugins of the workers"),
    Route("POST", "/api/connect/{connect}/validate", validate_config,
          "What a plugin says of a config: its settings, and what is wrong with their values",
          body=(_CONFIG, Parameter("connector", "the connector whose values are masked in it, if any"))),
    Route("GET", _ONE, show_connector, "A connector: state, tasks with their errors, config without passwords, topics"),
    Route("PUT", f"{_ONE}/config", change_config, "Replace the config of a connector", body=(_CONFIG,)),
    Route("POST", f"{_ONE}/restart", restart_connector, "Restart a connector",
          body=(Parameter("tasks", "true for its tasks too (false)"),
                Parameter("failed", "true for what has failed alone (false)"))),
    Route("PUT", f"{_ONE}/state", set_state, "Pause, resume or stop a connector",
          body=(Parameter("state", ", ".join(ACTS)),)),
    Route("POST", f"{_ONE}/tasks/{{task}}/restart", restart_task, "Restart a task"),
    Route("DELETE", _ONE, delete_connector, "Delete a connector",
          body=(Parameter("confirm", "its name, from who is sure"),)),
)  # fmt: skip
