"""Conditions of filters: whether a record matches, and the places in it that match. Pure.

The rule: each visited value is a step, and a record may take `STEPS_MAX` of them, whatever the filter is.
Values compare only with the same type: numbers with numbers, texts with texts; a missing value is equal to nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from barnabas.filters.errors import FilterLimitError
from barnabas.filters.spans import span_of
from barnabas.filters.values import MISSING, Content, Fields

STEPS_MAX = 200_000
"""Values that a filter may look at in a record: some 0.1 s."""
MARKS_MAX = 100
"""Marks of a key, value or header."""
MARKED_CHARS_MAX = 64 << 10
"""Characters of a JSON text from which on values within it are not marked."""
PLACES = ("anywhere", "key", "value", "headers")
Step = str | int | None
"""A part of a path: a name, the number of an element, or None for all."""
Marks = dict[str, list[tuple[int, int]]]
"""Ranges of characters by place: `key`, `value`, `header 0`."""
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Steps:
    """Steps that are left for a record."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = STEPS_MAX

    def take(self, count: int = 1) -> None:
        """Count steps. Raises FilterLimitError above the limit."""
        self._left -= count
        if self._left < 0:
            raise FilterLimitError(f"the filter takes more than {STEPS_MAX} steps for this record")


class Hit(NamedTuple):
    """A value at the end of a path: its place, and its path within the JSON there; None for the whole text.

    `path` is a pair of the container's path and the value's name or number in it: long paths share their beginnings.
    """

    value: Any
    place: str = ""
    path: tuple[Any, ...] | None = None

    @property
    def steps(self) -> list[str | int]:
        """The path, from the whole on."""
        steps = []
        path = self.path
        while path:
            path, step = path
            steps.append(step)
        return steps[::-1]


class Operand(Protocol):
    """A side of a comparison."""

    def hits(self, record: Fields, steps: Steps) -> Iterator[Hit]:
        """Yield the record's values of the operand."""
        ...


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that the filter has."""

    value: Any

    def hits(self, record: Fields, steps: Steps) -> Iterator[Hit]:
        """Yield it."""
        del record
        steps.take()
        yield Hit(self.value)


@dataclass(frozen=True, slots=True)
class Number:
    """Partition, offset or timestamp of a record, or its topic."""

    name: str

    def hits(self, record: Fields, steps: Steps) -> Iterator[Hit]:
        """Yield the value, unless the record has none."""
        steps.take()
        value = getattr(record, self.name)
        if isinstance(value, str) or value >= 0:
            yield Hit(value)


class Segment(NamedTuple):
    """A part of a path; `is_deep` for `..`, at any depth."""

    step: Step
    is_deep: bool = False


@dataclass(frozen=True, slots=True)
class Path:
    """Values within a key, a value, or headers of a name; without segments, the whole: its JSON and its text."""

    root: str
    segments: tuple[Segment, ...]
    is_json: bool = False
    """True for `$`, which is the JSON of the value alone."""

    def hits(self, record: Fields, steps: Steps) -> Iterator[Hit]:
        """Yield the values that the path leads to."""
        segments = self.segments
        if self.root != "headers":
            yield from self._within(getattr(record, self.root), self.root, segments, steps)
            return
        name = segments[0].step
        for number, (header, content) in enumerate(record.headers):
            steps.take()
            if name is None or header == name:
                yield from self._within(content, f"header {number}", segments[1:], steps)

    def _within(
        self, content: Content, place: str, segments: Sequence[Segment], steps: Steps
    ) -> Iterator[Hit]:
        steps.take()
        if content.data is None:
            if not segments and not self.is_json:
                yield Hit(None, place)
            return
        value = content.value
        if not segments and not self.is_json:
            yield Hit(content.text, place)
        if value is not MISSING:
            yield from _follow(Hit(value, place, ()), segments, steps)


def _follow(hit: Hit, segments: Sequence[Segment], steps: Steps) -> Iterator[Hit]:
    if not segments:
        yield hit
        return
    segment, rest = segments[0], segments[1:]
    if not segment.is_deep:
        for child in _children(hit, segment.step, steps):
            yield from _follow(child, rest, steps)
        return
    stack = [hit]
    while stack:
        parent = stack.pop()
        for child in _children(parent, segment.step, steps):
            yield from _follow(child, rest, steps)
        stack += reversed([*_children(parent, None, steps)])


def _children(hit: Hit, step: Step, steps: Steps) -> Iterator[Hit]:
    """Yield the values of an object or array: that of a step's name or number, or all."""
    value, place, path = hit
    assert path is not None
    if isinstance(value, dict):
        if step is None:
            for name, child in value.items():
                steps.take()
                yield Hit(child, place, (path, name))
        elif isinstance(step, str) and step in value:
            steps.take()
            yield Hit(value[step], place, (path, step))
    elif isinstance(value, list):
        if step is None:
            for number, child in enumerate(value):
                steps.take()
                yield Hit(child, place, (path, number))
        elif isinstance(step, int) and -len(value) <= step < len(value):
            steps.take()
            yield Hit(value[step], place, (path, step % len(value)))
    else:
        steps.take()


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "null" if value is None else "other"


