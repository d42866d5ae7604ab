"""`barnabas registry`: a schema registry that a Kafka keeps, any Kafka.

The rule: it is the registry of `serve --registry`; several may serve the same topic, each reads and writes.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click
import trio

from barnabas.client import ClientError
from barnabas.client.settings import SaslCredentials
from barnabas.commands.connection import NAMES, Connecting, connecting_of, connection_options
from barnabas.commands.errors import CommandError
from barnabas.commands.errors import explain as explain_client
from barnabas.ending import DONE, FAILED, end_signals
from barnabas.environment import extras
from barnabas.errors import leaves
from barnabas.network.visitors import AddressError
from barnabas.registry.access import Logins
from barnabas.registry.errors import RegistryError
from barnabas.registry.serving import DEFAULT_ADDRESS, address_of, serve
from barnabas.registry.store import TOPIC_NAME

_FILE = click.Path(dir_okay=False)


@click.command("registry")
@click.option(
    "--listen", metavar="HOST:PORT", default=DEFAULT_ADDRESS, show_default=True, help="Where to serve it."
)
@click.option("--listen-cert", metavar="FILE", type=_FILE, help="Its certificate (PEM): it speaks TLS then.")
@click.option("--listen-key", metavar="FILE", type=_FILE, help="The key, if it is not in the same file.")
@click.option(
    "--login", is_flag=True,
    help="Users log in with the broker's names and passwords, and may do what ACLs of the subject's topic let them.",
)  # fmt: skip
@click.option(
    "--open", "is_open", is_flag=True, help="Whoever reaches it may do all, also from other machines."
)
@click.option(
    "--topic", metavar="NAME", default=TOPIC_NAME, show_default=True, help="The topic that keeps it."
)
@connection_options
def COMMAND(**options: Any) -> int:  # noqa: N802
    """Serve a schema registry, which Confluent's clients use, until a signal."""
    connecting = connecting_of({name: options.pop(name) for name in NAMES})
    code = DONE
    try:
        trio.run(_run, connecting, options)
    except* (AddressError, RegistryError, ClientError, CommandError, ModuleNotFoundError) as group:
        print(f"barnabas registry: {_text(leaves(group)[0])}", file=sys.stderr)
        code = FAILED
    return code


def _text(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return extras.explain(error) or str(error)
    return explain_client(error) if isinstance(error, Exception) else str(error)


async def _run(connecting: Connecting, options: dict[str, Any]) -> None:
    address = address_of(
        options["listen"],
        certificate=options["listen_cert"] or "",
        key=options["listen_key"] or "",
        is_open=options["is_open"],
    )
    logins = _logins(connecting) if options["login"] else None
    with trio.open_signal_receiver(*end_signals()) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_at, signals, nursery.cancel_scope)
            url = await nursery.start(
                serve, address, connecting.bootstrap, connecting.settings, logins, options["topic"]
            )
            where = ",".join(map(str, connecting.bootstrap))
            print(f"barnabas registry is ready: registry={url} bootstrap.servers={where}", flush=True)


async def _end_at(signals: Any, scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


def _logins(connecting: Connecting) -> Logins:
    """Return how users log in: as the registry itself does, with names and passwords of their own. Raises CommandError."""
    own = connecting.settings.sasl
    if own is None or not (own.mechanism == "PLAIN" or own.mechanism.startswith("SCRAM")):
        raise CommandError(
            "--login has users log in to the broker as the registry does: with --user, and PLAIN or SCRAM as --mechanism"
        )
    mechanism = own.mechanism
    return Logins(
        connecting.bootstrap,
        lambda user, password: replace(connecting.settings, sasl=SaslCredentials(mechanism, user, password)),
    )
