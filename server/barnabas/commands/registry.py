"""`barnabas registry`: a schema registry stored in any Kafka; and commands for any registry with Confluent's API.

The rule: without a subcommand it serves the registry of `serve --registry`; several may serve the same topic, and all of
them read and write. Its subcommands are in `registry_commands`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from barnabas.commands import registry_commands
from barnabas.commands.connection import NAMES, connecting_of, connection_options
from barnabas.commands.serving_options import serving_options

if TYPE_CHECKING:
    import trio

DEFAULT_ADDRESS, TOPIC_NAME = "localhost:8081", "_schemas"


@click.group("registry", invoke_without_command=True, commands=registry_commands.ALL)
@serving_options(DEFAULT_ADDRESS, many_logins=False)
@click.option(
    "--open", "is_open", is_flag=True, help="Allow everything without a login, also from other machines."
)
@click.option(
    "--topic", metavar="NAME", default=TOPIC_NAME, show_default=True, help="The topic that keeps it."
)
@connection_options
@click.pass_context
def COMMAND(context: click.Context, /, **options: Any) -> int:  # noqa: N802
    """Serve a schema registry, which Confluent's clients use, until a signal; or, with a command, ask one."""
    if context.invoked_subcommand is not None:
        return 0
    from barnabas.commands.serving import address_of, of_user, serve
    from barnabas.registry.access import Logins
    from barnabas.registry.serving import WHAT, RegistryServer

    connecting = connecting_of({name: options.pop(name) for name in NAMES})
    mechanism = options["login"]
    logins = Logins(connecting.bootstrap, of_user(connecting, mechanism)) if mechanism else None

    async def start(nursery: trio.Nursery) -> str:
        may_be_reached = logins is not None or options["is_open"]
        server = RegistryServer(address_of(options, WHAT), may_be_reached=may_be_reached)
        await nursery.start(server.run, connecting.bootstrap, connecting.settings, logins, options["topic"])
        return f"registry={server.url} bootstrap.servers={','.join(map(str, connecting.bootstrap))}"

    return serve("registry", start, options["log_level"])
