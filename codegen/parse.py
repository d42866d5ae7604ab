"""From definition files to the model.

The rule: whatever Kafka publishes can be dropped in unchanged, so `//` comments are read over and spelling
variants (a default of `-1` or `"-1"`, a tag in quotes) mean the same. A key that is not known is an error: it
may change what the definition means.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from codegen.model import (
    NO_VERSIONS,
    OPEN_END,
    PRIMITIVES,
    Default,
    Field,
    FieldType,
    Message,
    SchemaError,
    Struct,
    Versions,
)

MESSAGE_KEYS = {
    "apiKey", "type", "listeners", "name", "validVersions", "deprecatedVersions", "flexibleVersions",
    "latestVersionUnstable", "fields", "commonStructs", "about",
}  # fmt: skip
FIELD_KEYS = {
    "name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "default", "ignorable", "mapKey",
    "entityType", "flexibleVersions", "zeroCopy", "fields", "about",
}  # fmt: skip
STRUCT_KEYS = {"name", "versions", "fields", "about"}
KINDS = {"request", "response", "header", "data", "coordinator-key", "coordinator-value", "metadata"}

_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*')
_VERSIONS = re.compile(r"(\d+)(?:(\+)|-(\d+))?")


def load_messages(root: Path) -> list[Message]:
    """Every definition below `root` in order of path, except the ones without any valid version."""
    paths = sorted(path for path in root.rglob("*.json") if path.parent != root)
    return [message for path in paths if (message := load_message(path)) is not None]


def load_message(path: Path) -> Message | None:
    """Parse one definition file; None if it says that no version of it is valid. Raises SchemaError."""
    return parse_message(path.read_text(encoding="utf-8"), path)


def parse_message(text: str, path: Path) -> Message | None:
    """Parse the text of a definition, with or without comments; `path` is for messages to people."""
    try:
        raw = json.loads(strip_comments(text))
    except json.JSONDecodeError as error:
        raise SchemaError(path.name, f"not JSON: {error}") from error
    _only_known(raw, MESSAGE_KEYS, path.name)
    valid = _versions(raw, "validVersions", path.name)
    if not valid:
        return None
    kind = _text(raw, "type", path.name)
    if kind not in KINDS:
        raise SchemaError(path.name, f"unknown type {kind!r}")
    structs: dict[str, Struct] = {}
    fields = _fields(raw, path.name, structs)
    for common in raw.get("commonStructs", []):
        _common_struct(common, path.name, structs)
    return Message(
        name=_text(raw, "name", path.name),
        kind=kind,
        api_key=raw.get("apiKey"),
        versions=valid,
        flexible=_versions(raw, "flexibleVersions", path.name),
        latest_unstable=bool(raw.get("latestVersionUnstable", False)),
        listeners=tuple(raw.get("listeners", ())),
        fields=fields,
        structs=structs,
        about=raw.get("about", ""),
        path=path,
    )


def strip_comments(text: str) -> str:
    """Remove `//` comments outside of strings."""
    return _STRING_OR_COMMENT.sub(lambda match: match[0] if match[0].startswith('"') else "", text)


def parse_versions(text: str, where: str) -> Versions:
    """`3`, `3-5`, `3+` or `none`."""
    if text == "none":
        return NO_VERSIONS
    match = _VERSIONS.fullmatch(text)
    if not match:
        raise SchemaError(where, f"{text!r} is no range of versions")
    first = int(match[1])
    last = OPEN_END if match[2] else int(match[3] or first)
    if last < first:
        raise SchemaError(where, f"the range of versions {text!r} is empty")
    return Versions(first, last)


def _common_struct(raw: dict[str, Any], where: str, structs: dict[str, Struct]) -> None:
    name = _text(raw, "name", where)
    where = f"{where}: {name}"
    _only_known(raw, STRUCT_KEYS, where)
    versions = _versions(raw, "versions", where)
    if name in structs:
        raise SchemaError(where, "the struct is defined twice")
    structs[name] = Struct(name, versions, (), "", where)
    structs[name] = Struct(name, versions, _fields(raw, where, structs), raw.get("about", ""), where)


def _fields(raw: dict[str, Any], where: str, structs: dict[str, Struct]) -> tuple[Field, ...]:
    return tuple(_field(field, where, structs) for field in raw["fields"])


def _field(raw: dict[str, Any], where: str, structs: dict[str, Struct]) -> Field:
    where = f"{where}: {_text(raw, 'name', where)}"
    _only_known(raw, FIELD_KEYS, where)
    spelled = _text(raw, "type", where)
    kind = FieldType(spelled.removeprefix("[]"), spelled.startswith("[]"))
    if kind.name.startswith("[]"):
        raise SchemaError(where, "an array of arrays has no encoding")
    tagged = _versions(raw, "taggedVersions", where)
    versions = _versions(raw, "versions", where) if "versions" in raw else tagged
    nullable = _versions(raw, "nullableVersions", where)
    if "fields" in raw:
        if kind.name in PRIMITIVES:
            raise SchemaError(where, f"a {kind.name} has no fields")
        if kind.name in structs:
            raise SchemaError(where, f"the struct {kind.name} is defined twice")
        structs[kind.name] = Struct(kind.name, versions, (), "", where)
        structs[kind.name] = Struct(kind.name, versions, _fields(raw, where, structs), "", where)
    return Field(
        name=raw["name"],
        type=kind,
        versions=versions,
        nullable=nullable,
        tagged=tagged,
        tag=int(raw["tag"]) if "tag" in raw else None,
        default=_default(raw.get("default"), kind, where),
        has_default=raw.get("default") not in (None, ""),
        ignorable=_flag(raw.get("ignorable", False)),
        map_key=_flag(raw.get("mapKey", False)),
        entity_type=raw.get("entityType", ""),
        flexible=_versions(raw, "flexibleVersions", where) if "flexibleVersions" in raw else None,
        about=raw.get("about", ""),
        where=where,
    )


def _default(raw: Any, kind: FieldType, where: str) -> Default:
    """The default as a value; what has none of its own gets that of its type (None stands for null)."""
    if kind.array or kind.is_struct:
        if raw in (None, "null"):
            return None
        raise SchemaError(where, f"the default of {kind} can only be null, not {raw!r}")
    name = kind.name
    try:
        if name == "bool":
            return {"true": True, "false": False, "": False, "none": False}[str(raw).lower()]
        if name == "float64":
            return 0.0 if raw in (None, "") else float(raw)
        if name in ("string", "bytes", "records"):
            return None if raw == "null" or (raw is None and name == "records") else str(raw or "")
        if name == "uuid":
            if raw not in (None, ""):
                raise ValueError("a uuid")
            return None
        return 0 if raw in (None, "") else int(str(raw), 0)
    except (KeyError, ValueError) as error:
        raise SchemaError(where, f"{raw!r} is no default for {kind}") from error


def _flag(raw: Any) -> bool:
    return raw is True or str(raw).lower() == "true"


def _versions(raw: dict[str, Any], key: str, where: str) -> Versions:
    return parse_versions(str(raw[key]), f"{where}: {key}") if key in raw else NO_VERSIONS


def _text(raw: dict[str, Any], key: str, where: str) -> str:
    if not isinstance(raw.get(key), str):
        raise SchemaError(where, f"has no {key!r}")
    text: str = raw[key]
    return text


def _only_known(raw: dict[str, Any], keys: set[str], where: str) -> None:
    unknown = sorted(set(raw) - keys)
    if unknown:
        raise SchemaError(where, f"unknown keys: {', '.join(unknown)}")
