"""Serialization of keys and values by a schema: a byte of 0, the id in four bytes, and the data.

The rule: values are passed as JSON text; values and schemas are parsed and encoded in a sandbox.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from barnabas.registry import work
from barnabas.registry.client import RegistryClient
from barnabas.registry.decoding import FRAME, MAGIC, source_of
from barnabas.registry.errors import SchemaError
from barnabas.registry.schemas import Schema
from barnabas.registry.work import Source
from barnabas.sandbox.messages import SandboxError
from barnabas.sandbox.pool import Sandbox


class Serializer:
    """Writes values by one schema, framed as Confluent's serializers do: a zero byte, the id as int32, the data.

    The schema is parsed in a child process of `sandbox`.
    """

    def __init__(self, schema_id: int, source: Source, sandbox: Sandbox) -> None:
        self._frame = FRAME.pack(MAGIC, schema_id)
        self._source = source
        self._sandbox = sandbox

    @classmethod
    async def of_id(cls, client: RegistryClient, schema_id: int, sandbox: Sandbox) -> Serializer:
        """Return a serializer by the schema with an id. Raises RegistryError, SchemaError."""
        return cls(schema_id, await source_of(client, await client.schema(schema_id)), sandbox)

    @classmethod
    async def of_latest(cls, client: RegistryClient, subject: str, sandbox: Sandbox) -> Serializer:
        """Return a serializer by the newest version of a subject. Raises RegistryError, SchemaError."""
        latest = await client.latest(subject)
        return cls(latest.id, await source_of(client, latest.schema), sandbox)

    @classmethod
    async def of_schema(
        cls, client: RegistryClient, subject: str, schema: Schema, sandbox: Sandbox
    ) -> Serializer:
        """Register a schema in a subject and return its serializer. Raises RegistryError, SchemaError."""
        schema_id = await client.register(subject, schema)
        return cls(schema_id, await source_of(client, schema), sandbox)

    async def encode(self, value_text: str, *, owner: Hashable = None) -> bytes:
        """Return the framed bytes of a value.

        `value_text` is the value as JSON; `owner` has one call of the sandbox at a time. Raises SchemaError for a value
        that does not fit the schema.
        """
        data = (await self.encode_many([value_text], owner=owner))[0]
        if isinstance(data, SchemaError):
            raise data
        return data

    async def encode_many(
        self, value_texts: Sequence[str], *, owner: Hashable = None
    ) -> list[bytes | SchemaError]:
        """Return the framed bytes of values, each given as JSON; an item is an error where a value does not fit.

        Raises SchemaError if the sandbox reaches a limit.
        """
        try:
            results = await self._sandbox.call(work.encode_many, self._source, [*value_texts], owner=owner)
        except SandboxError as error:
            raise SchemaError(f"the value cannot be written: {error}") from None
        return [data if isinstance(data, SchemaError) else self._frame + data for data in results]
