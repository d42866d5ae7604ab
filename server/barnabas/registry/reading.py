"""Queries of a registry: subjects, versions, ids, schemas.

The rule: deleted versions are shown only on request, except for the schema of an id, which records may still refer to.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Hashable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

import trio

from barnabas.registry import names, refusals
from barnabas.registry.access import Caller
from barnabas.registry.errors import RegistryError
from barnabas.registry.formats import FORMATS
from barnabas.registry.parsing import Parsing
from barnabas.registry.records import Version
from barnabas.registry.schemas import INT32_MAX
from barnabas.registry.state import DEFAULT_LEVEL, State

T = TypeVar("T")

LATEST = -1
STEP_SUBJECTS = 1000
"""Subjects per step, and per request to the broker."""
SORTED_SUBJECTS = 20_000
"""Subjects that are sorted in one step; merging many small parts would take longer."""
_DIGITS_MAX = 20


def version_number(text: str) -> int:
    """Parse a version number, LATEST for the newest one. Raises RegistryError."""
    if text.strip().lower() in ("latest", "-1"):
        return LATEST
    number = _whole(text)
    if number is None or number < 1:
        raise refusals.invalid_version(text)
    return number


class Page(NamedTuple):
    """The requested part of a list; a negative `limit` means no limit."""

    offset: int = 0
    limit: int = -1

    def of(self, items: list[T]) -> list[T]:
        """Return that part of a list."""
        return items[self.offset :] if self.limit < 0 else items[self.offset : self.offset + self.limit]

    def ends_within(self, items: Sequence[Any]) -> bool:
        """Return whether the page needs no items beyond these."""
        return 0 <= self.limit <= len(items) - self.offset


class Reading:
    """Read-only requests of the registry."""

    def __init__(self, state: State, parsing: Parsing) -> None:
        self._state = state
        self._parsing = parsing
        self._ordered_at = -1
        self._subjects_in_order: list[str] = []

    async def subjects(
        self, prefix: str, caller: Caller, page: Page, *, deleted: bool, deleted_only: bool
    ) -> list[str]:
        """Return the subjects with a prefix that the caller may read; the prefix `:*:` stands for all contexts."""
        matching: list[str] = []
        async with aclosing(
            self._subjects(prefix, caller, deleted=deleted, deleted_only=deleted_only)
        ) as some:
            async for subjects in some:
                matching += subjects
                if page.ends_within(matching):
                    break
        return page.of(matching)

    async def schemas(
        self, prefix: str, caller: Caller, page: Page, *, deleted: bool, latest_only: bool
    ) -> list[Version]:
        """Return the versions of subjects with a prefix that the caller may read."""
        matching: list[Version] = []
        async with aclosing(self._subjects(prefix, caller, deleted=deleted, deleted_only=False)) as some:
            async for subjects in some:
                for subject in subjects:
                    versions = self._state.versions(subject, deleted=deleted)
                    matching += versions[-1:] if latest_only else versions
                if page.ends_within(matching):
                    break
        return page.of(matching)

    async def _subjects(
        self, prefix: str, caller: Caller, *, deleted: bool, deleted_only: bool
    ) -> AsyncGenerator[list[str]]:
        """Yield the requested subjects that the caller may read, in order, in batches."""
        every = await self._ordered()
        for at in range(0, len(every), STEP_SUBJECTS):
            await trio.lowlevel.checkpoint()
            matching = []
            for subject in every[at : at + STEP_SUBJECTS]:
                versions = self._state.subjects.get(subject, {}).values()
                is_there = any(not version.is_deleted for version in versions)
                has_right_state = not is_there if deleted_only else is_there or deleted
                if versions and has_right_state and _matches(prefix, subject):
                    matching.append(subject)
            readable = await caller.readable(matching)
            yield [subject for subject in matching if subject in readable]

    async def _ordered(self) -> list[str]:
        """Return all subjects in the order of their names; kept until there are others."""
        if self._ordered_at != self._state.changes_of_names:
            at, every = self._state.changes_of_names, [*self._state.subjects]
            ordered: list[str] = []
            for begin in range(0, len(every), SORTED_SUBJECTS):
                ordered += sorted(every[begin : begin + SORTED_SUBJECTS])
                await trio.lowlevel.checkpoint()
            ordered.sort()  # parts that are in order take little
            self._ordered_at, self._subjects_in_order = at, ordered
        return self._subjects_in_order

    def numbers(self, subject: str, *, deleted: bool, deleted_only: bool) -> list[int]:
        """Return the versions of a subject. Raises RegistryError."""
        versions = self._state.versions(subject, deleted=deleted or deleted_only)
        if not versions:
            raise refusals.subject_not_found(subject)
        return [version.number for version in versions if version.is_deleted or not deleted_only]

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        """Return a version. Raises RegistryError."""
        versions = self._state.versions(subject, deleted=deleted)
        if not versions:
            raise refusals.subject_not_found(subject)
        if number == LATEST:
            return versions[-1]
        version = next((version for version in versions if version.number == number), None)
        if version is None:
            raise refusals.version_not_found(number)
        return version

    def latest_with(self, subject: str, expected: dict[str, str], *, deleted: bool) -> Version:
        """Return the newest version with these properties in its metadata. Raises RegistryError."""
        versions = self._state.versions(subject, deleted=deleted)
        if not versions:
            raise refusals.subject_not_found(subject)
        for version in reversed(versions):
            properties = (version.schema.metadata or {}).get("properties") or {}
            if all(properties.get(name) == value for name, value in expected.items()):
                return version
        raise refusals.schema_not_found()

    def referring_to(self, subject: str, number: int, *, deleted: bool) -> list[int]:
        """Return the ids of schemas that refer to a version. Raises RegistryError."""
        version = self.version(subject, number, deleted=True)
        referring = self._state.referring_to(subject, version.number, deleted=deleted)
        return sorted({version.id for version in referring})

    async def with_id(self, schema_id: int, subject: str, caller: Caller) -> list[Version]:
        """Return the versions with an id that the caller may read, also deleted ones, those of the subject first.

        Without a subject, if the default context does not have the id, the other contexts are searched; the id must be in
        only one of them. Raises RegistryError.
        """
        context, rest = names.split(subject)
        versions = self._state.with_id(context, schema_id)
        if not versions and not subject:
            others = [self._state.with_id(other, schema_id) for other in self._state.contexts()[1:]]
            others = [versions for versions in others if versions]
            versions = others[0] if len(others) == 1 else []
        readable = await caller.readable({version.subject for version in versions})
        versions = [version for version in versions if version.subject in readable]
        if not versions:
            raise refusals.schema_not_found(schema_id)
        return sorted(
            versions, key=lambda version: (version.subject != names.join(context, rest), version.is_deleted)
        )

    async def schema(self, version: Version, output_format: str, owner: Hashable = None) -> dict[str, Any]:
        """Return a version for a response: `serialized` is Protobuf as a descriptor, `resolved` Avro with references."""
        answer = version.plain()
        if (output_format, version.schema.format) in (("serialized", "PROTOBUF"), ("resolved", "AVRO")):
            answer["schema"] = await self._parsing.written(self._state, version, output_format, owner)
        return answer

    def last_id(self, subject: str) -> int:
        """Return the largest id of a context."""
        return self._state.last_id(subject)

    async def contexts(self, caller: Caller) -> list[str]:
        """Return the contexts with subjects that the caller may read, and the default one."""
        every = self._state.contexts()
        seen = {names.DEFAULT}
        async with aclosing(self._subjects(names.ALL, caller, deleted=True, deleted_only=False)) as some:
            async for subjects in some:
                seen.update(map(names.context_of, subjects))
                if len(seen) == len(every):
                    break
        return [context for context in every if context in seen]

    def config(self, subject: str | None, *, default_to_global: bool) -> dict[str, Any]:
        """Return the settings of a subject, or the effective ones, which always include a level. Raises RegistryError."""
        config = self._state.configs.get(subject)
        if default_to_global or subject is None:
            return self._state.config(subject)
        if config is None:
            raise refusals.no_level(subject)
        return {"compatibilityLevel": DEFAULT_LEVEL, **config}

    def mode(self, subject: str | None, *, default_to_global: bool) -> dict[str, Any]:
        """Return the mode of a subject, or the effective one. Raises RegistryError."""
        if default_to_global or subject is None:
            return {"mode": self._state.mode(subject)}
        if subject not in self._state.modes:
            raise refusals.no_mode(subject)
        return {"mode": self._state.modes[subject]}


def types() -> list[str]:
    """Return the formats of schemas."""
    return list(FORMATS)


def number_of(text: str) -> int:
    """Parse an id, whether or not a schema has it. Raises RegistryError for a text that is not a number."""
    number = _whole(text.removeprefix("-"))
    if number is None:
        raise RegistryError(404, 404, "HTTP 404 Not Found")
    return -number if text.startswith("-") else number


def _whole(text: str) -> int | None:
    """Parse a number from 0 to INT32_MAX; None for any other text."""
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS_MAX:
        return None
    number = int(text)
    return number if number <= INT32_MAX else None


def _matches(prefix: str, subject: str) -> bool:
    if prefix.startswith(names.ALL):
        return names.split(subject)[1].startswith(prefix.removeprefix(names.ALL))
    context, rest = names.split(prefix)
    own, name = names.split(subject)
    return own == context and name.startswith(rest)
