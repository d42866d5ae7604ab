"""Commands that serve over HTTP beside any cluster: their address, TLS, logins, and their life as a process.

The rule: a failure to serve is one line on standard error; a signal leads to a clean exit.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TextIO

import trio

from barnabas.client import ClientError, ClientSettings
from barnabas.client.settings import SaslCredentials
from barnabas.commands.connection import Connecting
from barnabas.commands.errors import CommandError
from barnabas.commands.errors import explain as explain_client
from barnabas.ending import DONE, FAILED, end_signals
from barnabas.environment import extras, log_lines
from barnabas.environment.terminal import visible_lines
from barnabas.errors import leaves
from barnabas.network.visitors import Address, AddressError, read_address
from barnabas.registry.errors import RegistryError


def address_of(options: dict[str, Any], what: str) -> Address:
    """Return the address on which to serve `what`. Raises AddressError."""
    certificate, key = options["listen_cert"] or "", options["listen_key"] or ""
    return read_address(options["listen"], what, certificate=certificate, key=key)


def of_user(connecting: Connecting, mechanism: str) -> Callable[[str, str], ClientSettings]:
    """Return the factory of settings for a client that is logged in as a user, with a password."""
    plain = connecting.settings
    return lambda user, password: replace(plain, sasl=SaslCredentials(mechanism, user, password))


def serve(
    name: str,
    start: Callable[[trio.Nursery], Awaitable[str]],
    log_level: str,
    *,
    ready: TextIO | None = None,
) -> int:
    """Start a server, print the ready line, and serve until a signal; returns the exit code.

    `start` starts it in a nursery and returns the words of the ready line, which is printed on `ready` (standard output).
    """
    log_lines.begin(log_level)
    code = DONE
    try:
        trio.run(_serve, name, start, ready or sys.stdout)
    except* (AddressError, ClientError, CommandError, RegistryError, OSError, ModuleNotFoundError) as group:
        print(f"barnabas {name}: {visible_lines(_text(leaves(group)[0]))}", file=sys.stderr)
        code = FAILED
    return code


async def _serve(name: str, start: Callable[[trio.Nursery], Awaitable[str]], ready: TextIO) -> None:
    with trio.open_signal_receiver(*end_signals()) as signals:
        async with trio.open_nursery() as nursery:

            async def end() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(end)
            print(f"barnabas {name} is ready: {await start(nursery)}", file=ready, flush=True)


def _text(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return extras.explain(error) or str(error)
    return explain_client(error)
