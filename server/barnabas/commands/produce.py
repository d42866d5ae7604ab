"""`barnabas produce`: records from the command line, files or standard input.

The rule: input is sent as it arrives, in order; the command succeeds only if every record was acknowledged.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click
import trio

import barnabas.client as kafka
from barnabas.client import admin as administration
from barnabas.commands.completing import topic_names
from barnabas.commands.errors import CommandError
from barnabas.commands.output import Table
from barnabas.commands.parsing import moment_ms, unescaped
from barnabas.commands.records_in import Parsed, Reading, json_record, line_record
from barnabas.commands.schemas import encoded, own_sandbox, registry_of, registry_option, serializer_of
from barnabas.commands.session import Session, asking, confirm, require_topic
from barnabas.environment.terminal import counted
from barnabas.records.compression import CODECS_BY_NAME

if TYPE_CHECKING:
    from barnabas.commands.connection import Connecting
    from barnabas.registry.client_settings import RegistryAt
    from barnabas.registry.encoding import Serializer

PRODUCED = Table(
    "produced",
    {
        "topic": "topic",
        "records": "records that were acknowledged",
        "bytes": "of their keys and values",
        "partitions": "partitions that they went to",
        "first": "partition and offset of the first record",
        "last": "partition and offset of the last record",
        "seconds": "from the first record to the last acknowledgement",
    },
    is_single=True,
)
PROGRESS_S = 0.5
READ_BYTES = 64 << 10
TRANSACTION_RECORDS = 1000
ACKS = {"all": -1, "1": 1, "0": 0}


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    return name, os.fsencode(value) if equals else None


@dataclass(slots=True)
class Sent:
    """Records so far."""

    began: float
    records: int = 0
    bytes: int = 0
    partitions: set[int] = field(default_factory=set)
    first: kafka.Delivery | None = None
    last: kafka.Delivery | None = None


@click.command("produce")
@click.argument("topic", shell_complete=topic_names)
@click.argument("values", nargs=-1)
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Read records from a file; - is standard input.",
)
@click.option("--whole", is_flag=True, help="Each file is one record.")
@click.option("-D", "--delimiter", default="\\n", show_default=True, help="Delimiter after each record.")
@click.option("--input-json", is_flag=True, help="Each line is a record as `consume --json` prints it.")
@click.option("-k", "--key", help="The key of all records.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Separator between key and value in a line.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    type=_header,
    metavar="NAME=VALUE",
    help="A header of all records; without = its value is null.",
)
@click.option("-Z", "--null", is_flag=True, help="An empty key or value is null: a tombstone.")
@click.option("-p", "--partition", type=click.IntRange(0), help="The partition of all records.")
@click.option(
    "--timestamp",
    type=moment_ms,
    metavar="TIME",
    help="The time of all records: ISO 8601, ms since 1970, or -2h.",
)
@click.option("-n", "--count", type=click.IntRange(1), help="Send no more records than this.")
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Records a second, at most."
)
@click.option("-z", "--compression", type=click.Choice(list(CODECS_BY_NAME)), help="Default: none.")
@click.option("--acks", type=click.Choice(list(ACKS)), help="Acknowledgements to wait for. Default: all.")
@click.option(
    "--linger", type=click.FloatRange(0), metavar="MS", help="Time in ms that a batch waits for more records."
)
@click.option("--transactional-id", metavar="ID", help="Send in transactions.")
@click.option(
    "--transaction-size",
    type=click.IntRange(1),
    default=TRANSACTION_RECORDS,
    show_default=True,
    metavar="N",
    help="Records of a transaction.",
)
@registry_option
@click.option(
    "--value-schema",
    metavar="SCHEMA",
    help="Values are JSON, written by a schema: its id, latest (of TOPIC-value), or a file (.avsc, .json, .proto).",
)
@click.option("--key-schema", metavar="SCHEMA", help="The same for keys, of TOPIC-key.")
@click.option(
    "--auto-create", is_flag=True, help="Let the broker create the topic (auto.create.topics.enable)."
)
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@asking(PRODUCED, with_trio=True)
async def COMMAND(session: Session, topic: str, values: tuple[str, ...], **options: Any) -> None:  # noqa: N802
    """Send records to TOPIC: VALUES, or lines of files or of standard input."""
    from barnabas.client.background import background

    reading = _reading(values, options)
    settings = _settings(session.connecting.properties, options)
    registry = _registry(session.connecting, options)
    if not options["auto_create"]:
        await _require(session, topic, may_ask=bool(values))
    sent = Sent(trio.current_time())
    async with AsyncExitStack() as stack:
        encoding = await _encoding(topic, registry, options, stack)
        if not options["quiet"] and sys.stderr.isatty():
            nursery = await stack.enter_async_context(background())
            nursery.start_soon(_show_progress, sent)
        common = replace(session.client.settings, creates_topics=options["auto_create"])
        async with kafka.open_producer(
            session.connecting.bootstrap, settings, client_settings=common
        ) as producer:
            records = await stack.enter_async_context(aclosing(_records(values, reading, options)))
            written = await stack.enter_async_context(aclosing(_encoded(records, encoding)))
            await _send_all(producer, topic, written, options, sent)
    seconds = trio.current_time() - sent.began
    first, last = (None if record is None else _place(record) for record in (sent.first, sent.last))
    row = {
        "topic": topic,
        "records": sent.records,
        "bytes": sent.bytes,
        "partitions": sorted(sent.partitions),
    }
    session.output.show(PRODUCED, [{**row, "first": first, "last": last, "seconds": round(seconds, 3)}])


async def _require(session: Session, topic: str, *, may_ask: bool) -> None:
    """Check that the topic exists; a user at a terminal may have it created. Raises CommandError, ClientError."""
    if await require_topic(session.client, topic):
        return
    if may_ask and sys.stdin.isatty() and sys.stderr.isatty():
        confirm(f"there is no topic {topic!r}: create it", yes=False)
        outcomes = await session.admin.create_topics([administration.NewTopic(topic)])
        for error in filter(None, outcomes.values()):
            raise error
        return
    raise CommandError(
        f"there is no topic {topic!r}; `barnabas topics create {topic}` makes it, "
        "or --auto-create has the broker create it"
    )


def _place(delivery: kafka.Delivery) -> str:
    record = delivery.result()
    return f"{record.partition}:{record.offset}" if record.offset >= 0 else f"{record.partition}"


def _settings(properties: dict[str, str], options: dict[str, Any]) -> kafka.ProducerSettings:
    """Return the settings, from properties and options. Raises click.UsageError."""
    named = {
        "compression.type": options["compression"],
        "acks": options["acks"],
        "linger.ms": None if options["linger"] is None else str(options["linger"]),
        "transactional.id": options["transactional_id"],
    }
    chosen = {name: value for name, value in named.items() if value is not None}
    try:
        return replace(
            kafka.ProducerSettings.of({**properties, **chosen}),
            creates_topics=options["auto_create"],
            max_block_ms=float(properties.get("max.block.ms", 20_000)),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _reading(values: tuple[str, ...], options: dict[str, Any]) -> Reading:
    """Return how records are read. Raises click.UsageError for options that do not go together."""
    if values and options["files"]:
        raise click.UsageError("give values, or files")
    if options["key"] is not None and options["key_separator"] is not None:
        raise click.UsageError("--key and --key-separator: a record has one key")
    if options["input_json"] and (options["whole"] or options["key_separator"] is not None):
        raise click.UsageError("--input-json says itself what key and value are")
    separator = options["key_separator"]
    return Reading(
        delimiter=_between(options["delimiter"]),
        key_separator=None if separator is None else _between(separator),
        empty_is_null=options["null"],
        is_json=options["input_json"],
        is_whole=options["whole"],
    )


def _between(text: str) -> bytes:
    """Return the separator of records, or of keys and values. Raises click.UsageError."""
    delimiter = unescaped(text)
    if not delimiter:
        raise click.UsageError("a delimiter is not empty")
    return delimiter


# --- reading ------------------------------------------------------------------------------------------------------


async def _records(
    values: tuple[str, ...], reading: Reading, options: dict[str, Any]
) -> AsyncGenerator[Parsed, None]:
    """Yield records. Raises CommandError for an invalid line."""
    number = 0
    async with aclosing(_texts(values, reading, options["files"])) as texts:
        async for text in texts:
            number += 1
            try:
                record = json_record(text) if reading.is_json else line_record(text, reading)
                yield record if options["key"] is None else replace(record, key=os.fsencode(options["key"]))
            except ValueError as error:
                raise CommandError(f"record {number}: {error}") from None
            if number == options["count"]:
                return


async def _texts(
    values: tuple[str, ...], reading: Reading, files: tuple[str, ...]
) -> AsyncGenerator[bytes, None]:
    for value in values:
        yield os.fsencode(value)
    if values:
        return
    for name in files or ("-",):
        try:
            descriptor = 0 if name == "-" else os.open(name, os.O_RDONLY)
        except OSError as error:
            raise CommandError(f"{name}: {error.strerror}") from None
        try:
            async with aclosing(_split(descriptor, reading)) as texts:
                async for text in texts:
                    yield text
        finally:
            if descriptor:
                os.close(descriptor)


async def _split(descriptor: int, reading: Reading) -> AsyncGenerator[bytes, None]:
    """Yield the texts between delimiters, or all of the input; after the last delimiter, only if bytes follow."""
    rest = b""
    while data := await _read(descriptor):
        rest += data
        if not reading.is_whole:
            *texts, rest = rest.split(reading.delimiter)
            for text in texts:
                yield text
    if rest or reading.is_whole:
        yield rest


async def _read(descriptor: int) -> bytes:
    return await trio.to_thread.run_sync(os.read, descriptor, READ_BYTES, abandon_on_cancel=True)


def _registry(connecting: Connecting, options: dict[str, Any]) -> RegistryAt | None:
    """Return the registry of the schemas that records are written by, None without schemas. Raises click.UsageError."""
    if options["key_schema"] is None and options["value_schema"] is None:
        return None
    registry = registry_of(options["registry"], connecting)
    if registry is None:
        raise click.UsageError("--key-schema and --value-schema need --registry")
    return registry


async def _encoding(
    topic: str, registry: RegistryAt | None, options: dict[str, Any], stack: AsyncExitStack
) -> tuple[Serializer | None, Serializer | None]:
    """Return the serializers of keys and values, for as long as the stack is open. Raises CommandError."""
    if registry is None:
        return None, None
    client = registry.client()
    sandbox = await stack.enter_async_context(own_sandbox())
    key, value = [
        None if schema is None else await serializer_of(client, f"{topic}-{part}", schema, sandbox)
        for part, schema in (("key", options["key_schema"]), ("value", options["value_schema"]))
    ]
    return key, value


async def _encoded(
    records: AsyncIterator[Parsed], encoding: tuple[Serializer | None, Serializer | None]
) -> AsyncGenerator[Parsed, None]:
    """Yield records with keys and values written by their schemas. Raises CommandError."""
    number = 0
    async for record in records:
        number += 1
        try:
            key, value = [
                data if serializer is None or data is None else await encoded(serializer, data)
                for serializer, data in zip(encoding, (record.key, record.value), strict=True)
            ]
        except ValueError as error:
            raise CommandError(f"record {number}: {error}") from None
        yield replace(record, key=key, value=value)


# --- sending ------------------------------------------------------------------------------------------------------


async def _send_all(
    producer: kafka.Producer, topic: str, records: AsyncIterator[Parsed], options: dict[str, Any], sent: Sent
) -> None:
    """Send all records, in transactions if there is a transactional id. Raises ClientError for the first that fails."""
    if producer.settings.transactional_id is None:
        async for record in records:
            await _send(producer, topic, record, options, sent)
        await producer.flush()
        return
    in_transaction = 0
    async for record in records:
        if not in_transaction:
            producer.begin_transaction()
        await _send(producer, topic, record, options, sent)
        in_transaction += 1
        if in_transaction == options["transaction_size"]:
            await producer.commit_transaction()
            in_transaction = 0
    if in_transaction:
        await producer.commit_transaction()


async def _send(
    producer: kafka.Producer, topic: str, record: Parsed, options: dict[str, Any], sent: Sent
) -> None:
    if options["rate"] is not None:
        await trio.sleep_until(sent.began + sent.records / options["rate"])
    key = record.key
    given_ms = options["timestamp"]
    try:
        delivery = await producer.send(
            topic,
            record.value,
            key=key,
            headers=[*record.headers, *options["headers"]],
            partition=options["partition"],
            timestamp_ms=record.timestamp_ms if given_ms is None else given_ms,
        )
    except ValueError as error:
        raise CommandError(str(error)) from None
    sent.records += 1
    sent.bytes += len(key or b"") + len(record.value or b"")
    sent.partitions.add(delivery.partition)
    sent.first = sent.first or delivery
    sent.last = delivery


async def _show_progress(sent: Sent) -> None:
    try:
        for line in _progress(sent):
            print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)
            await trio.sleep(PROGRESS_S)
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _progress(sent: Sent) -> Iterator[str]:
    before = 0
    while True:
        rate = (sent.records - before) / PROGRESS_S
        before = sent.records
        yield f"{counted(sent.records, 'record')}, {counted(sent.bytes, 'byte')}, {rate:.0f} a second"
