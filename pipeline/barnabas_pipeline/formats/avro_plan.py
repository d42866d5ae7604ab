"""Avro schemas as plans: the encoding of each part, and the type of its values.

The rule: a union of null and one type is a nullable field, any other a struct of branches; a type within itself
becomes text, JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import DEPTH_MAX, Array, Decimal, Enum, Field, Map, Record, Type, Union

if TYPE_CHECKING:
    from barnabas.registry.formats.avro_types import Field as AvroField
    from barnabas.registry.formats.avro_types import Type as AvroType
    from barnabas_pipeline.data_types import Json

PARTS_MAX = 10_000
_LOGICAL = {
    ("int", "date"): "date",
    ("int", "time-millis"): "time_ms",
    ("long", "time-micros"): "time_us",
    ("long", "timestamp-millis"): "timestamp_ms",
    ("long", "timestamp-micros"): "timestamp_us",
    ("long", "timestamp-nanos"): "timestamp_ns",
    ("long", "local-timestamp-millis"): "local_timestamp_ms",
    ("long", "local-timestamp-micros"): "local_timestamp_us",
    ("long", "local-timestamp-nanos"): "local_timestamp_ns",
    ("string", "uuid"): "uuid",
    ("int", "io.debezium.time.Date"): "date",
    ("int", "io.debezium.time.Time"): "time_ms",
    ("long", "io.debezium.time.MicroTime"): "time_us",
    ("long", "io.debezium.time.Timestamp"): "local_timestamp_ms",
    ("long", "io.debezium.time.MicroTimestamp"): "local_timestamp_us",
    ("long", "io.debezium.time.NanoTimestamp"): "local_timestamp_ns",
    ("string", "io.debezium.time.ZonedTimestamp"): "iso8601",
}
"""The type of each kind of bytes with a `logicalType`, or the `connect.name` of Debezium's."""


@dataclass(slots=True)
class Plan:
    """A part of a schema: `kind` is the encoding, `optional` a union of null and the only child.

    `size` is that of a fixed, or the branch number of null in an optional.
    """

    kind: str
    type: Type = "string"
    size: int = 0
    symbols: tuple[str, ...] = ()
    children: list[Plan] = field(default_factory=list)
    names: tuple[str, ...] = ()
    empties: int = 0
    """For a record: its fields without bytes; they are limited since a few bytes could encode very many of them."""
    is_recursive: bool = False
    """The part contains itself; `type` is json then, and values are read one by one."""

    @property
    def is_nullable(self) -> bool:
        """Return whether the value may be null."""
        return self.kind in ("optional", "null") or (
            self.kind == "union" and any(child.kind == "null" for child in self.children)
        )


def plan_of(root: AvroType) -> Plan:
    """Return the plan of a schema parsed by Barnabas' registry. Raises UsageError."""
    return _Planner().plan(root, 0)


def fields_of(plan: Plan) -> tuple[Field, ...]:
    """Return the fields of a record; for any other schema, the field `value`."""
    if plan.kind == "record" and not plan.is_recursive:
        assert isinstance(plan.type, Record)
        return plan.type.fields
    return (Field("value", plan.type, not plan.is_nullable),)


