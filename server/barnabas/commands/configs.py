"""`barnabas configs`: list, describe, alter, for topics, brokers, loggers, groups, client metrics."""

from __future__ import annotations

from typing import Any

import click

from barnabas.client import ClientError
from barnabas.client import admin as administration
from barnabas.client.administration.words import APPEND, DELETE, SET, SUBTRACT, TYPES
from barnabas.commands.completing import resource_names
from barnabas.commands.errors import CommandError, name_of
from barnabas.commands.output import Table
from barnabas.commands.parsing import key_value
from barnabas.commands.session import Session, asking, matching, regex

ALL_BROKERS = "default"
"""Name that stands for the settings that all brokers share."""

RESOURCES = Table("resources", {"kind": "kind", "name": "name"})
CONFIGS = Table(
    "configs",
    {
        "kind": "kind of the resource",
        "name": "name of the resource",
        "key": "name of the setting",
        "value": "value; null if it is secret",
        "source": "where the value comes from: topic, broker, all brokers, file, default, ...",
        "is_sensitive": "true if the value is secret",
        "is_read_only": "true if it cannot be changed while the broker runs",
        "synonyms": "values that would count without this one, the next first: key, value, source",
        "documentation": "the broker's description of the setting; with --docs",
        "error": "error; null for success",
    },
    json_only=("is_sensitive", "is_read_only", "synonyms"),
)
OUTCOMES = Table(
    "resources",
    {"kind": "kind", "name": "name", "outcome": "result of the change", "error": "error; null for success"},
)
_KIND = click.Choice(list(TYPES))


@click.group("configs")
def COMMAND() -> None:  # noqa: N802
    """Settings of topics, brokers, loggers, groups and client metrics."""


async def _resources(
    session: Session, kind: str, names: tuple[str, ...], *, is_regex: bool
) -> list[administration.Resource]:
    """Return resources by names or patterns; without names all of a kind. Raises CommandError, ClientError."""
    if names and not is_regex:
        return [
            administration.Resource(kind, "" if kind == "broker" and name == ALL_BROKERS else name)
            for name in dict.fromkeys(names)
        ]
    every: list[str]
    if kind == "topic":
        every = [
            name
            for name, topic in (await session.admin.topics()).items()
            if isinstance(topic, ClientError) or not topic.is_internal
        ]
    elif kind in ("broker", "broker-logger"):
        every = [str(broker.broker_id) for broker in (await session.admin.describe_cluster()).brokers]
    elif kind == "group":
        every = list((await session.admin.list_groups())[0])
    else:
        every = [resource.name for resource in await session.admin.config_resources([kind])]
    chosen = matching(every, names or (".*",), is_regex=True)
    if not chosen and names:
        raise CommandError(f"no {kind} matches {', '.join(names)}")
    return [administration.Resource(kind, name) for name in chosen]


@COMMAND.command("list")
@click.argument("kind", type=_KIND, required=False)
@asking(RESOURCES)
async def list_resources(session: Session, kind: str | None) -> None:
    """List the resources that have, or may have, their own settings."""
    if kind is None:
        resources = await session.admin.config_resources()
    else:
        resources = await _resources(session, kind, (), is_regex=False)
    session.output.show(RESOURCES, [resource._asdict() for resource in resources])


@COMMAND.command("describe")
@click.argument("kind", type=_KIND)
@click.argument("names", nargs=-1, shell_complete=resource_names)
@regex
@click.option("-k", "--key", "keys", multiple=True, metavar="KEY", help="Only this setting; may be repeated.")
@click.option("--all", "shows_all", is_flag=True, help="Also settings that have their defaults.")
@click.option("--docs", is_flag=True, help="Also descriptions of the settings.")
@asking(CONFIGS)
async def describe(
    session: Session,
    kind: str,
    names: tuple[str, ...],
    regex: bool,
    keys: tuple[str, ...],
    shows_all: bool,
    docs: bool,
) -> None:
    """Show settings that were set, of all resources of a kind or of these; `default` names those of all brokers."""
    resources = await _resources(session, kind, names, is_regex=regex)
    configs = await session.admin.describe_configs(resources, names=keys or None, documentation=docs)
    rows: list[dict[str, Any]] = []
    for resource, entries in configs.items():
        name = resource.name or ALL_BROKERS
        if isinstance(entries, ClientError):
            rows.append({"kind": kind, "name": name, "error": name_of(entries)})
            continue
        for entry in entries:
            if entry.source == "default" and not (shows_all or keys):
                continue
            rows.append(
                {
                    "kind": kind,
                    "name": name,
                    "key": entry.name,
                    "value": entry.value,
                    "source": entry.source,
                    "is_sensitive": entry.is_sensitive,
                    "is_read_only": entry.is_read_only,
                    "synonyms": [
                        {"key": key, "value": value, "source": source}
                        for key, value, source in entry.synonyms[1:]
                    ],
                    "documentation": entry.documentation or None,
                }
            )
    table = CONFIGS
    if not docs:
        table = Table(CONFIGS.name, CONFIGS.columns, (*CONFIGS.json_only, "documentation"))
    session.output.show(table, rows)


@COMMAND.command("alter")
@click.argument("kind", type=_KIND)
@click.argument("names", nargs=-1, shell_complete=resource_names, required=True)
@regex
@click.option("--set", "sets", type=key_value, metavar="KEY=VALUE", multiple=True, help="Set a setting.")
@click.option("--delete", "deletes", metavar="KEY", multiple=True, help="Reset to the default.")
@click.option(
    "--append", "appends", type=key_value, metavar="KEY=VALUE", multiple=True, help="Add an item to a list."
)
@click.option(
    "--subtract",
    "subtracts",
    type=key_value,
    metavar="KEY=VALUE",
    multiple=True,
    help="Remove an item from a list.",
)
@click.option("--dry-run", is_flag=True, help="Validate only: the broker checks the change and makes none.")
@asking(OUTCOMES)
async def alter(
    session: Session,
    kind: str,
    names: tuple[str, ...],
    regex: bool,
    sets: tuple[tuple[str, str], ...],
    deletes: tuple[str, ...],
    appends: tuple[tuple[str, str], ...],
    subtracts: tuple[tuple[str, str], ...],
    dry_run: bool,
) -> None:
    """Change settings of resources; other settings keep their values."""
    changes = [administration.ConfigChange(key, SET, value) for key, value in sets]
    changes += [administration.ConfigChange(key, DELETE, None) for key in deletes]
    changes += [administration.ConfigChange(key, APPEND, value) for key, value in appends]
    changes += [administration.ConfigChange(key, SUBTRACT, value) for key, value in subtracts]
    if not changes:
        raise click.UsageError("give --set, --delete, --append or --subtract")
    resources = await _resources(session, kind, names, is_regex=regex)
    outcomes = await session.admin.alter_configs(dict.fromkeys(resources, changes), only_check=dry_run)
    done = "would be changed" if dry_run else "changed"
    session.output.show(
        OUTCOMES,
        [
            {
                "kind": kind,
                "name": resource.name or ALL_BROKERS,
                "outcome": done if error is None else "failed",
                "error": None if error is None else name_of(error),
            }
            for resource, error in outcomes.items()
        ],
    )
