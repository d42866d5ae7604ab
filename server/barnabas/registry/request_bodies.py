"""Bodies of requests; a field of the wrong type is an error.

The rule: fields without effect are not silently accepted. Stored schemas of other registries are read by `Schema.of`, which
is more lenient. Statuses and codes are those of Confluent's registry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from barnabas.registry import refusals
from barnabas.registry.errors import RegistryError
from barnabas.registry.formats import FORMATS
from barnabas.registry.schemas import AVRO, INT32_MAX, Reference, Schema

RULE_SETS = {
    "migrationRules": ("UPGRADE", "DOWNGRADE", "UPDOWN"),
    "domainRules": ("WRITE", "READ", "WRITEREAD"),
    "encodingRules": ("WRITE", "READ", "WRITEREAD"),
}
"""Sets of rules, with the modes that their rules may have."""
RULE_KINDS = ("TRANSFORM", "CONDITION")
RULE_MODES = ("UPGRADE", "DOWNGRADE", "UPDOWN", "WRITE", "READ", "WRITEREAD")
RULE_NAME_LENGTH_MAX = 256
_TEXTS_OF_RULE = ("name", "doc", "type", "expr", "onSuccess", "onFailure")


def object_of(body: Any) -> Mapping[str, Any]:
    """Return a body that is an object. Raises RegistryError."""
    if body is None:
        raise RegistryError(422, 422, "the body of the request must not be null")
    if not isinstance(body, dict):
        raise _wrong("the body of the request", "an object", body)
    return body


def schema_of(body: Any) -> Schema:
    """Return the schema of a request. Raises RegistryError."""
    value = object_of(body)
    text = _optional(value, "schema", str, "text")
    if text is None or not text.strip():
        raise refusals.invalid_schema("Empty schema")
    format_name = _optional(value, "schemaType", str, "text")
    if format_name is not None and format_name not in FORMATS:
        raise refusals.invalid_schema(f"Invalid schema type {format_name}: there are {', '.join(FORMATS)}")
    references = _optional(value, "references", list, "a list") or []
    metadata = _optional(value, "metadata", dict, "an object")
    rule_set = _optional(value, "ruleSet", dict, "an object")
    return Schema(
        AVRO if format_name is None else format_name,
        text,
        tuple(_reference(reference) for reference in references),
        None if metadata is None else _metadata(metadata),
        None if rule_set is None else _checked_rules(rule_set),
    )


def number_of(body: Mapping[str, Any], name: str) -> int | None:
    """Return an optional number of a request. Raises RegistryError."""
    number = body.get(name)
    if number is None:
        return None
    if type(number) is not int:
        raise _wrong(name, "a number", number)
    if not -1 <= number <= INT32_MAX:
        raise refusals.invalid_schema(f"{name} is a number from 1 to {INT32_MAX}")
    return number


def _optional(value: Mapping[str, Any], name: str, kind: type, words: str) -> Any:
    part = value.get(name)
    if part is not None and not isinstance(part, kind):
        raise _wrong(name, words, part)
    return part


def _reference(value: Any) -> Reference:
    if not isinstance(value, dict):
        raise _wrong("a reference", "an object", value)
    name, subject = (_optional(value, word, str, "text") for word in ("name", "subject"))
    version = value.get("version")
    if version is not None and type(version) is not int:
        raise _wrong("version", "a number", version)
    if not name or not subject or version is None:
        raise refusals.invalid_schema(
            f"Invalid schema: a reference has a name, a subject and a version: {value}"
        )
    return Reference(name, subject, version)


def _metadata(value: dict[str, Any]) -> dict[str, Any]:
    """Return metadata with properties that are text. Raises RegistryError."""
    properties = _optional(value, "properties", dict, "an object")
    tags = _optional(value, "tags", dict, "an object") or {}
    sensitive = _optional(value, "sensitive", list, "a list") or []
    for names in (*tags.values(), sensitive):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise _wrong("tags and sensitive", "lists of text", names)
    if properties is None:
        return value
    return {**value, "properties": {name: _as_text(content) for name, content in properties.items()}}


def _as_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str | None):
        return value
    raise _wrong("a property", "text", value)


def _checked_rules(value: dict[str, Any]) -> dict[str, Any]:
    """Return a rule set after checking its rules. Raises RegistryError."""
    names: set[str] = set()
    for modes, rule in _rules(value):
        name = _rule_name(rule)
        if name in names:
            raise refusals.invalid_rules(f"Found rule with duplicate name '{name}'")
        names.add(name)
        if rule.get("type") is None:
            raise refusals.invalid_rules(f"Missing rule type: {name}")
        mode = rule.get("mode") or "WRITEREAD"
        if mode not in modes:
            raise refusals.invalid_rules(
                f"rule {name} has the mode {mode}: {', '.join(modes)} are possible there"
            )
        for action in ("onSuccess", "onFailure"):
            if "," in (rule.get(action) or "") and mode not in ("WRITEREAD", "UPDOWN"):
                raise refusals.invalid_rules(f"Multiple actions only valid with WRITEREAD and UPDOWN: {name}")
    return value


def _rules(value: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield the rules of a set with the modes that they may have. Raises RegistryError for parts of the wrong kind."""
    for word, modes in RULE_SETS.items():
        for rule in _optional(value, word, list, "a list") or []:
            if not isinstance(rule, dict):
                raise _wrong("a rule", "an object", rule)
            for text in _TEXTS_OF_RULE:
                _optional(rule, text, str, "text")
            _optional(rule, "tags", list, "a list")
            _optional(rule, "params", dict, "an object")
            _optional(rule, "disabled", bool, "true or false")
            for one_of, possible in (("kind", RULE_KINDS), ("mode", RULE_MODES)):
                if rule.get(one_of) is not None and rule[one_of] not in possible:
                    raise _wrong(f"{one_of} of a rule", f"one of {', '.join(possible)}", rule[one_of])
            yield modes, rule


def _rule_name(rule: dict[str, Any]) -> str:
    name = str(rule.get("name") or "")
    if not name:
        raise refusals.invalid_rules("Missing rule name")
    rest = name.replace("_", "a").replace("-", "1")
    if len(name) > RULE_NAME_LENGTH_MAX or not rest.isalnum() or not rest[0].isalpha():
        raise refusals.invalid_rules(
            f"a rule is called by letters, digits, _ and -, at most {RULE_NAME_LENGTH_MAX}, a letter first: {name[:80]}"
        )
    return name


def _wrong(name: str, words: str, value: Any) -> RegistryError:
    return RegistryError(400, 400, f"{name} is {words}, not {str(value)[:80]!r}")
