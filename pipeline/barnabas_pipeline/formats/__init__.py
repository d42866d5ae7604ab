"""Formats of values: JSON, Avro, Protobuf, bytes, text, and those of other packages.

The rule: a format is found by its name, here or in the entry point group `barnabas_pipeline.decoders`, and imported
when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.formats.base import BadRecord, BlockDecoder, Decoder, RefusedError
from barnabas_pipeline.formats.rows import RowDecoder
from barnabas_pipeline.requirements import install_command
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Json

__all__ = ["BadRecord", "BlockDecoder", "Decoder", "RefusedError", "RowDecoder", "names", "restore"]

GROUP = "barnabas_pipeline.decoders"
BUILT_IN = {
    "json": ("json", "JsonDecoder", ()),
    "connect-json": ("connect", "ConnectJsonDecoder", ()),
    "avro": ("avro", "AvroDecoder", ("fastavro",)),
    "protobuf": ("protobuf", "ProtobufDecoder", ("google.protobuf", "proto_schema_parser")),
    "raw": ("rows", "RawDecoder", ()),
    "string": ("rows", "StringDecoder", ()),
}
"""The built-in formats by name: module, class, and required libraries."""


def names() -> list[str]:
    """Return the names of all formats, built-in or of other packages."""
    return [*BUILT_IN, *sorted(entry_point.name for entry_point in entry_points(group=GROUP))]


def class_of(name: str) -> type[BlockDecoder]:
    """Return the decoder of a format. Raises UsageError."""
    if name in BUILT_IN:
        module, class_name, needed = BUILT_IN[name]
        missing = [module for module in needed if find_spec(module.partition(".")[0]) is None]
        if missing:
            raise UsageError(
                f"{', '.join(missing)} not installed; {name} needs the extra `formats`: {install_command('formats')}"
            )
        return getattr(import_module(f"{__name__}.{module}"), class_name)
    for entry_point in entry_points(group=GROUP):
        if entry_point.name == name:
            return entry_point.load()
    raise UsageError(f"{name!r} is no format: {', '.join(names())}")


def restore(schema: EventSchema, limits: Mapping[str, Json], *, careful: bool = False) -> Decoder:
    """Return the decoder of a schema with these limits, as stored in a manifest. Raises UsageError."""
    key = limits.get("key")
    value = _plain(replace(schema, key=()), limits, careful=careful)
    if key is None:
        return value
    from barnabas_pipeline.formats.keys import KeyedDecoder

    return KeyedDecoder(value, _plain(EventSchema("key", NO_EVENT_TIME, schema.key), key, careful=careful))


def _plain(schema: EventSchema, limits: Mapping[str, Json], *, careful: bool) -> BlockDecoder:
    options = {name: limit for name, limit in limits.items() if name not in ("format", "key")}
    if isinstance(options.get("registry"), Mapping):
        from barnabas_pipeline.formats.registry import Registry

        options["registry"] = Registry.at(**options["registry"])
    if "references" in options:
        options["references"] = tuple((name, text) for name, text in options["references"])
    decoder_class = class_of(limits.get("format", "json"))
    try:
        return decoder_class(schema, careful=careful, **options)
    except TypeError as error:
        raise UsageError(f"format {limits.get('format', 'json')}: {error}") from None
