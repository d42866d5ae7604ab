"""Shared parts of the decode and the encode emitter: lines, fresh names, struct formats, defaults as source text.

The rule: the same plan always gives the same text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from codegen.model import Field, Message

ARRAY_TABLES = {
    "bool": "BOOLS",
    "int8": "INT8S",
    "int16": "INT16S",
    "uint16": "UINT16S",
    "int32": "INT32S",
    "uint32": "UINT32S",
    "int64": "INT64S",
    "float64": "FLOAT64S",
    "uuid": "UUIDS",
}


class Formats:
    """The `Struct` objects that a module needs, by format, under stable names."""

    def __init__(self) -> None:
        self.used: dict[str, set[str]] = {}

    def name(self, format_: str, method: str) -> str:
        """The name of the bound method (`pack`, `unpack_from`, `iter_unpack`) of the format's Struct."""
        self.used.setdefault(format_, set()).add(method)
        return f"_{method}_{spell(format_)}"

    def lines(self) -> list[str]:
        """The assignments that define every name given out."""
        return [
            f'_{method}_{spell(format_)} = Struct(">{format_}").{method}'
            for format_ in sorted(self.used)
            for method in sorted(self.used[format_])
        ]


def spell(format_: str) -> str:
    """A format as part of a Python name: `?` and upper case letters cannot be told apart by eye, so words."""
    return format_.replace("16s", "u").replace("?", "t")


class Lines:
    """Source text under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.counters: dict[str, int] = {}

    def add(self, line: str) -> None:
        """Append a line at the current depth."""
        self.lines.append("    " * self.depth + line)

    def fresh(self, stem: str) -> str:
        """A name that this function has not used: `x1`, `x2`, ..."""
        self.counters[stem] = self.counters.get(stem, 0) + 1
        return f"{stem}{self.counters[stem]}"

    @contextmanager
    def indented(self, line: str) -> Iterator[None]:
        """Append a line that opens a block; what is added inside belongs to it."""
        self.add(line)
        self.depth += 1
        yield
        self.depth -= 1


def class_alias(message: Message, struct: str) -> str:
    """The module-level name under which codecs reach a class without attribute lookups."""
    return message.name if struct == message.name else f"_{message.name}_{struct}"


def value_source(message: Message, field: Field) -> str:
    """The default of a field as an expression that makes a fresh value."""
    kind = field.type
    if kind.array:
        return "None" if field.has_default else "[]"
    if kind.is_struct:
        return "None" if field.has_default else f"{class_alias(message, kind.name)}()"
    if kind.name == "uuid":
        return "ZERO_UUID"
    if kind.name == "bytes" and field.default is not None:
        return 'b""'
    return repr(field.default).replace("'", '"')


def differs(message: Message, field: Field, value: str) -> str:
    """A condition: `value` is not the default of `field`."""
    kind = field.type
    if field.has_default and field.default is None and (kind.array or kind.is_struct or kind.name != "uuid"):
        return f"{value} is not None"
    if kind.name == "records" and not kind.array:
        return f"{value} is not None"
    if kind.array:
        return f"({value} is None or {value})" if field.nullable else value
    if kind.is_struct:
        inside = [
            differs(message, tagged, f"{value}.{tagged.attribute}")
            for tagged in message.structs[kind.name].fields
        ]
        null = [f"{value} is None"] if field.nullable else []
        return "(" + " or ".join([*null, *inside, f"{value}.unknown_tagged_fields"]) + ")"
    if kind.name == "bool":
        return f"not {value}" if field.default else value
    return f"{value} != {value_source(message, field)}"
