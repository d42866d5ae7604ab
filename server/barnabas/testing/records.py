"""Values that tests get from a broker: records, and recorded requests."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Record:
    """A record in a topic; `timestamp` is in ms since 1970."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @staticmethod
    def of_json(record: Mapping[str, Any]) -> Record:
        """Return a record from its JSON in the control API."""
        headers = ((name, to_bytes(value)) for header in record["headers"] for name, value in header.items())
        return Record(
            record["partition"],
            record["offset"],
            record["timestamp"],
            to_bytes(record["key"]),
            to_bytes(record["value"]),
            tuple(headers),
        )


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a client: `request` and `response` are its fields by name, `response` None before the answer."""

    id: int
    api: str
    version: int
    client_id: str | None
    principal: str
    connection: int
    request: Mapping[str, Any]
    response: Mapping[str, Any] | None
    error_codes: tuple[int, ...]

    @staticmethod
    def of_json(document: Mapping[str, Any]) -> Request:
        """Return a request from its JSON in the control API."""
        return Request(
            document["id"],
            document["api"],
            document["version"],
            document["client_id"],
            document["principal"],
            document["connection"],
            document["request"],
            document["response"],
            tuple(document["error_codes"]),
        )


def to_bytes(value: Any) -> bytes | None:
    """Return the bytes that the control API writes as text or `{"base64": ...}`."""
    if value is None:
        return None
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else b64decode(value["base64"])


def to_json(value: Any) -> Any:
    """Return bytes and texts in the form of the control API."""
    if isinstance(value, bytes):
        from barnabas.tools.inspection.plain_records import plain

        return plain(value)
    return value
