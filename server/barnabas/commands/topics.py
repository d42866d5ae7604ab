"""`barnabas topics`: list, describe, create, alter, delete, offsets, trim."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from barnabas.client import ClientError
from barnabas.client import admin as administration
from barnabas.commands.completing import topic_names
from barnabas.commands.errors import CommandError, name_of
from barnabas.commands.output import Table
from barnabas.commands.parsing import key_value, moment_ms, topic_partition
from barnabas.commands.session import Session, asking, confirm, destructive, matching, regex
from barnabas.environment.terminal import counted

TOPICS = Table(
    "topics",
    {
        "name": "name",
        "partitions": "number of partitions",
        "replicas": "replicas of a partition",
        "is_internal": "true for a topic of the broker's own",
        "id": "topic id",
        "error": "error; null for success",
    },
    json_only=("id",),
)
PARTITIONS = Table(
    "partitions",
    {
        "topic": "topic",
        "partition": "number of the partition",
        "leader": "broker that leads it; -1 for none",
        "leader_epoch": "leader epoch",
        "replicas": "brokers that hold it, the preferred leader first",
        "in_sync": "those that are in sync",
        "offline": "those that are down",
        "error": "error; null for success",
    },
)
OUTCOMES = Table(
    "topics", {"name": "name", "outcome": "result of the change", "error": "error; null for success"}
)
OFFSETS = Table(
    "offsets",
    {
        "topic": "topic",
        "partition": "number of the partition",
        "earliest": "first offset",
        "latest": "offset after the last record",
        "records": "their distance: an upper bound for the number of records",
        "at": "first offset at or after --at, null where none is; only with --at",
        "error": "error; null for success",
    },
)
TRIMMED = Table(
    "partitions",
    {
        "topic": "topic",
        "partition": "number of the partition",
        "earliest": "new log start offset",
        "error": "error; null for success",
    },
)


@click.group("topics")
def COMMAND() -> None:  # noqa: N802
    """List, describe, create, change and delete topics."""


@COMMAND.command("list")
@click.argument("names", nargs=-1, shell_complete=topic_names)
@regex
@click.option("--internal", is_flag=True, help="Also internal topics.")
@asking(TOPICS)
async def list_topics(session: Session, names: tuple[str, ...], regex: bool, internal: bool) -> None:
    """List topics: all, or these."""
    topics = await session.admin.topics(None if regex or not names else names)
    shown = matching(topics, names, is_regex=True) if regex and names else list(topics)
    shows_internal = internal or bool(names)
    session.output.show(
        TOPICS,
        [_row(name, topics[name]) for name in shown if shows_internal or not _is_internal(topics[name])],
    )


def _is_internal(topic: administration.TopicInfo | ClientError) -> bool:
    return isinstance(topic, administration.TopicInfo) and topic.is_internal


def _row(name: str, topic: administration.TopicInfo | ClientError) -> dict[str, Any]:
    if isinstance(topic, ClientError):
        return {"name": name, "error": name_of(topic)}
    replicas = max((len(partition.replicas) for partition in topic.partitions), default=0)
    return {
        "name": name,
        "partitions": len(topic.partitions),
        "replicas": replicas,
        "is_internal": topic.is_internal,
        "id": topic.id,
    }


@COMMAND.command("describe")
@click.argument("names", nargs=-1, shell_complete=topic_names, required=True)
@regex
@asking(TOPICS, PARTITIONS)
async def describe(session: Session, names: tuple[str, ...], regex: bool) -> None:
    """Show partitions of topics: leaders, replicas, in-sync replicas. `configs describe` shows their settings."""
    topics = await _named(session, names, is_regex=regex)
    session.output.show(TOPICS, [_row(name, topic) for name, topic in topics.items()])
    session.output.show(
        PARTITIONS,
        [
            {
                "topic": name,
                "partition": partition.number,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replicas,
                "in_sync": partition.in_sync,
                "offline": partition.offline,
            }
            for name, topic in topics.items()
            if isinstance(topic, administration.TopicInfo)
            for partition in topic.partitions
        ],
    )


async def _named(
    session: Session, names: Iterable[str], *, is_regex: bool, with_internal: bool = True
) -> dict[str, administration.TopicInfo | ClientError]:
    """Return topics by names or patterns, which match internal ones if `with_internal`. Raises CommandError."""
    topics = await session.admin.topics(None if is_regex else names)
    if not is_regex:
        return topics
    candidates = [name for name in topics if with_internal or not _is_internal(topics[name])]
    matches = matching(candidates, names, is_regex=True)
    if not matches:
        raise CommandError(f"no topic matches {', '.join(names)}; `barnabas topics list` shows what there is")
    return {name: topics[name] for name in matches}


def _new_topic(text: str) -> tuple[str, int | None]:
    """Parse `NAME` or `NAME:PARTITIONS`, as for `serve --topic`. Raises click.BadParameter."""
    name, colon, count = text.partition(":")
    if not colon:
        return name, None
    if not name or not count.isdecimal() or not int(count):
        raise click.BadParameter(f"{text!r} is not NAME or NAME:PARTITIONS; -c KEY=VALUE gives settings")
    return name, int(count)


@COMMAND.command("create")
@click.argument("names", nargs=-1, required=True, metavar="NAME[:PARTITIONS]...", type=_new_topic)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    default=None,
    help="Number of partitions; default: the broker's.",
)
@click.option(
    "--replicas", type=click.IntRange(1), default=None, help="Replicas of each; default: the broker's."
)
@click.option(
    "-c",
    "--config",
    "configs",
    type=key_value,
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting of the topic.",
)
@click.option("--if-not-exists", is_flag=True, help="Treat an existing topic as success.")
@click.option("--dry-run", is_flag=True, help="Validate only: the broker checks the topics and creates none.")
@asking(OUTCOMES)
async def create(
    session: Session,
    names: tuple[tuple[str, int | None], ...],
    partitions: int | None,
    replicas: int | None,
    configs: tuple[tuple[str, str], ...],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create topics."""
    new = [
        administration.NewTopic(name, count or partitions or -1, replicas or -1, dict(configs))
        for name, count in names
    ]
    outcomes = await session.admin.create_topics(new, only_check=dry_run)
    done = "would be created" if dry_run else "created"
    rows = []
    for name, error in outcomes.items():
        exists = error is not None and name_of(error).startswith("TOPIC_ALREADY_EXISTS")
        if exists and if_not_exists:
            rows.append({"name": name, "outcome": "exists"})
        else:
            rows.append(outcome_row(name, done, error))
    session.output.show(OUTCOMES, rows)


