"""Avro values that take no bytes: nulls, records without fields, fixed of size 0, and arrays of them.

The rule: a few bytes may declare very many such values, in an array or by nested records, so they are counted before
they are decoded; for a schema without such types nothing is counted.
"""

from __future__ import annotations

from barnabas.registry.errors import SchemaError
from barnabas.registry.formats.avro_types import Type

EMPTY_VALUES_MAX = 10_000
"""Values without bytes that any data may have."""
EMPTY_VALUES_PER_BYTE = 10
"""Values without bytes that data may have besides, for each of its bytes."""
_PLAIN_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class EmptyValues:
    """The types of a schema that take no bytes, and the number of values in a value of each."""

    def __init__(self, root: Type) -> None:
        """Raises RecursionError for a schema with too long a chain of types that lead to each other."""
        self._counts: dict[int, int] = {}
        """Values without bytes in a value that takes none; 0 for a type that takes some."""
        self.there_are_any = False
        self._visit(root, set())

    def _visit(self, of: Type, within: set[int]) -> int:
        """Return how many values a value of this type holds, itself included; 0 if it takes bytes.

        `within` has the ids of the records around it.
        """
        if id(of) in self._counts:
            return self._counts[id(of)]
        if id(of) in within:
            return 0  # a record that contains itself can never be read
        within.add(id(of))
        count = 0
        if of.kind in ("record", "error"):
            inner = [self._visit(field.type, within) for field in of.fields]
            count = 1 + sum(inner) if all(inner) else 0
            self.there_are_any = self.there_are_any or any(inner)
        elif of.kind in ("array", "map"):
            is_empty = self._visit(of.inner, within) > 0 and of.kind == "array"
            self.there_are_any = self.there_are_any or is_empty
        elif of.kind == "union":
            for branch in of.branches:
                self._visit(branch, within)
        elif of.kind == "null" or (of.kind == "fixed" and of.size == 0):
            count = 1
        within.discard(id(of))
        self._counts[id(of)] = min(count, 1 << 62)
        return count

    def check(self, of: Type, data: bytes) -> None:
        """Raise SchemaError for data that is incomplete, or has more of these values than allowed."""
        walk = _Walk(data, self._counts)
        try:
            walk.skip(of)
        except IndexError:
            raise SchemaError("the data does not fit its schema: it ends too early") from None


class _Walk:
    """A walk over the bytes of a value, which reads lengths and counts alone."""

    def __init__(self, data: bytes, counts: dict[int, int]) -> None:
        self._data = data
        self._counts = counts
        self._at = 0
        self._left = self._max = EMPTY_VALUES_MAX + EMPTY_VALUES_PER_BYTE * len(data)

    def skip(self, of: Type) -> None:
        """Skip a value. Raises IndexError where the data ends, SchemaError."""
        if self._counts[id(of)]:
            self._spend(self._counts[id(of)])
        elif of.kind in ("record", "error"):
            for field in of.fields:
                self.skip(field.type)
        elif of.kind in ("array", "map"):
            self._skip_items(of)
        elif of.kind == "union":
            self.skip(of.branches[self._index(len(of.branches))])
        elif of.kind in ("int", "long", "enum"):
            self._long()
        elif of.kind in ("bytes", "string"):
            self._move(self._long())
        else:
            self._move(of.size if of.kind == "fixed" else _PLAIN_SIZES[of.kind])

    def _skip_items(self, of: Type) -> None:
        empty = self._counts[id(of.inner)] if of.kind == "array" else 0
        while count := self._long():
            if count < 0:
                count = -count
                self._long()
            if empty:
                self._spend(count * empty)
                continue
            for _ in range(count):
                if of.kind == "map":
                    self._move(self._long())
                self.skip(of.inner)

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise SchemaError(f"the data has more than {self._max:,} values that take no bytes")

    def _move(self, size: int) -> None:
        self._at += size
        if size < 0 or self._at > len(self._data):
            raise IndexError

    def _index(self, count: int) -> int:
        index = self._long()
        if not 0 <= index < count:
            raise SchemaError(
                "the data does not fit its schema: it is of a branch that a union does not have"
            )
        return index

    def _long(self) -> int:
        raw = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
            if shift > 63:
                raise SchemaError("the data does not fit its schema: a number has more than 64 bits")
