"""Event schemas: which fields a JSON event must and may have, and how a schema may grow.

The rule: a schema only ever gains nullable fields. So every file that was ever written can be read with the newest
schema, and what an old schema did not know is kept in the column `_extra`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from barnabas_pipeline.errors import UsageError

INT64_MAX = (1 << 63) - 1
ARROW_TYPES = {"long": pa.int64(), "double": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}
SPARK_TYPES = {"long": "bigint", "double": "double", "string": "string", "boolean": "boolean"}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an event; `min` and `max` bound numbers, and the length of strings in characters."""

    name: str
    type: str
    required: bool = False
    min: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True)
class EventSchema:
    """The fields of one kind of event; `event_time` names the field that holds when it happened, in ms."""

    name: str
    event_time: str
    fields: tuple[Field, ...]

    @property
    def arrow(self) -> Any:
        """The fields as Arrow types."""
        return pa.schema([pa.field(one.name, ARROW_TYPES[one.type]) for one in self.fields])

    def to_dict(self) -> dict[str, Any]:
        """As it is kept in manifests and schema files."""
        fields = []
        for one in self.fields:
            entry: dict[str, Any] = {"name": one.name, "type": one.type}
            if one.required:
                entry["required"] = True
            entry |= {
                name: bound for name, bound in (("min", one.min), ("max", one.max)) if bound is not None
            }
            fields.append(entry)
        return {"name": self.name, "event_time": self.event_time, "fields": fields}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EventSchema:
        """Read what `to_dict` writes. Raises UsageError."""
        try:
            fields = tuple(Field(**entry) for entry in data["fields"])
            schema = cls(str(data["name"]), str(data["event_time"]), fields)
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"not an event schema: {error}") from None
        names = [one.name for one in fields]
        if len(set(names)) != len(names) or any(name.startswith("_") for name in names):
            raise UsageError(
                f"schema {schema.name}: field names must differ and not begin with an underscore"
            )
        for one in fields:
            if one.type not in ARROW_TYPES:
                raise UsageError(
                    f"schema {schema.name}: type {one.type!r} of {one.name} is not {', '.join(ARROW_TYPES)}"
                )
        if not any(one.name == schema.event_time and one.type == "long" and one.required for one in fields):
            raise UsageError(f"schema {schema.name}: event_time must name a required field of type long")
        return schema

    def check_evolution(self, newer: EventSchema) -> None:
        """Raise UsageError unless `newer` is this schema with nullable fields added at the end."""
        if newer.event_time != self.event_time:
            raise UsageError(f"schema {self.name}: the event time cannot become another field")
        for old, new in zip(self.fields, newer.fields, strict=False):
            if (old.name, old.type) != (new.name, new.type) or (new.required and not old.required):
                raise UsageError(f"schema {self.name}: field {old.name} cannot become {new.name} {new.type}")
        if len(newer.fields) < len(self.fields):
            raise UsageError(f"schema {self.name}: field {self.fields[len(newer.fields)].name} cannot go")
        for new in newer.fields[len(self.fields) :]:
            if new.required:
                raise UsageError(
                    f"schema {self.name}: the new field {new.name} must be nullable: old events lack it"
                )


def _schema(name: str, **fields: tuple[Any, ...]) -> EventSchema:
    return EventSchema(name, "ts", tuple(Field(key, *row) for key, row in fields.items()))


_TS = ("long", True, 0)
_NAME = ("string", True, 1, 200)
_MAYBE = ("string", False, None, 200)

BUILT_IN = {
    "views": _schema(
        "views",
        ts=_TS, member=_MAYBE, session=_NAME, ip=_NAME, item=_MAYBE, url=("string", True, 1, 2000),
        status=("long", True, 100, 599), took_ms=("double", False, 0), js=("boolean",), agent=("string", False, None, 1000),
    ),
    "clicks": _schema("clicks", ts=_TS, member=_NAME, session=_NAME, item=_NAME),
    "votes": _schema("votes", ts=_TS, member=_NAME, ip=_NAME, item=_NAME, vote=("long", True, -1, 1)),
    "logins": _schema("logins", ts=_TS, member=_NAME, ip=_NAME, ok=("boolean", True)),
    "metrics": _schema("metrics", ts=_TS, service=_NAME, host=_NAME, metric=_NAME, value=("double", True)),
}  # fmt: skip
"""The schemas of the simulated site, by kind of event."""


def load(name_or_path: str) -> EventSchema:
    """Return a built-in schema by name, or read one from a JSON file. Raises UsageError."""
    if name_or_path in BUILT_IN:
        return BUILT_IN[name_or_path]
    try:
        with open(name_or_path, encoding="utf-8") as file:
            return EventSchema.from_dict(json.load(file))
    except OSError:
        raise UsageError(f"{name_or_path!r} is no schema file, nor one of {', '.join(BUILT_IN)}") from None
    except ValueError as error:
        raise UsageError(f"schema file {name_or_path}: {error}") from None
