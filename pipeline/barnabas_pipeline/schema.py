"""Event schemas: the fields that an event must and may have, in any format, and how a schema may grow.

The rule: a schema only gains nullable fields. So every file can be read with the newest schema, and fields that an old
schema lacked are kept in the column `_extra`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import (
    INT64_MAX,
    Field,
    Record,
    arrow_type,
    field_to_dict,
    fields_from,
    merged,
    name_of,
    refused,
    widened,
)

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Document, Json, Value

__all__ = ["BUILT_IN", "INT64_MAX", "NO_EVENT_TIME", "EventSchema", "Field", "load"]

NO_EVENT_TIME = "_timestamp"
"""The event time of a schema without one: the timestamp of the record."""
KEY_COLUMN = "_key_fields"
RESERVED = frozenset({
    "_extra", "_topic_id", "_topic_partition", "_offset", "_timestamp", "_leader_epoch", "_key", "_headers", KEY_COLUMN,
    "_bucket", "_changed_at", "_source_lsn", "_bad",
    "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number",
    "_change_type", "_change_ordinal", "_commit_snapshot_id",
})  # fmt: skip
"""Names, in lower case, of our columns beside those of events, and of Iceberg's metadata columns."""
_TIME_TYPES = ("long", "timestamp_ms", "timestamp_s", "timestamp_us", "iso8601")


@dataclass(frozen=True, slots=True)
class EventSchema:
    """The fields of one kind of event; `event_time` names the field with the time of the event.

    A `long` is in ms. `key` are the fields of the record's key, if that is decoded: the struct `_key_fields`.
    """

    name: str
    event_time: str
    fields: tuple[Field, ...]
    key: tuple[Field, ...] = ()

    @property
    def columns(self) -> tuple[Field, ...]:
        """The fields, and the field of the key."""
        return (*self.fields, Field(KEY_COLUMN, Record(self.key))) if self.key else self.fields

    @property
    def arrow(self) -> pa.Schema:
        """The columns as Arrow types."""
        return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in self.columns])

    def to_dict(self) -> Document:
        """Return the form stored in manifests and schema files."""
        document = {
            "name": self.name,
            "event_time": self.event_time,
            "fields": [field_to_dict(field) for field in self.fields],
        }
        return document | ({"key": [field_to_dict(field) for field in self.key]} if self.key else {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Json]) -> EventSchema:
        """Parse the result of `to_dict`. Raises UsageError."""
        try:
            name, event_time = str(data["name"]), str(data.get("event_time", NO_EVENT_TIME))
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"not an event schema: {error}") from None
        try:
            fields, key = fields_from(data["fields"]), fields_from(data["key"]) if data.get("key") else ()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"schema {name}: {error}") from None
        return cls(name, event_time, fields, key).checked()

    def checked(self) -> EventSchema:
        """Return the schema itself. Raises UsageError if it cannot be the schema of a table."""
        for field in self.fields:
            if field.name.lower() in RESERVED:
                raise UsageError(
                    f"schema {self.name}: {field.name} is the name of a column of every table: give the field another one, "
                    f"and its own in `aliases`"
                )
        if self.event_time != NO_EVENT_TIME and not any(
            field.name == self.event_time and field.type in _TIME_TYPES and field.required
            for field in self.fields
        ):
            raise UsageError(
                f"schema {self.name}: event_time must name a required field of type {', '.join(_TIME_TYPES)}"
            )
        return self

    def check_evolution(self, newer: EventSchema) -> None:
        """Raise UsageError unless `newer` is this schema with nullable fields added at the end."""
        if newer.event_time != self.event_time:
            raise UsageError(f"schema {self.name}: the event time cannot become another field")
        if bool(newer.key) != bool(self.key):
            raise UsageError(f"schema {self.name}: keys are decoded from the first load on, or never")
        for mine, theirs in ((self.fields, newer.fields), (self.key, newer.key)):
            self._check_growth(mine, theirs)

    def _check_growth(self, mine: tuple[Field, ...], theirs: tuple[Field, ...]) -> None:
        for old, new in zip(mine, theirs, strict=False):
            if (
                old.name != new.name
                or widened(old.type, new.type) != new.type
                or (new.required and not old.required)
            ):
                raise UsageError(
                    f"schema {self.name}: field {old.name} cannot become {new.name} {name_of(new.type)}"
                )
        if len(theirs) < len(mine):
            raise UsageError(f"schema {self.name}: field {mine[len(theirs)].name} cannot go")
        for new in theirs[len(mine) :]:
            if new.required:
                raise UsageError(
                    f"schema {self.name}: the new field {new.name} must be nullable: old events lack it"
                )

    def grown(self, newer: EventSchema) -> EventSchema:
        """Return this schema with the new fields of a newer schema, nullable and at the end, and with wider numbers."""
        fields, key = merged(self.fields, newer.fields), merged(self.key, newer.key)
        return replace(self, fields=fields, key=key if self.key else ()).checked()

    def refused(self, newer: EventSchema) -> list[str]:
        """Return the fields without a column in `grown`: their values become dead letters, or stay in `_extra`."""
        return [*refused(self.fields, newer.fields), *refused(self.key, newer.key, "key ")]


def named_apart(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """Return the fields of a registry's schema or a sample as columns, with other names in place of reserved ones.

    Of names that differ only in case the first has a column.
    """
    columns: dict[str, Field] = {}
    taken = {field.name.lower() for field in fields}
    for field in fields:
        name = field.name
        while name.lower() in RESERVED or (name != field.name and name.lower() in taken):
            name += "_"
        renamed = (
            field if name == field.name else replace(field, name=name, aliases=(field.name, *field.aliases))
        )
        columns.setdefault(name.lower(), renamed)
    return tuple(columns.values())


def _schema(name: str, **fields: tuple[Value, ...]) -> EventSchema:
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
    "profiles": _schema("profiles", ts=_TS, member=_NAME, visitor=_NAME),
    "logs": _schema("logs", ts=_TS, service=_NAME, host=_NAME, level=_NAME, message=("string", True, 0, 10_000)),
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
    except (ValueError, RecursionError) as error:
        raise UsageError(f"schema file {name_or_path}: {error}") from None
