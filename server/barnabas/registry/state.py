"""Contents of a registry, built from the records of its topic.

The rule: the same records in the same order give the same contents; only records change them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from barnabas.registry import names
from barnabas.registry.records import Key, Record, Version, read_key, read_value, read_version
from barnabas.registry.records import key_data as written_key
from barnabas.registry.schemas import Schema

DEFAULT_LEVEL = "BACKWARD"
DEFAULT_MODE = "READWRITE"
Place = tuple[str, int]
"""A subject and a version number."""


class State:
    """Schemas, settings and modes."""

    def __init__(self) -> None:
        self.changes_of_names = 0
        """Number of times that a subject was added or removed."""
        self.clear()

    def clear(self) -> None:
        """Remove all content."""
        self.subjects: dict[str, dict[int, Version]] = {}
        """Versions of each subject in order, including deleted ones."""
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self.changes_of_names += 1
        self._subjects_of: Counter[str] = Counter()
        """Number of subjects of each context."""
        self._by_id: dict[tuple[str, int], dict[Place, None]] = {}
        self._ids: dict[tuple[str, bytes], int] = {}
        self._last_ids: dict[str, int] = {}
        self._referring: dict[Place, dict[Place, None]] = {}
        self._spellings: dict[Key, dict[bytes, None]] = {}
        """Keys that others have written in another way than this registry does, with the bytes that they have."""

    def apply(self, key_data: bytes | None, value_data: bytes | None) -> None:
        """Take a record."""
        key = read_key(key_data)
        if key is None or key_data is None:
            return
        self._note_spelling(key, key_data, is_gone=value_data is None)
        if key.kind == "SCHEMA":
            self._apply_version(key, value_data)
        elif key.kind in ("CONFIG", "MODE"):
            self._apply_setting(key, value_data)
        elif key.kind == "DELETE_SUBJECT" and value_data is not None:
            last = read_value(value_data).get("version")
            for version in [*self.subjects.get(key.subject or "", {}).values()]:
                if type(last) is int and version.number <= last and not version.is_deleted:
                    self.put(replace(version, is_deleted=True))
        elif key.kind == "CLEAR_SUBJECT" and value_data is not None:
            for version in [*self.versions_below(key.subject)]:
                if version.is_deleted:
                    self._remove(version)

    def _note_spelling(self, key: Key, data: bytes, *, is_gone: bool) -> None:
        key = key._replace(subject=key.subject or None)
        if is_gone:
            spellings = self._spellings.get(key, {})
            spellings.pop(data, None)
            if not spellings:
                self._spellings.pop(key, None)
        elif data != written_key(key):
            self._spellings.setdefault(key, {})[data] = None

    def _apply_version(self, key: Key, data: bytes | None) -> None:
        assert key.subject is not None
        assert key.version is not None
        existing = self.subjects.get(key.subject, {}).get(key.version)
        if data is None:
            if existing is not None:
                self._remove(existing)
            return
        version = read_version(data, key)
        if version is not None:
            self.put(version)

    def _apply_setting(self, key: Key, data: bytes | None) -> None:
        value = None if data is None else read_value(data)
        subject = key.subject or None
        if key.kind == "CONFIG":
            self.configs.pop(subject, None)
            if value is not None:
                self.configs[subject] = {
                    name: setting for name, setting in value.items() if name != "subject"
                }
        else:
            self.modes.pop(subject, None)
            if value is not None and isinstance(value.get("mode"), str):
                self.modes[subject] = value["mode"]

    def put(self, version: Version) -> None:
        """Store a version; it replaces an earlier one of the same number."""
        existing = self.subjects.get(version.subject, {}).get(version.number)
        if existing is not None:
            self._remove(existing, keeps_subject=True)
        context = names.context_of(version.subject)
        if version.subject not in self.subjects:
            self.changes_of_names += 1
            self._subjects_of[context] += 1
        versions = self.subjects.setdefault(version.subject, {})
        place = version.subject, version.number
        is_last = not versions or version.number > next(reversed(versions))
        versions[version.number] = version
        if not is_last:
            self.subjects[version.subject] = dict(sorted(versions.items()))
        self._by_id.setdefault((context, version.id), {})[place] = None
        self._ids.setdefault(self._identity(context, version.schema), version.id)
        self._last_ids[context] = max(self._last_ids.get(context, 0), version.id)
        for reference in version.schema.references:
            referred = names.beside(version.subject, reference.subject), reference.version
            self._referring.setdefault(referred, {})[place] = None

    def _remove(self, version: Version, *, keeps_subject: bool = False) -> None:
        place = version.subject, version.number
        versions = self.subjects[version.subject]
        del versions[version.number]
        context = names.context_of(version.subject)
        if not versions and not keeps_subject:
            del self.subjects[version.subject]
            self.changes_of_names += 1
            self._subjects_of[context] -= 1
        places = self._by_id[context, version.id]
        del places[place]
        if not places:
            del self._by_id[context, version.id]
            identity = self._identity(context, version.schema)
            if self._ids.get(identity) == version.id:
                del self._ids[identity]
        for reference in version.schema.references:
            self._referring[names.beside(version.subject, reference.subject), reference.version].pop(
                place, None
            )

    @staticmethod
    def _identity(context: str, schema: Schema) -> tuple[str, bytes]:
        """Return the identity of a schema: all parts that clients get."""
        everything = json.dumps([schema.format, schema.plain()], sort_keys=True)
        return context, blake2b(everything.encode(), digest_size=16).digest()

    def tombstones(self, kind: str, subject: str | None, version: int | None = None) -> list[Record]:
        """Return the tombstones of a key, one for each spelling in which the key was written.

        Compaction compares keys by their bytes: a record that another registry has written with the fields of its key in
        another order would reappear once the tombstone is removed.
        """
        key = Key(kind, subject, version)
        return [(data, None) for data in {written_key(key): None, **self._spellings.get(key, {})}]

    # --- queries ----------------------------------------------------------------------------------------------

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Return the versions of a subject in their order, with `deleted` including deleted ones."""
        return [
            version
            for version in self.subjects.get(subject, {}).values()
            if deleted or not version.is_deleted
        ]

    def versions_below(self, name: str | None) -> Iterator[Version]:
        """Yield all versions of a subject, of a context (a name without a subject), or of the default one (None)."""
        context, rest = names.split(name or "")
        if rest and name != names.GLOBAL:
            yield from self.subjects.get(name or "", {}).values()
            return
        for subject, versions in self.subjects.items():
            if subject == name or (not rest and names.context_of(subject) == context) or name == names.GLOBAL:
                yield from versions.values()

    def id_of(self, subject: str, schema: Schema) -> int | None:
        """Return the id of a schema in the context of a subject; None if it has none there."""
        return self._ids.get(self._identity(names.context_of(subject), schema))

    def next_id(self, subject: str) -> int:
        """Return an id that was never assigned in the subject's context."""
        return self._last_ids.get(names.context_of(subject), 0) + 1

    def last_id(self, subject: str) -> int:
        """Return the largest id of a context."""
        return self._last_ids.get(names.context_of(subject), 0)

    def with_id(self, context: str, schema_id: int) -> list[Version]:
        """Return all versions with an id, including deleted ones."""
        return [self.subjects[name][number] for name, number in self._by_id.get((context, schema_id), {})]

    def referring_to(self, subject: str, number: int, *, deleted: bool) -> list[Version]:
        """Return the versions that refer to a version, with `deleted` including deleted ones."""
        versions = [
            self.subjects[name][version] for name, version in self._referring.get((subject, number), {})
        ]
        return [version for version in versions if deleted or not version.is_deleted]

    def config(self, subject: str | None) -> dict[str, Any]:
        """Return the effective settings of a subject, from the nearest scope that has some; a level is always included."""
        for scope in names.scopes(subject):
            if scope in self.configs:
                return {"compatibilityLevel": DEFAULT_LEVEL, **self.configs[scope]}
        return {"compatibilityLevel": DEFAULT_LEVEL}

    def mode(self, subject: str | None) -> str:
        """Return the effective mode of a subject; an overriding mode takes precedence over its own."""
        scopes = [*reversed(names.scopes(subject))]
        if any(self.modes.get(scope) == "READONLY_OVERRIDE" for scope in scopes):
            return "READONLY_OVERRIDE"
        return next(
            (self.modes[scope] for scope in names.scopes(subject) if scope in self.modes), DEFAULT_MODE
        )

    def contexts(self) -> list[str]:
        """Return all contexts, the default one first."""
        contexts = {context for context, count in self._subjects_of.items() if count}
        return [names.DEFAULT, *sorted(contexts - {names.DEFAULT})]