class _Planner:
    def __init__(self) -> None:
        self.open: dict[int, Plan] = {}
        self.parts = 0

    def plan(self, root: AvroType, depth: int) -> Plan:
        self.parts += 1
        if depth > DEPTH_MAX * 2 or self.parts > PARTS_MAX:
            raise UsageError("the Avro schema is nested too deeply, or too large")
        if id(root) in self.open:
            plan = self.open[id(root)]
            plan.is_recursive = True
            return plan
        by_kind: dict[str, Callable[[AvroType, int], Plan]] = {
            "union": self._union, "record": self._record, "error": self._record, "array": self._array, "map": self._map,
        }  # fmt: skip
        if root.kind in by_kind:
            return by_kind[root.kind](root, depth + 1)
        return _plain(root)

    def _record(self, root: AvroType, depth: int) -> Plan:
        record = self.open[id(root)] = Plan("record", "json")
        record.children = [self.plan(field.type, depth) for field in root.fields]
        record.names = tuple(field.name for field in root.fields)
        record.empties = sum(map(_is_empty, record.children))
        del self.open[id(root)]
        record.is_recursive |= not root.fields  # no column can be without fields
        if not record.is_recursive:
            record.type = Record(
                tuple(_field(field, plan) for field, plan in zip(root.fields, record.children, strict=True))
            )
        return record

    def _array(self, root: AvroType, depth: int) -> Plan:
        item = self.plan(root.inner, depth)
        return Plan("array", Array(Field("element", item.type, not item.is_nullable)), children=[item])

    def _map(self, root: AvroType, depth: int) -> Plan:
        item = self.plan(root.inner, depth)
        return Plan("map", Map(Field("value", item.type, not item.is_nullable)), children=[item])

    def _union(self, root: AvroType, depth: int) -> Plan:
        children = [self.plan(branch, depth) for branch in root.branches]
        others = [child for child in children if child.kind != "null"]
        if len(children) == 1:
            return children[0]
        if len(children) == 2 and len(others) == 1:
            null = 0 if children[0].kind == "null" else 1
            return Plan("optional", others[0].type, null, children=others)
        short = Counter(_short(branch) for branch in root.branches)
        names = [
            _short(branch) if short[_short(branch)] == 1 else branch.name.replace(".", "_")
            for branch in root.branches
        ]
        fields = tuple(
            Field(name, child.type)
            for name, child in zip(names, children, strict=True)
            if child.kind != "null"
        )
        return Plan("union", Union(fields), children=children, names=tuple(names))


def _is_empty(plan: Plan) -> bool:
    """Return whether a value takes no bytes; such a recursive record has no finite value."""
    if plan.kind == "record":
        return plan.empties == len(plan.children)
    return plan.kind == "null" or (plan.kind == "fixed" and plan.size == 0)


def _short(root: AvroType) -> str:
    return str(root.name).rpartition(".")[2] if root.name else str(root.kind)


def _plain(root: AvroType) -> Plan:
    kind, properties = root.kind, root.properties
    logical = properties.get("logicalType") or properties.get("connect.name")
    if kind in ("bytes", "fixed") and logical == "decimal":
        precision, scale = properties.get("precision"), properties.get("scale", 0)
        if type(precision) is int and type(scale) is int and 0 < precision <= 38 and 0 <= scale <= precision:
            return Plan(kind, Decimal(precision, scale), root.size)
    if kind == "fixed":
        return Plan(kind, "uuid" if logical == "uuid" and root.size == 16 else "bytes", root.size)
    if kind == "enum":
        return Plan(kind, Enum(tuple(root.symbols)), symbols=tuple(root.symbols))
    if kind == "null":
        return Plan(kind)
    return Plan(kind, _LOGICAL.get((kind, str(logical)), kind))


def _field(avro_field: AvroField, plan: Plan) -> Field:
    default = _default(avro_field.default, plan) if avro_field.has_default else None
    aliases = tuple(str(name) for name in avro_field.aliases)
    return Field(avro_field.name, plan.type, not plan.is_nullable, default=default, aliases=aliases)


def _default(value: Json, plan: Plan) -> Json:
    """Return a default in the pipeline's JSON; None for null, and for values that JSON cannot express."""
    from base64 import b64encode

    if plan.kind == "optional":
        return None if value is None else _default(value, plan.children[0])
    if plan.kind in ("bytes", "fixed") and plan.type == "bytes" and isinstance(value, str):
        try:
            return b64encode(value.encode("latin-1")).decode()
        except UnicodeEncodeError:
            return None
    if plan.type in ("boolean", "int", "long", "float", "double", "string") or plan.kind in (
        "enum",
        "int",
        "long",
    ):
        return None if plan.type == "date" else value
    return value if plan.kind in ("array", "map") and not value else None
