"""Keys and values of records written by a schema: a byte of 0, the id in four bytes, and the data."""

from __future__ import annotations

from typing import Any

from barnabas.registry.client import RegistryClient
from barnabas.registry.decoding import FRAME, MAGIC, parsed_of
from barnabas.registry.formats import Parsed
from barnabas.registry.schemas import Schema


class Serializer:
    """Writes values by one schema."""

    def __init__(self, schema_id: int, parsed: Parsed) -> None:
        self._frame = FRAME.pack(MAGIC, schema_id)
        self._parsed = parsed

    @classmethod
    async def of_id(cls, client: RegistryClient, schema_id: int) -> Serializer:
        """Return what writes by the schema of an id. Raises RegistryError, SchemaError."""
        return cls(schema_id, await parsed_of(client, await client.schema(schema_id)))

    @classmethod
    async def of_latest(cls, client: RegistryClient, subject: str) -> Serializer:
        """Return what writes by the newest schema of a subject. Raises RegistryError, SchemaError."""
        found = await client.latest(subject)
        return cls(found.id, await parsed_of(client, found.schema))

    @classmethod
    async def of_schema(cls, client: RegistryClient, subject: str, schema: Schema) -> Serializer:
        """Register a schema with a subject, and return what writes by it. Raises RegistryError, SchemaError."""
        schema_id = await client.register(subject, schema)
        return cls(schema_id, await parsed_of(client, schema))

    def encode(self, value: Any) -> bytes:
        """Return a value, made of what JSON has, as bytes. Raises SchemaError for one that does not fit."""
        return self._frame + self._parsed.encode(value)
