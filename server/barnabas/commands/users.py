"""`barnabas users`: users with passwords of SCRAM: list, set, delete."""

from __future__ import annotations

import sys
from typing import Any

import click

from barnabas.client import ClientError
from barnabas.client.administration.words import ITERATIONS, MECHANISMS
from barnabas.commands.connection import secret_of_file
from barnabas.commands.errors import CommandError, name_of
from barnabas.commands.output import Table
from barnabas.commands.session import Session, asking, confirm, destructive

USERS = Table(
    "users",
    {
        "user": "name",
        "mechanism": "SCRAM-SHA-256 or SCRAM-SHA-512",
        "iterations": "iterations of the hash",
        "error": "error; null for success",
    },
)
OUTCOMES = Table(
    "users",
    {
        "user": "name",
        "mechanism": "mechanism",
        "outcome": "result of the change",
        "error": "error; null for success",
    },
)
_SCRAM = click.Choice(list(MECHANISMS))


@click.group("users")
def COMMAND() -> None:  # noqa: N802
    """Users with SCRAM credentials."""


@COMMAND.command("list")
@click.argument("names", nargs=-1)
@asking(USERS)
async def list_users(session: Session, names: tuple[str, ...]) -> None:
    """List users: all, or these."""
    rows: list[dict[str, Any]] = []
    for user, result in (await session.admin.users(names or None)).items():
        if isinstance(result, ClientError):
            rows.append({"user": user, "error": name_of(result)})
            continue
        rows += [
            {"user": user, "mechanism": mechanism, "iterations": iterations}
            for mechanism, iterations in sorted(result.items())
        ]
    session.output.show(USERS, rows)


@COMMAND.command("set")
@click.argument("name")
@click.option("--scram", type=_SCRAM, default="SCRAM-SHA-512", show_default=True, help="For this mechanism.")
@click.option(
    "--iterations",
    type=click.IntRange(4096, 16384),
    default=ITERATIONS,
    show_default=True,
    help="Iterations of the hash.",
)
@click.option(
    "--new-password-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="A file with the new password; otherwise it is asked for.",
)
@asking(OUTCOMES)
async def set_password(
    session: Session, name: str, scram: str, iterations: int, new_password_file: str | None
) -> None:
    """Create a user, or set a new password."""
    password = secret_of_file(new_password_file) if new_password_file else _asked(name)
    if not password:
        raise CommandError("the password is empty")
    await session.admin.set_password(name, password, mechanism=scram, iterations=iterations)
    session.output.show(OUTCOMES, [{"user": name, "mechanism": scram, "outcome": "set"}])


def _asked(name: str) -> str:
    """Ask for a password twice. Raises CommandError where standard input is no terminal."""
    if not sys.stdin.isatty():
        raise CommandError(
            "standard input is no terminal, so no password can be asked for; give --new-password-file"
        )
    password: str = click.prompt(
        f"New password of {name}", hide_input=True, confirmation_prompt=True, err=True
    )
    return password


@COMMAND.command("delete")
@click.argument("names", nargs=-1, required=True)
@click.option("--scram", type=_SCRAM, help="Only of this mechanism.")
@destructive
@asking(OUTCOMES)
async def delete(session: Session, names: tuple[str, ...], scram: str | None, yes: bool) -> None:
    """Delete passwords of users, so that they can no longer log in."""
    users = await session.admin.users(names)
    confirm(f"delete {', '.join(names)}", yes=yes)
    rows = []
    for user, result in users.items():
        if isinstance(result, ClientError):
            rows.append({"user": user, "outcome": "failed", "error": name_of(result)})
            continue
        for mechanism in sorted(result) if scram is None else [scram]:
            row = {"user": user, "mechanism": mechanism, "outcome": "deleted"}
            try:
                await session.admin.delete_password(user, mechanism)
            except ClientError as error:
                row |= {"outcome": "failed", "error": name_of(error)}
            rows.append(row)
    session.output.show(OUTCOMES, rows)
