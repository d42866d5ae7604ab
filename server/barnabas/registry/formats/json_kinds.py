"""Kinds of JSON Schemas, by which they are compared: of an object, an array, a string, one of several, ...

The rule: a schema with several statements, such as a type and an enum, is a combination like allOf; a schema with several
types is a combination like anyOf.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from barnabas.registry.formats.json_nodes import Node
from barnabas.registry.formats.json_patterns import finds

_WORDS = {
    "string": ("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": (
        "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains",
        "maxContains", "unevaluatedItems",
    ),
    "object": (
        "properties", "required", "minProperties", "maxProperties", "dependencies", "dependentRequired",
        "dependentSchemas", "patternProperties", "additionalProperties", "propertyNames", "unevaluatedProperties",
    ),
}  # fmt: skip
"""Keywords that imply the kind of a schema without a type."""
_KINDS = {"integer": "number"}
NEWEST = "draft2020-12"
_CRITERIA = ("allOf", "anyOf", "oneOf")
_EXCLUSIVE = {"maximum": "exclusiveMaximum", "minimum": "exclusiveMinimum"}


@dataclass(eq=False, slots=True)
class View:
    """A schema, or its part for one kind of values."""

    kind: str
    node: Node
    criterion: str = ""
    parts: list[View | Node] = field(default_factory=list)
    """Schemas of a combination; a Node is viewed lazily, since it may lead back to this schema."""
    is_integer: bool = False
    is_part: bool = False
    """True for one of several parts of a schema."""
    is_of_types: bool = False
    """True for a combination of several types, as distinct from one of schemas."""

    @property
    def members(self) -> list[View]:
        """The schemas of a combination."""
        return [part if isinstance(part, View) else view(part) for part in self.parts]

    @property
    def key(self) -> tuple[int, str, str, bool, bool]:
        """Identity of the schema, valid while its document exists."""
        contents = self.node.contents
        return id(contents), self.kind, self.criterion, self.is_integer, self.is_of_types

    def get(self, word: str) -> Any:
        """Return the value of a keyword, or None."""
        contents = self.node.contents
        return contents.get(word) if isinstance(contents, dict) else None

    def sub(self, word: str) -> Node | None:
        """Return the schema that a keyword has."""
        schema = self.get(word)
        return self.node.below(schema) if isinstance(schema, dict | bool) else None

    def subs(self, word: str) -> dict[str, Node]:
        """Return the schemas by name that a keyword has."""
        schemas = self.get(word)
        items = schemas.items() if isinstance(schemas, dict) else ()
        return {name: self.node.below(schema) for name, schema in items if isinstance(schema, dict | bool)}

    def texts(self, word: str) -> set[str]:
        """Return the names that a keyword lists."""
        names = self.get(word)
        return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()

    def limit(self, word: str) -> Any:
        """Return a limit; exclusive limits of draft 4 in the form of later drafts."""
        limit = self.get(word)
        if isinstance(limit, bool):
            return self.get(word.removeprefix("exclusive").lower()) if limit else None
        if word in _EXCLUSIVE and self.get(_EXCLUSIVE[word]) is True:
            return None
        return limit if isinstance(limit, int | float) else None

    @property
    def has_default(self) -> bool:
        """True for a schema with a default."""
        return isinstance(self.node.contents, dict) and "default" in self.node.contents

    @property
    def is_connect_bytes(self) -> bool:
        """True for bytes of Kafka Connect, which are written in two ways."""
        return bool(self.get("connect.type") == "bytes")

    @property
    def choices(self) -> list[Any]:
        """The enumerated values."""
        return [self.get("const")] if self.kind == "const" else list(self.get("enum"))

    @property
    def properties(self) -> dict[str, View]:
        """Properties as they are given, references not followed."""
        return {name: View("", schema) for name, schema in self.subs("properties").items()}

    @property
    def dependent_names(self) -> dict[str, set[str]]:
        """Properties that a property requires."""
        dependents = {**(self.get("dependencies") or {}), **(self.get("dependentRequired") or {})}
        return {name: set(names) for name, names in dependents.items() if isinstance(names, list)}

    @property
    def dependent_schemas(self) -> dict[str, Node]:
        """Schemas that apply if a property is present."""
        return {**self.subs("dependencies"), **self.subs("dependentSchemas")}

    @property
    def _has_prefix(self) -> bool:
        """True if `items` means earlier drafts' `additionalItems`: beside `prefixItems`, or a boolean in draft 2020-12."""
        is_rest = self.node.specification.name == NEWEST and isinstance(self.get("items"), bool)
        return is_rest or isinstance(self.get("prefixItems"), list)

    @property
    def items(self) -> list[View]:
        """Schemas of items by position."""
        schemas = self.get("prefixItems") if self._has_prefix else self.get("items")
        return [View("", self.node.below(schema)) for schema in schemas] if isinstance(schemas, list) else []

    @property
    def all_items(self) -> Node | None:
        """The schema that all items have."""
        return None if self._has_prefix else self.sub("items")

    @property
    def rest(self) -> Node | None:
        """The schema of properties, or items, that are not named."""
        if self.kind == "object":
            return self.sub("additionalProperties")
        if self._has_prefix:
            return self.sub("items")
        return self.sub("additionalItems")

    @property
    def unevaluated(self) -> Node | None:
        """The schema of unevaluated properties, or items."""
        return self.sub("unevaluatedProperties" if self.kind == "object" else "unevaluatedItems")

    @property
    def is_open(self) -> bool:
        """True if unnamed properties, or items, are allowed, with any value."""
        if self.rest is not None and self.rest.contents is not True:
            return False
        if self.kind == "object" and self.get("patternProperties"):
            return False
        return self.unevaluated is None or view(self.unevaluated).kind == "empty"

    def covering(self, name: str) -> Node | None:
        """Return the schema of an unnamed property or item; None if any value, or none, is allowed."""
        if self.kind == "object":
            for pattern, schema in self.subs("patternProperties").items():
                if finds(pattern, name):
                    return schema
        rest = self.rest
        if rest is not None and not isinstance(rest.contents, bool):
            return rest
        unevaluated = self.unevaluated
        is_absent = rest is None or rest.contents is True
        if is_absent and unevaluated is not None and view(unevaluated).kind not in ("empty", "false"):
            return unevaluated
        return None


