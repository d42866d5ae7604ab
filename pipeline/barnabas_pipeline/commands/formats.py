"""Options for the formats of values and keys, and the resulting schema and decoder.

The rule: a table keeps its schema; additional fields of a registry or a file are added only with `--evolve`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from barnabas_pipeline import formats, schema
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import Field
from barnabas_pipeline.formats.base import DEAD, KEEP
from barnabas_pipeline.formats.registry import (
    ADDRESS,
    PASSWORD,
    STRATEGIES,
    TOKEN,
    USER,
    Registry,
    subject_of,
)
from barnabas_pipeline.formats.rows import whole_schema
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema, named_apart

if TYPE_CHECKING:
    from barnabas_pipeline.commands.arguments import FormatArguments, RegistryArguments
    from barnabas_pipeline.data_types import Document, Json

_SUFFIXES = {".avsc": "avro", ".proto": "protobuf"}
_BINARY = ("avro", "protobuf")
IMPORTS_MAX = 1_000


class Chosen(NamedTuple):
    """A schema, and further parameters of its decoder."""

    schema: EventSchema
    decoding: Document


class Source(NamedTuple):
    """The source of a schema: its name and fields, and further parameters of the decoder."""

    name: str
    fields: tuple[Field, ...]
    decoding: Document


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add the options of formats and schemas."""
    group = parser.add_argument_group("format")
    group.add_argument(
        "--schema",
        metavar="NAME|FILE",
        help="schema file: of the pipeline, JSON Schema, .avsc or .proto; default: the registry's, or the built-in one "
        "named as the topic",
    )
    group.add_argument(
        "--format",
        metavar="NAME",
        help=f"format of values: {', '.join(formats.BUILT_IN)}, or one of another package",
    )
    group.add_argument(
        "--key-format", metavar="NAME", help="format of keys, which are decoded into the struct _key_fields"
    )
    group.add_argument("--key-schema", metavar="FILE", help="schema file of keys, without a registry")
    group.add_argument(
        "--registry",
        metavar="URL",
        help="schema registry; default for Avro and Protobuf: BARNABAS_REGISTRY",
    )
    add_registry_login(group)
    group.add_argument("--subjects", choices=STRATEGIES, default="topic", help="naming strategy of subjects")
    group.add_argument(
        "--record",
        default="",
        metavar="NAME",
        help="full name of the record or message to load; others are dead letters",
    )
    group.add_argument("--key-record", default="", metavar="NAME")
    group.add_argument(
        "--event-time",
        metavar="FIELD",
        help="field with the time of the event, of a new table; default: the timestamp of the record",
    )
    group.add_argument(
        "--tombstones",
        choices=(DEAD, KEEP),
        default=DEAD,
        help="keep: a null value becomes a row of nulls; dead: a dead letter",
    )
    group.add_argument("--evolve", action="store_true", help="add new fields of the newest schema as columns")


def add_registry_login(group: argparse._ActionsContainer) -> None:
    """Add the options for the login to a registry."""
    group.add_argument(
        "--registry-user",
        metavar="NAME",
        help=f"user of the registry; its password is read from {PASSWORD}, a bearer token from {TOKEN}",
    )
    for name, text in (
        ("ca", "trusted authorities"),
        ("cert", "client certificate"),
        ("key", "private key of --registry-cert"),
    ):
        group.add_argument(f"--registry-{name}", default="", metavar="FILE", help=f"PEM: {text}")


def registry_of(args: RegistryArguments, url: str) -> Registry:
    """Return the registry at an address, with the login and TLS files of the options. Raises UsageError."""
    if args.registry_user:
        os.environ |= {USER: args.registry_user, ADDRESS: url}
    return Registry.at(url, ca=args.registry_ca, cert=args.registry_cert, key=args.registry_key)


def choose(args: FormatArguments, schema_of_table: Callable[[], Mapping[str, Json]]) -> Chosen:
    """Return the schema and the decoder of the options; `schema_of_table` returns the schema of an existing table.

    Raises UsageError, IncompleteError.
    """
    name = args.format or _format_of_file(args.schema) or "json"
    registry = _registry(args, name)
    formats.class_of(name)
    value = _source(args, name, args.schema, registry, args.record, is_key=False)
    decoding = value.decoding | ({"tombstones": KEEP} if args.tombstones == KEEP else {})
    key: tuple[Field, ...] = ()
    if args.key_format:
        formats.class_of(args.key_format)
        held = _source(args, args.key_format, args.key_schema, registry, args.key_record, is_key=True)
        key, decoding["key"] = held.fields, {"format": args.key_format, **held.decoding}
    own = _own_schema(args, value) if name == "json" else None
    newest = own or _with_event_time(EventSchema(args.topic, NO_EVENT_TIME, value.fields), args.event_time)
    newest = replace(newest, key=key or newest.key)
    if own is None:
        newest = replace(newest, fields=named_apart(newest.fields))
    table = schema_of_table()
    if not table:
        return Chosen(newest.checked(), decoding)
    mine = EventSchema.from_dict(table)
    if own is not None:
        return Chosen(newest, decoding)  # a schema of the pipeline determines itself how the table grows
    if args.event_time not in (None, mine.event_time):
        raise UsageError(f"the table's event time is {mine.event_time}")
    if not args.evolve:
        return Chosen(mine, decoding)
    newest = _with_event_time(newest, mine.event_time)
    for text in mine.refused(newest):
        print(f"note: {args.topic}: {text}", file=sys.stderr)
    return Chosen(mine.grown(newest), decoding)


