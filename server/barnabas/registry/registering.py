"""Schemas registered, looked up and compared.

The rule: a subject has a schema once; a schema that fits its level of compatibility becomes its next version, with the id
that the same schema has elsewhere in its context, or a new id.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import trio

from barnabas.registry import names, refusals
from barnabas.registry.compatibility import LEVELS, NONE, is_transitive
from barnabas.registry.parsing import Parsing, pinned, refused, source_of
from barnabas.registry.records import Record, Version, schema_record
from barnabas.registry.request_bodies import number_of, schema_of
from barnabas.registry.schemas import Schema
from barnabas.registry.state import State
from barnabas.registry.store import Store
from barnabas.registry.work import Source

STEP_VERSIONS = 500
"""Versions that are compared in one step of the loop."""
PREPARED_SECONDS_MAX = 60.0
"""Timeout of a registration, which is prepared again after each concurrent change of its subject."""


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """A schema to register, or to look up."""

    schema: Schema
    normalize: bool = False
    version: int = 0
    """The requested version number; 0 for the next one."""
    id: int | None = None
    """The requested id, for imports; None for the next one."""

    @classmethod
    def of(cls, body: Any, *, normalize: bool) -> SchemaRequest:
        """Read a request. Raises RegistryError."""
        schema = schema_of(body)
        version, schema_id = number_of(body, "version"), number_of(body, "id")
        return cls(
            schema,
            normalize,
            version if version and version > 0 else 0,
            schema_id if schema_id and schema_id > 0 else None,
        )


@dataclass(frozen=True, slots=True)
class _Ground:
    """State of a subject upon which a decision was prepared."""

    versions: list[Version]
    """All versions of the subject, also deleted ones."""
    config: dict[str, Any]
    mode: str
    schema: Schema
    """The schema, its references with their versions."""
    source: Source
    """The schema with its references."""


class Registering:
    """Requests with a schema."""

    def __init__(self, store: Store, parsing: Parsing) -> None:
        self._store = store
        self._parsing = parsing

    async def register(
        self, subject: str, request: SchemaRequest, *, force: bool = False, owner: Hashable = None
    ) -> Version:
        """Return the version of a subject with a schema, a new version if none has it. Raises RegistryError.

        A schema is parsed and compared before the store's decision, as the store decides for one caller at a time; the
        decision is valid if the state that it was prepared from has not changed meanwhile.
        """
        if not names.is_valid(subject):
            raise refusals.invalid_subject(subject)
        state = self._store.state
        with trio.move_on_after(PREPARED_SECONDS_MAX):
            while True:
                existing = await self._known(state, subject, request, owner)
                if existing is not None:  # the usual case: each producer registers its schema when it starts
                    return existing
                _check_mode(state, subject, request.id)
                ground = self._ground(state, subject, request)
                schema, identity = await self._prepared(
                    state, subject, request, ground, force=force, owner=owner
                )

                async def decide(
                    state: State, ground: _Ground = ground, schema: Schema = schema
                ) -> tuple[Sequence[Record], Version | None]:
                    if ground != self._ground(state, subject, request):
                        return [], None
                    return _decided(state, subject, request, schema)

                version = await self._store.write(decide)
                if version is not None:
                    if not _normalizes(state, subject, request):  # which may change it
                        self._parsing.note(state, version, identity)
                    return version
        raise refusals.timed_out()

    @staticmethod
    def _ground(state: State, subject: str, request: SchemaRequest) -> _Ground:
        """Return the state that a decision about a schema depends on. Raises RegistryError."""
        schema = pinned(state, subject, request.schema)
        with refused(schema):
            source = source_of(state, subject, schema)
        versions = state.versions(subject, deleted=True)
        return _Ground(versions, state.config(subject), state.mode(subject), schema, source)

    async def _known(
        self, state: State, subject: str, request: SchemaRequest, owner: Hashable
    ) -> Version | None:
        version = await self.lookup(state, subject, request, owner=owner)
        if version is None or (request.id is not None and request.id != version.id):
            return None
        return version if request.version in (0, version.number) else None

    async def _prepared(
        self,
        state: State,
        subject: str,
        request: SchemaRequest,
        ground: _Ground,
        *,
        force: bool,
        owner: Hashable,
    ) -> tuple[Schema, bytes]:
        """Return the schema to store, and its identity, if it is compatible with the existing versions.

        Raises RegistryError.
        """
        schema, identity = await self._understood(
            state, subject, request, is_new=request.id is None, owner=owner
        )
        versions = [version for version in ground.versions if not version.is_deleted]
        if ground.mode == "IMPORT":
            return schema, identity
        if not force:
            details = await self._differences(state, subject, ground.schema, versions, owner)
            if details:
                raise refusals.incompatible(subject, details)
        return _inherited(schema, versions[-1].schema) if versions else schema, identity

    async def _understood(
        self, state: State, subject: str, request: SchemaRequest, *, is_new: bool = False, owner: Hashable
    ) -> tuple[Schema, bytes]:
        """Return a schema as it is kept, and its identity. Raises RegistryError."""
        schema = pinned(state, subject, request.schema)
        normalizes = _normalizes(state, subject, request)
        understood = await self._parsing.understand(
            state, subject, schema, is_new=is_new, normalizes=normalizes, owner=owner
        )
        if normalizes:
            references = sorted(
                dict.fromkeys(schema.references),
                key=lambda reference: (reference.name, reference.subject, reference.version),
            )
            schema = replace(schema, text=understood.normalized or "", references=tuple(references))
        else:
            schema = replace(schema, text=understood.text)
        return schema, understood.identity

    async def lookup(
        self,
        state: State,
        subject: str,
        request: SchemaRequest,
        *,
        deleted: bool = False,
        owner: Hashable = None,
    ) -> Version | None:
        """Return the newest version of a subject that has a schema; None if none has. Raises RegistryError."""
        versions = state.versions(subject, deleted=deleted)
        if not versions:
            return None
        schema, identity = await self._understood(state, subject, request, owner=owner)
        alike = [version for version in reversed(versions) if _is_alike(schema, version.schema)]
        for version in alike:
            if version.schema.text == schema.text:
                return version
        for begin in range(0, len(alike), STEP_VERSIONS):
            await trio.lowlevel.checkpoint()
            some = alike[begin : begin + STEP_VERSIONS]
            identities = await self._parsing.identities(state, some, owner)
            for version, other in zip(some, identities, strict=True):
                if other == identity:
                    return version
        return None

    async def check(
        self,
        state: State,
        subject: str,
        request: SchemaRequest,
        versions: Sequence[Version],
        owner: Hashable = None,
    ) -> list[str]:
        """Say why a schema does not fit versions of a subject; empty where it does. Raises RegistryError."""
        await self._understood(state, subject, request, is_new=True, owner=owner)
        return await self._differences(
            state, subject, pinned(state, subject, request.schema), versions, owner
        )

    async def _differences(
        self, state: State, subject: str, schema: Schema, versions: Sequence[Version], owner: Hashable
    ) -> list[str]:
        """Return the reasons why a schema breaks the subject's level of compatibility. Raises RegistryError."""
        level = str(state.config(subject).get("compatibilityLevel", "")).upper()
        if level not in LEVELS or level == NONE:
            return []
        compared = versions if is_transitive(level) else versions[-1:]
        broken = await self._parsing.differences(
            state, level, subject, schema, list(reversed(compared)), owner
        )
        if broken is None:
            return []
        version, details = broken
        place = f"{{oldSchemaVersion: {version.number}}}", f"{{oldSchema: '{version.schema.text}'}}"
        return [*details, *place, f"{{compatibility: '{level}'}}"]


