"""Changes of a JSON Schema: whether all documents valid for the old schema are valid for the new one.

The rule: verdicts and their names are those of Confluent's registry, in its strict policy: an object or array that accepts
unnamed members is open, and a member added to its schema can refuse existing data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from fractions import Fraction
from typing import Any

from barnabas.registry.errors import SchemaError
from barnabas.registry.formats import comparing
from barnabas.registry.formats.comparing import Change, Comparison, Outcome, Pair, Rules, expand
from barnabas.registry.formats.json_kinds import View, view
from barnabas.registry.formats.json_nodes import Identities, Node

HARMLESS = {
    "ID_CHANGED", "DESCRIPTION_CHANGED", "TITLE_CHANGED", "DEFAULT_CHANGED", "SCHEMA_REMOVED", "TYPE_EXTENDED",
    "PATTERN_REMOVED", "MULTIPLE_OF_REDUCED", "MULTIPLE_OF_REMOVED", "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED",
    "REQUIRED_ATTRIBUTE_REMOVED", "DEPENDENCY_ARRAY_NARROWED", "DEPENDENCY_ARRAY_REMOVED", "DEPENDENCY_SCHEMA_REMOVED",
    "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL", "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
    "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
    "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "UNIQUE_ITEMS_REMOVED",
    "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
    "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
    "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "ENUM_ARRAY_EXTENDED", "COMBINED_TYPE_EXTENDED", "PRODUCT_TYPE_NARROWED", "SUM_TYPE_EXTENDED", "NOT_TYPE_NARROWED",
    *(
        f"{what}_{how}"
        for what in ("ADDITIONAL_PROPERTIES", "UNEVALUATED_PROPERTIES", "ADDITIONAL_ITEMS", "UNEVALUATED_ITEMS")
        for how in ("ADDED", "EXTENDED")
    ),
    *(
        f"{what}_{how}"
        for ends, how in (("MAX", "INCREASED"), ("MIN", "DECREASED"), ("MAX", "REMOVED"), ("MIN", "REMOVED"))
        for what in (
            f"{ends}_LENGTH", f"{ends}IMUM", f"EXCLUSIVE_{ends}IMUM", f"{ends}_PROPERTIES", f"{ends}_ITEMS",
            f"{ends}_CONTAINS",
        )
    ),
}  # fmt: skip
"""Changes after which old documents still fit."""
PATTERN_STEPS = 10
"""Steps that a pattern counts for which a name is looked for in."""
_CAPITAL = re.compile("(?=[A-Z])")
Compared = Generator[Pair, Outcome, Outcome]
"""Has a pair compared, and returns its outcome."""


def compare(old: Node, new: Node) -> Outcome:
    """Return the outcome of a comparison. Raises Unresolvable, SchemaError."""
    rules = _Rules()
    comparison = Comparison(rules.compare, lambda before, after: (before.key, after.key), HARMLESS)
    rules.spend = comparison.spend
    while True:
        # A pair that contains itself is assumed to fit. If that proves wrong, the comparison is repeated with the new
        # outcomes, until they no longer change.
        outcome = comparison.run(view(old), view(new))
        again = {pair: other for pair, other in comparison.known.items() if not other.fits}
        if not comparison.has_assumed or again.keys() == comparison.assumed.keys():
            return outcome
        comparison.assumed = again
        comparison.forget()


def changes(old: Node, new: Node) -> list[Change]:
    """Return all changes that matter, or might. Raises Unresolvable, SchemaError."""
    return list(expand(compare(old, new)))


def fits(changes: list[Change]) -> bool:
    """Return whether old documents still fit after these changes."""
    return all(kind in HARMLESS for kind, _ in changes)


def breaks(new: Node, old: Node) -> list[str]:
    """Return the changes that prevent old documents from fitting, as messages."""
    return comparing.messages(compare(old, new), _told)


def _told(kind: str, path: str, _: str) -> str:
    sentence = kind.capitalize().replace("_", " ")
    return f"{{errorType:'{kind}', description:'{sentence}', path:'{shown(path)}'}}"


def shown(path: str) -> str:
    """Return a place as it is written."""
    return f"#/{path}"


class _Rules:
    """Rules of a comparison of pairs of views."""

    def __init__(self) -> None:
        self.spend: Callable[[int], None] = lambda _: None
        self._identities = Identities()

    def compare(self, old: View, new: View, outcome: Outcome) -> Rules:
        """Compare schemas with known kinds."""
        if (yield from self._is_one_of_many(old, new, outcome)):
            return
        if old.kind != new.kind:
            if not (
                old.kind == "false" or new.kind == "empty" or (old.is_connect_bytes and new.is_connect_bytes)
            ):
                outcome.add("TYPE_CHANGED")
            return
        _descriptions(old, new, outcome)
        if old.kind in _RULES:
            yield from _RULES[old.kind](self, old, new, outcome)

    def _schemas(self, old: Node | None, new: Node | None) -> Compared:
        """Return the outcome of two schemas; either may be absent."""
        if old is None or new is None:
            outcome = Outcome(HARMLESS)
            if old is not new:
                outcome.add("SCHEMA_ADDED" if old is None else "SCHEMA_REMOVED")
            return outcome
        return (yield view(old), view(new))

    def _is_one_of_many(self, old: View, new: View, outcome: Outcome) -> Generator[Pair, Outcome, bool]:
        """Add the changes between a schema and a combination with a member that fits; False if this rule does not apply."""
        if (old.kind == "combined") == (new.kind == "combined"):
            return False
        many = new if new.kind == "combined" else old
        is_wider = many is new and many.criterion != "allOf"
        if len(many.parts) > 1 and not is_wider and not (many is old and many.criterion == "allOf"):
            return False
        for member in many.members:
            inner = yield (old, member) if many is new else (member, new)
            if inner.fits:
                outcome.include("", inner)
                if len(many.parts) > 1:
                    outcome.add("SUM_TYPE_EXTENDED" if is_wider else "PRODUCT_TYPE_NARROWED")
                return True
        return False

    def combined(self, old: View, new: View, outcome: Outcome) -> Rules:
        """Compare combinations: allOf, anyOf, oneOf."""
        if old.criterion != new.criterion:
            singles = [len(side.parts) == 1 for side in (old, new)]
            is_wider = (
                new.criterion == "anyOf" or all(singles) or (singles[0] and new.criterion == "oneOf")
                or (singles[1] and old.criterion == "allOf")
            )  # fmt: skip
            outcome.add("COMBINED_TYPE_EXTENDED" if is_wider else "COMBINED_TYPE_CHANGED")
            if not is_wider:
                return
        before, after = self._distinct(old.members), self._distinct(new.members)
        if len(before) < len(after):
            outcome.add("PRODUCT_TYPE_EXTENDED" if new.criterion == "allOf" else "SUM_TYPE_EXTENDED")
        elif len(before) > len(after):
            outcome.add("PRODUCT_TYPE_NARROWED" if old.criterion == "allOf" else "SUM_TYPE_NARROWED")
        partners = yield from self._partners(before, after)
        for number, inner in sorted(partners.items()):
            outcome.include(f"{old.criterion}/{number}", inner)
        if len(partners) < min(len(before), len(after)):
            outcome.add("COMBINED_TYPE_SUBSCHEMAS_CHANGED")

    def _distinct(self, members: list[View]) -> dict[Any, View]:
        """Return distinct members by their contents."""
        distinct: dict[Any, View] = {}
        for member in members:
            self.spend(1)
            contents = self._identities.of(member.node.contents)
            distinct.setdefault((*member.key[1:], contents), member)
        return distinct

    def _partners(
        self, before: dict[Any, View], after: dict[Any, View]
    ) -> Generator[Pair, Outcome, dict[int, Outcome]]:
        """Match as many members of the two sides that fit each other as possible (augmenting paths).

        A pair is compared when it is tried; an equal schema on the other side is tried first.
        """
        others = list(after.values())
        places = {key: place for place, key in enumerate(after)}
        rows = [(member, places.get(key)) for key, member in before.items()]
        taken: dict[int, tuple[int, Outcome]] = {}

        def candidates(row: int) -> Iterator[int]:
            same = rows[row][1]
            if same is not None:
                yield same
            yield from (place for place in range(len(others)) if place != same)

        for first in range(len(rows)):
            tried: set[int] = set()
            trail: list[tuple[int, Iterator[int]]] = [(first, candidates(first))]
            steps: list[tuple[int, Outcome]] = []
            while trail:
                row, places_left = trail[-1]
                place = next((place for place in places_left if place not in tried), None)
                if place is None:
                    trail.pop()
                    if steps:
                        steps.pop()
                    continue
                inner = yield rows[row][0], others[place]
                if not inner.fits:
                    continue
                tried.add(place)
                steps.append((place, inner))
                if place in taken:
                    trail.append((taken[place][0], candidates(taken[place][0])))
                    continue
                for (row, _), (place, inner) in zip(trail, steps, strict=True):
                    taken[place] = row, inner
                break
        return dict(taken.values())

    def negation(self, old: View, new: View, outcome: Outcome) -> Rules:
        """Compare schemas under `not`."""
        inner = yield from self._schemas(new.sub("not"), old.sub("not"))
        outcome.add("NOT_TYPE_NARROWED" if inner.fits else "NOT_TYPE_EXTENDED", "not")

    def objects(self, old: View, new: View, outcome: Outcome) -> Rules:
        """Compare objects."""
        before, after = old.properties, new.properties
        required = old.texts("required"), new.texts("required")
        self.spend(len(before) + len(after) + len(required[0]) + len(required[1]))
        for name in before:
            if name in after and (name in required[0]) != (name in required[1]):
                added = (
                    "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED"
                    if after[name].has_default
                    else "REQUIRED_ATTRIBUTE_ADDED"
                )
                outcome.add(
                    "REQUIRED_ATTRIBUTE_REMOVED" if name in required[0] else added, f"required/{name}"
                )
        for name in {**before, **after}:
            if name not in after:
                inner = yield from self._removed("PROPERTY", before[name], new, name)
            elif name not in before:
                inner = yield from self._added_property(
                    after[name], old, name, is_required=name in required[1]
                )
            else:
                inner = yield from self._schemas(before[name].node, after[name].node)
            outcome.include(f"properties/{name}", inner)
        yield from self._dependencies(old, new, outcome)
        yield from self._rest(old, new, outcome, "additionalProperties", "ADDITIONAL_PROPERTIES")
        yield from self._unevaluated(old, new, outcome, "unevaluatedProperties", "UNEVALUATED_PROPERTIES")
        _bounds(old, new, outcome, "maxProperties", "minProperties")

    def _covering(self, side: View, name: str) -> Node | None:
        """Return the schema that a property, or item, has that is not named."""
        patterns = side.get("patternProperties") if side.kind == "object" else None
        self.spend(1 + PATTERN_STEPS * len(patterns or ()))
        return side.covering(name)

    def _removed(self, what: str, gone: View, new: View, name: str) -> Compared:
        """Return the change for a property, or an item, that is no longer named."""
        outcome = Outcome(HARMLESS)
        if new.is_open:
            outcome.add(f"{what}_REMOVED_FROM_OPEN_CONTENT_MODEL")
            return outcome
        covering = self._covering(new, name)
        if covering is not None:
            inner = yield from self._schemas(gone.node, covering)
            outcome.include("", inner)
            verdict = "IS" if inner.fits else "NOT"
            outcome.add(f"{what}_REMOVED_{verdict}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
        elif view(gone.node).kind == "false":
            outcome.add(f"{what}_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")
        else:
            outcome.add(f"{what}_REMOVED_FROM_CLOSED_CONTENT_MODEL")
        return outcome

    def _added_property(self, added: View, old: View, name: str, *, is_required: bool) -> Compared:
        outcome = Outcome(HARMLESS)
        how = "OPTIONAL_PROPERTY"
        if is_required:
            how = "REQUIRED_PROPERTY_WITH_DEFAULT" if added.has_default else "REQUIRED_PROPERTY"
        if old.is_open:
            if view(added.node).kind == "empty":
                how = "PROPERTY_WITH_EMPTY_SCHEMA"
            outcome.add(f"{how}_ADDED_TO_OPEN_CONTENT_MODEL")
            return outcome
        outcome.include("", (yield from self._added_to_covered("PROPERTY", added, old, name)))
        outcome.add(f"{how}_ADDED_TO_UNOPEN_CONTENT_MODEL")
        return outcome

    def _added_to_covered(self, what: str, added: View, old: View, name: str) -> Compared:
        outcome = Outcome(HARMLESS)
        covering = self._covering(old, name)
        if covering is not None:
            inner = yield from self._schemas(covering, added.node)
            outcome.include("", inner)
            verdict = "IS" if inner.fits else "NOT"
            outcome.add(f"{what}_ADDED_{verdict}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
        return outcome

    def _dependencies(self, old: View, new: View, outcome: Outcome) -> Rules:
        before, after = old.dependent_names, new.dependent_names
        self.spend(sum(len(names) for side in (before, after) for names in side.values()))
        for name in {**before, **after}:
            where = f"dependencies/{name}"
            if name not in after:
                outcome.add("DEPENDENCY_ARRAY_REMOVED", where)
            elif name not in before:
                outcome.add("DEPENDENCY_ARRAY_ADDED", where)
            elif before[name] != after[name]:
                more, less = before[name] < after[name], before[name] > after[name]
                how = "EXTENDED" if more else "NARROWED" if less else "CHANGED"
                outcome.add(f"DEPENDENCY_ARRAY_{how}", where)
        was, now = old.dependent_schemas, new.dependent_schemas
        for name in {**was, **now}:
            where = f"dependencies/{name}"
            if name not in now:
                outcome.add("DEPENDENCY_SCHEMA_REMOVED", where)
            elif name not in was:
                outcome.add("DEPENDENCY_SCHEMA_ADDED", where)
            else:
                outcome.include(where, (yield from self._schemas(was[name], now[name])))

    def _rest(self, old: View, new: View, outcome: Outcome, word: str, what: str) -> Rules:
        """Compare the schemas of unnamed properties or items."""
        before, after = old.rest, new.rest
        refused = [side is not None and side.contents is False for side in (before, after)]
        if refused[0] != refused[1]:
            outcome.add(f"{what}_{'ADDED' if refused[0] else 'REMOVED'}", word)
            return
        kept = [None if side is None or isinstance(side.contents, bool) else side for side in (before, after)]
        if kept[0] is None and kept[1] is not None:
            outcome.add(f"{what}_NARROWED", word)
        elif kept[0] is not None and kept[1] is None:
            outcome.add(f"{what}_EXTENDED", word)
        else:
            outcome.include(word, (yield from self._schemas(kept[0], kept[1])))

    def _unevaluated(self, old: View, new: View, outcome: Outcome, word: str, what: str) -> Rules:
        """Compare the schemas of unevaluated properties or items."""
        nodes = [old.unevaluated, new.unevaluated]
        if nodes[0] is None and nodes[1] is None:
            return
        kinds = ["absent" if node is None else view(node).kind for node in nodes]
        if (kinds[0] == "false") != (kinds[1] == "false"):
            outcome.add(f"{what}_{'ADDED' if kinds[0] == 'false' else 'REMOVED'}", word)
        elif kinds[0] == "absent" or (kinds[0] == "empty" and kinds[1] not in ("empty", "absent")):
            outcome.add(f"{what}_NARROWED", word)
        elif kinds[1] == "absent" or (kinds[1] == "empty" and kinds[0] != "empty"):
            outcome.add(f"{what}_EXTENDED", word)
        else:
            outcome.include(word, (yield from self._schemas(nodes[0], nodes[1])))

    def arrays(self, old: View, new: View, outcome: Outcome) -> Rules:
        """Compare arrays."""
        outcome.include("items", (yield from self._schemas(old.all_items, new.all_items)))
        before, after = old.items, new.items
        self.spend(len(before) + len(after))
        for number in range(max(len(before), len(after))):
            where = f"items/{number}"
            if number >= len(after):
                outcome.include(where, (yield from self._removed("ITEM", before[number], new, "")))
            elif number < len(before):
                outcome.include(where, (yield from self._schemas(before[number].node, after[number].node)))
            elif old.is_open:
                is_empty = view(after[number].node).kind == "empty"
                outcome.add(
                    f"ITEM_{'WITH_EMPTY_SCHEMA_' if is_empty else ''}ADDED_TO_OPEN_CONTENT_MODEL", where
                )
            else:
                inner = yield from self._added_to_covered("ITEM", after[number], old, "")
                if not inner.items:
                    inner.add("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL")
                outcome.include(where, inner)
        yield from self._rest(old, new, outcome, "additionalItems", "ADDITIONAL_ITEMS")
        yield from self._unevaluated(old, new, outcome, "unevaluatedItems", "UNEVALUATED_ITEMS")
        _bounds(old, new, outcome, "maxItems", "minItems")
        unique = [side.get("uniqueItems") is True for side in (old, new)]
        if unique[0] != unique[1]:
            outcome.add(f"UNIQUE_ITEMS_{'REMOVED' if unique[0] else 'ADDED'}", "uniqueItems")
        _bounds(old, new, outcome, "maxContains", "minContains")

    def values(self, old: View, new: View, outcome: Outcome) -> Rules:
        """Compare enumerated values."""
        word = "const" if old.kind == "const" else "enum"
        sides = [sorted(map(self._identities.of, side.choices)) for side in (old, new)]
        self.spend(len(sides[0]) + len(sides[1]))
        if sides[0] != sides[1]:
            before, after = map(set, sides)
            how = "EXTENDED" if before <= after else "NARROWED" if after <= before else "CHANGED"
            outcome.add(f"ENUM_ARRAY_{how}", word)
        yield from ()

    def strings(self, old: View, new: View, outcome: Outcome) -> Rules:
        """Compare texts."""
        _bounds(old, new, outcome, "maxLength", "minLength")
        before, after = old.get("pattern"), new.get("pattern")
        if before != after:
            how = "ADDED" if before is None else "REMOVED" if after is None else "CHANGED"
            outcome.add(f"PATTERN_{how}", "pattern")
        yield from ()

    def numbers(self, old: View, new: View, outcome: Outcome) -> Rules:
        """Compare numbers."""
        _bounds(old, new, outcome, "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum")
        before, after = (_fraction(side.get("multipleOf")) for side in (old, new))
        if before != after:
            how = "CHANGED"
            if before is None or after is None:
                how = "ADDED" if before is None else "REMOVED"
            elif before and (after / before).denominator == 1:
                how = "EXPANDED"
            elif after and (before / after).denominator == 1:
                how = "REDUCED"
            outcome.add(f"MULTIPLE_OF_{how}", "multipleOf")
        if old.is_integer != new.is_integer:
            outcome.add("TYPE_EXTENDED" if old.is_integer else "TYPE_NARROWED")
        yield from ()


def _descriptions(old: View, new: View, outcome: Outcome) -> None:
    if old.is_part or new.is_part:
        return
    if (old.get("$id") or old.get("id")) != (new.get("$id") or new.get("id")):
        outcome.add("ID_CHANGED")
    for word in ("title", "description", "default"):
        if old.get(word) != new.get(word):
            outcome.add(f"{word.upper()}_CHANGED")


def _fraction(value: Any) -> Fraction | None:
    try:
        return None if value is None else Fraction(str(value))
    except (ValueError, OverflowError):
        raise SchemaError("multipleOf is out of range") from None


def _bounds(old: View, new: View, outcome: Outcome, *words: str) -> None:
    """Add the changes of limits."""
    for word in words:
        before, after = old.limit(word), new.limit(word)
        if before == after:
            continue
        how = "ADDED" if before is None else "REMOVED" if after is None else ""
        if before is not None and after is not None:
            how = "INCREASED" if before < after else "DECREASED"
        outcome.add(f"{_CAPITAL.sub('_', word).upper()}_{how}", word)


_RULES: dict[str, Callable[[_Rules, View, View, Outcome], Rules]] = {
    "string": _Rules.strings, "number": _Rules.numbers, "const": _Rules.values, "enum": _Rules.values,
    "combined": _Rules.combined, "not": _Rules.negation, "object": _Rules.objects, "array": _Rules.arrays,
}  # fmt: skip
