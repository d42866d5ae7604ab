"""Content of a message definition, as values.

The rule: the model mirrors the definition and adds nothing; what a version looks like on the wire is the
business of `plan`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

OPEN_END = 32767
"""The last version of an open range such as `3+`: the largest int16."""

FIXED_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Types of fixed width and their `struct` format characters."""

FIXED_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
VARIABLE_TYPES = frozenset({"string", "bytes", "records"})
PRIMITIVES = frozenset(FIXED_FORMATS) | VARIABLE_TYPES

Default = int | float | bool | str | None


class SchemaError(Exception):
    """A definition that cannot be understood or breaks a rule; the text names the file and the field."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem


@dataclass(frozen=True)
class Versions:
    """An inclusive range of versions; `NO_VERSIONS` is empty."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __bool__(self) -> bool:
        return self.first <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __and__(self, other: Versions) -> Versions:
        both = Versions(max(self.first, other.first), min(self.last, other.last))
        return both if both else NO_VERSIONS

    def covers(self, other: Versions) -> bool:
        """Return whether every version of `other` is one of these."""
        return not other or (self.first <= other.first and other.last <= self.last)

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.last >= OPEN_END:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NO_VERSIONS = Versions(0, -1)


@dataclass(frozen=True)
class FieldType:
    """`name` is a primitive or a struct; `array` says whether the field is a list of them."""

    name: str
    array: bool

    @property
    def is_struct(self) -> bool:
        """Return whether the (element) type is a struct of the message."""
        return self.name not in PRIMITIVES

    @property
    def is_fixed(self) -> bool:
        """Return whether the (element) type always takes the same number of bytes."""
        return self.name in FIXED_FORMATS

    def __str__(self) -> str:
        return f"[]{self.name}" if self.array else self.name


@dataclass(frozen=True)
class Field:
    """One field of a struct, over all versions."""

    name: str
    type: FieldType
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    default: Default
    has_default: bool
    ignorable: bool
    map_key: bool
    entity_type: str
    flexible: Versions | None
    about: str
    where: str

    @property
    def attribute(self) -> str:
        """The Python attribute: snake case, with an underscore after it if Python reserves the word."""
        return snake(self.name)


@dataclass(frozen=True)
class Struct:
    """A group of fields that occurs inside a message; its Python class is nested in the message's."""

    name: str
    versions: Versions
    fields: tuple[Field, ...]
    about: str
    where: str


@dataclass(frozen=True)
class Message:
    """One definition file: a request, a response, a header, half of a log record, or other data."""

    name: str
    kind: str
    api_key: int | None
    versions: Versions
    flexible: Versions
    latest_unstable: bool
    listeners: tuple[str, ...]
    fields: tuple[Field, ...]
    structs: dict[str, Struct] = field(compare=False)
    about: str
    path: Path

    @property
    def where(self) -> str:
        """The name of the file, for messages to people."""
        return self.path.name

    def all_fields(self) -> Iterator[tuple[str, Field]]:
        """Every field of the message and of its structs with the name of its class."""
        for member in self.fields:
            yield self.name, member
        for struct in self.structs.values():
            for member in struct.fields:
                yield struct.name, member


def snake(name: str) -> str:
    """`TopicData` -> `topic_data`, `IsKRaftController` -> `is_kraft_controller`."""
    name = name.replace("KRaft", "Kraft").replace("kRaft", "kraft")
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
    return f"{name}_" if keyword.iskeyword(name) else name
