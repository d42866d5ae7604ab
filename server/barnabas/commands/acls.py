"""`barnabas acls`: list, create, delete."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from barnabas.client import ClientError
from barnabas.client import admin as administration
from barnabas.client.administration.words import CLUSTER_NAME, OPERATIONS
from barnabas.commands.errors import CommandError, name_of
from barnabas.commands.output import Table
from barnabas.commands.session import Session, asking, confirm, destructive

F = TypeVar("F", bound=Callable[..., Any])

ACLS = Table(
    "acls",
    {
        "principal": "the principal, as User:ann",
        "host": "client host; * for any",
        "permission": "allow or deny",
        "operation": "the operation",
        "resource_type": "kind of the resource",
        "resource_name": "its name",
        "pattern_type": "literal or prefixed",
        "error": "error; null for success",
    },
)
_KINDS = {
    "topic": "topic",
    "group": "group",
    "transactional_id": "transactional-id",
    "token": "delegation-token",
}


def _resources(command: F) -> F:
    """Add options that name resources."""
    for option in (
        click.option("--cluster", is_flag=True, help="The cluster."),
        click.option("--token", multiple=True, metavar="ID", help="A delegation token; may be repeated."),
        click.option(
            "--transactional-id", multiple=True, metavar="ID", help="A transactional id; may be repeated."
        ),
        click.option("--group", multiple=True, metavar="NAME", help="A group; may be repeated."),
        click.option("--topic", multiple=True, metavar="NAME", help="A topic; may be repeated."),
    ):
        command = option(command)
    return command


def _named(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    resources = [(kind, name) for option, kind in _KINDS.items() for name in options[option]]
    return [*resources, ("cluster", CLUSTER_NAME)] if options["cluster"] else resources


@click.group("acls")
def COMMAND() -> None:  # noqa: N802
    """ACLs: operations that principals may do on resources, or may not."""


def _filter(command: F) -> F:
    """Add the options of a filter."""
    for option in (
        click.option(
            "--pattern", type=click.Choice(("any", "match", "literal", "prefixed")), default="any", show_default=True,
            help="How ACLs name resources; `match`: all that apply to the name.",
        ),
        click.option("--permission", type=click.Choice(("any", "allow", "deny")), default="any", help="allow or deny."),
        click.option("--operation", type=click.Choice(OPERATIONS[1:]), default="any", help="Only this operation."),
        click.option("--host", metavar="HOST", help="Only ACLs of this host."),
        click.option("--principal", metavar="TYPE:NAME", help="Only ACLs of this principal, as User:ann."),
    ):  # fmt: skip
        command = option(command)
    return _resources(command)


def _filters(options: Mapping[str, Any]) -> list[administration.Acl]:
    """Return the filters of the options: one for each resource, or one for all."""
    rest = (
        options["pattern"],
        options["principal"],
        options["host"],
        options["operation"],
        options["permission"],
    )
    return [administration.Acl(kind, name, *rest) for kind, name in _named(options)] or [
        administration.Acl("any", None, *rest)
    ]


@COMMAND.command("list")
@_filter
@asking(ACLS)
async def list_acls(session: Session, **options: Any) -> None:
    """List ACLs: all, or those that match."""
    session.output.show(ACLS, [acl._asdict() for acl in await _matching(session, _filters(options))])


async def _matching(session: Session, filters: Iterable[administration.Acl]) -> list[administration.Acl]:
    matching: dict[administration.Acl, None] = {}
    for filter_ in filters:
        matching |= dict.fromkeys(await session.admin.acls(filter_))
    return list(matching)


@COMMAND.command("create")
@_resources
@click.option(
    "--pattern",
    type=click.Choice(("literal", "prefixed")),
    default="literal",
    show_default=True,
    help="Pattern type of the name.",
)
@click.option(
    "--operation",
    "operations",
    type=click.Choice(OPERATIONS[2:]),
    multiple=True,
    required=True,
    help="What is done; may be repeated.",
)
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="TYPE:NAME",
    help="Allow this principal, as User:ann; may be repeated.",
)
@click.option(
    "--deny", "denied", multiple=True, metavar="TYPE:NAME", help="Deny this principal; may be repeated."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    default=("*",),
    show_default=True,
    metavar="HOST",
    help="Client host: an address or, to brokers of Kafka 4.4, a network as 10.0.0.0/8; may be repeated.",
)
@asking(ACLS)
async def create(
    session: Session,
    operations: tuple[str, ...],
    allowed: tuple[str, ...],
    denied: tuple[str, ...],
    hosts: tuple[str, ...],
    pattern: str,
    **resources: Any,
) -> None:
    """Create ACLs: one for each combination of resource, operation, principal and host."""
    named = _named(resources)
    if not named:
        raise click.UsageError("give --topic, --group, --transactional-id, --token or --cluster")
    principals = [(principal, "allow") for principal in allowed] + [
        (principal, "deny") for principal in denied
    ]
    if not principals:
        raise click.UsageError("give --allow or --deny, as --allow User:ann")
    for principal, _ in principals:
        if ":" not in principal:
            raise click.UsageError(f"{principal!r} is no principal: User:{principal} is expected")
    acls = [
        administration.Acl(
            kind, name, "literal" if kind == "cluster" else pattern, principal, host, operation, permission
        )
        for (kind, name), operation, (principal, permission), host in itertools.product(
            named, operations, principals, hosts
        )
    ]
    session.output.show(ACLS, _rows(await session.admin.create_acls(acls)))


def _rows(outcomes: Mapping[administration.Acl, ClientError | None]) -> list[dict[str, Any]]:
    return [
        {**acl._asdict(), "error": None if error is None else name_of(error)}
        for acl, error in outcomes.items()
    ]


@COMMAND.command("delete")
@_filter
@destructive
@asking(ACLS)
async def delete(session: Session, yes: bool, **options: Any) -> None:
    """Delete the ACLs that match; they are shown first."""
    filters = _filters(options)
    acls = await _matching(session, filters)
    if not acls:
        raise CommandError("no ACL matches; `barnabas acls list` shows what there is")
    if not yes:
        for acl in acls:
            session.output.note(" ".join(str(part) for part in acl))
    confirm(f"delete {len(acls)} ACLs", yes=yes)
    outcomes: dict[administration.Acl, ClientError | None] = {}
    for filter_ in filters:
        outcomes |= await session.admin.delete_acls(filter_)
    session.output.show(ACLS, _rows(outcomes))