def _equal(first: Any, second: Any) -> bool:
    kind = _kind(first)
    return kind == _kind(second) and kind != "other" and bool(first == second)


class Node:
    """A condition."""

    __slots__ = ()

    def matches(self, record: Fields) -> bool:
        """Return whether a record matches the condition. Raises FilterLimitError."""
        return self.holds(record, Steps())

    def marks(self, record: Fields) -> Marks:
        """Return the places of a matching record that match the condition. Raises FilterLimitError."""
        marks: Marks = {}
        self.mark(record, Steps(), marks)
        return {place: _merged(ranges) for place, ranges in marks.items() if ranges}

    def holds(self, record: Fields, steps: Steps) -> bool:
        """Return whether it holds, within a number of steps."""
        raise NotImplementedError

    def mark(self, record: Fields, steps: Steps, marks: Marks) -> None:
        """Add the matching places, if the condition holds."""


@dataclass(frozen=True, slots=True)
class Both(Node):
    """Conditions that all hold."""

    nodes: tuple[Node, ...]

    def holds(self, record: Fields, steps: Steps) -> bool:
        """Return whether all hold."""
        return all(node.holds(record, steps) for node in self.nodes)

    def mark(self, record: Fields, steps: Steps, marks: Marks) -> None:
        """Add the places of all, if all hold."""
        if self.holds(record, steps):
            for node in self.nodes:
                node.mark(record, steps, marks)


@dataclass(frozen=True, slots=True)
class Either(Node):
    """Conditions of which at least one must hold."""

    nodes: tuple[Node, ...]

    def holds(self, record: Fields, steps: Steps) -> bool:
        """Return whether one holds."""
        return any(node.holds(record, steps) for node in self.nodes)

    def mark(self, record: Fields, steps: Steps, marks: Marks) -> None:
        """Add the matching places of the conditions that hold."""
        for node in self.nodes:
            node.mark(record, steps, marks)


@dataclass(frozen=True, slots=True)
class Not(Node):
    """A condition that does not hold; it marks nothing."""

    node: Node

    def holds(self, record: Fields, steps: Steps) -> bool:
        """Return whether the inner condition does not hold."""
        return not self.node.holds(record, steps)


class OverValues(Node):
    """A condition over the values of an operand."""

    __slots__ = ()

    def meeting(self, record: Fields, steps: Steps) -> Iterator[Hit]:
        """Yield the values that match."""
        raise NotImplementedError

    def holds(self, record: Fields, steps: Steps) -> bool:
        """Return whether a value matches."""
        return next(self.meeting(record, steps), None) is not None

    def mark(self, record: Fields, steps: Steps, marks: Marks) -> None:
        """Add the values that match."""
        for hit in self.meeting(record, steps):
            if hit.place:
                ranges = marks.setdefault(hit.place, [])
                if len(ranges) < MARKS_MAX:
                    ranges += self.ranges(hit, content_at(record, hit.place))

    def ranges(self, hit: Hit, content: Content) -> list[tuple[int, int]]:
        """Return the characters of a value."""
        text = content.text or ""
        if not hit.path:
            return [(0, len(text))]
        return [span_of(text, hit.steps)] if len(text) <= MARKED_CHARS_MAX else []


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in their order, with overlapping ones merged."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged[:MARKS_MAX]


def content_at(record: Fields, place: str) -> Content:
    """Return the key, value or header at the place of a hit."""
    if place in ("key", "value"):
        content: Content = getattr(record, place)
        return content
    return record.headers[int(place.removeprefix("header "))][1]


@dataclass(frozen=True, slots=True)
class Exists(OverValues):
    """A value exists, and is neither null nor false."""

    operand: Operand

    def meeting(self, record: Fields, steps: Steps) -> Iterator[Hit]:
        """Yield such values."""
        for hit in self.operand.hits(record, steps):
            if hit.value is not None and hit.value is not False:
                yield hit


