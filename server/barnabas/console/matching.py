"""Records that hold a text, or what an RE2 matches, as they are shown: decoded by a schema, or in their bytes. Pure.

The rule: RE2's time grows with the text and not beyond, and yet with what the pattern is; so this runs in a child process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.console.decoding import Payloads, RawRecord

PATTERN_CHARS_MAX = 1_000
PLACES = ("anywhere", "key", "value", "headers")


class PatternError(Exception):
    """A pattern that RE2 does not take; the text says why."""


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
    """Raise PatternError for a pattern that RE2 does not take."""
    _search_of(pattern)


def matches(match: Match, record: RawRecord, payloads: Payloads) -> bool:
    """Say whether a record is looked for; all are without a match."""
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
    import re2

    options = re2.Options()
    options.case_sensitive = pattern.is_exact_case
    options.literal = not pattern.is_regex
    options.log_errors = False
    try:
        search = re2.compile(pattern.text, options=options).search
    except re2.error as error:
        reason = error.args[0] if error.args else "unreadable"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise PatternError(text) from None
    return lambda data: search(data) is not None
