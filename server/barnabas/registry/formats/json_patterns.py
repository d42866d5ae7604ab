"""Patterns within JSON Schema, and values checked by schemas that have some.

The rule: a pattern is ECMAScript's and is matched by RE2 (`barnabas.patterns.ecma`), in every keyword with patterns and in
all referenced schemas; the CPU time of a check is bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import attrs
import jsonschema
import referencing
import referencing.jsonschema
from jsonschema.validators import extend, validator_for

from barnabas.patterns import PatternError
from barnabas.patterns.ecma import ecma_pattern
from barnabas.registry.errors import SchemaError

SECONDS_MAX = 5.0
"""Time of the processor that checking a value may take."""
MESSAGE_MAX = 1_000
"""Characters of the reason why a value is refused, which quotes it."""
SIZE_MAX = 500_000
"""Instructions of all patterns of a schema, compiled; a second's work."""
_ends: ContextVar[float] = ContextVar("_ends")
"""The end of the time for the check of a value, by the clock of its thread."""


def check_patterns(contents: Any, specification: Any) -> None:
    """Raise SchemaError for an unsupported pattern of a schema, or of an inner one."""
    size = 0
    resources = [referencing.Resource(contents, specification)]
    while resources:
        resource = resources.pop()
        schema = resource.contents
        if not isinstance(schema, dict):
            continue
        named = schema.get("patternProperties")
        for text in [schema.get("pattern"), *(named if isinstance(named, dict) else ())]:
            if isinstance(text, str):
                size += _of_schema(text).size
        if size > SIZE_MAX:
            raise SchemaError("its patterns are too many, or too large")
        resources += resource.subresources()


def check(validator: Any, value: Any) -> None:
    """Raise SchemaError for an invalid value, for an unsupported pattern, and if the check takes too long."""
    token = _ends.set(time.thread_time() + SECONDS_MAX)
    try:
        error = next(validator.iter_errors(value), None)
    finally:
        _ends.reset(token)
    if error is not None:
        text = f"{error.json_path}: {error.message}"
        raise SchemaError(text if len(text) <= MESSAGE_MAX else f"{text[:MESSAGE_MAX]}...")


@lru_cache(maxsize=16)
def checking(base: Any) -> Any:
    """Return the library's validator class for a draft, with RE2 in place of Python's patterns, also in references."""
    keywords = {name: keyword for name, keyword in _keywords(base).items() if name in base.VALIDATORS}
    checked = extend(base, keywords)
    fields = [(field.name, field.alias) for field in attrs.fields(checked) if field.init]

    def evolve(validator: Any, **changes: Any) -> Any:
        if time.thread_time() > _ends.get():
            raise SchemaError(f"it takes more than {SECONDS_MAX:g} s to check the value")
        schema = changes.setdefault("schema", validator.schema)
        draft = validator_for(schema, default=checked)
        for name, alias in fields:
            changes.setdefault(alias, getattr(validator, name))
        return (checked if draft is checked else checking(draft))(**changes)

    checked.evolve = evolve
    return checked


def _of_schema(text: str) -> Any:
    try:
        return ecma_pattern(text)
    except PatternError as error:
        raise SchemaError(f"the pattern {error}") from None


def finds(text: str, value: str) -> bool:
    """Return whether a pattern matches anywhere in a value. Raises SchemaError for an unsupported pattern."""
    try:
        return bool(_of_schema(text).finds(value))
    except PatternError as error:
        raise SchemaError(f"the pattern {error}") from None


# --- keywords -------------------------------------------------------------------------------------------------

Keyword = Callable[[Any, Any, Any, Any], Iterator[jsonschema.ValidationError] | None]


def _keywords(base: Any) -> dict[str, Keyword]:
    additional: Keyword = base.VALIDATORS["additionalProperties"]

    def additional_properties(validator: Any, rule: Any, value: Any, schema: Any) -> Any:
        if not validator.is_type(value, "object"):
            return None
        patterns = schema.get("patternProperties", {})
        others = {name: held for name, held in value.items() if not _any_finds(patterns, name)}
        rest = {keyword: held for keyword, held in schema.items() if keyword != "patternProperties"}
        return additional(validator, rule, others, rest)

    return {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": additional_properties,
        "unevaluatedProperties": _unevaluated_properties,
    }


def _any_finds(patterns: Any, name: str) -> bool:
    return any(finds(text, name) for text in patterns)


def _pattern(validator: Any, text: str, value: Any, _: Any) -> Iterator[jsonschema.ValidationError]:
    if validator.is_type(value, "string") and not finds(text, value):
        yield jsonschema.ValidationError(f"{value!r} does not match {text!r}")


def _pattern_properties(
    validator: Any, rules: Any, value: Any, _: Any
) -> Iterator[jsonschema.ValidationError]:
    if not validator.is_type(value, "object"):
        return
    for text, rule in rules.items():
        for name, held in value.items():
            if finds(text, name):
                yield from validator.descend(held, rule, path=name, schema_path=text)


def _unevaluated_properties(
    validator: Any, rule: Any, value: Any, schema: Any
) -> Iterator[jsonschema.ValidationError]:
    if not validator.is_type(value, "object"):
        return
    others = value.keys() - _evaluated(validator, value, schema, "unevaluatedProperties")
    for name in sorted(others):
        for _ in validator.descend(value[name], rule, path=name, schema_path=name):
            yield jsonschema.ValidationError(
                f"Unevaluated properties are not allowed ({name!r} was unexpected)"
            )
            break


def _evaluated(validator: Any, value: Any, schema: Any, besides: str = "") -> set[str]:
    """Return the names of properties that a schema evaluates, except by its keyword `besides`."""
    if not isinstance(schema, dict):
        return set()
    names: set[str] = value.keys() & schema.get("properties", {}).keys()
    names |= {name for name in value if _any_finds(schema.get("patternProperties", ()), name)}
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in schema and keyword != besides:
            names |= {name for name, held in value.items() if _fits(validator, held, schema[keyword])}
    for referred in _referred(validator, schema):
        names |= _evaluated(referred, value, referred.schema)
    for name, below in schema.get("dependentSchemas", {}).items():
        names |= _evaluated(validator, value, below) if name in value else set()
    for keyword in ("allOf", "anyOf", "oneOf"):
        for below in schema.get(keyword, ()):
            names |= _evaluated(validator, value, below) if _fits(validator, value, below) else set()
    if "if" in schema:
        is_then = _fits(validator, value, schema["if"])
        names |= _evaluated(validator, value, schema["if"]) if is_then else set()
        names |= _evaluated(validator, value, schema.get("then" if is_then else "else"))
    return names


def _fits(validator: Any, value: Any, schema: Any) -> bool:
    return next(validator.descend(value, schema), None) is None


def _referred(validator: Any, schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the validators of a schema's references."""
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        if keyword not in schema or keyword not in validator.VALIDATORS:
            continue
        if keyword == "$recursiveRef":
            resolved = referencing.jsonschema.lookup_recursive_ref(validator._resolver)
        else:
            resolved = validator._resolver.lookup(schema[keyword])
        yield validator.evolve(schema=resolved.contents, _resolver=resolved.resolver)
