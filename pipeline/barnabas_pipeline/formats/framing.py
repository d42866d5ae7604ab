"""Values that name their schema: a byte of 0, its id in four bytes, and the data.

The rule: any bytes are either a frame or a record refused as `framing`; an unknown id is refused as `schema_id`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.registry.schemas import Schema
from barnabas_pipeline.formats.base import BlockDecoder, RefusedError
from barnabas_pipeline.formats.registry import Registry

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Integers

SIZE = 5
NO_FRAME = -1


class View(NamedTuple):
    """The bytes of an Arrow array of values, with the start and end of each value."""

    data: bytes
    start: Integers
    end: Integers


def view_of(values: pa.Array) -> View:
    """Return the bytes and edges of values, without a copy of each; nulls have no bytes."""
    count = len(values)
    _, offsets, data = values.buffers()
    edges = np.frombuffer(offsets, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
    first, last = int(edges[0]), int(edges[-1])
    held = b"" if data is None else data[first:last].to_pybytes()
    return View(held, edges[:-1] - first, edges[1:] - first)


def frames_of(values: pa.Array) -> Integers:
    """Return the schema id of each value, NO_FRAME for a value without a frame."""
    data, start, end = view_of(values)
    buf = np.frombuffer(data + bytes(8), np.uint8)
    fits = (end - start >= SIZE) & (buf[start] == 0)
    head = np.where(fits, start, len(data))[:, None] + np.arange(1, 5)
    numbers = buf[head].astype(np.int64) @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    return np.where(fits, numbers, NO_FRAME)


def unframed(values: pa.Array) -> pa.Array:
    """Return the values without their frames; every value must have a frame."""
    data, start, end = view_of(values)
    edges = np.empty(2 * len(start) + 1, np.int32)
    edges[0:-1:2] = start
    edges[1::2] = start + SIZE
    edges[-1] = end[-1]
    every = pa.Array.from_buffers(
        pa.binary(), 2 * len(start), [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    return every.take(pa.array(np.arange(1, 2 * len(start), 2)))


@dataclass(frozen=True, slots=True)
class FramedDecoder(BlockDecoder):
    """Base of decoders of values that begin with the id of a schema if a registry is configured."""

    registry: Registry | None = None

    def known(self, schema_id: int) -> Schema | None:
        """Return the schema of an id, None if it is missing or of another format. Raises IncompleteError."""
        assert self.registry is not None
        schema = self.registry.schema(schema_id) if schema_id >= 0 else None
        return schema if schema is not None and schema.format == self.format.upper() else None

    def split(self, value: bytes) -> tuple[int, bytes]:
        """Return (the schema id of a value, its data). Raises RefusedError, IncompleteError."""
        if len(value) < SIZE or value[0]:
            raise RefusedError("framing", "the value does not begin with a byte of 0 and the id of a schema")
        schema_id = int.from_bytes(value[1:SIZE])
        if self.known(schema_id) is None:
            name = self.format.upper()
            raise RefusedError("schema_id", f"the registry has no {name} schema {schema_id}")
        return schema_id, value[SIZE:]