def outcome_row(name: str, done: str, error: ClientError | None) -> dict[str, Any]:
    """Return a row of a table with name, outcome and error."""
    if error is None:
        return {"name": name, "outcome": done}
    return {"name": name, "outcome": "failed", "error": name_of(error)}


@COMMAND.command("alter")
@click.argument("names", nargs=-1, shell_complete=topic_names, required=True)
@regex
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    required=True,
    help="New number of partitions, at least the present one.",
)
@click.option("--dry-run", is_flag=True, help="Validate only: the broker checks the change and makes none.")
@asking(OUTCOMES)
async def alter(
    session: Session, names: tuple[str, ...], regex: bool, partitions: int, dry_run: bool
) -> None:
    """Add partitions to topics. `configs alter` changes their settings."""
    chosen = list(await _named(session, names, is_regex=regex, with_internal=False)) if regex else names
    outcomes = await session.admin.create_partitions(dict.fromkeys(chosen, partitions), only_check=dry_run)
    done = f"{'would have' if dry_run else 'has'} {counted(partitions, 'partition')}"
    session.output.show(OUTCOMES, [outcome_row(name, done, error) for name, error in outcomes.items()])


@COMMAND.command("delete")
@click.argument("names", nargs=-1, shell_complete=topic_names, required=True)
@regex
@destructive
@asking(OUTCOMES)
async def delete(session: Session, names: tuple[str, ...], regex: bool, yes: bool) -> None:
    """Delete topics with all their records."""
    chosen = list(await _named(session, names, is_regex=regex, with_internal=False)) if regex else list(names)
    confirm(f"delete {', '.join(chosen)} with all records", yes=yes)
    outcomes = await session.admin.delete_topics(chosen)
    session.output.show(OUTCOMES, [outcome_row(name, "deleted", error) for name, error in outcomes.items()])


