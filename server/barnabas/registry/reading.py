"""Contents of a registry as they are asked for: subjects, versions, ids, schemas.

The rule: what is deleted is told only to who asks for it, but for the schema of an id, which data may still name.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from barnabas.registry import names, refusals
from barnabas.registry.errors import RegistryError
from barnabas.registry.formats import FORMATS
from barnabas.registry.parsing import Parsing
from barnabas.registry.records import Version
from barnabas.registry.schemas import INT32_MAX
from barnabas.registry.state import State

LATEST = -1
_DIGITS_MAX = 20
May = Callable[[str], bool]
"""Says whether who asks may see a subject."""


def version_number(text: str) -> int:
    """Return the number of a version, LATEST for the newest one. Raises RegistryError."""
    if text in ("latest", "-1"):
        return LATEST
    number = _whole(text)
    if number is None or number < 1:
        raise refusals.invalid_version(text)
    return number


class Reading:
    """Answers from what is there."""

    def __init__(self, state: State, parsing: Parsing) -> None:
        self._state = state
        self._parsing = parsing

    def subjects(self, prefix: str, may: May, *, deleted: bool, deleted_only: bool) -> list[str]:
        """Return subjects whose names begin so, `:*:` for those of all contexts."""
        found = []
        for subject, versions in self._state.subjects.items():
            is_there = any(not one.is_deleted for one in versions.values())
            wanted = not is_there if deleted_only else is_there or deleted
            if wanted and _matches(prefix, subject) and may(subject):
                found.append(subject)
        return sorted(found)

    def schemas(self, prefix: str, may: May, *, deleted: bool, latest_only: bool) -> list[dict[str, Any]]:
        """Return versions of subjects whose names begin so."""
        found = []
        for subject in self.subjects(prefix, may, deleted=deleted, deleted_only=False):
            versions = self._state.versions(subject, deleted=deleted)
            found += [one.plain() for one in (versions[-1:] if latest_only else versions)]
        return found

    def numbers(self, subject: str, *, deleted: bool, deleted_only: bool) -> list[int]:
        """Return the versions of a subject. Raises RegistryError."""
        versions = self._state.versions(subject, deleted=deleted or deleted_only)
        if not versions:
            raise refusals.subject_not_found(subject)
        return [one.number for one in versions if one.is_deleted or not deleted_only]

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        """Return a version. Raises RegistryError."""
        versions = self._state.versions(subject, deleted=deleted)
        if not versions:
            raise refusals.subject_not_found(subject)
        if number == LATEST:
            return versions[-1]
        found = next((one for one in versions if one.number == number), None)
        if found is None:
            raise refusals.version_not_found(number)
        return found

    def latest_with(self, subject: str, wanted: dict[str, str], *, deleted: bool) -> Version:
        """Return the newest version whose metadata has these properties. Raises RegistryError."""
        versions = self._state.versions(subject, deleted=deleted)
        if not versions:
            raise refusals.subject_not_found(subject)
        for one in reversed(versions):
            properties = (one.schema.metadata or {}).get("properties") or {}
            if all(properties.get(name) == value for name, value in wanted.items()):
                return one
        raise refusals.schema_not_found()

    def referring_to(self, subject: str, number: int, *, deleted: bool) -> list[int]:
        """Return the ids of schemas that refer to a version. Raises RegistryError."""
        version = self.version(subject, number, deleted=True)
        found = self._state.referring_to(subject, version.number, deleted=deleted)
        return sorted({one.id for one in found})

    def with_id(self, schema_id: int, subject: str, may: May) -> list[Version]:
        """Return the versions with an id that may be seen, also deleted ones, those of a subject first.

        Where no subject is named, and the default context does not have the id, the other contexts are asked, as long as
        only one has it. Raises RegistryError.
        """
        context, rest = names.split(subject)
        found = self._state.with_id(context, schema_id)
        if not found and not subject:
            others = [self._state.with_id(one, schema_id) for one in self._state.contexts()[1:]]
            others = [one for one in others if one]
            found = others[0] if len(others) == 1 else []
        found = [one for one in found if may(one.subject)]
        if not found:
            raise refusals.schema_not_found(schema_id)
        return sorted(found, key=lambda one: (one.subject != names.join(context, rest), one.is_deleted))

    async def schema(self, version: Version, output_format: str, owner: Hashable = None) -> dict[str, Any]:
        """Return a version as it is answered: `serialized` has Protobuf as a descriptor, `resolved` Avro in one piece."""
        found = version.plain()
        if (output_format, version.schema.format) in (("serialized", "PROTOBUF"), ("resolved", "AVRO")):
            found["schema"] = await self._parsing.written(self._state, version, output_format, owner)
        return found

    def last_id(self, subject: str) -> int:
        """Return the largest id of a context."""
        return self._state.last_id(subject)

    def contexts(self, may: May) -> list[str]:
        """Return contexts with subjects that may be seen, and the default one."""
        seen = {names.context_of(one) for one in self._state.subjects if may(one)}
        return [one for one in self._state.contexts() if one == names.DEFAULT or one in seen]

    def config(self, subject: str | None, *, default_to_global: bool) -> dict[str, Any]:
        """Return the settings of a subject, or those that hold for it. Raises RegistryError."""
        found = self._state.configs.get(subject)
        if default_to_global or subject is None:
            return self._state.config(subject)
        if found is None:
            raise refusals.no_level(subject)
        return found

    def mode(self, subject: str | None, *, default_to_global: bool) -> dict[str, Any]:
        """Return the mode of a subject, or that which holds for it. Raises RegistryError."""
        if default_to_global or subject is None:
            return {"mode": self._state.mode(subject)}
        if subject not in self._state.modes:
            raise refusals.no_mode(subject)
        return {"mode": self._state.modes[subject]}


def types() -> list[str]:
    """Return the formats of schemas."""
    return list(FORMATS)


def number_of(text: str) -> int:
    """Return an id. Raises RegistryError."""
    number = _whole(text)
    if number is None:
        raise RegistryError(404, 404, f"HTTP 404 Not Found: {text[:20]!r} is no id")
    return number


def _whole(text: str) -> int | None:
    """Return a number from 0 to INT32_MAX; None for anything else, also for digits that are more than `int` takes."""
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