def _registry(args: FormatArguments, name: str) -> Registry | None:
    url = args.registry or (os.environ.get(ADDRESS, "") if name in _BINARY else "")
    return registry_of(args, url) if url else None


def _format_of_file(path: str | None) -> str:
    return _SUFFIXES.get(Path(path).suffix, "") if path else ""


def _own_schema(args: FormatArguments, value: Source) -> EventSchema | None:
    """Return a schema of the pipeline, from a file or built in; None if the source has fields."""
    return None if value.fields else schema.load(args.schema or args.topic)


def _with_event_time(event_schema: EventSchema, name: str | None) -> EventSchema:
    """Return a schema with another field as the event time, which becomes required. Raises UsageError."""
    if name in (None, NO_EVENT_TIME):
        return event_schema
    fields = tuple(
        replace(field, required=True) if field.name == name else field for field in event_schema.fields
    )
    return replace(event_schema, event_time=name, fields=fields).checked()


def _source(
    args: FormatArguments,
    name: str,
    path: str | None,
    registry: Registry | None,
    record: str,
    *,
    is_key: bool,
) -> Source:
    """Return the source of the schema of values or keys."""
    decoding: Document = {} if name == "json" else {"format": name}
    if name in ("raw", "string"):
        return Source("", whole_schema(args.topic, name).fields, decoding)
    if name not in ("json", *_BINARY):
        loaded = schema.load(path or args.topic)
        return Source(loaded.name, loaded.fields, decoding)
    if registry is not None:
        decoding["registry"] = registry.to_dict()
    if record and name in _BINARY:
        decoding["record"] = record
    if path and Path(path).suffix in (*_SUFFIXES, ".json"):
        return _file_source(name, Path(path), registry, record, decoding)
    if registry is not None and not path:
        registered = registry.latest(subject_of(args.subjects, args.topic, record, is_key=is_key))
        if registered.schema.format != name.upper():
            raise UsageError(f"{registered.subject} is {registered.schema.format}, not {name}: give --format")
        title, fields = fields_of(
            name, registered.schema.text, registry.references(registered.schema), record
        )
        return Source(title, fields, decoding)
    if name in _BINARY or is_key:
        raise UsageError(f"{name} needs --{'key-' if is_key else ''}schema FILE or --registry")
    return Source("", (), decoding)


def _file_source(name: str, path: Path, registry: Registry | None, record: str, decoding: Document) -> Source:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None
    references = imports_of(path, text) if name == "protobuf" else {}
    if name == "json" and not _is_json_schema(text):
        return Source("", (), decoding)
    title, fields = fields_of(name, text, references, record)
    if name in _BINARY and registry is None:
        decoding["text"] = text
        if references:
            decoding["references"] = [[reference, held] for reference, held in references.items()]
    return Source(title, fields, decoding)


def _is_json_schema(text: str) -> bool:
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(held, dict)
        and "fields" not in held
        and bool({"$schema", "properties", "$ref", "oneOf"} & held.keys())
    )


def fields_of(
    name: str, text: str, references: Mapping[str, str], record: str = ""
) -> tuple[str, tuple[Field, ...]]:
    """Return (the name, the fields) of a schema's text. Raises UsageError."""
    if name == "avro":
        from barnabas_pipeline.formats.avro import fields_of_text as avro_fields

        return avro_fields(text, dict(references))
    if name == "protobuf":
        from barnabas_pipeline.formats.protobuf import fields_of_text as protobuf_fields

        return protobuf_fields(text, dict(references), record)
    from barnabas_pipeline.formats.json_schema import fields_of_text as json_fields

    return json_fields(text, references)


def imports_of(path: Path, text: str) -> dict[str, str]:
    """Return the files that a .proto file imports, from its directory or a parent, each after its own imports."""
    from barnabas.registry.formats.protobuf_known import descriptor_of
    from barnabas.registry.formats.protobuf_text import read

    texts: dict[str, str] = {}

    def collect(held: str, name: str, depth: int) -> None:
        try:
            needed = list(read(held, name).dependency)
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from None
        for dependency in needed:
            if dependency in texts or descriptor_of(dependency) is not None:
                continue
            place = next(
                (up / dependency for up in path.resolve().parents if (up / dependency).is_file()), None
            )
            if place is None or depth > IMPORTS_MAX:
                raise UsageError(f"{path} imports {dependency!r}, which is neither beside it nor above")
            inner = place.read_text(encoding="utf-8")
            collect(inner, dependency, depth + 1)
            texts[dependency] = inner

    collect(text, path.name, 0)
    return texts
