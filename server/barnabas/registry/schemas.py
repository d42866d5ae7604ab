"""Schemas, as in requests, responses and records.

The rule: parts that only clients interpret, metadata and rules, are stored and returned unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

AVRO = "AVRO"
INT32_MAX = 2**31 - 1
SCHEMA_CHARACTERS_MAX = 1024 * 1024
"""Characters of a schema; most topics cannot store larger ones because of Kafka's limit for a record."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A version of another subject's schema, by the name that it has in the text that refers to it."""

    name: str
    subject: str
    version: int

    @classmethod
    def of(cls, value: Any) -> Reference:
        """Read a reference. Raises ValueError."""
        if not isinstance(value, dict):
            raise ValueError("a reference is an object")
        name, subject, version = value.get("name"), value.get("subject"), value.get("version")
        if not isinstance(name, str) or not isinstance(subject, str) or type(version) is not int:
            raise ValueError("a reference has a name, a subject and a version")
        return cls(name, subject, version)

    def plain(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema: its format, its text, the schemas that it references, and metadata of clients."""

    format: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None

    @classmethod
    def of(cls, value: Any) -> Schema:
        """Read a schema as registries answer with and are sent it. Raises ValueError."""
        if not isinstance(value, dict) or not isinstance(value.get("schema"), str):
            raise ValueError("an object with a schema, which is text, is expected")
        references = value.get("references") or []
        if not isinstance(references, list):
            raise ValueError("references are a list")
        format_name = value.get("schemaType") or AVRO
        metadata, rule_set = value.get("metadata"), value.get("ruleSet")
        if not isinstance(format_name, str):
            raise ValueError("schemaType is the name of a format")
        if not isinstance(metadata, dict | None) or not isinstance(rule_set, dict | None):
            raise ValueError("metadata and ruleSet are objects")
        return cls(
            format_name,
            value["schema"],
            tuple(Reference.of(reference) for reference in references),
            metadata,
            rule_set,
        )

    def plain(self) -> dict[str, Any]:
        """Return it as JSON values, without absent fields, and without the format if it is Avro."""
        plain: dict[str, Any] = {} if self.format == AVRO else {"schemaType": self.format}
        if self.references:
            plain["references"] = [reference.plain() for reference in self.references]
        if self.metadata is not None:
            plain["metadata"] = self.metadata
        if self.rule_set is not None:
            plain["ruleSet"] = self.rule_set
        return {**plain, "schema": self.text}


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema with the place that it has in a registry."""

    subject: str
    version: int
    id: int
    schema: Schema