def view(node: Node) -> View:
    """Return the view of a schema, or of its target if it is a reference. Raises Unresolvable."""
    seen: View | None = node.memory.views.get(id(node.contents))
    if seen is None:
        seen = _view(node)
        if not isinstance(node.contents, bool):
            node.memory.views[id(node.contents)] = seen
    return seen


def _view(node: Node) -> View:
    is_new = node.specification.name not in ("draft-03", "draft-04", "draft-06", "draft-07")
    contents = node.contents
    if isinstance(contents, dict) and "$ref" in contents:
        beside = [part for part in _parts(node) if part.kind != "empty"] if is_new else []
        if not beside:
            return view(node.target())
        return View("combined", node, "allOf", [node.target(), *beside])
    if isinstance(contents, bool):
        return View("empty" if contents else "false", node)
    parts = _parts(node)
    if not parts:
        return View("empty", node)
    if len(parts) == 1:
        parts[0].is_part = False
        return parts[0]
    return View("combined", node, "allOf", [*parts])


def _parts(node: Node) -> list[View]:
    """Return the keywords of a schema, a view for each."""
    contents: dict[str, Any] = node.contents
    parts = []
    for criterion in _CRITERIA:
        if isinstance(contents.get(criterion), list):
            members: list[View | Node] = [node.below(schema) for schema in contents[criterion]]
            parts.append(View("combined", node, criterion, members, is_part=True))
    types = contents.get("type")
    if isinstance(types, list):
        typed = [_typed(type_, node) for type_ in types]
        parts.append(typed[0] if len(typed) == 1 else _of_types(typed, node))
    elif isinstance(types, str):
        parts.append(_typed(types, node))
    else:
        for kind, words in _WORDS.items():
            if any(word in contents for word in words):
                parts.append(View(kind, node, is_part=True))
    if isinstance(contents.get("enum"), list):
        parts.append(View("enum", node, is_part=True))
    if "const" in contents:
        parts.append(View("const", node, is_part=True))
    if "not" in contents:
        parts.append(View("not", node, is_part=True))
    if "if" in contents:
        parts.append(View("conditional", node, is_part=True))
    return parts


def _of_types(typed: list[View], node: Node) -> View:
    return View("combined", node, "anyOf", [*typed], is_part=True, is_of_types=True)


def _typed(name: str, node: Node) -> View:
    return View(_KINDS.get(name, name), node, is_integer=name == "integer", is_part=True)
