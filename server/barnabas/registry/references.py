"""References of a schema, and their references, in the order of parsing.

The rule: their number, their length and the length of their chain are bounded; a registry checks new schemas, and a client
the registry's responses. A schema that could not be read later is not stored.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from barnabas.registry.errors import SchemaError
from barnabas.registry.schemas import SCHEMA_CHARACTERS_MAX, Reference, Schema

REFERENCES_MAX = 1_000
"""Schemas that a schema may refer to, itself or through others."""
REFERENCES_DEPTH_MAX = 100
"""Longest chain of references."""
REFERENCES_CHARS_MAX = 4 * SCHEMA_CHARACTERS_MAX
"""Length of all that a schema refers to."""
Dependency = tuple[str, str]
"""A referenced schema: its name in the reference, and its text."""
Place = tuple[str, Reference]
"""A subject, and a reference of one of its schemas."""


def collecting(
    subject: str, references: Sequence[Reference]
) -> Generator[Place, tuple[str, Schema], list[Dependency]]:
    """Return the references of a subject's schema, each after its own references.

    Yields references to look up, and is sent the subject and the schema of each. A name is looked up once, and a cyclic
    reference is skipped. Raises SchemaError beyond a bound.
    """
    dependencies: dict[str, str] = {}
    chain: dict[str, str] = {}
    """Names and their texts, each referenced by its predecessor."""
    pending: list[tuple[str, Iterator[Reference]]] = [(subject, iter(references))]
    size = 0
    while pending:
        referring, others = pending[-1]
        reference = next(others, None)
        if reference is None:
            pending.pop()
            if chain:
                name, text = chain.popitem()
                dependencies[name] = text
        elif reference.name not in dependencies and reference.name not in chain:
            referred, schema = yield referring, reference
            chain[reference.name] = schema.text
            size += len(schema.text)
            _check(len(dependencies) + len(chain), len(chain), size)
            pending.append((referred, iter(schema.references)))
    return list(dependencies.items())


def _check(count: int, depth: int, size: int) -> None:
    if count > REFERENCES_MAX:
        raise SchemaError(f"it refers to more than {REFERENCES_MAX:,} schemas, itself or through others")
    if depth > REFERENCES_DEPTH_MAX:
        raise SchemaError(f"it refers to others in a chain of more than {REFERENCES_DEPTH_MAX}")
    if size > REFERENCES_CHARS_MAX:
        raise SchemaError(f"what it refers to has more than {REFERENCES_CHARS_MAX:,} characters")
