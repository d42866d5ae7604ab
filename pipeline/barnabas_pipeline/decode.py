"""JSON events to typed columns, strictly: what is not exactly an event of the schema is refused with a reason.

The rule: whether a record is good never depends on its neighbours. Blocks go through Arrow's JSON reader, and only if
it agrees with everything; else each record of the block is judged alone (a property test holds both to one verdict).

Reasons: utf8, empty, json, trailing, duplicate_key, missing_field, type, range, time, too_large; damage below the
level of records has crc, decompress, malformed and too_large from the reader.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from barnabas_pipeline.log.columns import Columns
from barnabas_pipeline.schema import INT64_MAX, EventSchema, Field

DECODER_VERSION = 2
VALUE_BYTES_MAX = 1 << 20
PAST_MAX_MS = 30 * 24 * 3_600_000  # how much older than its record an event may be
FUTURE_MAX_MS = 3_600_000  # and how much younger, for clocks that are ahead
TIME_MIN_MS = -62_135_596_800_000  # the years 1 to 9999, as readers of Parquet take them
TIME_MAX_MS = 253_402_300_799_999
LONG_DIGITS_MAX = 400  # an integer with more digits is larger than any field takes, and dear to parse
EXTRA = "_extra"


class BadRecord(NamedTuple):
    """A refused record: its row in the block, why, and details for people."""

    row: int
    reason: str
    detail: str


class RefusedError(Exception):
    """One record is refused."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes events of one schema; the bounds of event time are relative to the record's own timestamp."""

    schema: EventSchema
    value_bytes_max: int = VALUE_BYTES_MAX
    past_max_ms: int = PAST_MAX_MS
    future_max_ms: int = FUTURE_MAX_MS

    def limits(self) -> dict[str, int]:
        """The bounds, as manifests keep them: an audit must judge as the load did."""
        return {
            "value_bytes_max": self.value_bytes_max,
            "past_max_ms": self.past_max_ms,
            "future_max_ms": self.future_max_ms,
        }

    def decode(self, columns: Columns) -> tuple[Any, Any, list[BadRecord]]:
        """Return (the good rows' numbers as numpy, their fields and `_extra` as a table, the bad rows)."""
        if not len(columns):
            return np.empty(0, np.int64), self._empty(), []
        table = self._decode_block(columns)
        if table is not None:
            return np.arange(len(columns)), table, []
        return self._decode_each(columns)

    def _empty(self) -> Any:
        return self.schema.arrow.append(pa.field(EXTRA, pa.string())).empty_table()

    # --- all at once ----------------------------------------------------------------------------------------

    def _decode_block(self, columns: Columns) -> Any | None:
        """The whole block as a table, or None if anything about it needs a closer look."""
        values = columns.value
        if values.null_count or pc.max(pc.binary_length(values)).as_py() > self.value_bytes_max:
            return None
        if not (
            pc.all(pc.starts_with(values, pattern=b"{")).as_py()
            and pc.all(pc.ends_with(values, pattern=b"}")).as_py()
        ):
            return None  # so each line has at least one object, and as many rows as lines means one each
        data = b"\n".join(values.to_pylist())
        if data.count(b"\n") != len(columns) - 1 or b"\r" in data or b"\\u0000" in data:
            return None
        try:
            data.decode()
            table = pj.read_json(
                io.BytesIO(data),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=self.schema.arrow,
                    newlines_in_values=False,
                    unexpected_field_behavior="infer",
                ),
            )
        except (UnicodeDecodeError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if table.num_rows != len(columns) or table.num_columns != len(self.schema.fields):
            return None
        table = table.select([one.name for one in self.schema.fields]).combine_chunks()
        if not all(_is_in_range(table[one.name], one) for one in self.schema.fields):
            return None
        if not self._are_times_good(table[self.schema.event_time], columns.timestamp_ms):
            return None
        return table.append_column(EXTRA, pa.nulls(len(columns), pa.string()))

    def _are_times_good(self, event_time: Any, timestamp_ms: Any) -> bool:
        times = event_time.to_numpy()
        if times.min() < TIME_MIN_MS or times.max() > TIME_MAX_MS or timestamp_ms.max() > TIME_MAX_MS:
            return False
        known = timestamp_ms >= 0
        ahead = times - timestamp_ms
        return bool((~known | ((ahead <= self.future_max_ms) & (-ahead <= self.past_max_ms))).all())

    # --- one by one -----------------------------------------------------------------------------------------

    def _decode_each(self, columns: Columns) -> tuple[Any, Any, list[BadRecord]]:
        good: list[int] = []
        bad: list[BadRecord] = []
        names = [one.name for one in self.schema.fields]
        rows: list[dict[str, Any]] = []
        for row, (value, timestamp_ms) in enumerate(
            zip(columns.value.to_pylist(), columns.timestamp_ms.tolist(), strict=True)
        ):
            try:
                rows.append(self.decode_one(value, timestamp_ms))
                good.append(row)
            except RefusedError as error:
                bad.append(BadRecord(row, error.reason, error.detail))
        arrow = self.schema.arrow.append(pa.field(EXTRA, pa.string()))
        arrays = [
            pa.array([row.get(name) for row in rows], arrow.field(name).type) for name in [*names, EXTRA]
        ]
        return np.array(good, np.int64), pa.Table.from_arrays(arrays, schema=arrow), bad

    def decode_one(self, value: bytes | None, timestamp_ms: int) -> dict[str, Any]:
        """Decode one event to its fields, unknown ones as JSON under `_extra`. Raises RefusedError."""
        event = parse_object(value, self.value_bytes_max)
        known = {}
        for one in self.schema.fields:
            if one.name not in event:
                if one.required:
                    raise RefusedError("missing_field", f"{one.name} is missing")
                continue
            known[one.name] = _checked(event.pop(one.name), one)
        event_time = known[self.schema.event_time]
        for name, time_ms in ((self.schema.event_time, event_time), ("the record's timestamp", timestamp_ms)):
            if not TIME_MIN_MS <= time_ms <= TIME_MAX_MS:
                raise RefusedError(
                    "time", f"{name} is {time_ms}, which is no time in ms of the years 1 to 9999"
                )
        if timestamp_ms >= 0:
            ahead = event_time - timestamp_ms
            if not -self.past_max_ms <= ahead <= self.future_max_ms:
                raise RefusedError(
                    "time", f"{self.schema.event_time} is {ahead} ms from the record's timestamp"
                )
        if event:
            known[EXTRA] = f"{{{','.join(text for name, text in _members(value) if name in event)}}}"
        return known


def parse_object(value: bytes | None, bytes_max: int = VALUE_BYTES_MAX) -> dict[str, Any]:
    """Parse one JSON object and nothing but it. Raises RefusedError."""
    if not value:
        raise RefusedError("empty", "the value is null" if value is None else "the value has no bytes")
    if len(value) > bytes_max:
        raise RefusedError("too_large", f"{len(value)} bytes are more than {bytes_max}")
    try:
        text = value.decode().strip(" \t\r\n")
    except UnicodeDecodeError as error:
        raise RefusedError("utf8", f"no UTF-8 at byte {error.start}") from None
    if not text:
        raise RefusedError("empty", "the value is blank")
    try:
        parsed, end = _DECODER.raw_decode(text)
    except RecursionError:
        raise RefusedError("json", "nested too deeply") from None
    except ValueError as error:
        raise RefusedError("json", str(error)) from None
    if end != len(text):
        raise RefusedError("trailing", f"more text at character {end}")
    if not isinstance(parsed, dict):
        raise RefusedError("type", "the value is no JSON object")
    try:
        json.dumps(parsed, ensure_ascii=False).encode() if "\\u" in text else None
    except UnicodeEncodeError:
        raise RefusedError("utf8", "half of a surrogate pair") from None
    return parsed


def _members(value: bytes | None) -> Iterator[tuple[str, str]]:
    """Yield the name of each member of an object that `parse_object` takes, and the member as it is written."""
    text = (value or b"").decode()
    at = text.index("{") + 1
    while True:
        begin = _skip_space(text, at)
        name, at = _DECODER.raw_decode(text, begin)
        at = _skip_space(text, _skip_space(text, at) + 1)
        _, at = _DECODER.raw_decode(text, at)
        yield name, text[begin:at]
        at = _skip_space(text, at)
        if text[at] == "}":
            return
        at += 1


def _skip_space(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        raise RefusedError(
            "duplicate_key", f"{next(n for n in names if names.count(n) > 1)!r} is there twice"
        )
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _integer(text: str) -> int:
    if len(text) <= LONG_DIGITS_MAX:
        return int(text)
    return (-1 if text[0] == "-" else 1) * 10**LONG_DIGITS_MAX


_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_int=_integer)


def _checked(value: Any, field: Field) -> Any:
    """Return the value as its field wants it. Raises RefusedError."""
    if value is None:
        if field.required:
            raise RefusedError("type", f"{field.name} is null")
        return None
    if field.type == "long" and type(value) is int:
        if not -INT64_MAX - 1 <= value <= INT64_MAX:
            raise RefusedError("range", f"{field.name} is no 64 bit integer")
    elif field.type == "double" and type(value) in (int, float):
        try:
            value = float(value)
        except OverflowError:
            value = float("inf")
        if value - value != 0:
            raise RefusedError("range", f"{field.name} is no finite number")
    elif not (field.type == "string" and type(value) is str) and not (
        field.type == "boolean" and type(value) is bool
    ):
        raise RefusedError("type", f"{field.name} is no {field.type}")
    size = len(value) if field.type == "string" else value
    if (field.min is not None and size < field.min) or (field.max is not None and size > field.max):
        raise RefusedError("range", f"{field.name} is not within {field.min} and {field.max}")
    return value


def _is_in_range(column: Any, field: Field) -> bool:
    if field.required and column.null_count:
        return False
    if field.type == "double" and not pc.all(pc.is_finite(column), min_count=0).as_py():
        return False
    if field.min is None and field.max is None:
        return True
    sizes = pc.utf8_length(column) if field.type == "string" else column
    bounds = pc.min_max(sizes).as_py()
    if bounds["min"] is None:
        return True
    return (field.min is None or bounds["min"] >= field.min) and (
        field.max is None or bounds["max"] <= field.max
    )
