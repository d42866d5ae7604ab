"""Schemas registered, looked up and compared.

The rule: a subject has a schema once; what fits its level of compatibility becomes its next version, under the id that the
same schema has elsewhere in its context, or a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from barnabas.registry import names, refusals
from barnabas.registry.compatibility import LEVELS, NONE, differences, is_transitive
from barnabas.registry.formats import Parsed
from barnabas.registry.parsing import Parsing, pinned
from barnabas.registry.records import Record, Version, schema_record
from barnabas.registry.request_bodies import number_of, schema_of
from barnabas.registry.schemas import Schema
from barnabas.registry.state import State
from barnabas.registry.store import Store


@dataclass(frozen=True, slots=True)
class Wanted:
    """A schema that is to be registered, or looked up."""

    schema: Schema
    normalize: bool = False
    version: int = 0
    """The number that it is to have; 0 for the next one."""
    id: int | None = None
    """The id that it is to have, in a registry to which schemas are imported."""

    @classmethod
    def of(cls, body: Any, *, normalize: bool) -> Wanted:
        """Read a request. Raises RegistryError."""
        schema = schema_of(body)
        version, schema_id = number_of(body, "version"), number_of(body, "id")
        return cls(
            schema,
            normalize,
            version if version and version > 0 else 0,
            schema_id if schema_id and schema_id > 0 else None,
        )


class Registering:
    """Requests with a schema."""

    def __init__(self, store: Store, parsing: Parsing) -> None:
        self._store = store
        self._parsing = parsing

    async def register(self, subject: str, wanted: Wanted, *, force: bool = False) -> Version:
        """Return the version of a subject that has a schema, a new one if none has. Raises RegistryError."""
        if not names.is_valid(subject):
            raise refusals.invalid_subject(subject)
        state = self._store.state
        found = await self._known(state, subject, wanted)
        if found is not None:  # as nearly always: each producer asks when it starts
            return found
        _check_mode(state, subject, wanted.id)

        async def decide(state: State) -> tuple[Sequence[Record], Version]:
            return await self._decide(state, subject, wanted, force=force)

        return await self._store.write(decide)

    async def _known(self, state: State, subject: str, wanted: Wanted) -> Version | None:
        found = await self.lookup(state, subject, wanted)
        if found is None or (wanted.id is not None and wanted.id != found.id):
            return None
        return found if wanted.version in (0, found.number) else None

    async def _decide(
        self, state: State, subject: str, wanted: Wanted, *, force: bool
    ) -> tuple[Sequence[Record], Version]:
        found = await self._known(state, subject, wanted)
        if found is not None:
            return [], found
        _check_mode(state, subject, wanted.id)
        imports = state.mode(subject) == "IMPORT"
        schema, parsed = await self._understood(state, subject, wanted, is_new=wanted.id is None)
        versions = state.versions(subject)
        if versions and not imports:
            schema = _inherited(schema, versions[-1].schema)
        if not imports and not force:
            details = await self.differences(state, subject, parsed, versions)
            if details:
                raise refusals.incompatible(subject, details)
        following = max((one.number for one in state.versions(subject, deleted=True)), default=0) + 1
        number = wanted.version or following
        if number != following and not imports:
            raise refusals.invalid_schema("Version is not one more than previous version")
        schema_id = _id(state, subject, wanted, schema)
        version = Version(subject, number, schema_id, schema)
        replaced = [
            tombstone
            for one in state.versions(subject, deleted=True)
            if one.is_deleted
            and one.id == schema_id
            and one.number < number
            and not state.referring_to(subject, one.number, deleted=True)
            for tombstone in state.tombstones("SCHEMA", subject, one.number)
        ]
        return [*replaced, schema_record(version)], version

    async def _understood(
        self, state: State, subject: str, wanted: Wanted, *, is_new: bool = False
    ) -> tuple[Schema, Parsed]:
        """Return a schema as it is kept. Raises RegistryError."""
        schema = pinned(state, subject, wanted.schema)
        parsed = await self._parsing.parse(state, subject, schema, is_new=is_new)
        if wanted.normalize or state.config(subject).get("normalize") is True:
            references = sorted(
                dict.fromkeys(schema.references), key=lambda one: (one.name, one.subject, one.version)
            )
            text = await self._parsing.beside(parsed.normalized)
            return replace(schema, text=text, references=tuple(references)), parsed
        return replace(schema, text=parsed.text), parsed

    async def lookup(
        self, state: State, subject: str, wanted: Wanted, *, deleted: bool = False
    ) -> Version | None:
        """Return the newest version of a subject that has a schema; None if none has. Raises RegistryError."""
        versions = state.versions(subject, deleted=deleted)
        schema, parsed = await self._understood(state, subject, wanted)
        if not versions:
            return None
        for one in reversed(versions):
            if _inherited(schema, one.schema) == one.schema:
                return one
        for one in reversed(versions):
            is_like = _inherited(replace(schema, text=one.schema.text), one.schema) == one.schema
            if is_like and schema.format == one.schema.format:
                other = await self._parsing.of_version(state, one)
                if other.canonical == parsed.canonical:
                    return one
        return None

    async def check(
        self, state: State, subject: str, wanted: Wanted, versions: Sequence[Version]
    ) -> list[str]:
        """Say why a schema does not fit versions of a subject; empty where it does. Raises RegistryError."""
        _, parsed = await self._understood(state, subject, wanted, is_new=True)
        return await self.differences(state, subject, parsed, versions)

    async def differences(
        self, state: State, subject: str, parsed: Parsed, versions: Sequence[Version]
    ) -> list[str]:
        """Say what breaks the level of compatibility of a subject. Raises RegistryError."""
        level = str(state.config(subject).get("compatibilityLevel", "")).upper()
        if level not in LEVELS or level == NONE:
            return []
        compared = versions if is_transitive(level) else versions[-1:]
        for one in reversed(compared):
            other = await self._parsing.of_version(state, one)
            details = await self._parsing.beside(differences, level, parsed, other)
            if details:
                place = f"{{oldSchemaVersion: {one.number}}}", f"{{oldSchema: '{one.schema.text}'}}"
                return [*details, *place, f"{{compatibility: '{level}'}}"]
        return []


def _inherited(schema: Schema, before: Schema) -> Schema:
    """Return a schema with the metadata and the rules of the one before it, where it brings none."""
    metadata = before.metadata if schema.metadata is None else schema.metadata
    rule_set = before.rule_set if schema.rule_set is None else schema.rule_set
    return replace(schema, metadata=metadata, rule_set=rule_set)


def _id(state: State, subject: str, wanted: Wanted, schema: Schema) -> int:
    """Return the id that a schema gets. Raises RegistryError where another one has the id that is wanted."""
    if wanted.id is None:
        known = state.id_of(subject, schema)
        return state.next_id(subject) if known is None else known
    for one in state.with_id(names.context_of(subject), wanted.id):
        if one.schema.text != schema.text or one.schema.format != schema.format:
            raise refusals.other_id(wanted.id)
    return wanted.id


def _check_mode(state: State, subject: str, schema_id: int | None) -> None:
    """Raise RegistryError where the mode of a subject forbids new schemas, or those with an id."""
    mode = state.mode(subject)
    if mode in ("READONLY", "READONLY_OVERRIDE"):
        raise refusals.wrong_mode(subject, "in read-only")
    if schema_id is not None and mode != "IMPORT":
        raise refusals.wrong_mode(subject, "not in import")
    if schema_id is None and mode == "IMPORT":
        raise refusals.wrong_mode(subject, "not in read-write")
