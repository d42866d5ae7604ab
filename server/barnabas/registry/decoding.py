"""Deserialization of keys and values by their schemas: a byte of 0, the id in four bytes, and the data.

The rule: bytes without this frame are ignored; framed bytes that cannot be read are an error with the reason. Schemas are
parsed and payloads decoded in a sandbox, in batches.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import trio

from barnabas.registry import work
from barnabas.registry.client import RegistryClient
from barnabas.registry.errors import RegistryError, SchemaError
from barnabas.registry.formats import Parsed, parse
from barnabas.registry.references import collecting
from barnabas.registry.schemas import Schema
from barnabas.registry.work import Source
from barnabas.sandbox.messages import SandboxError
from barnabas.sandbox.pool import Sandbox

FRAME = struct.Struct(">bI")
MAGIC = 0
CACHED_MAX = 1_000
"""Schemas that are kept ready for reading."""
BATCH_BYTES_MAX = 4 << 20
"""Bytes of payloads per call of the sandbox."""
CHARS_MAX = 1 << 30
"""Length of a text that is not cut."""

__all__ = ["Decoded", "DecodedText", "Deserializer", "RegistryError", "SchemaError"]


@dataclass(frozen=True, slots=True)
class Decoded:
    """A key or value as a JSON value, the format (`AVRO`, `JSON`, `PROTOBUF`) and the id of its schema."""

    value: Any
    format: str
    schema_id: int


@dataclass(frozen=True, slots=True)
class DecodedText:
    """A key or value as JSON text, possibly truncated, the format (`AVRO`, `JSON`, `PROTOBUF`) and the id of its schema."""

    text: str
    is_cut: bool
    format: str
    schema_id: int


def schema_id_of(data: bytes) -> int | None:
    """Return the schema id of a framed payload (a zero byte, the id as int32); None for a payload without a frame."""
    if len(data) < FRAME.size:
        return None
    magic, schema_id = FRAME.unpack_from(data)
    return int(schema_id) if magic == MAGIC else None


class Deserializer:
    """Decodes keys and values that Confluent's serializers have framed; tasks may share it.

    Schemas are looked up by `client` and parsed in child processes of `sandbox`; 1,000 are cached.
    """

    def __init__(self, client: RegistryClient, sandbox: Sandbox) -> None:
        self._client = client
        self._sandbox = sandbox
        self._sources: dict[int, Source] = {}

    async def decode_many(
        self, payloads: Sequence[bytes], *, chars_max: int, owner: Hashable = None
    ) -> list[DecodedText | SchemaError | RegistryError | None]:
        """Return payloads as JSON in the same order, each cut to `chars_max` characters; None for one without a frame.

        An item is an error instead where a payload cannot be decoded, or its schema cannot be fetched. `owner` has one
        call at a time, see `Sandbox.call`.
        """
        results: list[DecodedText | SchemaError | RegistryError | None] = [None] * len(payloads)
        places: dict[int, list[int]] = {}
        for place, payload in enumerate(payloads):
            schema_id = schema_id_of(payload)
            if schema_id is not None:
                places.setdefault(schema_id, []).append(place)
        for schema_id, numbers in places.items():
            try:
                source = await self._source(schema_id)
            except (RegistryError, SchemaError) as error:
                for number in numbers:
                    results[number] = error
                continue
            for batch in _batches(payloads, numbers):
                datas = [payloads[number][FRAME.size :] for number in batch]
                for number, text in zip(
                    batch, await self._decoded(source, datas, chars_max, owner), strict=True
                ):
                    results[number] = (
                        text
                        if isinstance(text, SchemaError)
                        else DecodedText(text.text, text.is_cut, source.format, schema_id)
                    )
        return results

    async def _decoded(
        self, source: Source, payloads: list[bytes], chars_max: int, owner: Hashable
    ) -> list[work.Text | SchemaError]:
        """Return a decoded batch; if it reaches a limit, decode payloads one at a time, so that only the culprit fails."""
        try:
            return await self._sandbox.call(work.decode_many, source, payloads, chars_max, owner=owner)
        except SandboxError as error:
            if len(payloads) == 1:
                return [SchemaError(f"the data cannot be decoded: {error}")]
        except SchemaError as error:
            return [error] * len(payloads)
        half = len(payloads) // 2
        return [
            *await self._decoded(source, payloads[:half], chars_max, owner),
            *await self._decoded(source, payloads[half:], chars_max, owner),
        ]

    async def _source(self, schema_id: int) -> Source:
        source = self._sources.get(schema_id)
        if source is None:
            source = await source_of(self._client, await self._client.schema(schema_id))
            if len(self._sources) >= CACHED_MAX:
                del self._sources[next(iter(self._sources))]
            self._sources[schema_id] = source
        return source

    async def decode(self, data: bytes, *, owner: Hashable = None) -> Decoded | None:
        """Return the decoded value; None for bytes that do not name a schema. Raises SchemaError, RegistryError."""
        [text] = await self.decode_many([data], chars_max=CHARS_MAX, owner=owner)
        if isinstance(text, Exception):
            raise text
        return None if text is None else Decoded(json.loads(text.text), text.format, text.schema_id)


def _batches(payloads: Sequence[bytes], numbers: Sequence[int]) -> list[list[int]]:
    """Split the places of payloads into batches that are decoded together."""
    batches: list[list[int]] = [[]]
    size = 0
    for number in numbers:
        if batches[-1] and size + len(payloads[number]) > BATCH_BYTES_MAX:
            batches.append([])
            size = 0
        batches[-1].append(number)
        size += len(payloads[number])
    return batches


async def source_of(client: RegistryClient, schema: Schema) -> Source:
    """Return a schema with its references. Raises SchemaError, RegistryError."""
    steps = collecting("", schema.references)
    try:
        _, reference = next(steps)
        while True:
            referred = await client.version(reference.subject, reference.version)
            _, reference = steps.send((reference.subject, referred.schema))
    except StopIteration as end:
        return Source(schema.format, schema.text, tuple(end.value))


async def parsed_of(client: RegistryClient, schema: Schema) -> Parsed:
    """Parse a schema with its references, in a thread. Raises SchemaError, RegistryError.

    For processes that serve no clients; all others use a sandbox.
    """
    source = await source_of(client, schema)
    return await trio.to_thread.run_sync(parse, schema, source.dependencies)
