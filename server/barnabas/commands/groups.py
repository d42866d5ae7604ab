"""`barnabas groups`: list, describe, reset-offsets, delete, delete-offsets, remove-members."""

from __future__ import annotations

from typing import Any

import click

from barnabas.client import ClientError
from barnabas.client import admin as administration
from barnabas.client.administration.words import KINDS, SHARE
from barnabas.commands.completing import group_names
from barnabas.commands.errors import CommandError, name_of
from barnabas.commands.lagging import GroupLag, lags_of
from barnabas.commands.output import Table
from barnabas.commands.parsing import topic_partition
from barnabas.commands.resetting import RESET, TARGETS, Target, chosen_partitions, new_offsets
from barnabas.commands.session import Session, asking, confirm, destructive, matching, regex
from barnabas.environment.terminal import counted

GROUPS = Table(
    "groups",
    {
        "group": "group id",
        "kind": "classic, consumer, share or streams",
        "protocol_type": "protocol type of its members: consumer, connect, ...",
        "state": "state, as Kafka names it",
        "coordinator": "broker that coordinates it",
        "error": "error; null for success",
    },
)
DESCRIBED = Table(
    "groups",
    {
        "group": "group id",
        "kind": "classic, consumer, share or streams",
        "state": "state, as Kafka names it",
        "assignor": "assignor, or the classic protocol that was chosen",
        "epoch": "group epoch; null in a classic group",
        "coordinator": "broker that coordinates it",
        "members": "number of members",
        "lag": "sum of the lags that are known",
        "error": "error; null for success",
    },
)
MEMBERS = Table(
    "members",
    {
        "group": "group id",
        "member_id": "member id",
        "instance_id": "instance id of a static member",
        "client_id": "client id",
        "host": "address that it connects from",
        "epoch": "member epoch; null in a classic group",
        "partitions": "number of partitions that it has",
        "subscription": "topics that it subscribes to",
    },
)
LAGS = Table(
    "offsets",
    {
        "group": "group id",
        "topic": "topic",
        "partition": "number of the partition",
        "committed": "committed offset; of a share group, its first offset",
        "latest": "offset after the last record",
        "lag": "records behind",
        "client_id": "client that reads it",
        "host": "address of that client",
        "member_id": "its member id",
        "error": "error; null for success",
    },
    json_only=("member_id",),
)
OUTCOMES = Table(
    "groups", {"group": "group id", "outcome": "result of the change", "error": "error; null for success"}
)
PARTITION_OUTCOMES = Table(
    "offsets",
    {
        "group": "group id",
        "topic": "topic",
        "partition": "number of the partition; null for all of a share group's",
        "outcome": "result of the change",
        "error": "error; null for success",
    },
)
MEMBER_OUTCOMES = Table(
    "members",
    {
        "group": "group id",
        "member_id": "member id",
        "outcome": "result of the change",
        "error": "error; null for success",
    },
)


@click.group("groups")
def COMMAND() -> None:  # noqa: N802
    """Groups of every kind: members, lag, offsets."""


async def _listed(
    session: Session, names: tuple[str, ...], *, is_regex: bool
) -> tuple[dict[str, administration.ListedGroup], list[str]]:
    """Return the groups of these names or patterns, and the names that there are not. Raises CommandError, ClientError."""
    groups, failures = await session.admin.list_groups()
    matches = matching(groups, names, is_regex=is_regex)
    missing = [name for name in matches if name not in groups]
    if failures and missing:  # it may be there
        raise next(iter(failures.values()))
    if is_regex and not matches:
        raise CommandError(f"no group matches {', '.join(names)}; `barnabas groups list` shows what there is")
    return {name: groups[name] for name in matches if name in groups}, missing


@COMMAND.command("list")
@click.argument("names", nargs=-1, shell_complete=group_names)
@regex
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="Only in this state; may be repeated."
)
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only of this kind; may be repeated."
)
@asking(GROUPS)
async def list_groups(
    session: Session, names: tuple[str, ...], regex: bool, states: tuple[str, ...], kinds: tuple[str, ...]
) -> None:
    """List groups: all, or these."""
    groups, failures = await session.admin.list_groups(states=states, kinds=kinds)
    shown = matching(groups, names, is_regex=regex) if names else list(groups)
    rows: list[dict[str, Any]] = [
        {
            "group": name,
            "kind": group.kind,
            "protocol_type": group.protocol_type,
            "state": group.state or None,
            "coordinator": group.coordinator,
        }
        if (group := groups.get(name)) is not None
        else {"group": name, "error": "GROUP_ID_NOT_FOUND"}
        for name in shown
    ]
    rows += [{"coordinator": broker, "error": name_of(error)} for broker, error in failures.items()]
    session.output.show(GROUPS, rows)


