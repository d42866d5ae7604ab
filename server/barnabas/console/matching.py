"""Records with a text, or a match of a regular expression: in the decoded value, or in the bytes without a schema. Pure.

The rule: the time of a search grows with the pattern and with all records of a batch, so it runs in a child process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from barnabas.patterns import compile_pattern, escaped

if TYPE_CHECKING:
    from barnabas.console.decoding import Payloads, RawRecord

PATTERN_CHARS_MAX = 1_000
PLACES = ("anywhere", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text to look for, and where."""

    text: str
    place: str = PLACES[0]
    is_regex: bool = False
    is_exact_case: bool = False


@dataclass(frozen=True, slots=True)
class SameKey:
    """A key to look for, the whole of it."""

    key: bytes


Match = Pattern | SameKey | None


def check(pattern: Pattern) -> None:
    """Raise PatternError for a regular expression that RE2 refuses."""
    _search_of(pattern)


def matches(match: Match, record: RawRecord, payloads: Payloads) -> bool:
    """Return whether a record matches; without a match, each does."""
    if match is None:
        return True
    if isinstance(match, SameKey):
        return record.key == match.key
    search = _search_of(match)

    def holds(data: bytes | None) -> bool:
        if data is None:
            return False
        payload = payloads.get(data)
        is_decoded = payload is not None and not payload.problem
        return search(payload.text.encode("utf-8", "replace") if payload and is_decoded else data)

    is_anywhere = match.place == "anywhere"
    return (
        ((is_anywhere or match.place == "value") and holds(record.value))
        or ((is_anywhere or match.place == "key") and holds(record.key))
        or (
            (is_anywhere or match.place == "headers")
            and any(
                holds(name.encode("utf-8", "surrogateescape")) or holds(value)
                for name, value in record.headers
            )
        )
    )


@lru_cache(maxsize=16)
def _search_of(pattern: Pattern) -> Callable[[bytes], bool]:
    text = pattern.text if pattern.is_regex else "".join(map(escaped, pattern.text))
    search = compile_pattern(text, pattern.text, ignores_case=not pattern.is_exact_case).search
    return lambda data: search(data) is not None
