"""Decoders in general: blocks of records to columns, as a whole if possible, otherwise record by record.

The rule: whether a record is good never depends on its neighbours. The fast path of a format decodes only unambiguous
rows, and leaves the others to the strict path, which decides on one record at a time; a property test checks that both
agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import Field
from barnabas_pipeline.log.columns import Columns, select
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Column, Document, Integers, Mask, Value

DECODER_VERSION = 3
VALUE_BYTES_MAX = 1 << 20
PAST_MAX_MS = 30 * 24 * 3_600_000  # how much older than its record an event may be
FUTURE_MAX_MS = 3_600_000  # how much younger, for clocks that are ahead
TIME_MIN_MS = -62_135_596_800_000  # the years 1 to 9999, which readers of Parquet accept
TIME_MAX_MS = 253_402_300_799_999
EXTRA = "_extra"
DEAD, KEEP = "dead", "keep"
TOMBSTONE = '{"_tombstone":true}'


class BadRecord(NamedTuple):
    """A refused record: its row in the block, the reason code, and details for people."""

    row: int
    reason: str
    detail: str


class RefusedError(Exception):
    """A record is refused, with a reason code and details."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


class Decoder(Protocol):
    """Reader of one format; instances are sent to workers, so they can be pickled."""

    @property
    def schema(self) -> EventSchema:
        """The schema of the decoded columns."""

    def limits(self) -> Document:
        """Return the settings beside the schema that verdicts depend on; manifests store them for audits."""

    def decode(self, columns: Columns) -> tuple[Integers, pa.Table, list[BadRecord]]:
        """Return (the good rows' numbers as numpy, their fields and `_extra` as a table, the bad rows)."""


