"""Decoders of one value at a time: values that are only bytes or text, and the base of formats of other packages.

The rule: a format turns a value into JSON values, which are checked against the schema as those of JSON are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import Field
from barnabas_pipeline.formats.base import EXTRA, BlockDecoder, RefusedError
from barnabas_pipeline.formats.json_values import Checker
from barnabas_pipeline.log.columns import Columns
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Integers, Json, Value


@dataclass(frozen=True, slots=True)
class RowDecoder(BlockDecoder):
    """Base of formats that are read one value at a time: a subclass has `format` and `decode_value`."""

    def decode_value(self, value: bytes) -> Mapping[str, Json]:
        """Return the fields of a value, as JSON values.

        Raises RefusedError, or ValueError or LookupError: then the record is refused with the format's name as the reason.
        """
        raise NotImplementedError

    def read(self, value: bytes) -> Mapping[str, Value]:
        """Decode a value, and check it against the schema; unknown fields are kept in `_extra`."""
        try:
            event = dict(self.decode_value(value))
        except (ValueError, LookupError) as error:
            raise RefusedError(self.format, str(error)) from None
        values = Checker().record(event, self.schema.fields)
        return values | ({EXTRA: json.dumps(event, ensure_ascii=False, default=str)} if event else {})


@dataclass(frozen=True, slots=True)
class _WholeDecoder(BlockDecoder):
    """Base of decoders of values that are a single field."""

    def __post_init__(self) -> None:
        BlockDecoder.__post_init__(self)
        if len(self.schema.fields) != 1 or self.schema.fields[0].type != {"raw": "bytes"}.get(
            self.format, self.format
        ):
            raise UsageError(f"format {self.format} has one field, `value`")

    def _decode_fast(self, columns: Columns) -> tuple[list[tuple[Integers, pa.Table]], Integers]:
        values = columns.value
        fit = values.is_valid().to_numpy(zero_copy_only=False)
        fit &= (
            pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False) <= self.value_bytes_max
        )
        rows = np.flatnonzero(fit)
        try:
            column = values.take(pa.array(rows)).cast(self.arrow.types[0])
        except pa.ArrowInvalid:
            return [], np.arange(len(columns))
        table = pa.Table.from_arrays([column, pa.nulls(len(rows), pa.string())], schema=self.arrow)
        good = self._are_times_good(table, columns.timestamp_ms[rows])
        fit[rows] = good
        return [(rows[good], table.filter(pa.array(good)))], np.flatnonzero(~fit)


@dataclass(frozen=True, slots=True)
class RawDecoder(_WholeDecoder):
    """Decoder of values as bytes."""

    format = "raw"

    def read(self, value: bytes) -> Mapping[str, Value]:
        """Return the bytes as the field."""
        return {self.schema.fields[0].name: value}


@dataclass(frozen=True, slots=True)
class StringDecoder(_WholeDecoder):
    """Decoder of values as text."""

    format = "string"

    def read(self, value: bytes) -> Mapping[str, Value]:
        """Return the text as the field. Raises RefusedError for bytes that are not UTF-8."""
        try:
            return {self.schema.fields[0].name: value.decode()}
        except UnicodeDecodeError as error:
            raise RefusedError("utf8", f"no UTF-8 at byte {error.start}") from None


def whole_schema(name: str, kind: str) -> EventSchema:
    """Return the schema of values that are only bytes or text."""
    return EventSchema(name, NO_EVENT_TIME, (Field("value", "bytes" if kind == "raw" else "string"),))