def _normalizes(state: State, subject: str, request: SchemaRequest) -> bool:
    return request.normalize or state.config(subject).get("normalize") is True


def _decided(
    state: State, subject: str, request: SchemaRequest, schema: Schema
) -> tuple[Sequence[Record], Version]:
    """Return the version that a schema becomes, and the records for it. Raises RegistryError."""
    every = state.versions(subject, deleted=True)
    following = max((version.number for version in every), default=0) + 1
    number = request.version or following
    if number != following and state.mode(subject) != "IMPORT":
        raise refusals.invalid_schema("Version is not one more than previous version")
    schema_id = _id(state, subject, request, schema)
    version = Version(subject, number, schema_id, schema)
    replaced = [
        tombstone
        for older in every
        if older.is_deleted
        and older.id == schema_id
        and older.number < number
        and not state.referring_to(subject, older.number, deleted=True)
        for tombstone in state.tombstones("SCHEMA", subject, older.number)
    ]
    return [*replaced, schema_record(version)], version


def _is_alike(schema: Schema, other: Schema) -> bool:
    """Return whether two schemas are equal, except for their texts; missing metadata and rules are inherited."""
    return (
        schema.format == other.format
        and schema.references == other.references
        and (schema.metadata is None or schema.metadata == other.metadata)
        and (schema.rule_set is None or schema.rule_set == other.rule_set)
    )


def _inherited(schema: Schema, before: Schema) -> Schema:
    """Return a schema with the metadata and the rules of its predecessor, if it has none."""
    metadata = before.metadata if schema.metadata is None else schema.metadata
    rule_set = before.rule_set if schema.rule_set is None else schema.rule_set
    return replace(schema, metadata=metadata, rule_set=rule_set)


def _id(state: State, subject: str, request: SchemaRequest, schema: Schema) -> int:
    """Return the id for a schema. Raises RegistryError if another schema has the requested id."""
    if request.id is None:
        schema_id = state.id_of(subject, schema)
        return state.next_id(subject) if schema_id is None else schema_id
    for version in state.with_id(names.context_of(subject), request.id):
        if version.schema.text != schema.text or version.schema.format != schema.format:
            raise refusals.other_id(request.id)
    return request.id


def _check_mode(state: State, subject: str, schema_id: int | None) -> None:
    """Raise RegistryError if the mode of a subject forbids new schemas, or schemas with an id."""
    mode = state.mode(subject)
    if mode in ("READONLY", "READONLY_OVERRIDE"):
        raise refusals.wrong_mode(subject, "in read-only")
    if schema_id is not None and mode != "IMPORT":
        raise refusals.wrong_mode(subject, "not in import")
    if schema_id is None and mode == "IMPORT":
        raise refusals.wrong_mode(subject, "not in read-write")