@COMMAND.command("describe")
@click.argument("names", nargs=-1, shell_complete=group_names, required=True)
@regex
@asking(DESCRIBED, MEMBERS, LAGS)
async def describe(session: Session, names: tuple[str, ...], regex: bool) -> None:
    """Show state, members, and lag of each partition."""
    groups, missing = await _listed(session, names, is_regex=regex)
    lags = await lags_of(session.admin, groups)
    rows = [_described(lag) for lag in lags.values()]
    rows += [{"group": name, "error": "GROUP_ID_NOT_FOUND"} for name in missing]
    session.output.show(DESCRIBED, rows)
    infos = [lag.info for lag in lags.values() if isinstance(lag.info, administration.GroupInfo)]
    session.output.show(
        MEMBERS,
        [
            {
                "group": info.group_id,
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "partitions": len(member.assignment),
                "subscription": member.subscription,
            }
            for info in infos
            for member in info.members
        ],
    )
    session.output.show(LAGS, lag_rows(lags.values()))


def lag_rows(lags: Any) -> list[dict[str, Any]]:
    """Return rows of LAGS."""
    return [
        {
            "group": partition.group,
            "topic": partition.topic,
            "partition": partition.partition,
            "committed": partition.committed,
            "latest": partition.latest,
            "lag": partition.lag,
            "client_id": partition.client_id or None,
            "host": partition.host or None,
            "member_id": partition.member_id or None,
            "error": None if partition.error is None else name_of(partition.error),
        }
        for lag in lags
        for partition in lag.partitions
    ]


def _described(lag: GroupLag) -> dict[str, Any]:
    listed, info = lag.listed, lag.info
    row: dict[str, Any] = {"group": listed.group_id, "kind": listed.kind, "coordinator": listed.coordinator}
    if isinstance(info, ClientError):
        return {**row, "state": listed.state or None, "error": name_of(info)}
    return {
        **row,
        "state": info.state,
        "assignor": info.assignor or None,
        "epoch": info.epoch,
        "members": len(info.members),
        "lag": lag.total,
    }


