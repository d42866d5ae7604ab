"""Names for completion in a shell: topics, groups, subjects of the cluster on the command line.

The rule: a shell waits a second at most, and errors give no prompt and no message. A cluster's answer is kept for some
seconds, so that repeated TABs do not connect again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import click

SECONDS_MAX = 1.0
KEPT_SECONDS = 10.0
NAMES_MAX = 5_000
"""Names that are kept and offered, more than can be read."""
Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def topic_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics with this beginning, internal ones last."""
    return _offered("topics", ctx, param, incomplete, _topics)


def group_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the groups that begin so."""
    return _offered("groups", ctx, param, incomplete, _groups)


def subject_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the subjects of a registry that begin so."""
    return _offered("subjects", ctx, param, incomplete, _subjects)


def resource_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of resources of the kind that stands before."""
    complete = {"topic": topic_names, "group": group_names}.get(ctx.params.get("kind") or "")
    return [] if complete is None else complete(ctx, param, incomplete)


def _offered(
    kind: str,
    ctx: click.Context,
    param: click.Parameter,
    incomplete: str,
    ask: Callable[[Any, Any], list[str]],
) -> list[str]:
    before = ctx.params.get(param.name or "") or ()
    try:
        names = _kept_or_asked(kind, ctx.params, ask)
    except Exception:  # any error: a completing shell has no place for messages
        return []
    return [name for name in names if name.startswith(incomplete) and name not in before]


def _kept_or_asked(kind: str, options: dict[str, Any], ask: Callable[[Any, Any], list[str]]) -> list[str]:
    """Return names that are some seconds old at most. Raises any error."""
    import json
    from hashlib import sha256

    from barnabas.commands import connection

    values = dict.fromkeys(connection.NAMES) | {
        name: value for name, value in options.items() if name in connection.NAMES
    }
    connecting = connection.connecting_of({**values, "timeout": SECONDS_MAX}, may_ask=False)
    shown = sorted(connecting.properties.items())
    key = sha256(repr((kind, connecting.bootstrap, options.get("registry"), shown)).encode()).hexdigest()[:32]
    directory = os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "barnabas", "completion"
    )
    path = os.path.join(directory, f"{key}.json")
    try:
        if 0 <= time.time() - os.stat(path).st_mtime < KEPT_SECONDS:
            with open(path, encoding="utf-8") as file:
                return [str(name) for name in json.load(file)]
    except (OSError, ValueError):
        pass
    names = [name for name in ask(connecting, options) if name.isprintable()][:NAMES_MAX]
    _keep(directory, path, json.dumps(names))
    return names


def _keep(directory: str, path: str, text: str) -> None:
    """Cache an answer, readable by its owner only; failures to write the cache are ignored."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        for entry in os.scandir(directory):  # of other clusters and days
            if entry.name.endswith(".json") and time.time() - entry.stat().st_mtime > KEPT_SECONDS:
                os.unlink(entry.path)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        pass


def _impatient(connecting: Any) -> Any:
    from dataclasses import replace

    milliseconds = int(SECONDS_MAX * 1000)
    return replace(connecting.settings, connect_timeout_ms=milliseconds, retries=0)


def _topics(connecting: Any, options: dict[str, Any]) -> list[str]:  # noqa: ARG001
    from barnabas.client import admin, sockets

    with sockets.socket_client(connecting.bootstrap[:1], _impatient(connecting)) as client:
        topics = sockets.finished(admin.Admin(client).topics())
    return sorted(topics, key=lambda name: (getattr(topics[name], "is_internal", False), name))


def _groups(connecting: Any, options: dict[str, Any]) -> list[str]:  # noqa: ARG001
    from barnabas.client import admin, sockets

    with sockets.socket_client(connecting.bootstrap[:1], _impatient(connecting)) as client:
        return sorted(sockets.finished(admin.Admin(client).list_groups())[0])


def _subjects(connecting: Any, options: dict[str, Any]) -> list[str]:
    import trio

    from barnabas.commands.schemas import DEFAULT_URL, registry_of

    registry = registry_of(options.get("registry"), connecting) or registry_of(DEFAULT_URL, connecting)
    assert registry is not None

    async def ask() -> list[str]:
        with trio.fail_after(SECONDS_MAX):
            return await registry.client().subjects()

    return trio.run(ask)
