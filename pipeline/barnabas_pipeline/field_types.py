"""Types of fields: names for plain types, small classes for nested types; their JSON form, and their Arrow types.

The rule: a column holds exactly the value of the record; a value that no column can hold is refused or kept as text.

    boolean int long unsigned_long float double string bytes uuid json date date_days time_ms time_us iso8601 local_iso8601
    timestamp_s timestamp_ms timestamp_us timestamp_ns local_timestamp_s local_timestamp_ms local_timestamp_us ..._ns
    {"decimal": [PRECISION, SCALE]} {"enum": [TEXT, ...]} {"array": TYPE} {"map": TYPE} {"record": [FIELD, ...]}
    {"decimal": [PRECISION, SCALE], "bytes": true}     in JSON base64 of a whole number, as Kafka Connect writes it
    {"union": [FIELD, ...]}     one of several types: a record of nullable fields, of which one is set
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Column, Document, Json

INT64_MAX = (1 << 63) - 1
DAY_US = 86_400_000_000
DAY_MIN = -719_162  # the years 1 to 9999, which readers of Parquet accept
DAY_MAX = 2_932_896
NESTED = ("decimal", "enum", "array", "map", "record", "union")
DEPTH_MAX = 32  # depth of nested types
PRECISION_MAX = 38
_UTC = pa.timestamp("us", tz="UTC")
_LOCAL = pa.timestamp("us")


class Plain(NamedTuple):
    """A plain type: its column, the factor of whole numbers, and their bounds."""

    arrow: pa.DataType
    factor: int = 1
    min: int | None = None
    max: int | None = None


def _time_of(unit_us: int, arrow: pa.DataType) -> Plain:
    return Plain(arrow, unit_us, DAY_MIN * DAY_US // unit_us, ((DAY_MAX + 1) * DAY_US - 1) // unit_us)


PLAIN = {
    "boolean": Plain(pa.bool_()),
    "int": Plain(pa.int32(), 1, -(1 << 31), (1 << 31) - 1),
    "long": Plain(pa.int64(), 1, -INT64_MAX - 1, INT64_MAX),
    "unsigned_long": Plain(pa.decimal128(20, 0), 1, 0, (1 << 64) - 1),
    "float": Plain(pa.float32()),
    "double": Plain(pa.float64()),
    "string": Plain(pa.string()),
    "bytes": Plain(pa.binary()),
    "uuid": Plain(pa.string()),
    "json": Plain(pa.string()),
    "iso8601": Plain(_UTC),
    "date": Plain(pa.date32(), 1, DAY_MIN, DAY_MAX),
    "date_days": Plain(pa.date32(), 1, DAY_MIN, DAY_MAX),
    "local_iso8601": Plain(_LOCAL),
    "time_ms": Plain(
        pa.int64(), 1000, 0, DAY_US // 1000 - 1
    ),  # in us since midnight: Spark has no type for times
    "time_us": Plain(pa.int64(), 1, 0, DAY_US - 1),
    "timestamp_s": _time_of(1_000_000, _UTC),
    "timestamp_ms": _time_of(1_000, _UTC),
    "timestamp_us": _time_of(1, _UTC),
    "timestamp_ns": Plain(pa.int64(), 1, -INT64_MAX - 1, INT64_MAX),  # Spark has no type for it
    "local_timestamp_s": _time_of(1_000_000, _LOCAL),
    "local_timestamp_ms": _time_of(1_000, _LOCAL),
    "local_timestamp_us": _time_of(1, _LOCAL),
    "local_timestamp_ns": Plain(pa.int64(), 1, -INT64_MAX - 1, INT64_MAX),
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field; `min` and `max` bound numbers, and the length of strings in characters.

    `default`, in JSON form, is used for records without the field; None: no default. `aliases` are former names. `number`
    is the number of a Protobuf field.
    """

    name: str
    type: Type
    required: bool = False
    min: float | None = None
    max: float | None = None
    default: Json = None
    aliases: tuple[str, ...] = ()
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Decimal:
    """A number with `precision` digits, `scale` of them after the point.

    `is_bytes`: in JSON it is base64 of a whole number's bytes, as Kafka Connect writes it.
    """

    precision: int
    scale: int
    is_bytes: bool = False


@dataclass(frozen=True, slots=True)
class Enum:
    """A text out of a set. The set is not closed: later schemas may add texts."""

    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """A list of elements of one type."""

    element: Field


@dataclass(frozen=True, slots=True)
class Map:
    """Values of one type by keys, which are texts except in Protobuf."""

    value: Field
    key: str = "string"