@dataclass(frozen=True, slots=True)
class Comparison(OverValues):
    """A pair of values of the two sides compares true; for `!=`, both have values and no pair is equal."""

    first: Operand
    sign: str
    second: Operand

    def meeting(self, record: Fields, steps: Steps) -> Iterator[Hit]:
        """Yield values of both sides that compare so."""
        others = [*self.second.hits(record, steps)]
        hits = [*self.first.hits(record, steps)]
        if self.sign == "!=":
            steps.take(len(hits) * len(others))
            if (
                hits
                and others
                and not any(_equal(hit.value, other.value) for hit in hits for other in others)
            ):
                yield from (*hits, *others)
            return
        for hit in hits:
            for other in others:
                steps.take()
                if self._compares(hit.value, other.value):
                    yield hit
                    yield other

    def _compares(self, first: Any, second: Any) -> bool:
        if self.sign == "=":
            return _equal(first, second)
        kind = _kind(first)
        return kind == _kind(second) and kind in ("number", "text") and ORDERS[self.sign](first, second)


@dataclass(frozen=True, slots=True)
class In(OverValues):
    """A value equals one of several."""

    operand: Operand
    values: tuple[Any, ...]

    def meeting(self, record: Fields, steps: Steps) -> Iterator[Hit]:
        """Yield such values."""
        for hit in self.operand.hits(record, steps):
            steps.take(len(self.values))
            if any(_equal(hit.value, value) for value in self.values):
                yield hit


@dataclass(frozen=True, slots=True)
class Holding(OverValues):
    """A text has a piece, exact to the case, or an array an element."""

    operand: Operand
    value: Any

    def meeting(self, record: Fields, steps: Steps) -> Iterator[Hit]:
        """Yield such texts and arrays."""
        for hit in self.operand.hits(record, steps):
            if isinstance(hit.value, str) and isinstance(self.value, str):
                if self.value in hit.value:
                    yield hit
            elif isinstance(hit.value, list):
                steps.take(len(hit.value))
                if any(_equal(element, self.value) for element in hit.value):
                    yield hit

    def ranges(self, hit: Hit, content: Content) -> list[tuple[int, int]]:
        """Return the pieces, or the characters of a value within."""
        if hit.path or not isinstance(self.value, str):
            return OverValues.ranges(self, hit, content)
        text, piece = content.text or "", self.value
        starts: list[int] = []
        at = text.find(piece)
        while at >= 0 and piece and len(starts) < MARKS_MAX:
            starts.append(at)
            at = text.find(piece, at + len(piece))
        return [(start, start + len(piece)) for start in starts]


@dataclass(frozen=True, slots=True)
class Matching(OverValues):
    """A text has a match of a regular expression, compiled by `patterns`."""

    operand: Operand
    pattern: Any

    def meeting(self, record: Fields, steps: Steps) -> Iterator[Hit]:
        """Yield such texts."""
        for hit in self.operand.hits(record, steps):
            if isinstance(hit.value, str) and self.pattern.search(hit.value.encode("utf-8", "replace")):
                yield hit

    def ranges(self, hit: Hit, content: Content) -> list[tuple[int, int]]:
        """Return the matches, or the characters of a value within."""
        return OverValues.ranges(self, hit, content) if hit.path else matches_in(self.pattern, content.data)


@dataclass(frozen=True, slots=True)
class Search(Node):
    """A match of a regular expression in texts of a record: of all, or of keys, values or headers."""

    pattern: Any
    place: str = field(default=PLACES[0])

    def holds(self, record: Fields, steps: Steps) -> bool:
        """Return whether there is a match; names of headers are searched as well."""
        del steps
        return any(self.pattern.search(data) is not None for _, data in self._texts(record))

    def mark(self, record: Fields, steps: Steps, marks: Marks) -> None:
        """Add the matches."""
        del steps
        for place, data in self._texts(record):
            if place and (ranges := matches_in(self.pattern, data)):
                marks.setdefault(place, []).extend(ranges)

    def _texts(self, record: Fields) -> Iterator[tuple[str, bytes]]:
        if self.place in ("anywhere", "value") and record.value.data is not None:
            yield "value", record.value.data
        if self.place in ("anywhere", "key") and record.key.data is not None:
            yield "key", record.key.data
        if self.place in ("anywhere", "headers"):
            for number, (name, content) in enumerate(record.headers):
                yield "", name.encode("utf-8", "surrogateescape")
                if content.data is not None:
                    yield f"header {number}", content.data


def matches_in(pattern: Any, data: bytes | None) -> list[tuple[int, int]]:
    """Return the ranges of characters of the first matches in a text."""
    ranges: list[tuple[int, int]] = []
    characters = at = 0
    for match in pattern.finditer(data or b""):
        start, end = match.span()
        if start < end:
            assert data is not None
            characters += len(data[at:start].decode("utf-8", "replace"))
            length = len(data[start:end].decode("utf-8", "replace"))
            ranges.append((characters, characters + length))
            characters, at = characters + length, end
        if len(ranges) >= MARKS_MAX:
            break
    return ranges
