"""`barnabas console`: the console of any cluster, in a process of its own."""

from __future__ import annotations

from typing import Any

import click
import trio

from barnabas.commands.connection import NAMES, connecting_of, connection_options, secret_of_file
from barnabas.commands.schemas import registry_of, registry_option
from barnabas.commands.serving import address_of, serve
from barnabas.commands.serving_options import serving_options
from barnabas.console.server import DEFAULT_PORT, WHAT, ConsoleServer
from barnabas.console.target import Target


@click.command("console")
@serving_options(f"127.0.0.1:{DEFAULT_PORT}", many_logins=True)
@click.option(
    "--token-file", metavar="FILE", type=click.Path(dir_okay=False),
    help="A file with what visitors have to know, for an address that other machines reach.",
)  # fmt: skip
@click.option(
    "--origin", "origins", metavar="URL", multiple=True, help="Where a proxy shows it, as https://kafka.example."
)  # fmt: skip
@registry_option
@connection_options
def COMMAND(**options: Any) -> int:  # noqa: N802
    """Serve a console for browsers, of any cluster, until a signal."""
    connecting = connecting_of({name: options.pop(name) for name in NAMES})
    token = secret_of_file(options["token_file"]) if options["token_file"] else ""
    settings = connecting.settings
    if options["login"] and "sasl.username" in connecting.properties:
        raise click.UsageError("--login makes visitors log in themselves: remove sasl.username (--user)")
    registry = registry_of(options["registry"], connecting)
    target = Target(tuple(connecting.bootstrap), options["login"], settings.tls, settings.sasl)

    async def start(nursery: trio.Nursery) -> str:
        server = ConsoleServer(
            address_of(options, WHAT),
            lambda: target,
            token=token,
            origins=options["origins"],
            registry=registry,
        )
        await nursery.start(server.run)
        return f"console={server.url} bootstrap.servers={','.join(map(str, connecting.bootstrap))}"

    return serve("console", start, options["log_level"])
