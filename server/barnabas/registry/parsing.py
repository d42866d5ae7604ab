"""Schemas parsed and compared, with their references in the registry.

The rule: clients' schemas are parsed and compared in a sandbox (`work`), as their time and size may be large; this process
keeps only texts and verdicts. Schemas that could not be parsed or compared later are refused at registration.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from barnabas.registry import names, refusals, work
from barnabas.registry.errors import SchemaError
from barnabas.registry.formats import FORMATS
from barnabas.registry.records import Version
from barnabas.registry.references import Dependency, collecting
from barnabas.registry.schemas import SCHEMA_CHARACTERS_MAX, Reference, Schema
from barnabas.registry.state import State
from barnabas.registry.work import Source, Understood
from barnabas.sandbox.messages import SandboxError
from barnabas.sandbox.pool import Sandbox

__all__ = ["SCHEMA_CHARACTERS_MAX", "Parsing", "dependencies_of", "pinned", "refused", "source_of"]
T = TypeVar("T")

KEPT_CHARS_MAX = 32_000_000
"""Characters of schemas with results that are kept."""
BATCH_MAX = 100
"""Versions per call of the sandbox."""
BATCH_CHARS_MAX = SCHEMA_CHARACTERS_MAX
LATEST = -1
"""The version of a reference to the newest version."""


class Kept(dict[Source, T]):
    """A cache of results for schemas; the oldest are evicted."""

    def __init__(self, chars_max: int = KEPT_CHARS_MAX) -> None:
        super().__init__()
        self._chars_max = chars_max
        self._chars = 0

    def put(self, source: Source, result: T) -> None:
        """Keep a result."""
        self._chars += 0 if source in self else source.size
        self[source] = result
        while self._chars > self._chars_max and len(self) > 1:
            oldest = next(iter(self))
            self._chars -= oldest.size
            del self[oldest]


class Parsing:
    """Parses schemas, and caches the results."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._understood: Kept[Understood] = Kept()
        self._identities: Kept[bytes | None] = Kept()

    async def prepare(self) -> None:
        """Start the sandbox before the first schema needs it."""
        await self._sandbox.call(work.prepare, "AVRO")

    async def understand(
        self,
        state: State,
        subject: str,
        schema: Schema,
        *,
        is_new: bool = False,
        normalizes: bool = False,
        owner: Hashable = None,
    ) -> Understood:
        """Understand a schema of a subject. Raises RegistryError."""
        if len(schema.text) > SCHEMA_CHARACTERS_MAX:
            raise refusals.too_large()
        with refused(schema):
            source = source_of(state, subject, schema)
            understood = self._understood.get(source)
            if understood is None or (normalizes and understood.normalized is None):
                understood = await self._sandbox.call(work.understand, source, normalizes, owner=owner)
                self._understood.put(source, understood)
            if is_new and understood.objection:
                raise SchemaError(understood.objection)
            return understood

    def note(self, state: State, version: Version, identity: bytes) -> None:
        """Remember the identity of a version that was registered."""
        source = _source_or_none(state, version)
        if source is not None:
            self._identities.put(source, identity)

    async def identities(
        self, state: State, versions: Sequence[Version], owner: Hashable = None
    ) -> list[bytes | None]:
        """Return the identities of versions, None for an unparsable one."""
        sources = [_source_or_none(state, version) for version in versions]
        there = [source for source in sources if source is not None]
        results = {source: self._identities[source] for source in there if source in self._identities}
        for batch in batches([source for source in there if source not in results]):
            results |= await self._identities_of(batch, owner)
        return [None if source is None else results.get(source) for source in sources]

    async def _identities_of(self, batch: list[Source], owner: Hashable) -> dict[Source, bytes | None]:
        try:
            results = await self._sandbox.call(work.identities, batch, owner=owner)
        except SandboxError:
            if len(batch) == 1:
                return {}
            halves = batch[: len(batch) // 2], batch[len(batch) // 2 :]
            return {
                **await self._identities_of(halves[0], owner),
                **await self._identities_of(halves[1], owner),
            }
        for source, identity in zip(batch, results, strict=True):
            self._identities.put(source, identity)
        return dict(zip(batch, results, strict=True))

    async def differences(
        self,
        state: State,
        level: str,
        subject: str,
        schema: Schema,
        versions: Sequence[Version],
        owner: Hashable = None,
    ) -> tuple[Version, list[str]] | None:
        """Return the first version with which a schema is incompatible by a level, and the reasons, or None.

        Raises RegistryError.
        """
        with refused(schema):
            new = source_of(state, subject, schema)
            others = [source_of(state, version.subject, version.schema) for version in versions]
            begin = 0
            for batch in batches(others):
                place, reasons = await self._sandbox.call(work.differences, level, new, batch, owner=owner)
                if reasons:
                    return versions[begin + place], reasons
                begin += len(batch)
        return None

    async def written(
        self, state: State, version: Version, output_format: str, owner: Hashable = None
    ) -> str:
        """Return the text of a version in a format, see `work.written`. Raises RegistryError."""
        with refused(version.schema):
            source = source_of(state, version.subject, version.schema)
            return await self._sandbox.call(work.written, source, output_format, owner=owner)


@contextmanager
def refused(schema: Schema) -> Iterator[None]:
    """Convert errors of a schema, or of work that reaches a limit, to RegistryError."""
    try:
        yield
    except (SchemaError, SandboxError) as error:
        hint = "" if schema.format in FORMATS else f"; there are {', '.join(FORMATS)}"
        plain = [reference.plain() for reference in schema.references]
        references = f" with refs {plain}" if plain else ""
        raise refusals.invalid_schema(
            f"Invalid schema{references} of type {schema.format}, details: {error}{hint}"
        ) from None


def batches(sources: Sequence[Source]) -> Iterator[list[Source]]:
    """Split schemas into batches for one call of the sandbox each."""
    batch: list[Source] = []
    size = 0
    for source in sources:
        if batch and (len(batch) == BATCH_MAX or size + source.size > BATCH_CHARS_MAX):
            yield batch
            batch, size = [], 0
        batch.append(source)
        size += source.size
    if batch:
        yield batch


def pinned(state: State, subject: str, schema: Schema) -> Schema:
    """Return a schema with a version in each reference."""
    if all(reference.version != LATEST for reference in schema.references):
        return schema
    references = []
    for reference in schema.references:
        versions = state.versions(names.beside(subject, reference.subject))
        is_latest = reference.version == LATEST and versions
        references.append(replace(reference, version=versions[-1].number) if is_latest else reference)
    return replace(schema, references=tuple(references))


def source_of(state: State, subject: str, schema: Schema) -> Source:
    """Return a schema of a subject with its references. Raises SchemaError."""
    return Source(schema.format, schema.text, tuple(dependencies_of(state, subject, schema.references)))


def _source_or_none(state: State, version: Version) -> Source | None:
    try:
        return source_of(state, version.subject, version.schema)
    except SchemaError:
        return None


def dependencies_of(state: State, subject: str, references: Sequence[Reference]) -> list[Dependency]:
    """Return the references of a subject's schema, each after its own references.

    Raises SchemaError, also if their number, the length of their texts or of their chain is too large.
    """
    steps = collecting(subject, references)
    try:
        referring, reference = next(steps)
        while True:
            referred = names.beside(referring, reference.subject)
            version = state.subjects.get(referred, {}).get(reference.version)
            if version is None:
                place = f'subject "{reference.subject}" and version {reference.version}'
                raise SchemaError(f"No schema reference found for {place}")
            referring, reference = steps.send((referred, version.schema))
    except StopIteration as end:
        dependencies: list[Dependency] = end.value
        return dependencies
