"""Subscriptions by regular expression, with RE2's syntax and semantics as in Kafka. Pure.

The rule: the whole of a topic's name must match.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from barnabas.coordinators.groups.patterns import compile_pattern


@dataclass(frozen=True, slots=True)
class Resolved:
    """The topics that an expression matched, with the version of the metadata and the time."""

    topics: frozenset[str]
    version: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class _Matched:
    """The topics of a mapping that an expression matches."""

    among: Mapping[str, object]
    topics: frozenset[str]


_MATCHED_MAX = 256
NAMES_PER_STEP = 200
"""Names matched before other tasks may run: less than a millisecond."""
WORK_PER_STEP = 1_000_000
"""Instructions of the program per character of the names that are matched before other tasks may run: 4 ms at worst."""
_matched: OrderedDict[str, _Matched] = OrderedDict()
"""Last matches by expression: of a new mapping of topics only the difference is matched."""


def matching(text: str, names: Mapping[str, object]) -> frozenset[str]:
    """Return the names that match completely. Raises INVALID_REGULAR_EXPRESSION."""
    for _ in match_in_steps(text, names):
        pass
    return _matched[text].topics


def match_in_steps(text: str, names: Mapping[str, object]) -> Iterator[None]:
    """Prepare the result of `matching`: a step for each `NAMES_PER_STEP` new names, or for fewer if each may take long.

    Raises INVALID_REGULAR_EXPRESSION.
    """
    pattern = compile_pattern(text)
    match, size = pattern.fullmatch, pattern.programsize
    cached = _matched.get(text)
    if cached is not None and cached.among is names:
        _matched.move_to_end(text)
        return
    before: frozenset[str] = frozenset()
    new = list(names)
    if cached is not None:
        before = frozenset(name for name in cached.topics if name in names)
        new = [name for name in names if name not in cached.among]
    matches = []
    work, work_of_name = 0, WORK_PER_STEP // NAMES_PER_STEP
    for name in new:
        if match(name):
            matches.append(name)
        work += max(size * len(name), work_of_name)
        if work >= WORK_PER_STEP:
            work = 0
            yield
    _matched[text] = _Matched(names, before.union(matches))
    _matched.move_to_end(text)
    if len(_matched) > _MATCHED_MAX:
        _matched.popitem(last=False)