@COMMAND.command("reset-offsets")
@click.argument("group", shell_complete=group_names)
@click.option(
    "-t",
    "--topic",
    "topics",
    type=topic_partition,
    metavar="TOPIC[:PARTITION]",
    multiple=True,
    help="Only these; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="All topics with offsets committed by the group.")
@TARGETS
@click.option("--execute", is_flag=True, help="Carry out the change; without it the change is only shown.")
@asking(RESET)
async def reset_offsets(
    session: Session,
    group: str,
    topics: tuple[tuple[str, int | None], ...],
    all_topics: bool,
    execute: bool,
    **target: Any,
) -> None:
    """Reset a group's offsets; it must have no members. Without --execute nothing is changed."""
    goal = Target.of(target)
    if goal.file is None and bool(topics) == all_topics:
        raise click.UsageError("give --topic, or --all-topics for all that the group has committed")
    admin = session.admin
    groups, _ = await admin.list_groups()
    is_share = group in groups and groups[group].kind == SHARE
    state = groups[group].state if group in groups else ""
    if state not in ("", "Empty", "Dead"):
        raise CommandError(f"group {group!r} is {state}: stop its members first")
    committed: Any = {}
    if group in groups:
        asked = await (admin.share_offsets([group]) if is_share else admin.committed([group]))
        committed = asked[group]
        if isinstance(committed, ClientError):
            raise committed
    partitions = await chosen_partitions(admin, topics, committed, goal)
    rows = await new_offsets(admin, group, partitions, committed, goal)
    if execute:
        new = {(row["topic"], row["partition"]): row["new"] for row in rows if row["error"] is None}
        outcomes = (
            await (admin.set_share_offsets if is_share else admin.commit_offsets)(group, new) if new else {}
        )
        for row in rows:
            error = outcomes.get((row["topic"], row["partition"]))
            row["error"] = row["error"] if error is None else name_of(error)
            row["is_done"] = row["error"] is None
    session.output.show(RESET, rows)
    if not execute:
        session.output.note("nothing was changed; --execute does it")


@COMMAND.command("delete")
@click.argument("names", nargs=-1, shell_complete=group_names, required=True)
@regex
@destructive
@asking(OUTCOMES)
async def delete(session: Session, names: tuple[str, ...], regex: bool, yes: bool) -> None:
    """Delete groups that have no members, with their offsets."""
    chosen = list((await _listed(session, names, is_regex=True))[0]) if regex else list(names)
    confirm(f"delete {', '.join(chosen)} with all offsets", yes=yes)
    outcomes = await session.admin.delete_groups(chosen)
    session.output.show(
        OUTCOMES,
        [
            {"group": name, "outcome": "deleted"}
            if error is None
            else {"group": name, "outcome": "failed", "error": name_of(error)}
            for name, error in outcomes.items()
        ],
    )


@COMMAND.command("delete-offsets")
@click.argument("group", shell_complete=group_names)
@click.argument("partitions", nargs=-1, required=True, type=topic_partition, metavar="TOPIC[:PARTITION]...")
@destructive
@asking(PARTITION_OUTCOMES)
async def delete_offsets(
    session: Session, group: str, partitions: tuple[tuple[str, int | None], ...], yes: bool
) -> None:
    """Delete committed offsets of a group, by topic or partition."""
    groups, missing = await _listed(session, (group,), is_regex=False)
    if missing:
        raise CommandError(f"there is no group {group!r}; `barnabas groups list` shows what there is")
    listed = groups[group]
    names = ", ".join(topic if number is None else f"{topic}:{number}" for topic, number in partitions)
    confirm(f"have {group} forget its offsets of {names}", yes=yes)
    outcomes: dict[Any, ClientError | None]
    if listed.kind == SHARE:
        if any(number is not None for _, number in partitions):
            raise click.UsageError("a share group forgets whole topics: leave out the partition")
        of_topics = await session.admin.delete_share_offsets(group, [topic for topic, _ in partitions])
        outcomes = {(topic, None): error for topic, error in of_topics.items()}
    else:
        committed = (await session.admin.committed([group]))[group]
        if isinstance(committed, ClientError):
            raise committed
        forgotten = [
            partition
            for partition in committed
            if partition in partitions or (partition[0], None) in partitions
        ]
        forgotten += [(topic, number) for topic, number in partitions if number is not None]
        if not forgotten:
            raise CommandError(f"{group} has committed nothing for {names}")
        outcomes = dict(await session.admin.delete_offsets(group, dict.fromkeys(forgotten)))
    session.output.show(
        PARTITION_OUTCOMES,
        [
            {
                "group": group,
                "topic": topic,
                "partition": number,
                "outcome": "deleted" if error is None else "failed",
                "error": None if error is None else name_of(error),
            }
            for (topic, number), error in outcomes.items()
        ],
    )


@COMMAND.command("remove-members")
@click.argument("group", shell_complete=group_names)
@click.option("--member", "members", multiple=True, metavar="ID", help="A member id; may be repeated.")
@click.option("--instance", "instances", multiple=True, metavar="ID", help="An instance id; may be repeated.")
@click.option("--all", "removes_all", is_flag=True, help="All members.")
@destructive
@asking(MEMBER_OUTCOMES)
async def remove_members(
    session: Session,
    group: str,
    members: tuple[str, ...],
    instances: tuple[str, ...],
    removes_all: bool,
    yes: bool,
) -> None:
    """Remove members from a classic or consumer group; live ones join again."""
    if removes_all == bool(members or instances):
        raise click.UsageError("give --member or --instance, or --all")
    groups, missing = await _listed(session, (group,), is_regex=False)
    if missing:
        raise CommandError(f"there is no group {group!r}; `barnabas groups list` shows what there is")
    info = (await session.admin.describe_groups({group: groups[group].kind}))[group]
    if isinstance(info, ClientError):
        raise info
    removed = [
        member
        for member in info.members
        if removes_all or member.member_id in members or member.instance_id in instances
    ]
    unknown = sorted({*members} - {member.member_id for member in info.members})
    unknown += sorted({*instances} - {member.instance_id for member in info.members if member.instance_id})
    if unknown:
        raise CommandError(
            f"{group} has no member {', '.join(unknown)}; `barnabas groups describe {group}` shows them"
        )
    if not removed:
        raise CommandError(f"{group} has no members")
    confirm(f"remove {len(removed)} of {counted(len(info.members), 'member')} of {group}", yes=yes)
    outcomes = await session.admin.remove_members(group, removed)
    session.output.show(
        MEMBER_OUTCOMES,
        [
            {
                "group": group,
                "member_id": member_id,
                "outcome": "removed" if error is None else "failed",
                "error": None if error is None else name_of(error),
            }
            for member_id, error in outcomes.items()
        ],
    )
