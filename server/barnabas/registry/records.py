"""Records of a registry's topic, as Confluent's registry writes and reads them.

The rule: either registry can take over from the other, so only records that both understand are written, and unknown
records are skipped.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.registry.schemas import Schema

Record = tuple[bytes, bytes | None]
"""Key and value."""
MAGIC = {"SCHEMA": 1, "CONFIG": 0, "MODE": 0, "DELETE_SUBJECT": 0, "CLEAR_SUBJECT": 0, "NOOP": 0}
"""Kinds of records with the versions of their layout that are written."""
MAGICS_MAX = 1


@dataclass(frozen=True, slots=True)
class Version:
    """A schema as a version of a subject."""

    subject: str
    number: int
    id: int
    schema: Schema
    is_deleted: bool = False

    def plain(self) -> dict[str, Any]:
        """Return it as clients are answered."""
        place = {"subject": self.subject, "version": self.number, "id": self.id}
        return {**place, "schemaType": self.schema.format, **self.schema.plain()}


class Key(NamedTuple):
    """The key of a record; fields that its kind does not have are None."""

    kind: str
    subject: str | None = None
    version: int | None = None


def read_key(data: bytes | None) -> Key | None:
    """Return a key, None for an unknown one."""
    value = _object(data)
    kind = value.get("keytype")
    magic = value.get("magic", 0)
    if (
        not isinstance(kind, str)
        or kind not in MAGIC
        or type(magic) is not int
        or not 0 <= magic <= MAGICS_MAX
    ):
        return None
    subject, version = value.get("subject"), value.get("version")
    if not isinstance(subject, str | None) or (
        kind == "SCHEMA" and (subject is None or type(version) is not int)
    ):
        return None
    return Key(kind, subject, version if type(version) is int else None)


def read_value(data: bytes) -> dict[str, Any]:
    """Return the fields of a value; empty for an unknown one."""
    return _object(data)


def read_version(data: bytes, key: Key) -> Version | None:
    """Return the version in a record, None for an unknown record."""
    value = _object(data)
    schema_id = value.get("id")
    if type(schema_id) is not int or key.subject is None or key.version is None:
        return None
    try:
        return Version(key.subject, key.version, schema_id, Schema.of(value), value.get("deleted") is True)
    except ValueError:
        return None


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(data or b"null")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def schema_record(version: Version) -> Record:
    """Return the record of a version."""
    value = {
        "subject": version.subject,
        "version": version.number,
        "id": version.id,
        **version.schema.plain(),
        "deleted": version.is_deleted,
    }
    return key_data(Key("SCHEMA", version.subject, version.number)), _json(value)


def subject_record(kind: str, subject: str | None, value: dict[str, Any]) -> Record:
    """Return the record of a subject, or of all with None."""
    return key_data(Key(kind, subject)), _json({"subject": subject, **value})


def noop_record() -> Record:
    """Return a NOOP record; a registry that reads its own NOOP has reached the end of the topic."""
    return _json({"keytype": "NOOP", "magic": MAGIC["NOOP"]}), None


def key_data(key: Key) -> bytes:
    """Return a key as it is written; others have written the same key with its parts in another order."""
    version = {"version": key.version} if key.kind == "SCHEMA" else {}
    return _json({"keytype": key.kind, "subject": key.subject, **version, "magic": MAGIC[key.kind]})


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
