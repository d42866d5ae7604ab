"""Places in an answer, written as `responses[name=orders].partition_responses[*].error_code`.

The rule: names are those of Kafka's published layouts, in either spelling (`errorCode`, `error_code`); a list is followed
by a selection of its entries: `[*]` or nothing for all, `[2]` for the third, `[name=orders]` for those with that field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import Field, dataclass, fields
from typing import Any

from barnabas.tools.faults.errors import FaultError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.structs import struct_of

_SEGMENT = re.compile(r"(\w+)(?:\[(?:(\*)|(\d+)|(\w+)=([^\]]*))\])?(?:\.|$)")
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")


@dataclass(frozen=True, slots=True)
class Segment:
    """One name of a path, and the selected entries if it is a list: all, one, or those with a field."""

    name: str
    index: int | None = None
    key: str = ""
    value: str = ""

    def takes(self, position: int, entry: Any) -> bool:
        """Return whether an entry of the list is selected."""
        if self.index is not None:
            return position == self.index
        return not self.key or str(getattr(entry, self.key, None)) == self.value


@dataclass(frozen=True, slots=True)
class Path:
    """A parsed path."""

    text: str
    segments: tuple[Segment, ...]

    def holders(self, message: Any) -> Iterator[Any]:
        """Yield the structs of a message that have the path's last field."""
        yield from _holders(message, self.segments)

    def put(self, message: Any, value: Any) -> int:
        """Set the field in every place that the path names; returns how many there were."""
        name = self.segments[-1].name
        count = 0
        for holder in self.holders(message):
            if hasattr(holder, name):
                setattr(holder, name, value)
                count += 1
        return count


def _holders(struct: Any, segments: tuple[Segment, ...]) -> Iterator[Any]:
    if len(segments) == 1:
        yield struct
        return
    segment = segments[0]
    inner = getattr(struct, segment.name, None)
    if isinstance(inner, list):
        for position, entry in enumerate(inner):
            if segment.takes(position, entry):
                yield from _holders(entry, segments[1:])
    elif inner is not None:
        yield from _holders(inner, segments[1:])


def parse(text: str, place: str = "") -> Path:
    """Parse a path. Raises FaultError."""
    segments = []
    position = 0
    while position < len(text):
        match = _SEGMENT.match(text, position)
        if match is None:
            raise FaultError(
                f"{text!r} is not a path at {text[position:]!r}; as topics[name=t].partitions[*].error_code",
                place,
            )
        name, _, index, key, value = match.groups()
        segments.append(Segment(_snake(name), int(index) if index else None, _snake(key or ""), value or ""))
        position = match.end()
    if not segments:
        raise FaultError("a path is expected, as error_code or topics[*].error_code", place)
    return Path(text, tuple(segments))


def check(path: Path, message: type[Any], place: str = "") -> Field[Any]:
    """Return the field that a path ends in. Raises FaultError if a message of this class has no such place."""
    struct: Any = message
    for number, segment in enumerate(path.segments):
        fields_by_name = {field.name: field for field in fields(struct)}
        field = fields_by_name.get(segment.name)
        if field is None:
            names = ", ".join(name for name in fields_by_name if name != "unknown_tagged_fields")
            raise FaultError(f"{struct.__qualname__} has no field {segment.name}; it has {names}", place)
        if number == len(path.segments) - 1:
            return field
        struct = struct_of(struct, field)
        if struct is None:
            raise FaultError(f"{segment.name} in {path.text!r} has no fields of its own", place)
        if segment.key and segment.key not in {field.name for field in fields(struct)}:
            raise FaultError(f"the entries of {segment.name} have no field {segment.key}", place)
    raise AssertionError("a path has a last segment")


def value_for(field: Field[Any], value: Any, place: str = "") -> Any:
    """Return a value as the field holds it; names of error codes become numbers. Raises FaultError."""
    kind = str(field.type)
    if value is None and "None" in kind:
        return None
    if field.name.endswith("error_code") and isinstance(value, str):
        return code_of(value, place)
    if kind.startswith("list[") and isinstance(value, list):
        entry = {"list[str]": str, "list[int]": int}.get(kind.split(" ")[0])
        if entry is not None and all(
            isinstance(item, entry) and not isinstance(item, bool) for item in value
        ):
            return list(value)
    for python, name in ((bool, "bool"), (int, "int"), (str, "str"), (float, "float")):
        if name in kind.split("[")[0]:
            if isinstance(value, python) and (python is bool or not isinstance(value, bool)):
                return value
            if python is float and isinstance(value, int):
                return float(value)
    raise FaultError(f"{value!r} is not a value for {field.name}, which is {kind}", place)


def code_of(value: Any, place: str = "") -> int:
    """Return the number of an error code that is given by name or number. Raises FaultError."""
    if isinstance(value, int) and not isinstance(value, bool):
        if -(2**15) <= value < 2**15:
            return value
        raise FaultError(f"{value} does not fit into an error code", place)
    name = str(value).strip().upper()
    if name.lstrip("-").isdigit():
        return code_of(int(name), place)
    if name in ErrorCode.__members__:
        return ErrorCode[name].value
    near = [member for member in ErrorCode.__members__ if name and (name in member or member in name)][:3]
    hint = f"; did you mean {' or '.join(near)}?" if near else ", as NOT_LEADER_OR_FOLLOWER"
    raise FaultError(f"{value!r} is not the name of an error code of Kafka{hint}", place)


def _snake(name: str) -> str:
    return _HUMP.sub(r"_\1", name).lower()
