"""`barnabas tokens`: delegation tokens: create, describe, renew, expire."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Any

import click

from barnabas.client import admin as administration
from barnabas.commands.connection import secret_of_file
from barnabas.commands.errors import CommandError
from barnabas.commands.output import Table
from barnabas.commands.parsing import duration_ms
from barnabas.commands.session import Session, asking, confirm, destructive

TOKENS = Table(
    "tokens",
    {
        "token_id": "token id: the user name of a login with it",
        "owner": "the principal that a login with it gets",
        "requester": "the principal that created it",
        "renewers": "principals that may renew it, beside the owner",
        "issued_at_ms": "when it was made, in ms since 1970",
        "expires_at_ms": "expiry, in ms since 1970",
        "max_at_ms": "time until which it may be renewed, in ms since 1970",
        "hmac": "the password of a login with it (Base64); only of `create`, and with --secret",
    },
)
EXPIRY = Table("tokens", {"token_id": "token id", "expires_at_ms": "expiry, in ms since 1970"})


def principal(text: str) -> administration.Principal:
    """Read `TYPE:NAME`. Raises click.BadParameter."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise click.BadParameter(f"{text!r} is no principal: User:{text} is expected")
    return administration.Principal(kind, name)


@click.group("tokens")
def COMMAND() -> None:  # noqa: N802
    """Delegation tokens: logins for programs that need no password."""


def _row(token: administration.Token, *, with_secret: bool) -> dict[str, Any]:
    return {
        "token_id": token.token_id,
        "owner": str(token.owner),
        "requester": str(token.requester) if token.requester.name else None,
        "renewers": [str(renewer) for renewer in token.renewers],
        "issued_at_ms": token.issued_at_ms,
        "expires_at_ms": token.expires_at_ms,
        "max_at_ms": token.max_at_ms,
        "hmac": b64encode(token.hmac).decode() if with_secret else None,
    }


@COMMAND.command("create")
@click.option(
    "--owner", type=principal, metavar="TYPE:NAME", help="Owner of the token, if it is another user."
)
@click.option(
    "--renewer",
    "renewers",
    type=principal,
    metavar="TYPE:NAME",
    multiple=True,
    help="A principal that may also renew it; may be repeated.",
)
@click.option(
    "--lifetime",
    type=duration_ms,
    metavar="DURATION",
    help="How long it can be renewed, as 7d; default: the broker's longest.",
)
@asking(TOKENS)
async def create(
    session: Session,
    owner: administration.Principal | None,
    renewers: tuple[administration.Principal, ...],
    lifetime: int | None,
) -> None:
    """Create a token, for the user that is logged in."""
    token = await session.admin.create_token(
        owner=owner, renewers=renewers, lifetime_ms=-1 if lifetime is None else lifetime
    )
    session.output.show(TOKENS, [_row(token, with_secret=True)])


@COMMAND.command("describe")
@click.option(
    "--owner", "owners", type=principal, metavar="TYPE:NAME", multiple=True, help="Only tokens of this owner."
)
@click.option("--secret", is_flag=True, help="Show the passwords of the tokens too.")
@asking(TOKENS)
async def describe(session: Session, owners: tuple[administration.Principal, ...], secret: bool) -> None:
    """Show the tokens that the user may see."""
    tokens = await session.admin.tokens(owners or None)
    session.output.show(TOKENS, [_row(token, with_secret=secret) for token in tokens])


_HMAC_FILE = click.option(
    "--hmac-file", metavar="FILE", type=click.Path(dir_okay=False),
    help="A file with its password (Base64), if the token is not one that `describe` shows.",
)  # fmt: skip


async def _hmac(session: Session, token_id: str, file: str | None) -> bytes:
    """Return a token's password, from a file or from the broker. Raises CommandError, ClientError."""
    if file is not None:
        try:
            return b64decode(secret_of_file(file), validate=True)
        except Base64Error as error:
            raise CommandError(f"{file}: {error}") from None
    for token in await session.admin.tokens():
        if token.token_id == token_id:
            return token.hmac
    raise CommandError(
        f"there is no token {token_id!r} that you may see; `barnabas tokens describe` shows them"
    )


@COMMAND.command("renew")
@click.argument("token_id")
@click.option("--period", type=duration_ms, metavar="DURATION", help="Duration; default: the broker's.")
@_HMAC_FILE
@asking(EXPIRY)
async def renew(session: Session, token_id: str, period: int | None, hmac_file: str | None) -> None:
    """Renew a token."""
    hmac = await _hmac(session, token_id, hmac_file)
    until = await session.admin.renew_token(hmac, -1 if period is None else period)
    session.output.show(EXPIRY, [{"token_id": token_id, "expires_at_ms": until}])


@COMMAND.command("expire")
@click.argument("token_id")
@click.option("--in", "period", type=duration_ms, metavar="DURATION", help="Delay until the token expires.")
@_HMAC_FILE
@destructive
@asking(EXPIRY)
async def expire(
    session: Session, token_id: str, period: int | None, hmac_file: str | None, yes: bool
) -> None:
    """Expire a token."""
    hmac = await _hmac(session, token_id, hmac_file)
    confirm(f"expire token {token_id}", yes=yes)
    until = await session.admin.expire_token(hmac, -1 if period is None else period)
    session.output.show(EXPIRY, [{"token_id": token_id, "expires_at_ms": until}])
