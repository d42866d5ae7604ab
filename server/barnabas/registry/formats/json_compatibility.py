"""Changes of a JSON Schema: whether all that fits the old one fits the new one.

The rule: verdicts and their names are those of Confluent's registry, in its strict policy: an object or array that takes
what it does not name is open, and what is added to it can refuse what was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from barnabas.registry.errors import SchemaError
from barnabas.registry.formats.json_kinds import View, view
from barnabas.registry.formats.json_nodes import Node

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
PAIRS_MAX = 100_000
"""Pairs of schemas that a comparison looks at, at most."""
_CAPITAL = re.compile("(?=[A-Z])")
Change = tuple[str, str]
"""A kind of change, and its place below the schemas that are compared."""


def changes(old: Node, new: Node) -> list[Change]:
    """Return all changes that matter, or might. Raises Unresolvable, SchemaError."""
    refuted: dict[tuple[Any, Any], list[Change]] = {}
    while True:
        # A pair that is met again within itself is taken to fit. Where it turns out not to, what was built upon that is
        # found by another turn, until no more pairs turn out so.
        comparing = _Comparing(refuted)
        found = comparing.schemas(old, new)
        again = {pair: one for pair, one in comparing.known.items() if not fits(one)}
        if not comparing.has_assumed or again.keys() == refuted.keys():
            return found
        refuted = again


def fits(found: list[Change]) -> bool:
    """Say whether old documents still fit after these changes."""
    return all(kind in HARMLESS for kind, _ in found)


def breaks(new: Node, old: Node) -> list[str]:
    """Say which changes keep old documents from fitting."""
    return [
        f"{{errorType:'{kind}', description:'{kind.capitalize().replace('_', ' ')}', path:'{shown(path)}'}}"
        for kind, path in changes(old, new)
        if kind not in HARMLESS
    ]


def shown(path: str) -> str:
    """Return a place as it is written."""
    return f"#/{path}"


def _below(word: str, found: list[Change]) -> list[Change]:
    return [(kind, f"{word}/{path}".rstrip("/")) for kind, path in found]


class _Comparing:
    """One turn of a comparison."""

    def __init__(self, refuted: dict[tuple[Any, Any], list[Change]]) -> None:
        self.known: dict[tuple[Any, Any], list[Change]] = {}
        self.has_assumed = False
        self._refuted = refuted
        self._under_way: set[tuple[Any, Any]] = set()

    def schemas(self, old: Node | None, new: Node | None) -> list[Change]:
        """Return the changes from one schema to another, of which either may be absent."""
        if old is None or new is None:
            return [] if old is new else [("SCHEMA_ADDED" if old is None else "SCHEMA_REMOVED", "")]
        return self.views(view(old), view(new))

    def views(self, old: View, new: View) -> list[Change]:
        """Return the changes of schemas whose kinds are known, from memory if they were compared before."""
        pair = old.key, new.key
        if pair in self.known:
            return self.known[pair]
        if pair in self._under_way:
            self.has_assumed = self.has_assumed or pair not in self._refuted
            return self._refuted.get(pair, [])
        if len(self.known) > PAIRS_MAX:
            raise SchemaError("the schemas are too large to be compared")
        self._under_way.add(pair)
        found = self._compare(old, new)
        self._under_way.discard(pair)
        self.known[pair] = found
        return found

    def _compare(self, old: View, new: View) -> list[Change]:
        found = self._with_one_of_many(old, new)
        if found is not None:
            return found
        if old.kind != new.kind:
            if old.kind == "false" or new.kind == "empty" or (old.is_connect_bytes and new.is_connect_bytes):
                return []
            return [("TYPE_CHANGED", "")]
        found = list(_descriptions(old, new))
        compare = _BY_KIND.get(old.kind)
        return [*found, *compare(self, old, new)] if compare is not None else found

    def _with_one_of_many(self, old: View, new: View) -> list[Change] | None:
        """Return the changes from or to one of several schemas where that fits; None where it has to be said otherwise."""
        if (old.kind == "combined") == (new.kind == "combined"):
            return None
        many = new if new.kind == "combined" else old
        is_wider = many is new and many.criterion != "allOf"
        if len(many.members) > 1 and not is_wider and not (many is old and many.criterion == "allOf"):
            return None
        for one in many.members:
            found = self.views(old, one) if many is new else self.views(one, new)
            if fits(found):
                if len(many.members) == 1:
                    return found
                return [*found, ("SUM_TYPE_EXTENDED" if is_wider else "PRODUCT_TYPE_NARROWED", "")]
        return None

    def combined(self, old: View, new: View) -> Iterator[Change]:
        """Yield changes of schemas of which all, any or one have to fit."""
        if old.criterion != new.criterion:
            singles = [len(one.members) == 1 for one in (old, new)]
            is_wider = (
                new.criterion == "anyOf" or all(singles) or (singles[0] and new.criterion == "oneOf")
                or (singles[1] and old.criterion == "allOf")
            )  # fmt: skip
            yield "COMBINED_TYPE_EXTENDED" if is_wider else "COMBINED_TYPE_CHANGED", ""
            if not is_wider:
                return
        before, after = _distinct(old.members), _distinct(new.members)
        if len(before) < len(after):
            yield "PRODUCT_TYPE_EXTENDED" if new.criterion == "allOf" else "SUM_TYPE_EXTENDED", ""
        elif len(before) > len(after):
            yield "PRODUCT_TYPE_NARROWED" if old.criterion == "allOf" else "SUM_TYPE_NARROWED", ""
        edges: list[dict[int, list[Change]]] = []
        for one in before:
            found = {number: self.views(one, other) for number, other in enumerate(after)}
            edges.append({number: changed for number, changed in found.items() if fits(changed)})
        partners = _matching(edges)
        for number, partner in sorted(partners.items()):
            yield from _below(f"{old.criterion}/{number}", edges[number][partner])
        if len(partners) < min(len(before), len(after)):
            yield "COMBINED_TYPE_SUBSCHEMAS_CHANGED", ""

    def negation(self, old: View, new: View) -> Iterator[Change]:
        """Yield changes of what must not fit."""
        found = self.schemas(new.sub("not"), old.sub("not"))
        yield "NOT_TYPE_NARROWED" if fits(found) else "NOT_TYPE_EXTENDED", "not"

    def objects(self, old: View, new: View) -> Iterator[Change]:
        """Yield changes of objects."""
        before, after = old.properties, new.properties
        required = old.texts("required"), new.texts("required")
        for name in before:
            if name in after and (name in required[0]) != (name in required[1]):
                added = (
                    "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED"
                    if after[name].has_default
                    else "REQUIRED_ATTRIBUTE_ADDED"
                )
                yield "REQUIRED_ATTRIBUTE_REMOVED" if name in required[0] else added, f"required/{name}"
        for name in {**before, **after}:
            where = f"properties/{name}"
            if name not in after:
                yield from _below(where, self._removed("PROPERTY", before[name], new, name))
            elif name not in before:
                yield from _below(
                    where, self._added_property(after[name], old, name, is_required=name in required[1])
                )
            else:
                yield from _below(where, self.schemas(before[name].node, after[name].node))
        yield from self._dependencies(old, new)
        yield from self._rest(old, new, "additionalProperties", "ADDITIONAL_PROPERTIES")
        yield from self._unevaluated(old, new, "unevaluatedProperties", "UNEVALUATED_PROPERTIES")
        for word in ("maxProperties", "minProperties"):
            yield from _bound(old, new, word)

    def _removed(self, what: str, gone: View, new: View, name: str) -> list[Change]:
        """Return what it means that a property, or an item, is no longer named."""
        if new.is_open:
            return [(f"{what}_REMOVED_FROM_OPEN_CONTENT_MODEL", "")]
        covering = new.covering(name)
        if covering is not None:
            found = self.schemas(gone.node, covering)
            verdict = "IS" if fits(found) else "NOT"
            return [*found, (f"{what}_REMOVED_{verdict}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
        if view(gone.node).kind == "false":
            return [(f"{what}_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]
        return [(f"{what}_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]

    def _added_property(self, added: View, old: View, name: str, *, is_required: bool) -> list[Change]:
        how = "OPTIONAL_PROPERTY"
        if is_required:
            how = "REQUIRED_PROPERTY_WITH_DEFAULT" if added.has_default else "REQUIRED_PROPERTY"
        if old.is_open:
            if view(added.node).kind == "empty":
                return [("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", "")]
            return [(f"{how}_ADDED_TO_OPEN_CONTENT_MODEL", "")]
        found = self._added_to_covered("PROPERTY", added, old, name)
        return [*found, (f"{how}_ADDED_TO_UNOPEN_CONTENT_MODEL", "")]

    def _added_to_covered(self, what: str, added: View, old: View, name: str) -> list[Change]:
        covering = old.covering(name)
        if covering is None:
            return []
        found = self.schemas(covering, added.node)
        verdict = "IS" if fits(found) else "NOT"
        return [*found, (f"{what}_ADDED_{verdict}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]

    def _dependencies(self, old: View, new: View) -> Iterator[Change]:
        before, after = old.dependent_names, new.dependent_names
        for name in {**before, **after}:
            where = f"dependencies/{name}"
            if name not in after:
                yield "DEPENDENCY_ARRAY_REMOVED", where
            elif name not in before:
                yield "DEPENDENCY_ARRAY_ADDED", where
            elif before[name] != after[name]:
                more, less = before[name] < after[name], before[name] > after[name]
                yield f"DEPENDENCY_ARRAY_{'EXTENDED' if more else 'NARROWED' if less else 'CHANGED'}", where
        was, now = old.dependent_schemas, new.dependent_schemas
        for name in {**was, **now}:
            where = f"dependencies/{name}"
            if name not in now:
                yield "DEPENDENCY_SCHEMA_REMOVED", where
            elif name not in was:
                yield "DEPENDENCY_SCHEMA_ADDED", where
            else:
                yield from _below(where, self.schemas(was[name], now[name]))

    def _rest(self, old: View, new: View, word: str, what: str) -> Iterator[Change]:
        """Yield changes of what holds for all that is not named."""
        before, after = old.rest, new.rest
        refused = [one is not None and one.contents is False for one in (before, after)]
        if refused[0] != refused[1]:
            yield f"{what}_{'ADDED' if refused[0] else 'REMOVED'}", word
            return
        kept = [None if one is None or isinstance(one.contents, bool) else one for one in (before, after)]
        if kept[0] is None and kept[1] is not None:
            yield f"{what}_NARROWED", word
        elif kept[0] is not None and kept[1] is None:
            yield f"{what}_EXTENDED", word
        else:
            yield from _below(word, self.schemas(kept[0], kept[1]))

    def _unevaluated(self, old: View, new: View, word: str, what: str) -> Iterator[Change]:
        """Yield changes of what holds for all that nothing else has judged."""
        nodes = [old.unevaluated, new.unevaluated]
        if nodes[0] is None and nodes[1] is None:
            return
        kinds = ["absent" if one is None else view(one).kind for one in nodes]
        if (kinds[0] == "false") != (kinds[1] == "false"):
            yield f"{what}_{'ADDED' if kinds[0] == 'false' else 'REMOVED'}", word
        elif kinds[0] == "absent" or (kinds[0] == "empty" and kinds[1] not in ("empty", "absent")):
            yield f"{what}_NARROWED", word
        elif kinds[1] == "absent" or (kinds[1] == "empty" and kinds[0] != "empty"):
            yield f"{what}_EXTENDED", word
        else:
            yield from _below(word, self.schemas(nodes[0], nodes[1]))

    def arrays(self, old: View, new: View) -> Iterator[Change]:
        """Yield changes of arrays."""
        yield from _below("items", self.schemas(old.all_items, new.all_items))
        before, after = old.items, new.items
        for number in range(max(len(before), len(after))):
            where = f"items/{number}"
            if number >= len(after):
                yield from _below(where, self._removed("ITEM", before[number], new, ""))
            elif number < len(before):
                yield from _below(where, self.schemas(before[number].node, after[number].node))
            elif old.is_open:
                is_empty = view(after[number].node).kind == "empty"
                yield f"ITEM_{'WITH_EMPTY_SCHEMA_' if is_empty else ''}ADDED_TO_OPEN_CONTENT_MODEL", where
            else:
                found = self._added_to_covered("ITEM", after[number], old, "")
                yield from _below(where, found or [("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", "")])
        yield from self._rest(old, new, "additionalItems", "ADDITIONAL_ITEMS")
        yield from self._unevaluated(old, new, "unevaluatedItems", "UNEVALUATED_ITEMS")
        for word in ("maxItems", "minItems"):
            yield from _bound(old, new, word)
        unique = [one.get("uniqueItems") is True for one in (old, new)]
        if unique[0] != unique[1]:
            yield f"UNIQUE_ITEMS_{'REMOVED' if unique[0] else 'ADDED'}", "uniqueItems"
        for word in ("maxContains", "minContains"):
            yield from _bound(old, new, word)


def _descriptions(old: View, new: View) -> Iterator[Change]:
    if old.is_part or new.is_part:
        return
    if (old.get("$id") or old.get("id")) != (new.get("$id") or new.get("id")):
        yield "ID_CHANGED", ""
    for word in ("title", "description", "default"):
        if old.get(word) != new.get(word):
            yield f"{word.upper()}_CHANGED", ""


def _strings(_: _Comparing, old: View, new: View) -> Iterator[Change]:
    for word in ("maxLength", "minLength"):
        yield from _bound(old, new, word)
    before, after = old.get("pattern"), new.get("pattern")
    if before != after:
        yield f"PATTERN_{'ADDED' if before is None else 'REMOVED' if after is None else 'CHANGED'}", "pattern"


def _numbers(_: _Comparing, old: View, new: View) -> Iterator[Change]:
    for word in ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"):
        yield from _bound(old, new, word)
    before, after = (_fraction(one.get("multipleOf")) for one in (old, new))
    if before != after:
        how = "CHANGED"
        if before is None or after is None:
            how = "ADDED" if before is None else "REMOVED"
        elif before and (after / before).denominator == 1:
            how = "EXPANDED"
        elif after and (before / after).denominator == 1:
            how = "REDUCED"
        yield f"MULTIPLE_OF_{how}", "multipleOf"
    if old.is_integer != new.is_integer:
        yield "TYPE_EXTENDED" if old.is_integer else "TYPE_NARROWED", ""


def _fraction(value: Any) -> Fraction | None:
    return None if value is None else Fraction(str(value))


def _bound(old: View, new: View, word: str) -> Iterator[Change]:
    """Yield the change of a limit."""
    before, after = old.limit(word), new.limit(word)
    if before == after:
        return
    how = "ADDED" if before is None else "REMOVED" if after is None else ""
    if before is not None and after is not None:
        how = "INCREASED" if before < after else "DECREASED"
    yield f"{_CAPITAL.sub('_', word).upper()}_{how}", word


def _values(_: _Comparing, old: View, new: View) -> Iterator[Change]:
    word = "const" if old.kind == "const" else "enum"
    before, after = ([repr(one) for one in side.choices] for side in (old, new))
    if sorted(before) != sorted(after):
        more, less = set(before) <= set(after), set(after) <= set(before)
        yield f"ENUM_ARRAY_{'EXTENDED' if more else 'NARROWED' if less else 'CHANGED'}", word


def _distinct(members: list[View]) -> list[View]:
    found: list[View] = []
    for one in members:
        if not any(one.is_same(other) for other in found):
            found.append(one)
    return found


def _matching(edges: list[dict[int, list[Change]]]) -> dict[int, int]:
    """Pair as many of the one side with one each of the other as can be (augmenting paths)."""
    taken: dict[int, int] = {}

    def place(number: int, tried: set[int]) -> bool:
        for partner in edges[number]:
            if partner not in tried:
                tried.add(partner)
                if partner not in taken or place(taken[partner], tried):
                    taken[partner] = number
                    return True
        return False

    for number in range(len(edges)):
        place(number, set())
    return {number: partner for partner, number in taken.items()}


_BY_KIND: dict[str, Callable[[_Comparing, View, View], Iterator[Change]]] = {
    "string": _strings, "number": _numbers, "const": _values, "enum": _values, "combined": _Comparing.combined,
    "not": _Comparing.negation, "object": _Comparing.objects, "array": _Comparing.arrays,
}  # fmt: skip
