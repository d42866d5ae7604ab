"""A place in a JSON Schema: what stands there, and how to get to what it refers to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import referencing

REFERENCES_MAX = 100
"""Longest chain of references that lead to references."""


@dataclass(frozen=True, slots=True)
class Node:
    """A schema within its document."""

    contents: Any
    resolver: Any
    specification: Any

    def below(self, contents: Any) -> Node:
        """Return a schema within this one, which may have an address of its own."""
        resource = referencing.Resource(contents, self.specification)
        return Node(contents, self.resolver.in_subresource(resource), self.specification)

    def target(self) -> Node:
        """Return what is referred to, itself where it refers to nothing. Raises Unresolvable."""
        found = self
        for _ in range(REFERENCES_MAX):
            name = found.contents.get("$ref") if isinstance(found.contents, dict) else None
            if not isinstance(name, str):
                return found
            resolved = found.resolver.lookup(name)
            found = Node(resolved.contents, resolved.resolver, self.specification)
        raise referencing.exceptions.Unresolvable(ref=str(self.contents.get("$ref")))

    def check(self) -> None:
        """Raise Unresolvable for a reference that leads nowhere, here or below."""
        self.target()
        resource = referencing.Resource(self.contents, self.specification)
        for one in resource.subresources():
            self.below(one.contents).check()
