"""Decoding of keys together with values: a struct `_key_fields`, next to the key's bytes, `_key`.

The rule: a key that cannot be decoded refuses its record, with `key_` before the reason; a null key is null.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from barnabas_pipeline.field_types import Record, arrow_type
from barnabas_pipeline.formats.base import EXTRA, BadRecord, BlockDecoder
from barnabas_pipeline.log.columns import Columns, select
from barnabas_pipeline.schema import KEY_COLUMN, EventSchema

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Document, Integers


@dataclass(frozen=True, slots=True)
class KeyedDecoder:
    """A decoder of values, with a decoder of keys."""

    value: BlockDecoder
    key: BlockDecoder

    @property
    def schema(self) -> EventSchema:
        """The schema of values, with the fields of keys."""
        return replace(self.value.schema, key=self.key.schema.fields)

    def limits(self) -> Document:
        """Return the limits of both decoders."""
        return {**self.value.limits(), "key": {"format": self.key.format, **self.key.limits()}}

    def decode(self, columns: Columns) -> tuple[Integers, pa.Table, list[BadRecord]]:
        """Return (the good rows' numbers as numpy, their fields and `_extra` as a table, the bad rows)."""
        rows, table, bad = self.value.decode(columns)
        there = np.flatnonzero(columns.key.is_valid().to_numpy(zero_copy_only=False))
        keyed = Columns(*columns[:5], columns.key, columns.headers)
        if len(there) < len(columns):
            mask = np.zeros(len(columns), bool)
            mask[there] = True
            keyed = select(keyed, mask)
        good, keys, refused = self.key.decode(keyed)
        seen = {refusal.row for refusal in bad}
        more = [
            BadRecord(int(there[refusal.row]), f"key_{refusal.reason}", f"key: {refusal.detail}")
            for refusal in refused
            if int(there[refusal.row]) not in seen
        ]
        place = np.full(len(columns), -1)
        place[there[good]] = np.arange(len(good))
        if more:
            keep = ~np.isin(rows, [refusal.row for refusal in more])
            rows, table = rows[keep], table.filter(pa.array(keep))
        kind = arrow_type(Record(self.key.schema.fields))
        columns_of = [keys[field.name].combine_chunks() for field in kind]
        whole = pa.StructArray.from_arrays(columns_of, fields=list(kind))
        mine = place[rows]
        struct = whole.take(pa.array(np.maximum(mine, 0), mask=mine < 0))
        extra = table.column_names.index(EXTRA)
        table = table.add_column(extra, pa.field(KEY_COLUMN, kind), struct)
        return rows, table, sorted([*bad, *more])