@dataclass(frozen=True, slots=True)
class BlockDecoder:
    """Base of decoders: a format adds `read`, for one value, and may add `_decode_fast`, for a block.

    The bounds of event time are relative to the record's own timestamp. With `careful` only the strict path is used, so
    that an audit does not use the same decoder as a load.
    """

    format: ClassVar[str] = ""

    schema: EventSchema
    value_bytes_max: int = VALUE_BYTES_MAX
    past_max_ms: int = PAST_MAX_MS
    future_max_ms: int = FUTURE_MAX_MS
    tombstones: str = DEAD
    careful: bool = False

    def __post_init__(self) -> None:
        if self.tombstones == KEEP and self.schema.event_time != NO_EVENT_TIME:
            raise UsageError(
                f"a tombstone has no {self.schema.event_time}: to keep them, the event time must be the record's own"
            )

    def limits(self) -> Document:
        """Return the settings, beside the schema, that verdicts depend on; defaults are omitted, except the bounds."""
        limits = {name: getattr(self, name) for name in ("value_bytes_max", "past_max_ms", "future_max_ms")}
        limits |= {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in {"schema", "careful", *limits} and getattr(self, field.name) != field.default
        }
        limits = {
            name: limit.to_dict() if hasattr(limit, "to_dict") else limit for name, limit in limits.items()
        }
        return limits if self.format == "json" else limits | {"format": self.format}

    def decode(self, columns: Columns) -> tuple[Integers, pa.Table, list[BadRecord]]:
        """Return (the good rows' numbers as numpy, their fields and `_extra` as a table, the bad rows)."""
        if not len(columns):
            return np.empty(0, np.int64), self.arrow.empty_table(), []
        if self.careful:
            return self._decode_each(columns)
        try:
            parts, doubtful = self._decode_fast(columns)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return self._decode_each(columns)
        if len(doubtful) == len(columns):
            return self._decode_each(columns)
        bad: list[BadRecord] = []
        if len(doubtful):
            chosen = np.zeros(len(columns), bool)
            chosen[doubtful] = True
            rows, table, refused = self._decode_each(select(columns, chosen))
            parts.append((doubtful[rows], table))
            bad = [refusal._replace(row=int(doubtful[refusal.row])) for refusal in refused]
        return *in_order(parts), bad

    @property
    def arrow(self) -> pa.Schema:
        """The columns of the table that `decode` returns."""
        return self.schema.arrow.append(pa.field(EXTRA, pa.string()))

    # --- all at once ----------------------------------------------------------------------------------------

    def _decode_fast(self, columns: Columns) -> tuple[list[tuple[Integers, pa.Table]], Integers]:
        """Return certainly good rows, as disjoint (rows, their table), and the rows to decode singly.

        Row numbers rise.
        """
        return [], np.arange(len(columns))

    def _are_times_good(self, table: pa.Table, timestamp_ms: Integers) -> Mask:
        """Return the mask of rows with possible times: within the years 1 to 9999, and near the record's timestamp."""
        fine = (timestamp_ms >= TIME_MIN_MS) & (timestamp_ms <= TIME_MAX_MS)
        if self.schema.event_time == NO_EVENT_TIME:
            return fine
        times = event_ms(table[self.schema.event_time])
        ahead = times - np.where(fine, timestamp_ms, 0)
        near = (ahead <= self.future_max_ms) & (-ahead <= self.past_max_ms) | (timestamp_ms < 0)
        return fine & near & (times >= TIME_MIN_MS) & (times <= TIME_MAX_MS)

    # --- one by one -----------------------------------------------------------------------------------------

    def _decode_each(self, columns: Columns) -> tuple[Integers, pa.Table, list[BadRecord]]:
        good: list[int] = []
        bad: list[BadRecord] = []
        rows: list[Mapping[str, Value]] = []
        for row, (value, timestamp_ms) in enumerate(
            zip(columns.value.to_pylist(), columns.timestamp_ms.tolist(), strict=True)
        ):
            try:
                rows.append(self.decode_one(value, timestamp_ms))
                good.append(row)
            except RefusedError as error:
                bad.append(BadRecord(row, error.reason, error.detail))
        arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in self.arrow]
        return np.array(good, np.int64), pa.Table.from_arrays(arrays, schema=self.arrow), bad

    def decode_one(self, value: bytes | None, timestamp_ms: int) -> Mapping[str, Value]:
        """Decode a value to the columns' values for Arrow, unknown fields as JSON under `_extra`. Raises RefusedError."""
        if value is None and self.tombstones == KEEP:
            self._check_times({}, timestamp_ms)
            return {EXTRA: TOMBSTONE}
        if value is None:
            raise RefusedError("empty", "the value is null")
        if len(value) > self.value_bytes_max:
            raise RefusedError("too_large", f"{len(value)} bytes are more than {self.value_bytes_max}")
        try:
            row = self.read(value)
        except RecursionError:
            raise RefusedError(self.format, "nested too deeply") from None
        self._check_times(row, timestamp_ms)
        return row

    def read(self, value: bytes) -> Mapping[str, Value]:
        """Decode one value. Raises RefusedError."""
        raise NotImplementedError

    def _check_times(self, row: Mapping[str, Value], timestamp_ms: int) -> None:
        name = self.schema.event_time
        times = [("the record's timestamp", timestamp_ms)]
        if name != NO_EVENT_TIME:
            event_time = row[name]
            if event_time is None:
                raise RefusedError("time", f"{name} is no time of the years 1 to 9999")
            if _field(self.schema, name).type != "long":
                event_time //= 1000
            times.insert(0, (name, event_time))
        for what, time_ms in times:
            if not TIME_MIN_MS <= time_ms <= TIME_MAX_MS:
                raise RefusedError(
                    "time", f"{what} is {time_ms}, which is no time in ms of the years 1 to 9999"
                )
        ahead = times[0][1] - timestamp_ms
        if timestamp_ms >= 0 and not -self.past_max_ms <= ahead <= self.future_max_ms:
            raise RefusedError("time", f"{name} is {ahead} ms from the record's timestamp")


def _field(schema: EventSchema, name: str) -> Field:
    return next(field for field in schema.fields if field.name == name)


def event_ms(column: Column) -> Integers:
    """Return event times as ms since 1970, of a column of such numbers or of timestamps."""
    if not pa.types.is_timestamp(column.type):
        return column.to_numpy()
    microseconds = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64()).to_numpy()
    return microseconds // 1000


def in_order(parts: list[tuple[Integers, pa.Table]]) -> tuple[Integers, pa.Table]:
    """Return the parts (rows, their table) as one, with rising rows."""
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate([rows for rows, _ in parts])
    order = np.argsort(rows, kind="stable")
    return rows[order], pa.concat_tables([table for _, table in parts]).take(pa.array(order))
