"""Protobuf messages as plans: the fields by number, and the types of their values.

The rule: a field with presence is nullable; recursive messages, and Struct, Value and ListValue, become JSON text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf.descriptor import FieldDescriptor as Kind

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import DEPTH_MAX, Array, Enum, Field, Map, Record, Type

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from barnabas_pipeline.data_types import Value

VARINT, FIXED64, BYTES, GROUP, FIXED32 = 0, 1, 2, 3, 5
PARTS_MAX = 10_000
_PLAIN = {
    Kind.TYPE_DOUBLE: ("double", FIXED64), Kind.TYPE_FLOAT: ("float", FIXED32), Kind.TYPE_INT64: ("long", VARINT),
    Kind.TYPE_UINT64: ("unsigned_long", VARINT), Kind.TYPE_INT32: ("int", VARINT),
    Kind.TYPE_FIXED64: ("unsigned_long", FIXED64),
    Kind.TYPE_FIXED32: ("long", FIXED32), Kind.TYPE_BOOL: ("boolean", VARINT), Kind.TYPE_STRING: ("string", BYTES),
    Kind.TYPE_BYTES: ("bytes", BYTES), Kind.TYPE_UINT32: ("long", VARINT), Kind.TYPE_SFIXED32: ("int", FIXED32),
    Kind.TYPE_SFIXED64: ("long", FIXED64), Kind.TYPE_SINT32: ("int", VARINT), Kind.TYPE_SINT64: ("long", VARINT),
}  # fmt: skip
TIMESTAMP = "google.protobuf.Timestamp"
_AS_JSON = {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


@dataclass(slots=True)
class Part:
    """A field: `shape` is plain, enum, message, timestamp, wrapper or json; `of` is the plan of a nested message."""

    name: str
    number: int
    kind: int
    wire: int
    shape: str
    type: Type
    """Type of one value."""
    descriptor: FieldDescriptor
    is_repeated: bool = False
    is_map: bool = False
    has_presence: bool = False
    is_required: bool = False
    default: Value = None
    oneof: str = ""
    numbers: dict[int, str] = field(default_factory=dict)
    of: Message | None = None

    @property
    def column(self) -> Type:
        """The type of its column."""
        if self.is_map:
            assert self.of is not None
            key, value = self.of.parts
            assert isinstance(key.type, str)
            return Map(Field("value", value.type, True), key.type)
        return Array(Field("element", self.type, True)) if self.is_repeated else self.type


@dataclass(slots=True)
class Message:
    """A message and its parts, by number."""

    descriptor: Descriptor
    parts: list[Part] = field(default_factory=list)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The parts as fields of a schema, in declared order."""
        order = {field.number: n for n, field in enumerate(self.descriptor.fields)}
        return tuple(
            Field(part.name, part.column, part.is_required, number=part.number)
            for part in sorted(self.parts, key=lambda part: order[part.number])
        )


def plan_of(descriptor: Descriptor) -> Message:
    """Return the plan of a message. Raises UsageError."""
    recursive: set[str] = set()
    while True:  # until no further type turns out to contain itself
        planner = _Planner(recursive)
        plan = planner.message(descriptor, ())
        if planner.recursive == recursive:
            return plan
        recursive = planner.recursive


class _Planner:
    def __init__(self, recursive: set[str]) -> None:
        self.known = recursive
        self.recursive = set(recursive)
        self.parts = 0

    def message(self, descriptor: Descriptor, within: tuple[str, ...]) -> Message:
        if len(within) > DEPTH_MAX:
            raise UsageError("the Protobuf message is nested too deeply")
        within = (*within, descriptor.full_name)
        parts = [self.part(field, within) for field in descriptor.fields]
        return Message(descriptor, sorted(parts, key=lambda part: part.number))

    def part(self, descriptor: FieldDescriptor, within: tuple[str, ...]) -> Part:
        self.parts += 1
        if self.parts > PARTS_MAX:
            raise UsageError("the Protobuf message is too large")
        part = self._single(descriptor, within)
        part.is_repeated = bool(descriptor.is_repeated)
        part.is_map = part.shape == "message" and descriptor.message_type.GetOptions().map_entry
        part.has_presence = descriptor.has_presence
        part.is_required = bool(descriptor.is_required)
        part.default = descriptor.default_value if descriptor.has_default_value else None
        part.oneof = descriptor.containing_oneof.name if descriptor.containing_oneof else ""
        return part

    def _single(self, descriptor: FieldDescriptor, within: tuple[str, ...]) -> Part:
        name, number, kind = descriptor.name, descriptor.number, descriptor.type
        if kind == Kind.TYPE_ENUM:
            numbers = {value.number: value.name for value in reversed(descriptor.enum_type.values)}
            symbols = Enum(tuple(value.name for value in descriptor.enum_type.values))
            default = (
                descriptor.enum_type.values_by_number[descriptor.default_value].name
                if descriptor.has_default_value
                else None
            )
            return Part(
                name, number, kind, VARINT, "enum", symbols, descriptor, numbers=numbers, default=default
            )
        if kind in _PLAIN:
            kind_name, wire = _PLAIN[kind]
            return Part(name, number, kind, wire, "plain", kind_name, descriptor)
        wire = GROUP if kind == Kind.TYPE_GROUP else BYTES
        inner = descriptor.message_type
        if inner.full_name == TIMESTAMP:
            return Part(
                name,
                number,
                kind,
                wire,
                "timestamp",
                "timestamp_us",
                descriptor,
                of=self.message(inner, within),
            )
        if inner.full_name in _WRAPPERS:
            of = self.message(inner, within)
            return Part(name, number, kind, wire, "wrapper", of.parts[0].type, descriptor, of=of)
        if inner.full_name in within:
            self.recursive.add(inner.full_name)
        if inner.full_name in _AS_JSON | self.recursive or not inner.fields:
            return Part(name, number, kind, wire, "json", "json", descriptor)
        of = self.message(inner, within)
        return Part(name, number, kind, wire, "message", Record(of.fields), descriptor, of=of)
