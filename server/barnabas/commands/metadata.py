"""`barnabas metadata`: the metadata of a KRaft cluster, from its log on disk or its controllers: show, diff, watch.

The rule: nothing is written, and no password or credential is shown; a log that cannot be read to where it was asked for
is an error that names file and offset.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import click

from barnabas.cluster.kraft import describing
from barnabas.cluster.kraft.directory import END, MetadataLog, Until, read_snapshot
from barnabas.cluster.kraft.image import QuorumImage
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.state import MetadataLogError, Step
from barnabas.commands import metadata_live as live
from barnabas.commands.connection import Connecting, connecting_of, login_options
from barnabas.commands.errors import CommandError
from barnabas.commands.output import Output, Table, cell
from barnabas.commands.parsing import moment_ms
from barnabas.ending import DONE
from barnabas.log.disk import OsDisk
from barnabas.log.format.names import CHECKPOINT
from barnabas.log.format.properties import encode_uuid

F = TypeVar("F", bound=Callable[..., Any])
V = TypeVar("V")
OFFSET_DIGITS_MAX = 12
"""A longer number is a time: ms since 1970 have 13 digits since 2001."""

QUORUM = Table(
    "quorum",
    {
        "leader": "node that leads the quorum; null if the log does not say",
        "leader_epoch": "its epoch",
        "leader_since_at_ms": "when it was elected, in ms since 1970",
        "leader_since_offset": "offset of its first record",
        "kraft_version": "0 for static voters, 1 for voters in the log",
        "metadata_version": "level of metadata.version",
        "offset": "last record that is shown here",
        "written_at_ms": "time of that record, in ms since 1970",
        "next_producer_id": "first producer id of the next block; null for none yet",
        "zk_migration": "how far a migration from ZooKeeper is; null if there was none",
    },
    is_single=True,
)
VOTERS = Table(
    "voters",
    {
        "voter": "node id",
        "directory_id": "id of its metadata log dir; null for a static voter",
        "endpoints": "where to reach it, by listener; none for a static voter",
        "kraft_versions": "versions of the Raft protocol that it supports; null for a static voter",
    },
)
CONTROLLERS = Table(
    "controllers",
    {
        "controller": "node id",
        "endpoints": "where to reach it, by listener",
        "incarnation_id": "id of its process",
        "features": "levels of features that it supports",
    },
    json_only=("incarnation_id", "features"),
)
BROKERS = Table(
    "brokers",
    {
        "broker": "broker id",
        "epoch": "its epoch: the offset of its registration",
        "is_fenced": "true for a fenced broker",
        "is_in_controlled_shutdown": "true for one that is shutting down",
        "rack": "rack",
        "endpoints": "where to reach it, by listener",
        "log_dirs": "ids of its log dirs that are online",
        "cordoned_log_dirs": "ids of those that get no new replicas; null until it has told them",
        "incarnation_id": "id of its process",
        "features": "levels of features that it supports",
    },
    json_only=("incarnation_id", "features"),
)
TOPICS = Table("topics", {"name": "name", "id": "topic id", "partitions": "number of partitions"})
PARTITIONS = Table(
    "partitions",
    {
        "topic": "topic",
        "partition": "number of the partition",
        "leader": "broker that leads it; -1 for none",
        "leader_epoch": "leader epoch",
        "partition_epoch": "number of its changes",
        "replicas": "brokers that hold it, the preferred leader first",
        "in_sync": "those that are in sync",
        "eligible": "those outside of the ISR that have all committed records",
        "last_known_eligible": "the last leader, if neither of these is left",
        "adding": "brokers that a reassignment adds",
        "removing": "brokers that a reassignment removes",
        "is_recovering": "true after an unclean election until the leader has recovered",
        "log_dirs": "log dir of each replica, by id",
    },
    json_only=("last_known_eligible", "is_recovering", "log_dirs"),
)
CONFIGS = Table(
    "configs",
    {
        "kind": "kind of the resource",
        "name": "name of the resource; default for all brokers",
        "key": "name of the setting",
        "value": "value; [hidden] if it is or may be a secret",
    },
)
ACLS = Table(
    "acls",
    {
        "principal": "principal, as User:ann",
        "host": "client host; * for any",
        "permission": "allow or deny",
        "operation": "what",
        "resource_type": "type of the resource",
        "resource_name": "its name",
        "pattern_type": "literal or prefixed",
        "id": "id of the ACL",
    },
    json_only=("id",),
)
FEATURES = Table("features", {"feature": "name", "level": "level in force"})
QUOTAS = Table(
    "quotas",
    {
        "user": "user; <default> for all that have none of their own, null where it does not matter",
        "client_id": "client id; the same",
        "ip": "address; the same",
        "key": "name of the quota",
        "value": "limit",
    },
)
USERS = Table(
    "users",
    {
        "user": "name",
        "mechanism": "SCRAM-SHA-256 or SCRAM-SHA-512",
        "iterations": "iterations of the hash",
    },
)
TOKENS = Table(
    "tokens",
    {
        "token_id": "id of the token",
        "owner": "principal that it is of",
        "requester": "principal that has asked for it",
        "renewers": "principals that may renew it",
        "issued_at_ms": "when it was created, in ms since 1970",
        "expires_at_ms": "when it expires unless it is renewed",
        "renewable_until_at_ms": "when it expires in any case",
    },
)
CHANGES = Table(
    "changes",
    {
        "offset": "offset of the record",
        "written_at_ms": "its time, in ms since 1970",
        "epoch": "epoch of the leader that wrote it",
        "record": "type of the record",
        "kind": "kind of the changed entry; null for none",
        "entry": "the changed entry",
        "change": "what differs, as text",
        "before": "columns that changed, as they were; null for a new entry",
        "after": "the same afterwards; null for a removed entry",
    },
    json_only=("epoch", "before", "after"),
)


def _quorum(image: QuorumImage, leadership: Leadership) -> Iterator[dict[str, Any]]:
    led = leadership.leader_id >= 0
    yield {
        "leader": leadership.leader_id if led else None,
        "leader_epoch": leadership.epoch if led else None,
        "leader_since_at_ms": leadership.since_ms if leadership.since_offset >= 0 else None,
        "leader_since_offset": leadership.since_offset if leadership.since_offset >= 0 else None,
        "kraft_version": leadership.kraft_version,
        "metadata_version": image.metadata_version or None,
        "offset": image.position.offset if image.position.offset >= 0 else None,
        "written_at_ms": image.position.timestamp_ms if image.position.timestamp_ms >= 0 else None,
        "next_producer_id": image.producer_ids,
        "zk_migration": None
        if image.zk_migration is None
        else describing.zk_migration_name(image.zk_migration),
    }


def _voters(_: QuorumImage, leadership: Leadership) -> Iterator[dict[str, Any]]:
    for voter in leadership.voters:
        levels = voter.kraft_versions
        yield {
            "voter": voter.id,
            "directory_id": encode_uuid(voter.directory_id) if any(voter.directory_id) else None,
            "endpoints": [f"{name}://{host}:{port}" for name, host, port in voter.endpoints],
            "kraft_versions": f"{levels.lowest}-{levels.highest}" if any(voter.directory_id) else None,
        }


def _partitions(image: QuorumImage, _: Leadership) -> Iterator[dict[str, Any]]:
    for name, topic_id in sorted(image.topic_ids.items()):
        for index, partition in image.partitions_of(image.topics[topic_id]):
            yield {"topic": name, "partition": index, **describing.partition_row(partition)}


def _topics(image: QuorumImage, _: Leadership) -> Iterator[dict[str, Any]]:
    for name, topic_id in sorted(image.topic_ids.items()):
        count = image.partition_counts.get(topic_id, 0)
        yield {"name": name, "id": encode_uuid(topic_id), "partitions": count}


def _configs(image: QuorumImage, _: Leadership) -> Iterator[dict[str, Any]]:
    for (resource_type, resource), own in sorted(image.settings.items()):
        for name, value in sorted(own.items()):
            yield describing.setting_row((resource_type, resource, name), value)


def _quotas(image: QuorumImage, _: Leadership) -> Iterator[dict[str, Any]]:
    for entity, limits in sorted(image.quotas.items(), key=lambda item: describing.quota_name(item[0])):
        for name, value in sorted(limits.items()):
            yield describing.quota_row(entity, name, value)


Rows = Callable[[QuorumImage, Leadership], Iterator[dict[str, Any]]]

SECTIONS: dict[str, tuple[Table, Rows]] = {
    "quorum": (QUORUM, _quorum),
    "voters": (VOTERS, _voters),
    "controllers": (CONTROLLERS, lambda image, _: map(describing.controller_row, _sorted(image.controllers))),
    "brokers": (
        BROKERS,
        lambda image, _: map(describing.broker_row, _sorted(image.brokers)),
    ),
    "topics": (TOPICS, _topics),
    "partitions": (PARTITIONS, _partitions),
    "configs": (CONFIGS, _configs),
    "acls": (ACLS, lambda image, _: (describing.acl_row(key, image.acls[key]) for key in _acls(image))),
    "features": (
        FEATURES,
        lambda image, _: (
            {"feature": name, "level": level} for name, level in sorted(image.features.items())
        ),
    ),
    "quotas": (QUOTAS, _quotas),
    "users": (
        USERS,
        lambda image, _: (describing.user_row(key, image.users[key]) for key in sorted(image.users)),
    ),
    "tokens": (TOKENS, lambda image, _: map(describing.token_row, _sorted(image.tokens))),
}
"""Table and rows of each section, in the order in which they are shown."""


def _sorted(values: Mapping[Any, V]) -> Iterator[V]:
    return (values[key] for key in sorted(values))


def _acls(image: QuorumImage) -> list[bytes]:
    """Return the ids of all ACLs, in the order of their content."""
    return sorted(image.acls, key=lambda acl_id: (image.acls[acl_id], acl_id))


@click.group("metadata")
def COMMAND() -> None:  # noqa: N802
    """The metadata of a Kafka 4 cluster: from the directory of its log, or from its controllers."""


def _sources(command: F) -> F:
    """Add the options for a live quorum, an alternative to a directory."""
    option = click.option(
        "--bootstrap-controller", metavar="HOST:PORT,...",
        help="Controllers of a quorum that runs, in place of a directory.",
    )  # fmt: skip
    return option(login_options(command))


_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _directory(*, required: bool) -> Callable[[F], F]:
    return click.option(
        "--dir", "directory", required=required, metavar="DIR",
        help="Log dir with __cluster_metadata-0, that directory itself, or a .checkpoint file.",
    )  # fmt: skip


def _reading(*tables: Table) -> Callable[[Callable[..., int | None]], Callable[..., int]]:
    """Decorate a function as a command: it gets an Output instead of --json, and may raise MetadataLogError.

    The function returns the exit code, or None for that of the output.
    """

    def decorate(work: Callable[..., int | None]) -> Callable[..., int]:
        @functools.wraps(work)
        def run(as_json: bool, **options: Any) -> int:
            output = Output(as_json=as_json)
            try:
                code = work(output, **options)
            except MetadataLogError as error:
                raise CommandError(str(error)) from None
            except OSError as error:
                if error.filename is None:  # of standard output
                    raise
                raise CommandError(f"{error.filename}: {error.strerror}") from None
            return output.finish() if code is None else code

        run.tables = tables  # type: ignore[attr-defined]  # for the reference
        return run

    return decorate


def _connecting(bootstrap: str, options: dict[str, Any]) -> Connecting:
    return connecting_of({**options, "bootstrap": bootstrap, "as_json": False})


def _until(text: str) -> Until:
    """Read a bound: an offset, or a time as elsewhere. Raises click.BadParameter."""
    if text.isdecimal() and len(text) <= OFFSET_DIGITS_MAX:
        return Until(offset=int(text))
    return Until(time_ms=moment_ms(text))


_AT = "an offset, or a time: 2026-01-31T12:00:00Z, ms since 1970, or -2h"


@COMMAND.command("show")
@click.argument("sections", nargs=-1, type=click.Choice(list(SECTIONS)), metavar="[SECTION]...")
@click.option(
    "--at", "until", type=_until, metavar="OFFSET|TIME",
    help=f"The state after the last record up to {_AT}. Default: the end of the log.",
)  # fmt: skip
@_directory(required=False)
@_sources
@_reading(*(table for table, _ in SECTIONS.values()))
def show(
    output: Output,
    sections: tuple[str, ...],
    until: Until | None,
    directory: str | None,
    bootstrap_controller: str | None,
    **options: Any,
) -> None:
    """Show the cluster as its metadata log has it: quorum, voters, controllers, brokers, topics, partitions, configs,
    acls, features, quotas, users, tokens; all, or these sections.
    """
    if (directory is None) == (bootstrap_controller is None):
        raise click.UsageError("give --dir or --bootstrap-controller")
    if directory is not None:
        image, leadership = _state(output, os.path.abspath(directory), until or END)
    else:
        if until is not None:
            raise click.UsageError("--at is for --dir: a quorum that runs tells its present state")
        image, leadership = live.state_of(_connecting(bootstrap_controller or "", options))
    for name, (table, rows) in SECTIONS.items():
        if name in sections or not sections:
            title = "" if len(sections) == 1 else name.upper()
            output.show(table, rows(image, leadership), title=title)


def _state(output: Output, directory: str, until: Until) -> tuple[QuorumImage, Leadership]:
    disk = OsDisk(read_only=True)
    if directory.endswith(CHECKPOINT):
        if until != END:
            raise click.UsageError("--at is for a log: a snapshot is of one offset")
        snapshot = read_snapshot(disk, directory)
        return snapshot.image, snapshot.leadership
    log = MetadataLog(disk, directory)
    log.begin(until)
    for _ in log.steps(until):
        pass
    _tell_notes(output, log)
    return log.state.image, log.state.leadership


def _tell_notes(output: Output, log: MetadataLog) -> None:
    for note in log.notes:
        output.note(note)
    if log.state.in_transaction:
        output.note(
            f"a metadata transaction is open at offset {log.state.position.offset}: its records do not count yet"
        )


@COMMAND.command("diff")
@click.option(
    "--from",
    "first",
    type=_until,
    metavar="OFFSET|TIME",
    help=f"The state to begin with: {_AT}. Default: the oldest.",
)
@click.option(
    "--to", "until", type=_until, metavar="OFFSET|TIME", help="End of the range. Default: the end of the log."
)
@click.option("--all", "has_all", is_flag=True, help="Also records that change nothing.")
@_directory(required=True)
@_JSON
@_reading(CHANGES)
def diff(output: Output, directory: str, first: Until | None, until: Until | None, has_all: bool) -> None:
    """Show what each record changed, one row for each change."""
    log = MetadataLog(OsDisk(read_only=True), os.path.abspath(directory))
    log.begin(first if first is not None else log.oldest)
    if first is not None:
        for _ in log.steps(first):
            pass
    names = describing.ChangeNames(log.state.image.topics)
    output.show(CHANGES, _changes(log, until or END, names, has_all=has_all))
    _tell_notes(output, log)


@COMMAND.command("watch")
@click.option("--all", "has_all", is_flag=True, help="Also records that change nothing.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N changes.")
@click.option(
    "--bootstrap-controller",
    required=True,
    metavar="HOST:PORT,...",
    help="Controllers of a quorum that runs.",
)
@login_options
@_reading(CHANGES)
def watch(output: Output, bootstrap_controller: str, has_all: bool, limit: int | None, **options: Any) -> int:
    """Show what each record changes, as it is committed, until Ctrl-C; with --json one object a line."""
    remaining = limit

    def on_step(step: Step, names: describing.ChangeNames) -> bool:
        nonlocal remaining
        for row in _rows_of(step, names, has_all=has_all):
            print(json.dumps(row, ensure_ascii=False) if output.as_json else _line(row), flush=True)
            if remaining is not None:
                remaining -= 1
                if not remaining:
                    return True
        return False

    live.watch(_connecting(bootstrap_controller, options), on_step)
    return DONE


def _line(row: dict[str, Any]) -> str:
    words = [
        cell(name, row.get(name)) for name in ("offset", "written_at_ms", "record", "kind", "entry", "change")
    ]
    return " ".join(word for word in words if word != "-")


def _changes(
    log: MetadataLog, until: Until, names: describing.ChangeNames, *, has_all: bool
) -> Iterator[dict[str, Any]]:
    for step in log.steps(until):
        yield from _rows_of(step, names, has_all=has_all)


def _rows_of(step: Step, names: describing.ChangeNames, *, has_all: bool) -> Iterator[dict[str, Any]]:
    rows: list[dict[str, Any]] = [names.row(change) for change in step.changes]
    control = describing.control_row(step.message, step.epoch) if step.version < 0 else None
    if control is not None:
        rows.append(control)
    for row in rows:
        row["change"] = _text(row["before"], row["after"])
    if not rows and has_all:
        rows = [{}]
    for row in rows:
        yield {**_record(step), **row}


def _text(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    if before is None or after is None:
        columns = {name: value for name, value in (after or before or {}).items() if value not in (None, [])}
        return f"{'new' if before is None else 'removed'}: {cell('', columns)}"
    return ", ".join(f"{name} {cell(name, before[name])} -> {cell(name, after[name])}" for name in after)


def _record(step: Step) -> dict[str, Any]:
    return {
        "offset": step.offset,
        "written_at_ms": step.timestamp_ms,
        "epoch": step.epoch,
        "record": step.name,
    }