@COMMAND.command("offsets")
@click.argument("names", nargs=-1, shell_complete=topic_names, required=True)
@regex
@click.option(
    "--at", metavar="TIME", help="Also the first offset at or after: ISO 8601, ms since 1970, -2h, max."
)
@click.option("--committed", is_flag=True, help="Count committed records only.")
@asking(OFFSETS)
async def offsets(
    session: Session, names: tuple[str, ...], regex: bool, at: str | None, committed: bool
) -> None:
    """Show first and last offsets of partitions, and the offset of a time."""
    time_ms = None if at is None else administration.MAX_TIMESTAMP if at == "max" else moment_ms(at)
    topics = await _named(session, names, is_regex=regex)
    partitions = administration.partitions_of(topics)
    admin = session.admin
    earliest = await admin.offsets(dict.fromkeys(partitions, administration.EARLIEST))
    latest = await admin.offsets(dict.fromkeys(partitions, administration.LATEST), is_committed=committed)
    at_time = {} if time_ms is None else await admin.offsets(dict.fromkeys(partitions, time_ms))
    rows: list[dict[str, Any]] = [
        {"topic": name, "error": name_of(topic)}
        for name, topic in topics.items()
        if isinstance(topic, ClientError)
    ]
    for place in partitions:
        row: dict[str, Any] = {"topic": place[0], "partition": place[1]}
        first, last, there = earliest[place], latest[place], at_time.get(place)
        failure = next((value for value in (first, last, there) if isinstance(value, ClientError)), None)
        if failure is not None:
            row["error"] = name_of(failure)
        else:
            assert not isinstance(first, ClientError)
            assert not isinstance(last, ClientError)
            assert not isinstance(there, ClientError)
            row |= {"earliest": first.offset, "latest": last.offset, "records": last.offset - first.offset}
            row["at"] = there.offset if there is not None and there.offset >= 0 else None
        rows.append(row)
    session.output.show(OFFSETS, rows)


@COMMAND.command("trim")
@click.argument(
    "names",
    nargs=-1,
    shell_complete=topic_names,
    required=True,
    metavar="TOPIC[:PARTITION]...",
    type=topic_partition,
)
@click.option("--before", metavar="OFFSET", required=True, help="An offset, `end` for all records, or @TIME.")
@destructive
@asking(TRIMMED)
async def trim(session: Session, names: tuple[tuple[str, int | None], ...], before: str, yes: bool) -> None:
    """Delete the records before an offset (DeleteRecords), of whole topics or of single partitions."""
    topics = await session.admin.topics({name for name, _ in names})
    for topic in topics.values():
        if isinstance(topic, ClientError):
            raise topic
    every = administration.partitions_of(topics)
    trimmed = [place for place in every if (place[0], None) in names or place in names]
    missing = [
        f"{topic}:{number}" for topic, number in names if number is not None and (topic, number) not in every
    ]
    if missing:
        raise CommandError(f"there is no partition {', '.join(missing)}")
    cuts = await _cuts(session, trimmed, before)
    confirm(
        "delete the records "
        + ", ".join(f"of {place[0]}:{place[1]} before {cut}" for place, cut in cuts.items()),
        yes=yes,
    )
    outcomes = await session.admin.delete_records(cuts)
    session.output.show(
        TRIMMED,
        [
            {"topic": place[0], "partition": place[1], "error": name_of(result)}
            if isinstance(result, ClientError)
            else {"topic": place[0], "partition": place[1], "earliest": result}
            for place, result in outcomes.items()
        ],
    )


async def _cuts(
    session: Session, partitions: list[tuple[str, int]], before: str
) -> dict[tuple[str, int], int]:
    """Return the offsets before which partitions are cut off. Raises click.UsageError, ClientError."""
    if before.isdecimal():
        return dict.fromkeys(partitions, int(before))
    if before == "end":
        time_ms = administration.LATEST
    elif before.startswith("@"):
        time_ms = moment_ms(before[1:])
    else:
        raise click.UsageError(f"--before {before}: an offset, `end` or @TIME is expected")
    latest = await session.admin.offsets(dict.fromkeys(partitions, administration.LATEST))
    at_time = await session.admin.offsets(dict.fromkeys(partitions, time_ms))
    cuts = {}
    for place in partitions:
        last, at = latest[place], at_time[place]
        if isinstance(last, ClientError):
            raise last
        if isinstance(at, ClientError):
            raise at
        cuts[place] = at.offset if at.offset >= 0 else last.offset  # no record is so new: all are older
    return cuts
