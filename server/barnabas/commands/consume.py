"""`barnabas consume`: records of topics on standard output.

The rule: only records are written to standard output. Reading stops at the end offsets of the start, unless it follows;
offsets of a group are committed only for written records.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import trio

import barnabas.client as kafka
from barnabas.commands.completing import group_names, topic_names
from barnabas.commands.connection import NAMES, Connecting, connecting_of, connection_options
from barnabas.commands.errors import CommandError, explain
from barnabas.commands.parsing import moment_ms
from barnabas.commands.schemas import Decoding, registry_of, registry_option
from barnabas.commands.session import require_topic
from barnabas.ending import DONE, FAILED, INTERRUPTED
from barnabas.environment.terminal import counted, visible
from barnabas.patterns import PatternError, compile_bytes

if TYPE_CHECKING:
    from barnabas.commands.printing import Printer
    from barnabas.filters import Node

DEFAULT_FORMAT = "%s\\n"
STDOUT = 1
BYTES_PER_WRITE = 1 << 20
"""Approximate bytes of fetched records that are opened and printed in one step."""
OFFSET_MAX = 2**63 - 1
WRITTEN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Position:
    """A place to begin, or to end: `kind` is beginning, end, offset, last (this many before the end) or time."""

    kind: str
    number: int = 0


def position(text: str) -> Position:
    """Read `beginning`, `end`, an offset, `-N` for the last N, or `@TIME`. Raises click.BadParameter."""
    if text in ("beginning", "end"):
        return Position(text)
    if text.isdecimal():
        return Position("offset", int(text))
    if text.startswith("-") and text[1:].isdecimal():
        return Position("last", int(text[1:]))
    if text.startswith("@"):
        return Position("time", moment_ms(text[1:]))
    raise click.BadParameter(f"{text!r}: beginning, end, an offset, -N for the last N, or @TIME is expected")


def _pattern(text: str) -> Any:
    try:
        return compile_bytes(os.fsencode(text))
    except PatternError as error:
        raise click.BadParameter(f"{text!r} is no regular expression: {error.reason}") from None


def _condition(text: str) -> Node:
    from barnabas.filters import FilterError, compile_filter

    try:
        return compile_filter(text)
    except FilterError as error:
        place = " " * error.position
        raise click.BadParameter(f"{error}\n  {text}\n  {place}^") from None


def _header(text: str) -> tuple[str, Any]:
    name, equals, pattern = text.partition("=")
    return name, _pattern(pattern) if equals else None


@click.command("consume")
@click.argument("topics", nargs=-1, shell_complete=topic_names, required=True, metavar="TOPIC...")
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    help="Only this one; may be given again.",
)
@click.option(
    "-o",
    "--from",
    "begin",
    type=position,
    metavar="WHERE",
    help="beginning (default), end (default with --follow), an offset, -N for the last N, or @TIME.",
)
@click.option(
    "--to",
    "end",
    type=position,
    metavar="WHERE",
    help="End of the range, exclusive; at the latest, and by default, the present log end.",
)
@click.option("-F", "--follow", is_flag=True, help="Follow the log: print new records as they arrive.")
@click.option(
    "-g",
    "--group",
    metavar="ID",
    shell_complete=group_names,
    help="Be a member of a group: its partitions, its offsets, and follow.",
)
@click.option("--regex", "-r", is_flag=True, help="TOPIC is a regular expression; with --group.")
@click.option("-n", "--count", type=click.IntRange(1), help="Print no more records than this.")
@click.option(
    "--idle",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Stop after so many seconds without a record.",
)
@click.option(
    "--key",
    "keys",
    type=_pattern,
    multiple=True,
    metavar="REGEX",
    help="Only records with a key that contains a match.",
)
@click.option(
    "--value",
    "values",
    type=_pattern,
    multiple=True,
    metavar="REGEX",
    help="Only records with a value that contains a match.",
)
@click.option(
    "--header",
    "headers",
    type=_header,
    multiple=True,
    metavar="NAME[=REGEX]",
    help="Only records with this header.",
)
@click.option(
    "-w",
    "--where",
    type=_condition,
    metavar="FILTER",
    help="Only records that match a filter: '$.total > 60 and key = \"ann\"'; $ is the decoded value.",
)
@click.option(
    "-f",
    "--format",
    "layout",
    default=DEFAULT_FORMAT,
    show_default=True,
    help="kcat's: %t %p %o %k %s %h %T %K %S, and %D.",
)
@click.option("-Z", "--null", default="", metavar="TEXT", help="Text printed for a null key or value.")
@click.option("--raw", is_flag=True, help="Write control characters of records to a terminal as they are.")
@click.option("--uncommitted", is_flag=True, help="Also records of open and of aborted transactions.")
@registry_option
@click.option("-q", "--quiet", is_flag=True, help="Print no summary.")
@connection_options
def COMMAND(**options: Any) -> int:  # noqa: N802
    """Print records of TOPICs."""
    from barnabas.commands.printing import Printer
    from barnabas.commands.records_out import formatter, json_lines

    shared_options = {name: options.pop(name) for name in NAMES}
    if options["regex"]:
        if options["group"] is None:
            raise click.UsageError("--regex needs --group")
        for topic in options["topics"]:
            _pattern(topic)
    if options["group"] is not None and (options["end"] is not None or options["partitions"]):
        raise click.UsageError("--to and --partition do not go with --group, which assigns partitions")
    if options["follow"] and options["end"] is not None:
        raise click.UsageError("--follow never ends, --to says where")
    try:
        null, is_shown = os.fsencode(options["null"]), os.isatty(STDOUT) and not options["raw"]
        render = (
            json_lines if shared_options["as_json"] else formatter(options["layout"], null, is_shown=is_shown)
        )
    except ValueError as error:
        raise click.UsageError(f"--format: {error}") from None
    connecting = connecting_of(shared_options)
    registry = registry_of(options.pop("registry"), connecting)
    decoding = None if registry is None else Decoding(registry.client())
    return trio.run(_run, connecting, options, Printer(render, options, decoding))


async def _run(connecting: Connecting, options: dict[str, Any], printer: Printer) -> int:
    from barnabas.client.background import background

    scope = trio.CancelScope()

    async def end_at_signal() -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                scope.cancel()

    settings = _settings(connecting.properties, options)
    printer.checks_crcs = settings.checks_crcs
    async with (
        printer.decoding or nullcontext(),
        background() as nursery,
        kafka.open_consumer(
            connecting.bootstrap, settings=settings, client_settings=connecting.settings
        ) as consumer,
    ):
        nursery.start_soon(end_at_signal)
        with scope:
            await consumer.client.any_connection()  # a wrong address is reported immediately
            if options["group"] is not None and not options["regex"]:
                for topic in options["topics"]:
                    await _tell_if_missing(consumer.client, topic)
            if options["group"] is not None:
                await _print_group(consumer, options, printer)
            else:
                await _print_topics(consumer, options, printer)
    if printer.is_writing:  # a reader of all output may signal before it is counted
        await trio.sleep(WRITTEN_SECONDS)
    if not options["quiet"]:
        unread = f", {printer.unread} could not be read" if printer.unread else ""
        print(f"{counted(printer.printed, 'record')}{unread}", file=sys.stderr)
    if scope.cancelled_caught:
        return INTERRUPTED
    return FAILED if printer.unread else DONE


def _settings(properties: dict[str, str], options: dict[str, Any]) -> kafka.ConsumerSettings:
    """Return the settings, from properties and options. Raises click.UsageError."""
    settings = dict(properties)
    if options["group"] is not None:
        settings["group.id"] = options["group"]
        begin = options["begin"] or Position("end")
        if begin.kind not in ("beginning", "end"):
            raise click.UsageError(
                "with --group, --from is beginning or end: for partitions without an offset"
            )
        if options["begin"] is not None or "auto.offset.reset" not in settings:
            settings["auto.offset.reset"] = "earliest" if begin.kind == "beginning" else "latest"
    else:
        for name in ("group.id", "group.instance.id"):
            settings.pop(name, None)
    if options["uncommitted"]:
        settings["isolation.level"] = "read_uncommitted"
    try:
        return kafka.ConsumerSettings.of({"isolation.level": "read_committed", **settings})
    except ValueError as error:
        raise click.UsageError(str(error)) from None


async def _print_group(consumer: kafka.Consumer, options: dict[str, Any], printer: Printer) -> None:
    topics = options["topics"]
    if options["regex"]:
        consumer.subscribe(pattern="|".join(f"(?:{topic})$" for topic in topics))
    else:
        consumer.subscribe(*topics)
    await _print_on(consumer, options["idle"], printer)


async def _tell_if_missing(client: kafka.Client, topic: str) -> None:
    """Say that a topic is not there (yet), which a member of a group waits for."""
    try:
        await client.topic(topic)
    except kafka.ResponseError as error:
        waits = "; waiting for it to be made" if error.is_retriable else ""
        print(f"barnabas consume: {visible(explain(error))}{waits}", file=sys.stderr)


async def _print_on(consumer: kafka.Consumer, idle_s: float | None, printer: Printer) -> None:
    """Print records for ever, or until none has arrived for some time."""
    while not printer.is_full:
        with trio.move_on_after(float("inf") if idle_s is None else idle_s) as patience:
            records = await consumer.receive_batch(printer.records_max)
        if patience.cancelled_caught:
            return
        await printer.write(records)


async def _print_topics(consumer: kafka.Consumer, options: dict[str, Any], printer: Printer) -> None:
    places = []
    for topic in options["topics"]:
        if not await require_topic(consumer.client, topic):
            raise CommandError(f"there is no topic {topic!r}; `barnabas topics list` shows what there is")
        there = await consumer.partitions(topic)
        missing = sorted(set(options["partitions"]) - set(there))
        if missing:
            raise CommandError(f"topic {topic} has no partition {', '.join(map(str, missing))}")
        places += [
            kafka.TopicPartition(topic, number)
            for number in there
            if not options["partitions"] or number in options["partitions"]
        ]
    follows = options["follow"]
    begin = options["begin"] or Position("end" if follows else "beginning")
    bounds = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
    begins = await _offsets(consumer, begin, bounds)
    ends = await _offsets(consumer, options["end"] or Position("end"), bounds)
    consumer.assign(places)
    for place in places:
        consumer.seek(place, max(begins[place], bounds[0][place]))
    if follows:
        await _print_until(consumer, dict.fromkeys(places, OFFSET_MAX), options["idle"], printer)
    else:
        # Up to the log ends of now, no further.
        lasts = {place: min(end, bounds[1][place]) for place, end in ends.items()}
        remaining = {place: last for place, last in lasts.items() if last > begins[place]}
        consumer.pause(*(place for place in places if place not in remaining))
        await _print_until(consumer, remaining, options["idle"], printer)


async def _print_until(
    consumer: kafka.Consumer, lasts: dict[kafka.TopicPartition, int], idle_s: float | None, printer: Printer
) -> None:
    """Print records before these offsets, or until none has arrived for some time."""
    while not printer.is_full:
        with trio.move_on_after(float("inf") if idle_s is None else idle_s) as patience:
            if printer.takes_batches:
                fetched = await consumer.receive_unopened(lasts, BYTES_PER_WRITE)
            else:
                records = await consumer.receive_until(lasts, printer.records_max)
        if patience.cancelled_caught:
            return
        if printer.takes_batches:
            if not fetched:
                return
            await printer.write_batches(fetched, lasts)
        elif not records:
            return
        else:
            await printer.write(records)


async def _offsets(
    consumer: kafka.Consumer,
    where: Position,
    bounds: tuple[dict[kafka.TopicPartition, int], dict[kafka.TopicPartition, int]],
) -> dict[kafka.TopicPartition, int]:
    """Return the offset of a position in each partition."""
    begins, ends = bounds
    if where.kind == "beginning":
        return begins
    if where.kind == "end":
        return ends
    if where.kind == "offset":
        return dict.fromkeys(ends, where.number)
    if where.kind == "last":
        return {place: max(begins[place], end - where.number) for place, end in ends.items()}
    by_place = await consumer.offsets_for_times(dict.fromkeys(ends, where.number))
    return {place: ends[place] if (bound := by_place[place]) is None else bound.offset for place in ends}
