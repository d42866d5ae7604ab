"""`barnabas console`: the console of any cluster, or of several, in a separate process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import trio

from barnabas.client.settings import tls_context
from barnabas.commands.connection import NAMES, Connecting, connecting_of, connection_options, secret_of_file
from barnabas.commands.schemas import registry_of, registry_option
from barnabas.commands.serving import address_of, serve
from barnabas.commands.serving_options import serving_options
from barnabas.console.connect_client import NAME, NAME_RULE, ConnectClient, connects_of
from barnabas.console.server import DEFAULT_PORT, WHAT, ConsoleServer
from barnabas.console.target import Cluster, Target

CONNECT_URLS = "connect.urls"
"""Setting of a profile: [NAME=]URL of clusters of Kafka Connect, with commas between them."""
CLUSTERS_MAX = 32


@click.command("console")
@serving_options(f"127.0.0.1:{DEFAULT_PORT}", many_logins=True)
@click.option(
    "--token-file", metavar="FILE", type=click.Path(dir_okay=False),
    help="File with a token that visitors must enter, for an address that other machines reach.",
)  # fmt: skip
@click.option(
    "--origin", "origins", metavar="URL", multiple=True, help="Address at which a proxy serves it, as https://kafka.example."
)  # fmt: skip
@click.option(
    "--cluster", "clusters", metavar="NAME[=HOST:PORT]", multiple=True,
    help="A cluster under a name, by its address, or by the profile of this name; may be given again.",
)  # fmt: skip
@click.option(
    "--connect", "connects", metavar="[[CLUSTER/]NAME=]URL", multiple=True,
    help="A worker of Kafka Connect: http://[USER:PASSWORD@]HOST:PORT, of the first cluster unless one is named; may be "
    "given again.",
)  # fmt: skip
@click.option("--read-only", is_flag=True, help="Show everything, change nothing.")
@registry_option
@connection_options
def COMMAND(**options: Any) -> int:  # noqa: N802
    """Serve a console for browsers, of any cluster or of several, until a signal."""
    shared = {name: options.pop(name) for name in NAMES}
    token = secret_of_file(options["token_file"]) if options["token_file"] else ""
    clusters, bootstrap = _clusters(options, shared)

    async def start(nursery: trio.Nursery) -> str:
        server = ConsoleServer(
            address_of(options, WHAT),
            clusters,
            token=token,
            origins=options["origins"],
            is_read_only=options["read_only"],
            keeps_history=True,
        )
        await nursery.start(server.run)
        return f"console={server.url} bootstrap.servers={bootstrap}"

    return serve("console", start, options["log_level"])


def _clusters(options: dict[str, Any], shared: dict[str, Any]) -> tuple[dict[str, Cluster], str]:
    """Return the clusters by name, a single one by the empty name, and their addresses. Raises click.UsageError."""
    places: dict[str, Connecting] = {}
    for text in options["clusters"]:
        name, equals, address = text.partition("=")
        if not NAME.fullmatch(name) or name in places:
            raise click.UsageError(f"--cluster {text}: each has a name of its own, of {NAME_RULE}")
        profile = shared["profile"] or ""  # the one that is used by default is of another cluster
        own = {"bootstrap": address, "profile": profile} if equals else {"bootstrap": None, "profile": name}
        places[name] = connecting_of({**shared, **own})
    if len(places) > CLUSTERS_MAX:
        raise click.UsageError(f"--cluster: up to {CLUSTERS_MAX} of them")
    if not places:
        connecting = connecting_of(shared)
        clusters = {"": _cluster(connecting, options, options["connects"])}
        return clusters, ",".join(map(str, connecting.bootstrap))
    clusters = {
        name: _cluster(connecting, options, _of_cluster(options["connects"], name, [*places]))
        for name, connecting in places.items()
    }
    return clusters, ";".join(f"{name}={','.join(map(str, at.bootstrap))}" for name, at in places.items())


def _of_cluster(texts: Sequence[str], cluster: str, names: Sequence[str]) -> list[str]:
    """Return the Connect workers of one of several clusters. Raises click.UsageError for an unknown cluster."""
    own = []
    for text in texts:
        before, slash, rest = text.partition("/")
        is_named = bool(slash) and ":" not in before and "=" not in before
        if is_named and before not in names:
            raise click.UsageError(f"--connect {text}: there is no --cluster {before}")
        if (before if is_named else names[0]) == cluster:
            own.append(rest if is_named else text)
    return own


def _cluster(connecting: Connecting, options: dict[str, Any], connects: Sequence[str]) -> Cluster:
    """Return a cluster with its registry and its workers of Kafka Connect. Raises click.UsageError."""
    settings = connecting.settings
    shared, own = (None, settings.sasl) if options["login"] else (settings.sasl, None)
    target = Target(tuple(connecting.bootstrap), options["login"], settings.tls, shared, own)
    return Cluster(
        lambda: target, registry_of(options["registry"], connecting), _connects(connecting, connects)
    )


def _connects(connecting: Connecting, texts: Sequence[str]) -> dict[str, ConnectClient]:
    profile = [
        text.strip() for text in connecting.properties.get(CONNECT_URLS, "").split(",") if text.strip()
    ]
    authorities = connecting.properties.get("ssl.ca.location")
    try:
        tls = tls_context({"ssl.ca.location": authorities}) if authorities else None
        return connects_of(texts or profile, tls)
    except ValueError as error:
        raise click.UsageError(f"--connect: {error}") from None
