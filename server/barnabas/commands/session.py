"""A run of a command that sends requests to a cluster: `@asking` makes a coroutine function a command.

    @COMMAND.command("list")
    @asking(TOPICS)
    async def list_topics(session: Session) -> None: ...

The rule: the first connection is tried once, so that a wrong address is reported immediately; a destructive command asks
for confirmation.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from barnabas.client import admin, sockets
from barnabas.commands.connection import NAMES, Connecting, connecting_of, connection_options
from barnabas.commands.errors import CommandError
from barnabas.commands.output import Output, Table
from barnabas.environment.terminal import visible
from barnabas.patterns import PatternError, compile_pattern

if TYPE_CHECKING:
    from barnabas.client.base_client import BaseClient

PROPAGATION_PAUSES_S = 0.1, 0.3
"""In which other brokers learn of a topic that was just made."""
F = TypeVar("F", bound=Callable[..., Any])


class Session(NamedTuple):
    """The cluster of a command, and its output."""

    client: BaseClient[Any]
    admin: admin.Admin
    output: Output
    connecting: Connecting


def asking(
    *tables: Table, with_trio: bool = False
) -> Callable[[Callable[..., Awaitable[int | None]]], Callable[..., int]]:
    """Make a command of `async def work(session, **options)`; `tables` are those that it may print.

    Its result is the exit code; None for that of the printed rows. Its client blocks, which saves loading an event loop,
    except for a command with concurrent tasks: that runs `with_trio`.
    """

    def decorate(work: Callable[..., Awaitable[int | None]]) -> Callable[..., int]:
        @functools.wraps(work)
        def run(**options: Any) -> int:
            shared_options = {name: options.pop(name) for name in NAMES}
            connecting = connecting_of(shared_options)
            output = Output(as_json=shared_options["as_json"])
            if with_trio:
                import trio

                return trio.run(_run_with_trio, work, connecting, output, options)
            with sockets.socket_client(connecting.bootstrap, connecting.settings) as client:
                return sockets.finished(_run(work, client, connecting, output, options))

        run.tables = tables  # type: ignore[attr-defined]  # for the reference
        return connection_options(run)

    return decorate


async def _run(
    work: Callable[..., Awaitable[int | None]],
    client: BaseClient[Any],
    connecting: Connecting,
    output: Output,
    options: dict[str, Any],
) -> int:
    await client.any_connection()
    code = await work(Session(client, admin.Admin(client), output, connecting), **options)
    finished_with = output.finish()
    return finished_with if code is None else code


async def _run_with_trio(
    work: Callable[..., Awaitable[int | None]],
    connecting: Connecting,
    output: Output,
    options: dict[str, Any],
) -> int:
    from barnabas.client import open_client

    async with open_client(connecting.bootstrap, connecting.settings) as client:
        return await _run(work, client, connecting, output, options)


def destructive(command: F) -> F:
    """Add --yes, for `confirm`."""
    return click.option("--yes", is_flag=True, help="Do not ask.")(command)


def confirm(doing: str, *, yes: bool) -> None:
    """Ask the user to agree. Raises CommandError for a no, and where standard input is no terminal."""
    if yes:
        return
    doing = visible(doing)
    if not sys.stdin.isatty():
        raise CommandError(f"{doing}: standard input is no terminal, so there is no prompt; give --yes")
    if not click.confirm(f"{doing}?", err=True):
        raise CommandError("nothing was changed")


regex = click.option(
    "-r", "--regex", is_flag=True, help="Take names as regular expressions, of the whole name."
)
"""Option for commands that take names."""


def matching(names: Iterable[str], selected: Iterable[str], *, is_regex: bool) -> list[str]:
    """Return `selected`, or with `is_regex` the names that match a pattern of it. Raises click.UsageError."""
    if not is_regex:
        return list(dict.fromkeys(selected))
    try:
        patterns = [compile_pattern(text) for text in selected]
    except PatternError as error:
        raise click.UsageError(f"{error.shown} is no regular expression: {error.reason}") from None
    return sorted(name for name in names if any(pattern.fullmatch(name) for pattern in patterns))


async def require_topic(client: BaseClient[Any], topic: str) -> bool:
    """Return whether a topic exists; repeats the check for as long as a newly created topic may be unknown.

    Raises ClientError for any other error of the broker.
    """
    from barnabas.client import ResponseError
    from barnabas.wire.generated.errors import ErrorCode

    for pause_s in (*PROPAGATION_PAUSES_S, None):
        try:
            await client.topic(topic)
        except ResponseError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if error.is_retriable:
                    return True  # it is being made: what follows waits for it
                raise
            if pause_s is None:
                return False
            await client.sleep(pause_s)
        else:
            return True
    raise AssertionError("not reached")
