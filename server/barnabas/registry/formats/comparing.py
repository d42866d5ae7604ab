"""Comparison of two schemas, by pairs of their parts, for all formats.

The rule: a pair is compared once, even if many paths lead to it; nothing recurses on the depth of a schema; and the
steps of a comparison are bounded. A format provides rules: a generator for a pair, which yields the pairs that it depends
on and is sent their outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from barnabas.registry.errors import SchemaError

STEPS_MAX = 1_000_000
"""Steps of a comparison: pairs, and names, numbers and values that rules look at for them."""
PAIR_STEPS = 20
"""Steps of a pair that is compared for the first time."""
MESSAGES_MAX = 100
"""Differences in a list of messages."""
MESSAGE_CHARS_MAX = 1_000
"""Characters of a difference's text, and of its path."""
MESSAGES_CHARS_MAX = 64 * 1024
"""Characters of all differences in a list of messages."""
_COUNT_MAX = 1_000_000_000
Change = tuple[str, str]
"""A kind of change, and its place."""
Pair = tuple[Any, Any]
"""Two parts of schemas."""
Rules = Generator[Pair, "Outcome", None]


class TooLargeError(SchemaError):
    """A comparison takes more steps than it may."""


@dataclass(slots=True)
class Item:
    """A change of a pair, or with `outcome` the changes of an inner pair."""

    kind: str
    path: str
    text: str = ""
    outcome: Outcome | None = None


@dataclass(eq=False, slots=True)
class Outcome:
    """Changes of a pair: its own, and those of inner pairs, which outcomes share rather than copy."""

    harmless: Collection[str] = ()
    """Kinds of compatible changes."""
    fits: bool = True
    """False if a change is incompatible with existing data."""
    count: int = 0
    """Number of breaking changes, counted once for each path to a pair; capped at `_COUNT_MAX`."""
    items: list[Item] = field(default_factory=list)

    def add(self, kind: str, path: str = "", text: str = "") -> None:
        """Note a change of the pair itself."""
        self.items.append(Item(kind, path, text))
        if kind not in self.harmless:
            self.fits = False
            self.count = min(self.count + 1, _COUNT_MAX)

    def include(self, path: str, outcome: Outcome) -> None:
        """Note the changes of a pair at a path below this one; a path that begins with `#` is below the schemas."""
        if outcome.items:
            self.items.append(Item("", path, outcome=outcome))
            self.fits = self.fits and outcome.fits
            self.count = min(self.count + outcome.count, _COUNT_MAX)


FITS = Outcome()
"""Outcome of a pair without changes."""


class Comparison:
    """A comparison of two schemas by the rules of their format."""

    def __init__(
        self,
        rules: Callable[[Any, Any, Outcome], Rules],
        key: Callable[[Any, Any], Hashable],
        harmless: Collection[str] = (),
    ) -> None:
        """`rules` compare a pair and add to its outcome; pairs of the same `key` are the same pair."""
        self.known: dict[Hashable, Outcome] = {}
        self.assumed: dict[Hashable, Outcome] = {}
        """Outcomes of pairs that contain themselves; such a pair without an outcome is assumed to fit."""
        self.has_assumed = False
        """True once a pair was taken to fit."""
        self._rules = rules
        self._key = key
        self._harmless = harmless
        self._steps = STEPS_MAX

    def spend(self, steps: int) -> None:
        """Count steps. Raises TooLargeError where there are too many."""
        self._steps -= steps
        if self._steps < 0:
            raise TooLargeError("the schemas are too large to be compared")

    def forget(self) -> None:
        """Forget outcomes, to compare again under other assumptions; the count of steps is kept."""
        self.known = {}
        self.has_assumed = False

    def run(self, old: Any, new: Any) -> Outcome:
        """Return the outcome of a pair. Raises TooLargeError, and the errors of the rules."""
        stack: list[tuple[Hashable, Outcome, Rules]] = []
        under_way: set[Hashable] = set()
        pair: Pair | None = (old, new)
        outcome: Any = None
        while True:
            if pair is not None:
                self.spend(1)
                key = self._key(*pair)
                if key in self.known:
                    outcome = self.known[key]
                elif key in under_way:
                    self.has_assumed = self.has_assumed or key not in self.assumed
                    outcome = self.assumed.get(key, FITS)
                else:
                    self.spend(PAIR_STEPS)
                    under_way.add(key)
                    begun = Outcome(self._harmless)
                    stack.append((key, begun, self._rules(*pair, begun)))
                    outcome = None  # a generator's first `send` needs None
            key, begun, rules = stack[-1]
            try:
                pair = rules.send(outcome)
            except StopIteration:
                stack.pop()
                under_way.discard(key)
                self.known[key] = outcome = begun
                pair = None
                if not stack:
                    return begun


def expand(outcome: Outcome) -> Iterator[Change]:
    """Yield all changes with their full paths, those of a pair once for each path to it."""
    for item, place in _walk(outcome, is_whole=True, once=False):
        yield item.kind, _path(place, item.path)


def _walk(outcome: Outcome, *, is_whole: bool, once: bool) -> Iterator[tuple[Item, Any]]:
    """Yield changes, each with the chain of words above its place; unless `is_whole`, only breaking ones.

    With `once`, the changes of a pair are yielded a single time.
    """
    seen: set[int] = set()
    stack: list[tuple[Any, Iterator[Item]]] = [(None, iter(outcome.items))]
    while stack:
        place, items = stack[-1]
        item = next(items, None)
        if item is None:
            stack.pop()
        elif item.outcome is None:
            if is_whole or item.kind not in outcome.harmless:
                yield item, place
        elif (is_whole or not item.outcome.fits) and id(item.outcome) not in seen:
            if once:
                seen.add(id(item.outcome))
            before = None if item.path.startswith("#") else place
            stack.append(((before, item.path) if item.path else before, iter(item.outcome.items)))


def _path(place: Any, last: str) -> str:
    """Return the path of a place (a chain of words) and a last word."""
    words = [last] if last else []
    while place is not None:
        place, word = place
        words.append(word)
    return "/".join(reversed(words))


def messages(outcome: Outcome, tell: Callable[[str, str, str], str], *, once: bool = False) -> list[str]:
    """Return messages on breaking changes; `tell` words a kind, a path and a text. The last message counts omitted ones.

    With `once`, changes of a pair are listed a single time, even if many paths lead to it.
    """
    told: list[str] = []
    size = 0
    changes = _walk(outcome, is_whole=False, once=once)
    for item, place in changes:
        message = tell(item.kind, _cut(_path(place, item.path)), _cut(item.text))
        if len(told) == MESSAGES_MAX or size + len(message) > MESSAGES_CHARS_MAX:
            more = 1 + sum(1 for _ in changes) if once else outcome.count - len(told)
            return [*told, f"and {f'{more:,}' if more < _COUNT_MAX / 2 else 'very many'} more differences"]
        told.append(message)
        size += len(message)
    return told


def _cut(text: str) -> str:
    return text if len(text) <= MESSAGE_CHARS_MAX else f"{text[:MESSAGE_CHARS_MAX]}..."
