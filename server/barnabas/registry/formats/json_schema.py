"""JSON Schema, drafts 4 to 2020-12: parsed and applied by jsonschema, compared by our own rules.

The rule: a schema names its draft in `$schema`, draft 7 by default; its references are registered schemas, never ones
from the network.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any
from urllib.parse import urldefrag, urljoin

import jsonschema
import referencing
from jsonschema.validators import validator_for
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import specification_with

from barnabas.registry.errors import SchemaError
from barnabas.registry.formats import Dependency
from barnabas.registry.formats.comparing import TooLargeError
from barnabas.registry.formats.json_compatibility import breaks
from barnabas.registry.formats.json_nodes import Node
from barnabas.registry.formats.json_patterns import check, check_patterns, checking
from barnabas.registry.formats.json_text import read_json, write_json

DEFAULT = "http://json-schema.org/draft-07/schema"


def parse(text: str, dependencies: Sequence[Dependency], *, is_new: bool) -> JsonSchema:
    """Parse a schema. Raises SchemaError."""
    root = _loaded(text, is_strict=is_new)
    library = _library(root, [(name, _loaded(dependency)) for name, dependency in dependencies])
    draft = validator_for(root, default=jsonschema.Draft7Validator)
    validator = checking(draft)
    check(validator(draft.META_SCHEMA), root)
    schema = JsonSchema(root, library, validator)
    if is_new:
        check_patterns(root, specification_of(root))
        schema.check_references()
    return schema


def _loaded(text: str, *, is_strict: bool = False) -> Any:
    value = read_json(text, is_strict=is_strict)
    if not isinstance(value, dict | bool):
        raise SchemaError("it is neither an object nor true or false")
    return value


def specification_of(contents: Any) -> Any:
    """Return the draft of a schema, as an object of the library."""
    name = contents.get("$schema") if isinstance(contents, dict) else None
    draft7 = specification_with(DEFAULT)
    return specification_with(name, default=draft7) if isinstance(name, str) else draft7


def _library(root: Any, dependencies: Sequence[tuple[str, Any]]) -> Any:
    """Return the schemas for references: by name, also relative to the root's address, and by their own addresses."""
    own = _id(root)
    by_address: dict[str, Any] = {}
    for name, contents in dependencies:
        resource = referencing.Resource(contents, specification_of(contents))
        for address in (name, urljoin(own, name), _id(contents)):
            if address:
                by_address.setdefault(address, resource)

    def retrieve(address: str) -> Any:
        resource = by_address.get(address) or by_address.get(urldefrag(address)[0])
        if resource is None:
            raise NoSuchResource(address)
        return resource

    return referencing.jsonschema.SchemaRegistry(retrieve=retrieve)


def _id(contents: Any) -> str:
    address = (contents.get("$id") or contents.get("id")) if isinstance(contents, dict) else None
    return address if isinstance(address, str) else ""


class JsonSchema:
    """A schema of JSON Schema."""

    def __init__(self, root: Any, library: Any, validator: Any) -> None:
        self._root = root
        self._library = library
        self._validator = validator
        self.text = write_json(root)
        self.canonical = self.text

    def normalized(self) -> str:
        """Return the schema with the names of each object in order."""
        return write_json(self._root, is_sorted=True)

    def node(self) -> Node:
        """Return the schema as it is compared."""
        specification = specification_of(self._root)
        resource = referencing.Resource(self._root, specification)
        return Node(self._root, self._library.resolver_with_root(resource), specification)

    def breaks(self, writer: JsonSchema) -> list[str]:
        """Say why data of `writer` may not fit."""
        try:
            return breaks(self.node(), writer.node())
        except TooLargeError:
            raise
        except (Unresolvable, SchemaError) as error:
            return [f"Unexpected exception during compatibility check: {error}"]

    def check_references(self) -> None:
        """Raise SchemaError for a `$ref` that leads nowhere."""
        try:
            self.node().check()
        except Unresolvable as error:
            raise SchemaError(f"it refers to {error.ref!r}, which is not there") from None

    def decode(self, payload: bytes) -> Any:
        """Return the document; whether it fits was its writer's affair. Raises SchemaError."""
        try:
            return json.loads(payload, parse_constant=_no_constant, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            if isinstance(error, SchemaError):
                raise
            raise SchemaError("the data is not JSON") from None

    def encode(self, value: Any) -> bytes:
        """Return the document as bytes. Raises SchemaError for a document that the schema refuses."""
        try:
            check(self._validator(self._root, registry=self._library), value)
        except Unresolvable as wrong:
            raise SchemaError(f"the schema refers to what is not there: {wrong}") from None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _no_constant(name: str) -> Any:
    raise SchemaError(f"the data is not JSON: it has {name}")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise SchemaError(f"the data has a number that is too large: {text[:40]}")
    return value
