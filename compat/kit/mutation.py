"""Requests with one anomaly each: a duplicate entry, an undefined number, an empty name, null.

The rule: anomalies are derived from the schemas, by field and version; only one valid request of each API is written by
hand. A value that depends on a response (an id, an epoch) is a function of the responses so far.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from codegen.model import Field, FieldType, Message, Struct
from compat.kit.compare import Seen, Step
from compat.kit.wire import Values, message

UNKNOWN_ID = bytes(range(16))
LEFT_AS_THEY_ARE = ("TimeoutMs", "timeoutMs", "MaxWaitMs")
"""Fields with the timeout of a response."""
TWICE = "twice"
NUMBERS = (-2, -1, 0, 1, 7, 99)
UNSIGNED = "uint16"


@dataclass(frozen=True)
class Right:
    """A valid request: the API, the versions that Kafka 4 serves, and its values for a unique name.

    `before` are requests that create its resource, `after` requests that remove it; with `has_topics`, a topic of that name
    is created first. `skip` are fields, by name or by path (as in "Topics.Name"), that are not changed: with anomalies in
    them, Kafka does not respond, waits, or ends.
    """

    api: str
    versions: tuple[int, int]
    values: Callable[[str], Values]
    before: Callable[[str], list[tuple[str, int, Values]]] = lambda _: []
    after: Callable[[str], list[tuple[str, int, Values]]] = lambda _: []
    skip: tuple[str, ...] = ()
    has_topics: bool = False
    kind: str = ""
    """Word that distinguishes two such requests of one API."""


def _struct(
    shape: Message | Struct, whole: Message, values: Values
) -> Iterator[tuple[Field, list[Any], Values]]:
    """Yield each present field with its path and its struct; for a list, the fields of its first struct."""
    fields_by_name = {member.name: member for member in shape.fields}
    for name, value in values.items():
        member = fields_by_name[name]
        yield member, [name], values
        if member.type.is_struct and value:
            inner = whole.structs[member.type.name]
            for index, item in enumerate(value[:1] if member.type.array else [value]):
                for member_value, path, holder in _struct(inner, whole, item):
                    yield member_value, [name, index, *path] if member.type.array else [name, *path], holder


def _odd(member: Field, value: Any, version: int) -> Iterator[tuple[str, Any]]:
    """Yield anomalous replacements for a value, with labels."""
    kind: FieldType = member.type
    if version in member.nullable and value is not None:
        yield "null", None
    if kind.array:
        yield "none", []
        if value:
            yield TWICE, value
    elif kind.name == "string":
        yield from (("empty", ""), ("a bad name", "a b"), ("an unknown name", "unknown"))
    elif kind.name == "bool":
        yield f"{not value}", not value
    elif kind.name == "uuid":
        yield from (("no id", bytes(16)), ("an unknown id", UNKNOWN_ID))
    elif kind.name in ("bytes", "records"):
        yield "empty", b""
    elif kind.is_fixed and kind.name != "float64":
        for number in NUMBERS:
            if number != value and (number >= 0 or kind.name != UNSIGNED):
                yield f"{number}", number


def _replaced(values: Values, path: list[Any], value: Any) -> Values:
    changed: Any = copy.deepcopy(values)
    holder = changed
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return changed


def resolved(values: Any, seen: Seen) -> Any:
    """Return values with each function of the responses so far replaced by its result."""
    if callable(values):
        return values(seen)
    if isinstance(values, dict):
        return {key: resolved(item, seen) for key, item in values.items()}
    return [resolved(item, seen) for item in values] if isinstance(values, list) else values


def _at(values: Any, path: list[Any]) -> Any:
    for part in path:
        values = values[part]
    return values


Make = Callable[[str], Values]
"""Makes a request for a name."""


def _doubled(right: Right, path: list[Any]) -> Make:
    """Make requests with each entry of a list twice."""

    def values(name: str) -> Values:
        right_values = right.values(name)
        entries = _at(right_values, path)
        return _replaced(right_values, path, [*entries, *copy.deepcopy(entries)])

    return values


def variants(right: Right, version: int) -> Iterator[tuple[str, Make]]:
    """Yield the valid request, and its variants with one anomaly each, with labels."""
    whole = message(f"{right.api}Request")
    yield "as it should be", right.values
    for member, path, holder in _struct(whole, whole, right.values("x")):
        where = ".".join(str(part) for part in path if not isinstance(part, int))
        if version not in member.versions or member.name in LEFT_AS_THEY_ARE:
            continue
        if not {member.name, where}.isdisjoint(right.skip):
            continue
        for label, odd in _odd(member, holder[member.name], version):
            if label == TWICE:
                yield f"{where} {label}", _doubled(right, path)
            else:
                yield (
                    f"{where} {label}",
                    lambda name, path=path, odd=odd: _replaced(right.values(name), path, odd),
                )


def steps_of(right: Right, prefix: str = "mutated", user: str = "") -> Iterator[Step]:
    """Yield the requests of all versions, each between its `before` and `after` requests."""
    for version in range(right.versions[0], right.versions[1] + 1):
        for number, (label, make) in enumerate(variants(right, version)):
            name = "-".join((right.api.lower(), *right.kind.split(), f"{version}", f"{number}"))
            what = " ".join((prefix, right.api, *right.kind.split(), f"v{version}", label))
            for api, of, values in right.before(name):
                yield _step(f"before {what}", api, of, values, user)
            yield _step(what, right.api, version, make(name), user)
            for api, of, values in right.after(name):
                yield _step(f"after {what}", api, of, values, user)


def _step(label: str, api: str, version: int, values: Values, user: str) -> Step:
    return Step(label, api, version, lambda seen: resolved(values, seen), user)
