"""A place in a JSON Schema: its contents, and the resolution of its references."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import referencing

REFERENCES_MAX = 100
"""Longest chain of references that lead to references."""


@dataclass(eq=False, slots=True)
class Memory:
    """Results for places of a schema and its references, by the identity of their contents."""

    nodes: dict[int, Node] = field(default_factory=dict)
    targets: dict[int, Node] = field(default_factory=dict)
    views: dict[int, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """A schema within its document."""

    contents: Any
    resolver: Any
    specification: Any
    memory: Memory = field(default_factory=Memory)

    def below(self, contents: Any) -> Node:
        """Return a schema within this one; it may have its own `$id`."""
        node = self.memory.nodes.get(id(contents))
        if node is None:
            resource = referencing.Resource(contents, self.specification)
            node = Node(contents, self.resolver.in_subresource(resource), self.specification, self.memory)
            if not isinstance(contents, bool):
                self.memory.nodes[id(contents)] = node
        return node

    def target(self) -> Node:
        """Return the target of a reference, or the node itself if it is no reference. Raises Unresolvable."""
        node = self.memory.targets.get(id(self.contents), self)
        for _ in range(REFERENCES_MAX):
            name = node.contents.get("$ref") if isinstance(node.contents, dict) else None
            if not isinstance(name, str):
                if node is not self:
                    self.memory.targets[id(self.contents)] = node
                return node
            resolved = node.resolver.lookup(name)
            node = Node(resolved.contents, resolved.resolver, self.specification, self.memory)
        raise referencing.exceptions.Unresolvable(ref=str(self.contents.get("$ref")))

    def check(self) -> None:
        """Raise Unresolvable for a reference that leads nowhere, here or below."""
        nodes = [self]
        while nodes:
            node = nodes.pop()
            node.target()
            resource = referencing.Resource(node.contents, node.specification)
            nodes += [node.below(inner.contents) for inner in resource.subresources()]


class Identities:
    """Numbers of JSON values: the same for equal values; the order of names does not matter."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._containers: dict[int, int] = {}
        """Numbers of arrays and objects by `id`, which is stable during the comparison."""

    def of(self, value: Any) -> int:
        """Return the number of a value."""
        pending = [value]
        while pending:
            last = pending[-1]
            inner = _inner(last)
            missing = [other for other in inner if _is_container(other) and id(other) not in self._containers]
            if missing:
                pending += missing
                continue
            pending.pop()
            if _is_container(last):
                self._containers[id(last)] = self._number(self._shape(last))
        return self._containers[id(value)] if _is_container(value) else self._leaf(value)

    def _shape(self, value: Any) -> Any:
        if isinstance(value, dict):
            return frozenset((name, self._part(inner)) for name, inner in value.items())
        return tuple(self._part(inner) for inner in value)

    def _part(self, value: Any) -> int:
        return self._containers[id(value)] if _is_container(value) else self._leaf(value)

    def _leaf(self, value: Any) -> int:
        return self._number((type(value), value))

    def _number(self, shape: Any) -> int:
        return self._numbers.setdefault(shape, len(self._numbers))


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list)


def _inner(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
