"""Avro values read one at a time, with every bound checked.

The rule: for any bytes, reading ends after at most as many steps as there are bytes, with a value or RefusedError.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from decimal import Decimal as Number
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas_pipeline.field_types import PLAIN, Decimal, Field
from barnabas_pipeline.formats.avro_plan import Plan
from barnabas_pipeline.formats.base import RefusedError
from barnabas_pipeline.formats.json_values import OF_TIME, Checker, is_beyond, is_more_exact
from barnabas_pipeline.formats.resolve import Kept, as_json

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Json, Row, Value

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_ZONED = Field("time", "iso8601")
EMPTY_ITEMS_MAX = 10_000
"""Most items without bytes that a value may have."""
EMPTY_FIELDS_PER_BYTE = 10
"""Fields without bytes that a value may have for each of its bytes, besides EMPTY_ITEMS_MAX."""


def _refuse(detail: str) -> RefusedError:
    return RefusedError("avro", detail)


class Reader:
    """Reader of the parts of one value, in order."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.is_inexact = False  # a time does not fit its column unchanged
        self.at = 0
        self.budget = len(data) + EMPTY_ITEMS_MAX
        self.empties = EMPTY_FIELDS_PER_BYTE * len(data) + EMPTY_ITEMS_MAX

    def whole(self, plan: Plan) -> Value:
        """Read a value that takes all the bytes. Raises RefusedError."""
        value = self.read(plan)
        if self.at != len(self.data):
            raise _refuse(f"{len(self.data) - self.at} bytes are left behind the value")
        return value

    def read(self, plan: Plan) -> Value:
        """Read a value in a form for Arrow. Raises RefusedError."""
        if plan.kind == "record" and plan.is_recursive:
            value = self._record(plan)
            return json.dumps(_nested_json(value, plan), ensure_ascii=False, separators=(",", ":"))
        value = _READ[plan.kind](self, plan)
        if isinstance(plan.type, str) and value is not None:
            value = self._ranged(value, plan)
        return value

    def _ranged(self, value: Value, plan: Plan) -> Value:
        if plan.kind not in ("int", "long"):
            return value
        assert isinstance(plan.type, str)
        if plan.type in OF_TIME and is_beyond(value, plan.type):
            self.is_inexact = True
            return Kept(value)
        plain = PLAIN[plan.type]
        assert plain.min is not None
        assert plain.max is not None
        if not plain.min <= value <= plain.max:
            raise RefusedError("range", f"{value} is no {plan.type} that a column holds")
        return value * plain.factor

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes. Raises RefusedError."""
        if size < 0 or size > len(self.data) - self.at:
            raise _refuse(f"{size} bytes at {self.at} are not there")
        self.at += size
        return self.data[self.at - size : self.at]

    def long(self, _plan: Plan | None = None) -> int:
        """Read a zigzag number of 64 bits. Raises RefusedError."""
        raw = shift = 0
        while True:
            byte = self.take(1)[0]
            if shift == 63 and byte > 1:
                raise _refuse("a number has more than 64 bits")
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
            shift += 7

    def _int(self, _plan: Plan) -> int:
        value = self.long()
        if not -(1 << 31) <= value < 1 << 31:
            raise _refuse("an int has more than 32 bits")
        return value

    def _boolean(self, _plan: Plan) -> bool:
        byte = self.take(1)[0]
        if byte > 1:
            raise _refuse("a boolean is neither 0 nor 1")
        return byte == 1

    def _bytes(self, plan: Plan) -> Value:
        data = self.take(self.long() if plan.kind == "bytes" else plan.size)
        if isinstance(plan.type, Decimal):
            return _decimal(data, plan.type)
        return str(UUID(bytes=data)) if plan.type == "uuid" else data

    def _string(self, plan: Plan) -> Value:
        data = self.take(self.long())
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise RefusedError("utf8", "a string is no UTF-8") from None
        if plan.type != "iso8601":
            return text
        time = Checker().checked(text, _ZONED, "a time")
        if not is_more_exact(text):
            return time
        self.is_inexact = True
        return Kept(text, time)

    def _enum(self, plan: Plan) -> str:
        return plan.symbols[self._index(len(plan.symbols))]

    def _index(self, count: int) -> int:
        index = self.long()
        if not 0 <= index < count:
            raise _refuse(f"{index} is no number of an enum's symbols or a union's branches")
        return index

    def _optional(self, plan: Plan) -> Value:
        return None if self._index(2) == plan.size else self.read(plan.children[0])

    def _union(self, plan: Plan) -> Value:
        index = self._index(len(plan.children))
        value = self.read(plan.children[index])
        return None if plan.children[index].kind == "null" else {plan.names[index]: value}

    def _blocks(self) -> Iterator[int]:
        """Yield once for each item of an array or a map."""
        while count := self.long():
            if count < 0:
                count = -count
                if self.long() < 0:
                    raise _refuse("a block has less than no bytes")
            if count > self.budget:
                raise _refuse(f"there are not {count} items")
            self.budget -= count
            yield from range(count)

    def _array(self, plan: Plan) -> list[Value]:
        return [self.read(plan.children[0]) for _ in self._blocks()]

    def _map(self, plan: Plan) -> list[tuple[str, Value]]:
        items: Row = {}
        for _ in self._blocks():
            key = self._string(plan)
            items[key] = self.read(plan.children[0])
        return list(items.items())

    def _record(self, plan: Plan) -> Row:
        if plan.empties:
            self.empties -= plan.empties
            if self.empties < 0:
                raise _refuse("very many fields take no bytes")
        return {name: self.read(child) for name, child in zip(plan.names, plan.children, strict=True)}

    def _null(self, _plan: Plan) -> None:
        return None

    def _float(self, _plan: Plan) -> float:
        return float(_FLOAT.unpack(self.take(4))[0])

    def _double(self, _plan: Plan) -> float:
        return float(_DOUBLE.unpack(self.take(8))[0])


_READ = {
    "null": Reader._null, "boolean": Reader._boolean, "int": Reader._int, "long": Reader.long, "float": Reader._float,
    "double": Reader._double, "bytes": Reader._bytes, "fixed": Reader._bytes, "string": Reader._string,
    "enum": Reader._enum, "optional": Reader._optional, "union": Reader._union, "array": Reader._array,
    "map": Reader._map, "record": Reader._record,
}  # fmt: skip


def _decimal(data: bytes, kind: Decimal) -> Number:
    whole = int.from_bytes(data, signed=True)
    if abs(whole) >= 10**kind.precision:
        raise RefusedError("range", f"a decimal has more than {kind.precision} digits")
    digits = tuple(map(int, str(abs(whole))))
    return Number((int(whole < 0), digits, -kind.scale))


def _nested_json(value: Value, plan: Plan) -> Json:
    """Return the JSON form of a value of a recursive type."""
    if value is None:
        return None
    match plan.kind:
        case "record" if isinstance(value, str):
            return json.loads(value)
        case "record":
            return {
                name: _nested_json(value[name], child)
                for name, child in zip(plan.names, plan.children, strict=True)
            }
        case "optional":
            return _nested_json(value, plan.children[0])
        case "array":
            return [_nested_json(item, plan.children[0]) for item in value]
        case "map":
            return {name: _nested_json(item, plan.children[0]) for name, item in value}
        case "union":
            [(name, held)] = value.items()
            return _nested_json(held, plan.children[plan.names.index(name)])
    return as_json(value, plan.type)
