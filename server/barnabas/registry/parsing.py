"""Schemas understood, with what they refer to in the registry.

The rule: understanding and comparing takes as long as a schema is large, so it happens in a thread; what was understood is
kept for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import trio

from barnabas.registry import names, refusals
from barnabas.registry.errors import SchemaError
from barnabas.registry.formats import FORMATS, Dependency, Parsed, parse
from barnabas.registry.records import Version
from barnabas.registry.schemas import Reference, Schema
from barnabas.registry.state import State

T = TypeVar("T")

KEPT_MAX = 1_000
SCHEMA_CHARACTERS_MAX = 1024 * 1024
"""Length of a schema; Kafka's limit for a record keeps most topics from larger ones."""
THREADS_MAX = 2
"""Schemas that are understood or compared at a time: the interpreter has to do other things."""
LATEST = -1
"""A version that a reference may have, for the newest one."""


class Parsing:
    """Understands schemas, and remembers those that it has understood."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(THREADS_MAX)
        self._kept: dict[tuple[str, str, tuple[Dependency, ...]], Parsed] = {}

    async def parse(self, state: State, subject: str, schema: Schema, *, is_new: bool = False) -> Parsed:
        """Understand a schema of a subject. Raises RegistryError."""
        if len(schema.text) > SCHEMA_CHARACTERS_MAX:
            raise refusals.too_large()
        try:
            dependencies = tuple(dependencies_of(state, subject, schema.references))
            place = schema.format, schema.text, dependencies
            found = None if is_new else self._kept.get(place)
            if found is None:
                found = await self.beside(partial(parse, schema, dependencies, is_new=is_new))
                if len(self._kept) >= KEPT_MAX:
                    del self._kept[next(iter(self._kept))]
                self._kept[place] = found
            return found
        except SchemaError as error:
            known = "" if schema.format in FORMATS else f"; there are {', '.join(FORMATS)}"
            references = (
                f" with refs {[one.plain() for one in schema.references]}" if schema.references else ""
            )
            raise refusals.invalid_schema(
                f"Invalid schema{references} of type {schema.format}, details: {error}{known}"
            ) from None

    async def beside(self, work: Callable[..., T], *arguments: Any) -> T:
        """Do work that takes as long as a schema is large, in a thread."""
        return await trio.to_thread.run_sync(work, *arguments, limiter=self._limiter)

    async def of_version(self, state: State, version: Version) -> Parsed:
        """Understand a version that is there. Raises RegistryError."""
        return await self.parse(state, version.subject, version.schema)


def pinned(state: State, subject: str, schema: Schema) -> Schema:
    """Return a schema whose references name their versions."""
    if all(one.version != LATEST for one in schema.references):
        return schema
    found = []
    for one in schema.references:
        versions = state.versions(names.beside(subject, one.subject))
        is_latest = one.version == LATEST and versions
        found.append(replace(one, version=versions[-1].number) if is_latest else one)
    return replace(schema, references=tuple(found))


def dependencies_of(state: State, subject: str, references: Sequence[Reference]) -> list[Dependency]:
    """Return what a schema of a subject refers to, each after what it needs itself. Raises SchemaError."""
    known: dict[str, str] = {}
    _collect(state, subject, references, known, set())
    return list(known.items())


def _collect(
    state: State, subject: str, references: Sequence[Reference], known: dict[str, str], within: set[str]
) -> None:
    for one in references:
        if one.name in known or one.name in within:
            continue
        referred = names.beside(subject, one.subject)
        version = state.subjects.get(referred, {}).get(one.version)
        if version is None:
            raise SchemaError(
                f'No schema reference found for subject "{one.subject}" and version {one.version}'
            )
        within.add(one.name)
        _collect(state, referred, version.schema.references, known, within)
        within.discard(one.name)
        known[one.name] = version.schema.text
