"""Options of commands that serve over HTTP beside any cluster.

The rule: they load no module of a server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

LOGINS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""Mechanisms by which a name and a password log in."""
_FILE = click.Path(dir_okay=False)


def serving_options(default_address: str, *, many_logins: bool) -> Callable[[F], F]:
    """Return a decorator that adds the options to a command; `many_logins` if users may choose a mechanism."""
    options = (
        click.option(
            "--listen", metavar="HOST:PORT", default=default_address, show_default=True, help="Address to listen on."
        ),
        click.option("--listen-cert", metavar="FILE", type=_FILE, help="Its certificate (PEM): it speaks TLS then."),
        click.option("--listen-key", metavar="FILE", type=_FILE, help="The key, if it is not in the same file."),
        click.option(
            "--login", metavar="MECHANISM", type=click.Choice(LOGINS), multiple=many_logins,
            help=f"Have users log in with the broker's names and passwords, by {', '.join(LOGINS)}; its ACLs say what they "
            "may do.",
        ),
        click.option(
            "--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="warning", show_default=True,
            help="How much to log on standard error.",
        ),
    )  # fmt: skip

    def added(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return added