@dataclass(frozen=True, slots=True)
class Record:
    """Fields within a field."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """One of several types: becomes a struct of nullable branches, one of which is set."""

    branches: tuple[Field, ...]


Type = str | Decimal | Enum | Array | Map | Record | Union


def arrow_type(kind: Type) -> pa.DataType:
    """Return the Arrow type of a column."""
    match kind:
        case str():
            return PLAIN[kind].arrow
        case Decimal():
            return pa.decimal128(kind.precision, kind.scale)
        case Enum():
            return pa.string()
        case Array():
            return pa.list_(pa.field("element", arrow_type(kind.element.type)))
        case Map():
            return pa.map_(arrow_type(kind.key), pa.field("value", arrow_type(kind.value.type)))
        case Record():
            return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in kind.fields])
        case Union():
            return pa.struct([pa.field(branch.name, arrow_type(branch.type)) for branch in kind.branches])


def name_of(kind: Type) -> str:
    """Return the name of a type for messages."""
    return kind if isinstance(kind, str) else type(kind).__name__.lower()


# --- as JSON --------------------------------------------------------------------------------------------------------


def field_to_dict(field: Field) -> Document:
    """Return the form of a field in schema files and manifests."""
    entry: Document = {"name": field.name, **_element_to_dict(field)}
    return entry


def _element_to_dict(field: Field) -> Document:
    entry: Document = {"type": type_to_json(field.type)}
    if field.required:
        entry["required"] = True
    entry |= {
        name: value
        for name in ("min", "max", "default", "number")
        if (value := getattr(field, name)) is not None
    }
    if field.aliases:
        entry["aliases"] = list(field.aliases)
    return entry


def type_to_json(kind: Type) -> Json:
    """Return the JSON form of a type."""
    match kind:
        case str():
            return kind
        case Decimal():
            more: Document = {"bytes": True} if kind.is_bytes else {}
            return {"decimal": [kind.precision, kind.scale], **more}
        case Enum():
            return {"enum": list(kind.symbols)}
        case Array():
            return {"array": _element_to_dict(kind.element)}
        case Map():
            key = {} if kind.key == "string" else {"key": kind.key}
            return {"map": _element_to_dict(kind.value), **key}
        case Record():
            return {"record": [field_to_dict(field) for field in kind.fields]}
        case Union():
            return {"union": [field_to_dict(branch) for branch in kind.branches]}


def field_from_dict(entry: Mapping[str, Json], depth: int = 0) -> Field:
    """Read a field. Raises ValueError, KeyError, TypeError for any other document."""
    values = dict(entry)
    values["type"] = type_from_json(values["type"], depth)
    values["aliases"] = tuple(values.get("aliases", ()))
    if not isinstance(values["name"], str) or not values["name"]:
        raise ValueError(f"{values['name']!r} is no name of a field")
    return Field(**values)


def _element_from(entry: Json, name: str, depth: int) -> Field:
    """Read the type of elements: a document like that of a field, or only the type."""
    if isinstance(entry, Mapping) and "type" in entry:
        return field_from_dict({**entry, "name": name}, depth)
    return Field(name, type_from_json(entry, depth))


def type_from_json(data: Json, depth: int = 0) -> Type:
    """Read a type. Raises ValueError, KeyError, TypeError for any other value."""
    if depth > DEPTH_MAX:
        raise ValueError(f"types are nested more than {DEPTH_MAX} deep")
    if isinstance(data, str):
        if data not in PLAIN:
            raise ValueError(f"type {data!r} is not {', '.join(PLAIN)}")
        return data
    if not isinstance(data, Mapping) or not data:
        raise ValueError(f"{data!r} is no type")
    kind = next((kind for kind in NESTED if kind in data), next(iter(data)))
    held = data[kind]
    match kind:
        case "decimal":
            precision, scale = map(int, held)
            if not 0 < precision <= PRECISION_MAX or not 0 <= scale <= precision:
                raise ValueError(
                    f"a decimal has 1 to {PRECISION_MAX} digits, of which some are behind the point"
                )
            return Decimal(precision, scale, data.get("bytes") is True)
        case "enum":
            return Enum(tuple(map(str, held)))
        case "array":
            return Array(_element_from(held, "element", depth + 1))
        case "map":
            key = data.get("key", "string")
            if key not in ("string", "int", "long", "unsigned_long", "boolean"):
                raise ValueError(f"keys of a map cannot be {key!r}")
            return Map(_element_from(held, "value", depth + 1), key)
        case "record":
            return Record(fields_from(held, depth + 1))
        case "union":
            return Union(fields_from(held, depth + 1))
    raise ValueError(f"type {kind!r} is not {', '.join(NESTED)}")


def fields_from(entries: Iterable[Document], depth: int = 0) -> tuple[Field, ...]:
    """Read fields; their names must differ. Raises ValueError, KeyError, TypeError."""
    fields = tuple(field_from_dict(entry, depth) for entry in entries)
    names = [field.name.lower() for field in fields]
    if len(set(names)) != len(names) or not names:
        raise ValueError("fields of a record must be some, with different names")
    return fields


# --- growth ---------------------------------------------------------------------------------------------------------


def widened(old: Type, new: Type) -> Type | None:
    """Return the type of a column that can hold both `old` and `new`; None if there is no such type.

    Nested records gain nullable fields, and numbers are widened as Iceberg widens columns, so that files that were ever
    written can be read. Text that holds JSON accepts any value.
    """
    if old == new or old == "json":
        return old
    match old, new:
        case ("int", "long") | ("float", "double") if isinstance(new, str):
            return new
        case ("long", "int") | ("double", "float"):
            return old
        case Decimal(), Decimal() if (old.scale, old.is_bytes) == (new.scale, new.is_bytes):
            return Decimal(max(old.precision, new.precision), old.scale, old.is_bytes)
        case Enum(), Enum():
            return Enum(tuple(dict.fromkeys((*old.symbols, *new.symbols))))
        case (Enum(), "string") | ("string", Enum()):
            return "string"
        case str(), str() if PLAIN[old].arrow == PLAIN[new].arrow and "json" not in (old, new):
            return old
        case Array(), Array():
            element = _widened_field(old.element, new.element)
            return None if element is None else Array(element)
        case Map(), Map() if old.key == new.key:
            value = _widened_field(old.value, new.value)
            return None if value is None else Map(value, old.key)
        case Record(), Record():
            return Record(merged(old.fields, new.fields))
        case Union(), Union():
            return Union(merged(old.branches, new.branches))
    return None


def _widened_field(old: Field, new: Field) -> Field | None:
    kind = widened(old.type, new.type)
    if kind is None:
        return None
    return Field(
        old.name, kind, old.required and new.required, old.min, old.max, old.default, old.aliases, old.number
    )


def find(fields: tuple[Field, ...], other: Field) -> Field | None:
    """Return the counterpart of a field of another version: by number if both have one, else by present or former name."""
    if other.number is not None:
        for field in fields:
            if field.number == other.number:
                return field
    for field in fields:
        if field.name == other.name and (field.number is None or other.number is None):
            return field
    for field in fields:
        if field.number is None and (field.name in other.aliases or other.name in field.aliases):
            return field
    return None


def merged(old: tuple[Field, ...], new: tuple[Field, ...]) -> tuple[Field, ...]:
    """Return the fields of old and new; added fields are nullable and at the end.

    A field with a changed type keeps its old type, so that records are checked one by one. A new field that differs from an
    old field only in case is dropped: most engines ignore case.
    """
    fields = []
    for field in old:
        other = find(new, field)
        fields.append((None if other is None else _widened_field(field, other)) or field)
    for field in new:
        if find(old, field) is None and field.name.lower() not in {other.name.lower() for other in fields}:
            fields.append(
                Field(
                    field.name,
                    field.type,
                    False,
                    field.min,
                    field.max,
                    field.default,
                    field.aliases,
                    field.number,
                )
            )
    return tuple(fields)


def refused(old: tuple[Field, ...], new: tuple[Field, ...], path: str = "") -> list[str]:
    """Return the fields of `new` that have no column in `merged`, each with the reason."""
    texts = []
    names = {field.name.lower() for field in old}
    for field in new:
        mine = find(old, field)
        if mine is None:
            if field.name.lower() in names:
                texts.append(f"{path}{field.name} differs from another field in case alone")
            names.add(field.name.lower())
        elif isinstance(mine.type, Record) and isinstance(field.type, Record):
            texts += refused(mine.type.fields, field.type.fields, f"{path}{field.name}.")
        elif widened(mine.type, field.type) is None:
            texts.append(f"{path}{field.name} cannot become {name_of(field.type)} from {name_of(mine.type)}")
    return texts


def from_whole(column: Column, kind: str) -> Column:
    """Return the column of a type from whole numbers within its bounds."""
    plain = PLAIN[kind]
    if plain.factor != 1:
        column = pc.multiply(column, plain.factor)
    if plain.arrow in (column.type, pa.int64()):
        return column
    if plain.arrow == pa.date32():
        column = column.cast(pa.int32())
    return column.cast(plain.arrow)
