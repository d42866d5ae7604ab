"""Known differences: each is a predicate on both responses with its reason, and must be removed once it no longer occurs.

    KnownDifference("versions v.*", ".*/MinVersion", "old versions are served", accepts=lower)

The rule: a difference that a predicate refuses counts as unknown; a known difference that a whole run has not seen is a
failure, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Answers = Mapping[str, Any]
"""All responses of one side so far, by label, in order."""


@dataclass(frozen=True)
class Difference:
    """A difference between two answers: the step, the path in the answer, and both values."""

    label: str
    path: str
    theirs: Any
    ours: Any
    whole: tuple[Any, Any] = field(default=(None, None), compare=False, repr=False)
    """Both responses that contain the values."""
    answers: tuple[Answers, Answers] = field(default=({}, {}), compare=False, repr=False)
    """All responses of each side in the scenario, if any."""
    step: str = field(default="", compare=False, repr=False)
    """The key of both answers in `answers`."""

    def __str__(self) -> str:
        return f"{self.label}: {self.path}: Kafka {self.theirs!r}, Barnabas {self.ours!r}"

    def holders(self) -> tuple[Any, Any]:
        """The structs of both answers that have the value as a field. Raises KeyError if they were not kept."""
        theirs, ours = (_holder(answer, self.path) for answer in self.whole)
        return theirs, ours


Predicate = Callable[[Difference], bool]
Patterns = str | tuple[str, ...]


@dataclass(frozen=True)
class KnownDifference:
    """A known difference: patterns of label and path, the reason, and the predicate.

    A whole run must see each pattern, and each alternative of a pattern, such as both of `create (a|b)`.
    """

    label: Patterns
    path: Patterns
    reason: str
    accepts: Predicate
    by_chance: str = ""
    """The reason why a run may not see it; empty if it must."""

    def covers(self, difference: Difference) -> bool:
        """Return whether this covers a difference; responses that the predicate cannot read are not covered."""
        try:
            is_one = difference.theirs != difference.ours and self._is_at(difference)
            return is_one and self.accepts(difference)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return False

    def unseen(self, differences: Iterable[Difference]) -> list[str]:
        """Return which patterns none of these differences has."""
        remaining = list(differences)
        by_label = [
            pattern
            for pattern in alternatives(self.label)
            if not any(_fits(pattern, d.label) for d in remaining)
        ]
        by_path = [
            pattern
            for pattern in alternatives(self.path)
            if not any(_fits(pattern, d.path) for d in remaining)
        ]
        return by_label + by_path

    def _is_at(self, difference: Difference) -> bool:
        return any(_fits(pattern, difference.label) for pattern in _several(self.label)) and any(
            _fits(pattern, difference.path) for pattern in _several(self.path)
        )


def judge(
    differences: Sequence[Difference],
    known_differences: Sequence[KnownDifference],
    *,
    complete: bool = True,
    together: bool = False,
) -> int:
    """Print differences; returns the number of unknown ones, and of known ones that were not seen.

    Unseen ones count only after a `complete` run; with `together`, differences of the same kind are shown in one line.
    The first known difference that covers a difference counts, so one that others always precede shows as unseen.
    """
    covered: list[list[Difference]] = [[] for _ in known_differences]
    unknown: list[Difference] = []
    for difference in differences:
        first = next((number for number, row in enumerate(known_differences) if row.covers(difference)), None)
        (unknown if first is None else covered[first]).append(difference)
    bad = len(unknown)
    kinds: dict[str, list[Difference]] = {}
    for difference in unknown:
        kind = f"{difference.path} {difference.theirs} {difference.ours}" if together else str(difference)
        kinds.setdefault(kind, []).append(difference)
    for alike in kinds.values():
        print(f"differs: {alike[0]}" + (f" (and {len(alike) - 1} like it)" if len(alike) > 1 else ""))
    for row, covered_by in zip(known_differences, covered, strict=True):
        if covered_by:
            print(f"known ({len(covered_by)}): {row.label}: {row.path}: {row.reason}")
        for pattern in row.unseen(covered_by) if complete and not row.by_chance else ():
            print(f"no longer there: {pattern}: {row.reason}")
            bad += 1
    return bad


def differences_between(path: str, theirs: Any, ours: Any) -> Iterable[tuple[str, Any, Any]]:
    """Differences between two answers: the path below `path`, and both values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in dict.fromkeys([*theirs, *ours]):
            if key not in theirs or key not in ours:
                yield f"{path}/{key}", theirs.get(key, "nothing"), ours.get(key, "nothing")
            else:
                yield from differences_between(f"{path}/{key}", theirs[key], ours[key])
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, pair in enumerate(zip(theirs, ours, strict=True)):
            yield from differences_between(f"{path}/{index}", *pair)
    elif theirs != ours or type(theirs) is not type(ours):
        yield path, theirs, ours


def differences_of(label: str, theirs: Any, ours: Any) -> list[Difference]:
    """Return the differences of both responses to a step."""
    pairs = differences_between("", theirs, ours)
    return [Difference(label, *pair, whole=(theirs, ours)) for pair in pairs]


def _several(patterns: Patterns) -> tuple[str, ...]:
    return (patterns,) if isinstance(patterns, str) else patterns


_CHOICE = re.compile(r"\(([^()|]*(?:\|[^()|]*)+)\)(?![?*+{])")
"""Alternatives in parentheses without inner parentheses or a quantifier."""


def alternatives(patterns: Patterns) -> Iterator[str]:
    """Yield the patterns with each choice of the alternatives in parentheses."""
    for pattern in _several(patterns):
        if choice := _CHOICE.search(pattern):
            before, after = pattern[: choice.start()], pattern[choice.end() :]
            yield from alternatives(tuple(f"{before}{part}{after}" for part in choice[1].split("|")))
        else:
            yield pattern


def _holder(answer: Any, path: str) -> Any:
    """The struct at the path but for its last part; keys may have slashes themselves."""
    parts = path.split("/")[1:]
    for first in range(1, len(parts)):
        key, rest = "/".join(parts[:first]), "/".join(("", *parts[first:]))
        if isinstance(answer, dict) and key in answer:
            return _holder(answer[key], rest)
        if isinstance(answer, list) and first == 1:
            return _holder(answer[int(key)], rest)
    if isinstance(answer, dict) and len(parts) == 1:
        return answer
    raise KeyError(path)


def _fits(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text, re.DOTALL) is not None
