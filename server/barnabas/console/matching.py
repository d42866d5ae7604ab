"""Searches of records: by text, a regular expression, a filter, a key, or offsets; and the places that match. Pure.

The rule: the searched text is the shown text, decoded by a schema or from the bytes. The time of a search grows with the
pattern and with all records of a batch, so it runs in a child process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from barnabas.filters import (
    PLACES,
    Content,
    Fields,
    FilterLimitError,
    Search,
    compile_columns,
    compile_filter,
    texts_of,
)
from barnabas.patterns import compile_pattern, escaped

if TYPE_CHECKING:
    from barnabas.console.decoding import Payloads, RawRecord
    from barnabas.filters import Node

PATTERN_CHARS_MAX = 1_000
_UTF_16_UNIT = 2


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text to search for, and the searched part of records."""

    text: str
    place: str = PLACES[0]
    is_regex: bool = False
    is_exact_case: bool = False


@dataclass(frozen=True, slots=True)
class Where:
    """A filter that records meet, as it is written."""

    text: str


@dataclass(frozen=True, slots=True)
class SameKey:
    """Records with exactly this key."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Chosen:
    """Records with these partitions and offsets."""

    offsets: frozenset[tuple[int, int]]


Sought = Pattern | Where
Match = Sought | SameKey | Chosen | None


def check(sought: Sought) -> None:
    """Raise PatternError for a regular expression that RE2 refuses, FilterError for an invalid filter."""
    _condition_of(sought)


def matches(match: Match, topic: str, record: RawRecord, payloads: Payloads) -> bool:
    """Return whether a record matches; without a match, each does. Raises FilterLimitError."""
    if match is None:
        return True
    if isinstance(match, SameKey):
        return record.key == match.key
    if isinstance(match, Chosen):
        return (record.partition, record.offset) in match.offsets
    if isinstance(match, Where):
        texts = [
            payloads[data] for data in (record.key, record.value) if data is not None and data in payloads
        ]
        if any(payload.is_cut for payload in texts):
            raise FilterLimitError("the JSON that its schema reads is too long for a filter")
    return _condition_of(match).matches(_fields(topic, record, payloads))


def marks(
    match: Match, topic: str, record: RawRecord, payloads: Payloads
) -> dict[str, list[tuple[int, int]]]:
    """Return the places of a record that match, in UTF-16 units as browsers count. Raises FilterLimitError."""
    if match is None or isinstance(match, SameKey | Chosen):
        return {}
    fields = _fields(topic, record, payloads)
    contents = {"key": fields.key, "value": fields.value}
    contents |= {f"header {number}": content for number, (_, content) in enumerate(fields.headers)}
    return {
        place: _in_units(contents[place].text or "", ranges)
        for place, ranges in _condition_of(match).marks(fields).items()
    }


def columns_of(columns: str, topic: str, record: RawRecord, payloads: Payloads) -> dict[str, str | None]:
    """Return the texts of columns in a record, by their names."""
    return texts_of(_columns(columns), _fields(topic, record, payloads))


def column_names(columns: str) -> list[str]:
    """Return the names of columns. Raises FilterError."""
    return [column.name for column in _columns(columns)]


def _in_units(text: str, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if text.isascii():
        return ranges
    units = [
        len(text[:end].encode("utf-16-le", "surrogatepass")) // _UTF_16_UNIT
        for pair in ranges
        for end in pair
    ]
    return [*zip(units[::2], units[1::2], strict=True)]


def _fields(topic: str, record: RawRecord, payloads: Payloads) -> Fields:
    return Fields(
        topic, record.partition, record.offset, record.timestamp, _content(record.key, payloads),
        _content(record.value, payloads), [(name, _content(data, payloads)) for name, data in record.headers],
    )  # fmt: skip


def _content(data: bytes | None, payloads: Payloads) -> Content:
    payload = None if data is None else payloads.get(data)
    if payload is None or payload.problem:
        return Content(data)
    return Content(payload.text.encode("utf-8", "replace"))


_columns = lru_cache(maxsize=16)(compile_columns)


@lru_cache(maxsize=16)
def _condition_of(sought: Sought) -> Node:
    if isinstance(sought, Where):
        return compile_filter(sought.text)
    text = sought.text if sought.is_regex else "".join(map(escaped, sought.text))
    return Search(compile_pattern(text, sought.text, ignores_case=not sought.is_exact_case), sought.place)
