"""Levels of compatibility, and modes: of subjects, of contexts, and global ones.

The rule: settings without effect here are refused; those stored by another registry are returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.registry import names, refusals
from barnabas.registry.compatibility import LEVELS
from barnabas.registry.errors import RegistryError
from barnabas.registry.records import Record, subject_record
from barnabas.registry.refusals import MODES
from barnabas.registry.request_bodies import object_of
from barnabas.registry.state import DEFAULT_LEVEL, State
from barnabas.registry.store import Store

FLAGS = ("normalize",)
"""Settings besides the level that have an effect."""


class Setting:
    """Requests that change settings and modes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put_config(self, subject: str | None, body: Any) -> dict[str, Any]:
        """Change settings of a subject, or with None the global ones; returns the changed ones. Raises RegistryError."""
        changes = _config(body)
        _check_name(subject)

        async def decide(state: State) -> tuple[Sequence[Record], dict[str, Any]]:
            if state.mode(subject) in ("READONLY", "READONLY_OVERRIDE"):
                raise refusals.wrong_mode(subject, "in read-only")
            value = {**state.configs.get(subject, {}), **changes}
            value = {name: setting for name, setting in value.items() if setting is not None}
            shown = {name: setting for name, setting in value.items() if name != "compatibilityLevel"}
            if "compatibilityLevel" in value:
                shown["compatibility"] = value["compatibilityLevel"]
            return [subject_record("CONFIG", subject, value)], shown

        return await self._store.write(decide)

    async def delete_config(self, subject: str | None) -> dict[str, Any]:
        """Remove settings; returns the removed ones. Raises RegistryError."""

        async def decide(state: State) -> tuple[Sequence[Record], dict[str, Any]]:
            if subject is not None and subject not in state.configs:
                raise refusals.subject_not_found(subject)
            if state.mode(subject) in ("READONLY", "READONLY_OVERRIDE"):
                raise refusals.wrong_mode(subject, "in read-only")
            was = {"compatibilityLevel": DEFAULT_LEVEL, **(state.configs.get(subject) or {})}
            records = state.tombstones("CONFIG", subject) if subject in state.configs else []
            return records, was

        return await self._store.write(decide)

    async def put_mode(self, subject: str | None, body: Any, *, force: bool) -> dict[str, Any]:
        """Change the mode of a subject, or with None that of all. Raises RegistryError."""
        mode = str(object_of(body).get("mode")).upper()
        if mode not in MODES:
            raise refusals.invalid_mode()
        _check_name(subject)

        async def decide(state: State) -> tuple[Sequence[Record], dict[str, Any]]:
            records: list[Record] = []
            if mode == "IMPORT" and state.mode(subject) != "IMPORT" and not force:
                records = _emptied(state, subject)
            return [*records, subject_record("MODE", subject, {"mode": mode})], {"mode": mode}

        return await self._store.write(decide)

    async def delete_mode(self, subject: str | None, *, recursive: bool) -> dict[str, Any]:
        """Remove a mode, with `recursive` also the modes of all subjects of a context. Raises RegistryError."""

        async def decide(state: State) -> tuple[Sequence[Record], dict[str, Any]]:
            was = state.modes.get(subject)
            if was is None and not recursive:
                raise refusals.subject_not_found(str(subject))
            gone = [subject] if was is not None else []
            context, rest = names.split(subject or "")
            if recursive and not rest:
                gone += [
                    name
                    for name in state.modes
                    if name is not None and name != subject and names.context_of(name) == context
                ]
            return [record for name in gone for record in state.tombstones("MODE", name)], {"mode": was}

        return await self._store.write(decide)


def _check_name(subject: str | None) -> None:
    if subject is not None and not names.is_valid(subject, is_setting=True):
        raise refusals.invalid_subject(subject)


def _config(body: Any) -> dict[str, Any]:
    """Return settings to store; None for removed ones. Raises RegistryError."""
    config: dict[str, Any] = {}
    for name, value in object_of(body).items():
        if value is None:
            if name in ("compatibility", "compatibilityLevel", *FLAGS):
                config["compatibilityLevel" if name == "compatibility" else name] = None
        elif name in ("compatibility", "compatibilityLevel"):
            if not isinstance(value, str) or value.upper() not in LEVELS:
                raise refusals.invalid_level()
            config["compatibilityLevel"] = value.upper()
        elif name in FLAGS and isinstance(value, bool):
            config[name] = value
        else:
            raise RegistryError(
                422,
                422,
                f"this registry has no setting {name}={value}: there are compatibility and {', '.join(FLAGS)}",
            )
    return config


def _emptied(state: State, subject: str | None) -> list[Record]:
    """Return records that empty a subject for an import. Raises RegistryError if schemas are in use."""
    versions = [*state.versions_below(subject)]
    if any(not version.is_deleted for version in versions):
        raise refusals.not_permitted("Cannot import since found existing subjects")
    for version in versions:
        if state.referring_to(version.subject, version.number, deleted=True):
            raise refusals.referred_to(version.subject, version.number)
    records = [
        record
        for version in versions
        for record in state.tombstones("SCHEMA", version.subject, version.number)
    ]
    return [*records, subject_record("CLEAR_SUBJECT", subject, {})]
