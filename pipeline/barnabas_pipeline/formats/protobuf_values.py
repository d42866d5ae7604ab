"""Messages of Protobuf read one at a time, by Google's own library.

The rule: unknown fields are kept as bytes in `_unknown`; a known number with another kind of value is refused.
"""

from __future__ import annotations

import json
from base64 import b64encode
from decimal import Decimal as Number
from typing import TYPE_CHECKING

from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from barnabas.registry.formats.protobuf_counting import ValueCounter
from barnabas_pipeline.field_types import DAY_MAX, DAY_MIN, DAY_US
from barnabas_pipeline.formats.base import RefusedError
from barnabas_pipeline.formats.protobuf_plan import Message, Part

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message as ProtobufMessage

    from barnabas_pipeline.data_types import Document, Json, Row, Value

UNKNOWN = "_unknown"


class MessageReader:
    """Reader of messages of one type."""

    def __init__(self, plan: Message, pool: DescriptorPool) -> None:
        self.plan = plan
        self.pool = pool
        self.made = message_factory.GetMessageClass(plan.descriptor)
        self._counter = ValueCounter(plan.descriptor)
        self.inexact = False

    def read(self, payload: bytes) -> tuple[Row, Document]:
        """Read one message; returns its fields for Arrow, and the values for `_extra`. Raises RefusedError."""
        try:
            self._counter.check(payload)
            message = self.made.FromString(payload)
            if not message.IsInitialized():
                missing = ", ".join(message.FindInitializationErrors())
                raise RefusedError("missing_field", f"{missing} is missing")
            more: Document = {}
            values = {}
            for part in self.plan.parts:
                self.inexact = False
                values[part.name] = self._field(message, part)
                if self.inexact:
                    more[part.name] = self._json(getattr(message, part.name), part)
            unknown = self._unknown(message)
        except UnicodeDecodeError:
            raise RefusedError("utf8", "a string is no UTF-8") from None
        except (DecodeError, json_format.Error, ValueError, TypeError) as error:
            raise RefusedError("protobuf", str(error) or "the value is no such message") from None
        return values, more | ({UNKNOWN: b64encode(unknown).decode()} if unknown else {})

    def _json(self, held: Value, part: Part) -> Json:
        if part.is_map:
            return {str(key): self._dict(held[key]) for key in sorted(held)}
        return [self._dict(value) for value in held] if part.is_repeated else self._dict(held)

    def _dict(self, message: ProtobufMessage) -> Json:
        """Return the message in Google's JSON form, with a fixed order of fields."""
        mapping = json_format.MessageToDict(
            message, descriptor_pool=self.pool, preserving_proto_field_name=True
        )
        return json.loads(json.dumps(mapping, sort_keys=True))

    def _field(self, message: ProtobufMessage, part: Part) -> Value:
        if part.has_presence and not message.HasField(part.name):
            return part.default
        held = getattr(message, part.name)
        if part.is_map:
            assert part.of is not None
            _, value = part.of.parts
            return sorted(
                (
                    key if part.of.parts[0].type != "unsigned_long" else Number(key),
                    self._single(held[key], value),
                )
                for key in held
            )
        if part.is_repeated:
            return [self._single(each, part) for each in held]
        return self._single(held, part)

    def _single(self, held: Value, part: Part) -> Value:
        match part.shape:
            case "enum":
                return part.numbers.get(held, str(held))
            case "json":
                return json.dumps(self._dict(held), ensure_ascii=False, separators=(",", ":"))
            case "timestamp":
                return self._timestamp(held)
            case "wrapper":
                assert part.of is not None
                return self._single(held.value, part.of.parts[0])
            case "message":
                assert part.of is not None
                return {each.name: self._field(held, each) for each in part.of.parts}
        return Number(held) if part.type == "unsigned_long" else held

    def _timestamp(self, held: Value) -> int:
        if not 0 <= held.nanos < 1_000_000_000:
            raise RefusedError("range", f"{held.nanos} are no nanoseconds of a Timestamp")
        total_us: int = held.seconds * 1_000_000 + held.nanos // 1000
        if not DAY_MIN * DAY_US <= total_us < (DAY_MAX + 1) * DAY_US:
            raise RefusedError("range", f"{held.seconds} s is no time of the years 1 to 9999")
        self.inexact |= bool(held.nanos % 1000)
        return total_us

    def _unknown(self, message: ProtobufMessage) -> bytes:
        """Return the unknown fields, and known fields that contain unknown fields, as an encoded message."""
        within = [
            field for field, held in message.ListFields() if field.is_extension or _has_unknown(held, field)
        ]
        if not within and not _own_unknown(message):
            return b""
        copy = self.made()
        copy.CopyFrom(message)
        for descriptor, _ in message.ListFields():
            if descriptor not in within:
                copy.ClearField(descriptor.name)
        data: bytes = copy.SerializePartialToString(deterministic=True)
        return data


def _own_unknown(message: ProtobufMessage) -> bool:
    """Return whether a message has unknown field numbers. Raises RefusedError for known fields of another wire type."""
    has_unknown = False
    for unknown in UnknownFieldSet(message):
        has_unknown = True
        descriptor = message.DESCRIPTOR.fields_by_number.get(unknown.field_number)
        if descriptor is not None and not (
            descriptor.enum_type is not None and descriptor.enum_type.is_closed
        ):
            raise RefusedError("protobuf", f"{descriptor.name} is written as another type")
    return has_unknown


def _has_unknown(held: Value, descriptor: FieldDescriptor) -> bool:
    if descriptor.message_type is None:
        return False
    if descriptor.message_type.GetOptions().map_entry:
        value = descriptor.message_type.fields_by_name["value"]
        return value.message_type is not None and max(
            [_any_unknown(held[key]) for key in held], default=False
        )
    if descriptor.is_repeated:
        return max([_any_unknown(each) for each in held], default=False)
    return _any_unknown(held)


def _any_unknown(message: ProtobufMessage) -> bool:
    mine = _own_unknown(message)
    within = [field.is_extension or _has_unknown(held, field) for field, held in message.ListFields()]
    return mine or any(within)
