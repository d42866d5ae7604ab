"""`barnabas quotas`: describe, alter, resolve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from barnabas.client import admin as administration
from barnabas.commands.output import Table
from barnabas.commands.parsing import key_value
from barnabas.commands.session import Session, asking

KINDS = ("user", "client-id", "ip")
DEFAULT = "<default>"

QUOTAS = Table(
    "quotas",
    {
        "user": "user; <default> for all that have none of their own, null where it does not matter",
        "client_id": "client id; the same",
        "ip": "address; the same",
        "key": "producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, "
        "connection_creation_rate",
        "value": "limit",
    },
)
OUTCOMES = Table(
    "quotas",
    {
        "user": "user",
        "client_id": "client id",
        "ip": "address",
        "key": "quota",
        "outcome": "result of the change",
    },
)
_NAME = click.option(
    "--name",
    "names",
    type=key_value,
    multiple=True,
    metavar="KIND=NAME",
    help="user=ann, client-id=app or ip=10.0.0.1; may be repeated.",
)
_DEFAULT = click.option(
    "--default",
    "defaults",
    type=click.Choice(KINDS),
    multiple=True,
    help="The default for entities of a kind without a quota of their own.",
)


@click.group("quotas")
def COMMAND() -> None:  # noqa: N802
    """Quotas of users, clients and addresses."""


def _entity(names: Iterable[tuple[str, str]], defaults: Iterable[str]) -> dict[str, str | None]:
    """Return an entity from options. Raises click.UsageError."""
    entity: dict[str, str | None] = {}
    for kind, name in [*names, *((kind, None) for kind in defaults)]:
        if kind not in KINDS:
            raise click.UsageError(f"--name {kind}={name}: one of {', '.join(KINDS)} is expected")
        if kind in entity:
            raise click.UsageError(f"{kind} is named twice")
        entity[kind] = name
    return entity


def _shown(entity: Mapping[str, str | None]) -> dict[str, str | None]:
    return {kind.replace("-", "_"): DEFAULT if name is None else name for kind, name in entity.items()}


def _rows(quotas: Iterable[administration.Quota]) -> list[dict[str, Any]]:
    return [
        {**_shown(dict(quota.entity)), "key": key, "value": value}
        for quota in quotas
        for key, value in sorted(quota.values.items())
    ]


@COMMAND.command("describe")
@_NAME
@_DEFAULT
@click.option(
    "--any", "kinds", type=click.Choice(KINDS), multiple=True, help="All entities with a quota of this kind."
)
@click.option("--strict", is_flag=True, help="Only entities with these parts and no others.")
@asking(QUOTAS)
async def describe(
    session: Session,
    names: tuple[tuple[str, str], ...],
    defaults: tuple[str, ...],
    kinds: tuple[str, ...],
    strict: bool,
) -> None:
    """Show quotas: all, or those that match."""
    entity = _entity(names, defaults)
    session.output.show(QUOTAS, _rows(await session.admin.quotas(exact=entity, kinds=kinds, strict=strict)))


@COMMAND.command("alter")
@_NAME
@_DEFAULT
@click.option(
    "--set",
    "sets",
    type=key_value,
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a quota, as producer_byte_rate=1e6.",
)
@click.option("--delete", "deletes", multiple=True, metavar="KEY", help="Remove a quota.")
@click.option("--dry-run", is_flag=True, help="Validate only: the broker checks the change and makes none.")
@asking(OUTCOMES)
async def alter(
    session: Session,
    names: tuple[tuple[str, str], ...],
    defaults: tuple[str, ...],
    sets: tuple[tuple[str, str], ...],
    deletes: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Set and remove quotas of one entity."""
    entity = _entity(names, defaults)
    if not entity or not (sets or deletes):
        raise click.UsageError("give --name or --default, and --set or --delete")
    changes: dict[str, float | None] = dict.fromkeys(deletes)
    for key, text in sets:
        try:
            changes[key] = float(text)
        except ValueError:
            raise click.UsageError(f"--set {key}={text}: a number is expected") from None
    await session.admin.alter_quotas(entity, changes, only_check=dry_run)
    would = "would be " if dry_run else ""
    session.output.show(
        OUTCOMES,
        [
            {**_shown(entity), "key": key, "outcome": would + ("removed" if value is None else "set")}
            for key, value in changes.items()
        ],
    )


@COMMAND.command("resolve")
@_NAME
@asking(QUOTAS)
async def resolve(session: Session, names: tuple[tuple[str, str], ...]) -> None:
    """Show which quotas apply to a user with a client id, or to an address."""
    entity = _entity(names, ())
    if not entity or ("ip" in entity and len(entity) > 1):
        raise click.UsageError("give --name user=NAME, --name client-id=NAME or both, or --name ip=ADDRESS")
    session.output.show(QUOTAS, _rows(applying(await session.admin.quotas(), entity)))


def applying(
    quotas: Iterable[administration.Quota], entity: Mapping[str, str | None]
) -> list[administration.Quota]:
    """Return the quotas that apply to a user with a client id, or to an address; each quota from the nearest entity."""
    values_of = {quota.entity: quota.values for quota in quotas}
    user, client, ip = (entity.get(kind) for kind in KINDS)
    order: list[dict[str, str | None]]
    if ip is not None:
        order = [{"ip": ip}, {"ip": None}]
    else:
        users: list[dict[str, str | None]] = [{"user": user}, {"user": None}]
        clients: list[dict[str, str | None]] = [{"client-id": client}, {"client-id": None}]
        # Kafka's order: users with clients, users, then clients (ClientQuotaManager).
        order = [
            candidate
            for who in users
            for candidate in (*({**who, **which} for which in clients), who)
            if user is not None
        ] + (clients if client is not None else [])
    applied: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
    seen: set[str] = set()
    for candidate in order:
        key = tuple(sorted(candidate.items()))
        new = {name: value for name, value in values_of.get(key, {}).items() if name not in seen}
        seen |= new.keys()
        if new:
            applied[key] = new
    return [administration.Quota(key, values) for key, values in applied.items()]
