"""Formats of schemas and their rules of compatibility: Avro, JSON Schema, Protobuf.

The rule: a module and its library are imported for the first schema of the format; each module implements `Parsed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from barnabas.environment.extras import explain
from barnabas.registry.errors import SchemaError
from barnabas.registry.references import Dependency
from barnabas.registry.schemas import Schema

FORMATS = {"JSON": "json_schema", "PROTOBUF": "protobuf", "AVRO": "avro"}
"""Formats and their modules, in the order of a registry's list."""
__all__ = ["FORMATS", "Dependency", "Parsed", "check_installed", "parse"]
_LIBRARIES = ("fastavro", "jsonschema", "proto_schema_parser")


class Parsed(Protocol):
    """A parsed schema with its references."""

    @property
    def text(self) -> str:
        """The schema as it is kept and given back."""

    @property
    def canonical(self) -> str:
        """The canonical text: equal for equivalent schemas."""

    def normalized(self) -> str:
        """Return the normal form: meaningless order and spelling are unified."""

    def breaks(self, writer: Parsed) -> list[str]:
        """Return the reasons why this schema cannot read all data of `writer`, of the same format; empty if it can."""

    def decode(self, payload: bytes) -> Any:
        """Return the value of a payload (the bytes after the schema's id) as JSON values. Raises SchemaError."""

    def encode(self, value: Any) -> bytes:
        """Return a value's payload (the bytes after the schema's id). Raises SchemaError for a mismatch."""


def check_installed() -> None:
    """Raise ModuleNotFoundError for a library that formats need, and that is not there. Imports none."""
    for name in _LIBRARIES:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def parse(schema: Schema, dependencies: Sequence[Dependency] = (), *, is_new: bool = False) -> Parsed:
    """Parse a schema; `dependencies` are its references, each after its own references.

    New schemas are checked by rules that old ones may break, such as the rule for Avro's defaults. Raises SchemaError.
    """
    if schema.format not in FORMATS:
        raise SchemaError(f"Invalid schema type {schema.format}")
    try:
        read: Callable[..., Parsed] = import_module(f"{__name__}.{FORMATS[schema.format]}").parse
        return read(schema.text, dependencies, is_new=is_new)
    except ModuleNotFoundError as error:
        raise SchemaError(explain(error) or str(error)) from error
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None
