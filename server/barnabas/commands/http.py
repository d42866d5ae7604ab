"""`barnabas http`: produce, consume and administration of a Kafka over HTTP, any Kafka.

The rule: it is the REST API of `serve --http`, in a separate process.
"""

from __future__ import annotations

from typing import Any

import click
import trio

from barnabas.commands.connection import NAMES, connecting_of, connection_options
from barnabas.commands.schemas import registry_of, registry_option
from barnabas.commands.serving import address_of, of_user, serve
from barnabas.commands.serving_options import serving_options
from barnabas.rest.backend import Cluster
from barnabas.rest.serving import DEFAULT_ADDRESS, WHAT, RestServer


@click.command("http")
@serving_options(DEFAULT_ADDRESS, many_logins=False)
@click.option(
    "--open", "is_open", is_flag=True, help="Allow everything without a login, also from other machines."
)
@registry_option
@connection_options
def COMMAND(**options: Any) -> int:  # noqa: N802
    """Serve the REST API of a cluster, which clients of Confluent's REST proxy use, until a signal."""
    connecting = connecting_of({name: options.pop(name) for name in NAMES})
    mechanism = options["login"]
    settings_of = of_user(connecting, mechanism) if mechanism else None
    registry = registry_of(options["registry"], connecting)
    cluster = Cluster(tuple(connecting.bootstrap), connecting.settings, settings_of, registry)

    async def start(nursery: trio.Nursery) -> str:
        may_be_reached = settings_of is not None or options["is_open"]
        server = RestServer(address_of(options, WHAT), may_be_reached=may_be_reached)
        await nursery.start(server.run, cluster)
        return f"http={server.url} bootstrap.servers={','.join(map(str, connecting.bootstrap))}"

    return serve("http", start, options["log_level"])
