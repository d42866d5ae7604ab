"""Keys and values of records read by the schemas that they name: a byte of 0, the id in four bytes, and the data.

The rule: bytes that are not framed so are none of its business; those that are and cannot be read are an error that says
why.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import trio

from barnabas.registry.client import RegistryClient
from barnabas.registry.errors import RegistryError, SchemaError
from barnabas.registry.formats import Parsed, parse
from barnabas.registry.schemas import Reference, Schema

FRAME = struct.Struct(">bI")
MAGIC = 0
CACHED_MAX = 1_000
"""Schemas that are kept ready for reading."""

__all__ = ["Decoded", "Deserializer", "RegistryError", "SchemaError"]


@dataclass(frozen=True, slots=True)
class Decoded:
    """A key or value as JSON has it, the format (`AVRO`, `JSON`, `PROTOBUF`) and the id of its schema."""

    value: Any
    format: str
    schema_id: int


def schema_id_of(data: bytes) -> int | None:
    """Return the id that stands before the data; None if it is not framed so."""
    if len(data) < FRAME.size:
        return None
    magic, schema_id = FRAME.unpack_from(data)
    return int(schema_id) if magic == MAGIC else None


class Deserializer:
    """Reads keys and values; many at a time may be read by one."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._parsed: dict[int, tuple[str, Parsed]] = {}

    async def decode(self, data: bytes) -> Decoded | None:
        """Return what was written; None for bytes that do not name a schema. Raises SchemaError, RegistryError."""
        schema_id = schema_id_of(data)
        if schema_id is None:
            return None
        found = self._parsed.get(schema_id)
        if found is None:
            schema = await self._client.schema(schema_id)
            found = schema.format, await parsed_of(self._client, schema)
            if len(self._parsed) >= CACHED_MAX:
                del self._parsed[next(iter(self._parsed))]
            self._parsed[schema_id] = found
        format_name, parsed = found
        return Decoded(parsed.decode(data[FRAME.size :]), format_name, schema_id)


async def parsed_of(client: RegistryClient, schema: Schema) -> Parsed:
    """Understand a schema, together with those that it refers to. Raises SchemaError, RegistryError."""
    known: dict[str, str] = {}
    await _collect(client, schema.references, known, set())
    return await trio.to_thread.run_sync(parse, schema, [*known.items()])  # which takes long for a large one


async def _collect(
    client: RegistryClient, references: Sequence[Reference], known: dict[str, str], within: set[str]
) -> None:
    """Add what is referred to, each after what it needs itself. Raises RegistryError."""
    for one in references:
        if one.name not in known and one.name not in within:
            schema = (await client.version(one.subject, one.version)).schema
            within.add(one.name)
            await _collect(client, schema.references, known, within)
            known[one.name] = schema.text
