"""Deletion of versions and subjects: first by a mark, so that their ids can still be read, then permanently.

The rule: versions that other schemas refer to are not deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from barnabas.registry import refusals
from barnabas.registry.records import Record, Version, schema_record, subject_record
from barnabas.registry.state import State
from barnabas.registry.store import Store

LATEST = -1


class Removing:
    """Requests that delete schemas."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def version(self, subject: str, number: int, *, permanent: bool) -> int:
        """Delete a version; returns its number. Raises RegistryError."""

        async def decide(state: State) -> tuple[Sequence[Record], int]:
            _check_mode(state, subject)
            version = _version(state, subject, number, permanent=permanent)
            if state.referring_to(subject, version.number, deleted=permanent):
                raise refusals.referred_to(subject, version.number)
            if not permanent:
                return [schema_record(replace(version, is_deleted=True))], version.number
            records = state.tombstones("SCHEMA", subject, version.number)
            if len(state.subjects[subject]) == 1:
                records += _settings_gone(state, subject)
            return records, version.number

        return await self._store.write(decide)

    async def subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete all versions of a subject; returns their numbers. Raises RegistryError."""

        async def decide(state: State) -> tuple[Sequence[Record], list[int]]:
            _check_mode(state, subject)
            every = state.versions(subject, deleted=True)
            if not every:
                raise refusals.subject_not_found(subject)
            versions = every if permanent else state.versions(subject)
            if not versions:
                raise refusals.subject_deleted(subject)
            for version in versions:
                others = state.referring_to(subject, version.number, deleted=permanent)
                if any(other.subject != subject for other in others):
                    raise refusals.referred_to(subject, version.number)
                if permanent and not version.is_deleted:
                    raise refusals.subject_not_deleted(subject)
            numbers = [version.number for version in versions]
            if not permanent:
                return [subject_record("DELETE_SUBJECT", subject, {"version": numbers[-1]})], numbers
            records: list[Record] = []
            for number in reversed(numbers):
                records += state.tombstones("SCHEMA", subject, number)
            return [*records, *_settings_gone(state, subject)], numbers

        return await self._store.write(decide)


def _check_mode(state: State, subject: str) -> None:
    if state.mode(subject) in ("READONLY", "READONLY_OVERRIDE"):
        raise refusals.wrong_mode(subject, "in read-only")


def _version(state: State, subject: str, number: int, *, permanent: bool) -> Version:
    """Return the version to delete. Raises RegistryError."""
    every = {version.number: version for version in state.versions(subject, deleted=True)}
    if not every:
        raise refusals.subject_not_found(subject)
    if number == LATEST:
        versions = state.versions(subject, deleted=permanent)
        number = versions[-1].number if versions else max(every)
    if number not in every:
        if not state.versions(subject):
            raise refusals.subject_not_found(subject)
        raise refusals.version_not_found(number)
    version = every[number]
    if permanent and not version.is_deleted:
        raise refusals.version_not_deleted(subject, number)
    if not permanent and version.is_deleted:
        raise refusals.version_deleted(subject, number)
    return version


def _settings_gone(state: State, subject: str) -> list[Record]:
    config = state.tombstones("CONFIG", subject) if subject in state.configs else []
    return config + (state.tombstones("MODE", subject) if subject in state.modes else [])
