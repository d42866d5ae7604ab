"""Choices of topics: by name and by pattern.

The rule: a text that is a valid topic name is a name, any other text is a regular expression for whole names. Expressions
never match internal topics, nor names that begin with two underscores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from barnabas.log.format.names import why_no_topic
from barnabas.patterns import PatternError
from barnabas.patterns import compile_pattern as re2_pattern
from barnabas.wire.generated.index import RECORDS
from barnabas_pipeline.errors import UsageError

HIDDEN = "__"


class Pattern(Protocol):
    """A compiled regular expression."""

    def fullmatch(self, text: str, /) -> object | None:
        """Return the match of a whole text, None if it does not match."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Topics of a load or a mirror: by name and by regular expression, without excluded topics."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


def parse_choice(topics: Iterable[str], excluded: Iterable[str]) -> Choice:
    """Parse `--topic` (each may list several, separated by commas) and `--exclude`. Raises UsageError."""
    names, patterns = [], []
    for name in (part.strip() for text in topics for part in text.split(",")):
        if not name:
            raise UsageError("a topic's name is empty")
        if why_no_topic(name):
            compile_pattern(name)
            patterns.append(name)
        else:
            names.append(name)
    for pattern in excluded:
        compile_pattern(pattern)
    return Choice(tuple(dict.fromkeys(names)), tuple(patterns), tuple(excluded))


def compile_pattern(text: str) -> Pattern:
    """Compile a regular expression of RE2, for `fullmatch`. Raises UsageError."""
    try:
        return re2_pattern(text)
    except PatternError as error:
        raise UsageError(f"{text!r} is neither a name nor a regular expression: {error.reason}") from None


def choose(choice: Choice, topics: Mapping[str, bool]) -> list[str]:
    """Return the chosen topics among those of a source (name: whether internal), without missing topics."""

    meant = [compile_pattern(text) for text in choice.patterns]
    excluded = [compile_pattern(text) for text in choice.excluded]

    def matches(patterns: Iterable[Pattern], name: str) -> bool:
        return any(pattern.fullmatch(name) for pattern in patterns)

    chosen = [name for name in choice.names if name in topics]
    for name, is_internal in sorted(topics.items()):
        hidden = is_internal or name in RECORDS or name.startswith(HIDDEN)
        if not hidden and name not in chosen and matches(meant, name):
            chosen.append(name)
    return [name for name in chosen if not matches(excluded, name)]
