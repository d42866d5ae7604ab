"""Events as Avro, each with the id of its schema in front, as Confluent's serialisers write them.

The rule: see `bad`: each way to spoil a value is a reason code of the Avro decoder.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from barnabas.registry.errors import RegistryError
from barnabas.registry.schemas import AVRO, Schema
from barnabas_pipeline.errors import IncompleteError
from barnabas_pipeline.schema import BUILT_IN
from barnabas_pipeline.simulate.model import DAY_MS, Event

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Document
    from barnabas_pipeline.formats.registry import Registry

NO_SCHEMA_ID = 2**31 - 1


def schema_of(kind: str) -> Document:
    """Return the Avro schema of a kind of event."""
    fields = [
        {"name": field.name, "type": field.type}
        if field.required
        else {"name": field.name, "type": ["null", field.type], "default": None}
        for field in BUILT_IN[kind].fields
    ]
    return {"type": "record", "name": kind, "namespace": "barnabas.site", "fields": fields}


class AvroValues:
    """Values of events, encoded by schemas that are in a registry."""

    reasons: Sequence[str] = ("framing", "schema_id", "avro", "time")

    def __init__(self, registry: Registry, prefix: str, kinds: Sequence[str]) -> None:
        """Register the schemas of the topics `prefix` + kind. Raises IncompleteError."""
        import fastavro

        self._write = fastavro.schemaless_writer
        self._schemas = {kind: fastavro.parse_schema(schema_of(kind)) for kind in kinds}
        client = registry.client()

        async def register() -> dict[str, int]:
            return {
                kind: await client.register(
                    f"{prefix}{kind}-value", Schema(AVRO, json.dumps(schema_of(kind)))
                )
                for kind in kinds
            }

        try:
            self._ids = trio.run(register)
        except RegistryError as error:
            raise IncompleteError(f"the schema registry: {error}") from None

    def value(self, event: Event) -> bytes:
        """Encode an event."""
        return self._framed(self._ids[event.kind], self._body(event.kind, event.fields))

    def spoiled(self, event: Event, reason: str) -> bytes:
        """Encode an event that is bad in one way."""
        if reason == "time":
            fields = event.fields | {"ts": event.fields["ts"] + 400 * DAY_MS}
            return self._framed(self._ids[event.kind], self._body(event.kind, fields))
        body = self._body(event.kind, event.fields)
        if reason == "framing":
            return body
        if reason == "schema_id":
            return self._framed(NO_SCHEMA_ID, body)
        if reason == "avro":
            return self._framed(self._ids[event.kind], body[: len(body) // 2])
        raise ValueError(reason)

    def _body(self, kind: str, fields: Document) -> bytes:
        out = io.BytesIO()
        self._write(out, self._schemas[kind], fields)
        return out.getvalue()

    @staticmethod
    def _framed(schema_id: int, body: bytes) -> bytes:
        return b"\0" + schema_id.to_bytes(4) + body
