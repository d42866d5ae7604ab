"""`barnabas mcp`: tools for agents, over any Kafka."""

from __future__ import annotations

import sys
from typing import Any

import click
import trio

from barnabas.commands.connection import NAMES, connecting_of, connection_options, secret_of_file
from barnabas.commands.schemas import registry_of, registry_option
from barnabas.commands.serving import serve
from barnabas.console.target import Target
from barnabas.network.visitors import read_address

CLIENT_ID = "barnabas-mcp"


@click.command("mcp")
@click.option("--write", "may_write", is_flag=True, help="Offer tools that change the cluster, too.")
@click.option(
    "--control",
    metavar="URL",
    help="The control API of a test broker (`barnabas test-server`, `serve --control`): requests, faults, clock.",
)
@click.option(
    "--http",
    "listen",
    metavar="HOST:PORT",
    help="Serve agents over HTTP there, instead of on standard input and output.",
)
@click.option(
    "--http-cert",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Its certificate (PEM): it speaks TLS then.",
)
@click.option(
    "--http-key",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="The key, if it is not in the same file.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="A file with the token that agents send over HTTP, for an address that other machines reach.",
)
@click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error")),
    default="warning",
    show_default=True,
    help="How much to log on standard error.",
)
@registry_option
@connection_options
def COMMAND(**options: Any) -> int:  # noqa: N802
    """Give agents that speak the Model Context Protocol tools for a cluster: read-only, unless --write is given."""
    connecting = connecting_of({name: options.pop(name) for name in NAMES})
    settings = connecting.settings
    target = Target(tuple(connecting.bootstrap), (), settings.tls, settings.sasl, client_id=CLIENT_ID)
    registry = registry_of(options["registry"], connecting)
    token = secret_of_file(options["token_file"]) if options["token_file"] else ""
    if not options["listen"] and (token or options["http_cert"]):
        raise click.UsageError("--token-file and --http-cert are for --http")

    async def start(nursery: trio.Nursery) -> str:
        from barnabas.console.sessions import Sessions
        from barnabas.mcp.calling import Caller
        from barnabas.mcp.http import WHAT, McpSite
        from barnabas.mcp.server import Agents
        from barnabas.mcp.tools import tools_of
        from barnabas.sandbox.pool import Sandbox
        from barnabas.testing.process import HttpControl

        site = None
        if options["listen"]:
            address = read_address(
                options["listen"], WHAT, certificate=options["http_cert"] or "", key=options["http_key"] or ""
            )
            site = McpSite(address, token)
        tools = tools_of(has_control=bool(options["control"]), may_write=options["may_write"])
        control = HttpControl(options["control"]) if options["control"] else None

        async def run(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            async with Sandbox() as sandbox, trio.open_nursery() as sessions_nursery:
                sessions = Sessions(lambda: target, "", None, registry, sandbox)
                sessions_nursery.start_soon(sessions.run)
                agents = Agents(tools, Caller(tools, sessions, control))
                if site is None:
                    task_status.started()
                    await agents.serve_standard_streams()
                    nursery.cancel_scope.cancel()
                    return
                application = agents.application()
                async with agents.server.session_manager.run():
                    await site.run(application, task_status=task_status)

        await nursery.start(run)
        where = f"mcp={site.url}" if site is not None else "on standard input"
        return f"{where} bootstrap.servers={','.join(map(str, connecting.bootstrap))}"

    return serve("mcp", start, options["log_level"], ready=sys.stdout if options["listen"] else sys.stderr)
