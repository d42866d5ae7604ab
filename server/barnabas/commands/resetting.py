"""New offsets for a group: from where it shall read on, for which partitions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from barnabas.client import ClientError
from barnabas.client import admin as administration
from barnabas.commands.errors import CommandError, name_of
from barnabas.commands.output import Table
from barnabas.commands.parsing import moment_ms

F = TypeVar("F", bound=Callable[..., Any])
TopicPartition = tuple[str, int]

RESET = Table(
    "offsets",
    {
        "group": "group id",
        "topic": "topic",
        "partition": "number of the partition",
        "committed": "offset until now; null for none",
        "new": "new offset, within the partition's log",
        "is_done": "true if it was set; false without --execute",
        "error": "error; null for success",
    },
)


@dataclass(frozen=True, slots=True)
class Target:
    """One of the ways to specify the new offsets of a group."""

    time_ms: int | None = None
    offset: int | None = None
    shift: int | None = None
    file: Mapping[TopicPartition, int] | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Target:
        """Parse the options of TARGETS. Raises click.UsageError unless one is set, CommandError for an invalid file."""
        chosen = {name: value for name, value in options.items() if value is not None and value is not False}
        if len(chosen) != 1:
            raise click.UsageError(
                "give one of --to-earliest, --to-latest, --to-offset, --to-time, --shift-by, --from-file"
            )
        [(name, value)] = chosen.items()
        if name == "from_file":
            return cls(file=read_offsets(value))
        if name == "to_offset":
            return cls(offset=value)
        if name == "shift_by":
            return cls(shift=value)
        return cls(
            time_ms={"to_earliest": administration.EARLIEST, "to_latest": administration.LATEST}.get(name)
            or moment_ms(value)
        )


def TARGETS(command: F) -> F:  # noqa: N802
    """Add the options for the new offsets of a group."""
    for option in (
        click.option(
            "--from-file",
            metavar="FILE",
            type=click.Path(dir_okay=False),
            help="Offsets from a file: lines of TOPIC,PARTITION,OFFSET (blanks will do too).",
        ),
        click.option(
            "--shift-by", metavar="N", type=int, help="Shift each offset by N; negative N goes back."
        ),
        click.option(
            "--to-time", metavar="TIME", help="First record at or after: ISO 8601, ms since 1970, -2h."
        ),
        click.option("--to-offset", metavar="N", type=click.IntRange(0), help="A given offset."),
        click.option("--to-latest", is_flag=True, help="Log end."),
        click.option("--to-earliest", is_flag=True, help="Log start."),
    ):
        command = option(command)
    return command


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """Read a file of offsets, as Kafka's tool exports them and rpk reads them. Raises CommandError."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: {getattr(error, 'strerror', error)}") from None
    offsets = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r'\s*"?([\w.-]+)"?[,\s]+(\d+)[,\s]+(\d+)\s*', line)
        if match is None:
            raise CommandError(f"{path}:{number}: {line!r} is not TOPIC,PARTITION,OFFSET")
        offsets[match[1], int(match[2])] = int(match[3])
    if not offsets:
        raise CommandError(f"{path} has no offsets")
    return offsets


async def chosen_partitions(
    admin: administration.Admin,
    topics: Sequence[tuple[str, int | None]],
    committed: Mapping[TopicPartition, Any],
    target: Target,
) -> list[TopicPartition]:
    """Return the partitions that are meant. Raises CommandError, ClientError."""
    if target.file is not None:
        named = {*target.file, *((topic, None) for topic, _ in target.file)}
        _require(topics, named, "the file has no offsets of")
        return [
            partition
            for partition in target.file
            if not topics or partition in topics or (partition[0], None) in topics
        ]
    if not topics:
        if not committed:
            raise CommandError(
                "the group has committed nothing: give --topic; `barnabas groups list` shows what there is"
            )
        return sorted(committed)
    infos = await admin.topics({topic for topic, _ in topics})
    for topic in infos.values():
        if isinstance(topic, ClientError):
            raise topic
    every = administration.partitions_of(infos)
    _require([partition for partition in topics if partition[1] is not None], every, "there is no partition")
    return [partition for partition in every if partition in topics or (partition[0], None) in topics]


def _require(
    topics: Sequence[tuple[str, int | None]], existing: Collection[tuple[str, int | None]], problem: str
) -> None:
    """Raise CommandError for topics and partitions that are not known."""
    missing = [
        topic if number is None else f"{topic}:{number}"
        for topic, number in topics
        if (topic, number) not in existing
    ]
    if missing:
        raise CommandError(f"{problem} {', '.join(missing)}")


async def new_offsets(
    admin: administration.Admin,
    group: str,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, administration.CommittedOffset | ClientError],
    target: Target,
) -> list[dict[str, Any]]:
    """Return rows of RESET; offsets outside a partition are moved to its nearest end, as Kafka's tool does."""
    first = await admin.offsets(dict.fromkeys(partitions, administration.EARLIEST))
    last = await admin.offsets(dict.fromkeys(partitions, administration.LATEST))
    at = {} if target.time_ms is None else await admin.offsets(dict.fromkeys(partitions, target.time_ms))
    rows = []
    for place in partitions:
        before = committed.get(place)
        row: dict[str, Any] = {
            "group": group,
            "topic": place[0],
            "partition": place[1],
            "is_done": False,
            "new": None,
        }
        row["committed"] = before.offset if isinstance(before, administration.CommittedOffset) else None
        row["error"] = None
        start, end, there = first[place], last[place], at.get(place)
        failure = next((value for value in (start, end, there) if isinstance(value, ClientError)), None)
        if failure is not None:
            row["error"] = name_of(failure)
        elif target.shift is not None and row["committed"] is None:
            row["error"] = "nothing is committed that could be shifted"
        else:
            assert not isinstance(start, ClientError)
            assert not isinstance(end, ClientError)
            assert not isinstance(there, ClientError)
            if there is not None:
                offset = there.offset if there.offset >= 0 else end.offset
            elif target.shift is not None:
                offset = row["committed"] + target.shift
            elif target.file is not None:
                offset = target.file[place]
            else:
                assert target.offset is not None
                offset = target.offset
            row["new"] = min(max(offset, start.offset), end.offset)
        rows.append(row)
    return rows
