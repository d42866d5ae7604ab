"""A schema drafted from a sample of JSON values.

The rule: each field has the narrowest type that all of its values have; it is required if all records have a value that is
not null. Where values have different types, text (JSON) holds them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import INT64_MAX, Array, Field, Map, Record, Type
from barnabas_pipeline.formats.base import TIME_MAX_MS, RefusedError
from barnabas_pipeline.formats.json_values import DATE, ISO8601, UUID, parse_object
from barnabas_pipeline.log.columns import Columns
from barnabas_pipeline.log.model import LogOptions
from barnabas_pipeline.log.planning import Selection, resolve
from barnabas_pipeline.log.reader import RangeReader
from barnabas_pipeline.log.transports import open_log
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema, named_apart

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Json

KEYS_MAX = 50
"""Objects with more different keys in the sample become a map, if their values have the same type."""
SINCE_MS = 946_684_800_000  # year 2000: larger numbers of required fields may be times in ms
_TIME_NAMES = ("event_time", "timestamp", "time", "at", "ts", "created_at", "date")
_TEXTS = (("uuid", UUID), ("date", DATE), ("iso8601", ISO8601))


@dataclass(slots=True)
class Seen:
    """Statistics of the values at one path, over all records."""

    count: int = 0
    nulls: int = 0
    kinds: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=lambda: {name for name, _ in _TEXTS})
    inner: dict[str, Seen] = field(default_factory=dict)
    low: int = INT64_MAX
    high: int = -INT64_MAX

    def add(self, value: Json) -> None:
        """Add a value."""
        self.count += 1
        if value is None:
            self.nulls += 1
        elif isinstance(value, dict):
            self.kinds.add("object")
            for name, held in value.items():
                self.inner.setdefault(name, Seen()).add(held)
        elif isinstance(value, list):
            self.kinds.add("array")
            for held in value:
                self.inner.setdefault("", Seen()).add(held)
        elif isinstance(value, str):
            self.kinds.add("string")
            self.texts = {
                name
                for name, pattern in _TEXTS
                if name in self.texts and re.fullmatch(pattern, value, re.ASCII)
            }
        elif isinstance(value, bool):
            self.kinds.add("boolean")
        elif isinstance(value, int) and abs(value) <= INT64_MAX:
            self.kinds.add("long")
            self.low, self.high = min(self.low, value), max(self.high, value)
        else:
            self.kinds.add("double")

    def type(self) -> Type:
        """Return the narrowest type that holds all values."""
        if self.kinds == {"object"} and self.inner:
            fields = self.fields(self.count - self.nulls)
            kinds = {field.type for field in fields}
            is_map = len(fields) > KEYS_MAX and len(kinds) == 1
            return Map(Field("value", kinds.pop())) if is_map else Record(fields)
        if self.kinds == {"array"}:
            item = self.inner.get("", Seen())
            return Array(Field("element", item.type(), item.count > 0 and not item.nulls))
        if self.kinds == {"long", "double"}:
            return "double"
        if self.kinds == {"string"}:
            return next((name for name, _ in _TEXTS if name in self.texts), "string")
        return self.kinds.copy().pop() if len(self.kinds) == 1 and not self.kinds & {"object"} else "json"

    def fields(self, records: int) -> tuple[Field, ...]:
        """Return the members of objects as fields; `records` is the number of the objects."""
        return tuple(
            Field(name, seen.type(), seen.count == records and not seen.nulls)
            for name, seen in self.inner.items()
        )


def draft(name: str, values: Iterable[bytes | None], *, event_time: str | None = None) -> EventSchema:
    """Draft a schema. Raises UsageError if no value is a JSON object."""
    seen = Seen()
    for value in values:
        try:
            seen.add(parse_object(value))
        except RefusedError:
            continue
    if not seen.inner:
        raise UsageError(f"among the records of {name} is no JSON object with members")
    fields = named_apart(seen.fields(seen.count))
    return EventSchema(name, event_time or _event_time(fields, seen), fields)


def _event_time(fields: tuple[Field, ...], seen: Seen) -> str:
    """Return the name of the required field that most probably is the event time."""
    likely = [
        field.name
        for field in fields
        if field.required
        and (
            field.type == "iso8601"
            or (
                field.type == "long"
                and not field.aliases
                and seen.inner[field.name].low >= SINCE_MS
                and seen.inner[field.name].high <= TIME_MAX_MS
            )
        )
    ]
    return min(
        likely,
        key=lambda name: _TIME_NAMES.index(name) if name in _TIME_NAMES else len(_TIME_NAMES),
        default=NO_EVENT_TIME,
    )


def sampled(options: LogOptions, count: int) -> list[bytes | None]:
    """Return the first values of each partition, `count` in total. Raises the errors of reading a log."""
    log = open_log(options)
    values: list[bytes | None] = []
    try:
        ranges = [
            offset_range for offset_range in resolve(log, Selection(), log.bounds()) if len(offset_range)
        ]
        for n, offset_range in enumerate(ranges):
            share = (count - len(values)) // (len(ranges) - n)
            mine: list[bytes | None] = []
            for item in RangeReader(log, offset_range):
                if isinstance(item, Columns):
                    mine += item.value.slice(0, share - len(mine)).to_pylist()
                if len(mine) >= share:
                    break
            values += mine
    finally:
        log.close()
    return values
