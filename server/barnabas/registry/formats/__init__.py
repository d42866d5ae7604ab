"""Formats of schemas, and what each lets change: Avro, JSON Schema, Protobuf.

The rule: a module is imported by the first schema of its format, as the library that it needs is; all offer `Parsed`.
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
"""Formats and their modules, in the order in which a registry lists them."""
__all__ = ["FORMATS", "Dependency", "Parsed", "check_installed", "parse"]
_LIBRARIES = ("fastavro", "jsonschema", "proto_schema_parser")


class Parsed(Protocol):
    """A schema that was understood, together with those that it refers to."""

    @property
    def text(self) -> str:
        """The schema as it is kept and given back."""

    @property
    def canonical(self) -> str:
        """A text by which the same schemas are equal."""

    def normalized(self) -> str:
        """Return a text in which order and spelling that mean nothing are always the same."""

    def breaks(self, writer: Parsed) -> list[str]:
        """Say why data of `writer`, of the same format, cannot always be read by this one; empty where it can."""

    def decode(self, payload: bytes) -> Any:
        """Return what stands behind the id of the schema, as values that JSON has. Raises SchemaError."""

    def encode(self, value: Any) -> bytes:
        """Return what stands behind the id of the schema. Raises SchemaError for a value that does not fit."""


def check_installed() -> None:
    """Raise ModuleNotFoundError for a library that formats need, and that is not there. Imports none."""
    for name in _LIBRARIES:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def parse(schema: Schema, dependencies: Sequence[Dependency] = (), *, is_new: bool = False) -> Parsed:
    """Understand a schema; `dependencies` are what it refers to, each after those that it needs itself.

    What is new is held to rules that old schemas may break, as that of Avro's defaults. Raises SchemaError.
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
