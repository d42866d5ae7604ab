"""Formats of keys and values in requests and responses, their content types, and their conversion. Pure.

The rule: clients' data are parsed in a child process (`sandbox`) unless they are small; the functions of this module run
there.
"""

from __future__ import annotations

import binascii
import json
import math
from base64 import b64decode
from collections.abc import Sequence
from typing import Any, NamedTuple

from barnabas.rest.errors import RestError
from barnabas.sandbox.bodies import VALUES_MAX, TooManyValuesError, parse

BINARY, JSON, STRING, AVRO, JSONSCHEMA, PROTOBUF = (
    "binary",
    "json",
    "string",
    "avro",
    "jsonschema",
    "protobuf",
)
WITH_SCHEMAS = {AVRO: "AVRO", JSONSCHEMA: "JSON", PROTOBUF: "PROTOBUF"}
"""Formats that a schema reads and writes, with the name that a registry gives them."""
BY_REGISTRYS = {name: format_name for format_name, name in WITH_SCHEMAS.items()}
OF_TYPES = (BINARY, JSON, AVRO, JSONSCHEMA, PROTOBUF)
V2_TYPE, JSON_TYPE = "application/vnd.kafka.v2+json", "application/json"
V2_TYPES = {f"application/vnd.kafka.{name}.v2+json": name for name in OF_TYPES}
"""Formats by content type."""
RECORDS_MAX = 10_000
"""Records of one request."""


class Unwritten(NamedTuple):
    """A key or value as JSON, to be serialized by a schema."""

    text: str


Data = bytes | Unwritten | None


class NewRecord(NamedTuple):
    """A record of a v2 request; `partition` is None for any."""

    partition: int | None
    key: Data
    value: Data


class Batch(NamedTuple):
    """A v2 request to produce: its records, and the schemas of their keys and values, by id or text."""

    records: list[NewRecord]
    key_schema: str | None
    key_schema_id: int | None
    value_schema: str | None
    value_schema_id: int | None


def batch_of(body: bytes, format_name: str) -> Batch:
    """Return the records of a v2 request. Raises RestError, ValueError, RecursionError, TooManyValuesError."""
    value = parse(body)
    if not isinstance(value, dict):
        raise RestError(422, 422, "the body is an object with records")
    _check_names(
        value, ("records", "key_schema", "key_schema_id", "value_schema", "value_schema_id"), "the body"
    )
    records = value.get("records")
    if not isinstance(records, list) or not records:
        raise RestError(422, 422, "records is an array that is not empty")
    if len(records) > RECORDS_MAX:
        raise RestError(413, 413, f"a request has at most {RECORDS_MAX} records")
    return Batch(
        [_record(record, format_name) for record in records],
        _typed(value, "key_schema", str),
        _typed(value, "key_schema_id", int),
        _typed(value, "value_schema", str),
        _typed(value, "value_schema_id", int),
    )


def _record(record: Any, format_name: str) -> NewRecord:
    if not isinstance(record, dict):
        raise RestError(400, 400, "a record is an object with value, and perhaps key and partition")
    _check_names(record, ("partition", "key", "value"), "a record")
    partition = _typed(record, "partition", int)
    if partition is not None and not 0 <= partition < 2**31:
        raise RestError(422, 422, "partition is a number from 0 on")
    return NewRecord(
        partition, data_of(record.get("key"), format_name), data_of(record.get("value"), format_name)
    )


def _check_names(value: dict[str, Any], names: Sequence[str], what: str) -> None:
    for name in value:
        if name not in names:
            raise RestError(400, 400, f"{what} has a field {name[:80]!r}; there are {', '.join(names)}")


def _typed(value: dict[str, Any], name: str, kind: type) -> Any:
    item = value.get(name)
    if item is not None and (not isinstance(item, kind) or isinstance(item, bool)):
        raise RestError(400, 400, f"{name} is {'a text' if kind is str else 'a number'}")
    return item


def data_of(value: Any, format_name: str) -> Data:
    """Return the bytes of a key or value in a format, or the value for a schema to write. Raises RestError."""
    if value is None:
        return None
    if format_name == BINARY:
        try:
            return b64decode(value, validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise RestError(400, 400, f"{str(value)[:80]!r} is not a text in base64") from None
    if format_name == STRING:
        if not isinstance(value, str):
            raise RestError(400, 400, f"{str(value)[:80]!r} is not a text")
        return value.encode("utf-8", "replace")
    text = _json(value)
    return Unwritten(text) if format_name in WITH_SCHEMAS else text.encode("utf-8", "replace")


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise RestError(400, 400, "a number is larger than JSON can say") from None


class V3Data(NamedTuple):
    """A key or value of a v3 record: its format, its schema, and its data."""

    format_name: str | None
    subject: str | None
    strategy: str | None
    schema_id: int | None
    version: int | None
    schema: str | None
    data: Data


class V3Record(NamedTuple):
    """A record of a v3 request."""

    partition: int | None
    timestamp_ms: int | None
    headers: list[tuple[str, bytes | None]]
    key: V3Data | None
    value: V3Data | None
    record_id: str = ""
    """The id of its entry in a batch."""


HEADERS_MAX = 1_000
_RECORD_NAMES = ("partition_id", "headers", "key", "value", "timestamp")
_DATA_NAMES = ("type", "subject", "subject_name_strategy", "schema_id", "schema_version", "schema", "data")
STRATEGIES = ("TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME")


def v3_record_of(body: bytes) -> V3Record:
    """Return the record of a streamed object. Raises RestError."""
    try:
        value = parse(body)
    except (ValueError, RecursionError) as error:
        raise RestError(400, 400, f"a record is not JSON: {error}") from None
    except TooManyValuesError:
        raise RestError(413, 413, f"a record has at most {VALUES_MAX} values") from None
    return _v3_record(value)


def v3_batch_of(body: bytes, entries_max: int) -> list[V3Record | RestError]:
    """Return the entries of a batch, an error in place of each invalid entry. Raises RestError."""
    value = parse(body)
    if not isinstance(value, dict) or not isinstance(value.get("entries"), list):
        raise RestError(400, 400, "the body is an object with entries")
    _check_names(value, ("entries",), "the body")
    entries = value["entries"]
    if not entries:
        raise RestError(422, 42208, "the batch is empty")
    if len(entries) > entries_max:
        raise RestError(422, 42208, f"a batch has at most {entries_max} entries")
    ids = set()
    for entry in entries:
        entry_id = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(entry_id, str) or not 1 <= len(entry_id) <= 80:
            raise RestError(422, 42208, "each entry has an id: a text of 1 to 80 characters")
        if entry_id in ids:
            raise RestError(422, 42208, f"two entries have the id {entry_id!r}")
        ids.add(entry_id)
    return [_entry(entry) for entry in entries]


def _entry(entry: dict[str, Any]) -> V3Record | RestError:
    entry_id = entry.pop("id")
    try:
        return _v3_record(entry)._replace(record_id=entry_id)
    except RestError as error:
        return RestError(error.status, error.code, f"{entry_id}\n{error.text}")


def _v3_record(value: Any) -> V3Record:
    if not isinstance(value, dict):
        raise RestError(400, 400, "a record is an object")
    _check_names(value, _RECORD_NAMES, "a record")
    partition = _typed(value, "partition_id", int)
    if partition is not None and not 0 <= partition < 2**31:
        raise RestError(404, 40402, f"there is no partition {partition}")
    return V3Record(
        partition,
        None if value.get("timestamp") is None else timestamp_of(value["timestamp"]),
        _headers(value.get("headers") or []),
        _v3_data(value.get("key"), "key"),
        _v3_data(value.get("value"), "value"),
    )


def _headers(value: Any) -> list[tuple[str, bytes | None]]:
    if not isinstance(value, list) or len(value) > HEADERS_MAX:
        raise RestError(400, 400, f"headers is an array of at most {HEADERS_MAX} objects")
    headers = []
    for header in value:
        name = header.get("name") if isinstance(header, dict) else None
        if not isinstance(name, str):
            raise RestError(400, 400, "a header is an object with a name and a value")
        _check_names(header, ("name", "value"), "a header")
        data = data_of(header.get("value"), BINARY)
        assert not isinstance(data, Unwritten)
        headers.append((name, data))
    return headers


def timestamp_of(value: Any) -> int:
    """Return a time as ms since 1970. Raises RestError."""
    from datetime import UTC, datetime

    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(value)  # with a fraction, as a client of Java's writes an instant
            if not 0 <= seconds < 2**40 or math.isnan(seconds):
                raise ValueError
            return int(seconds * 1000)
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    except (ValueError, TypeError, OverflowError):
        raise RestError(400, 400, f"{str(value)[:80]!r} is no time, as 2026-01-31T12:00:00Z") from None


def _v3_data(value: Any, what: str) -> V3Data | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RestError(400, 400, f"{what} is an object with type and data")
    _check_names(value, _DATA_NAMES, what)
    name = _typed(value, "type", str)
    format_name = None if name is None else name.lower()
    if format_name is not None and format_name not in (*OF_TYPES, STRING):
        raise RestError(
            400, 400, f"type is one of {', '.join(map(str.upper, (*OF_TYPES, STRING)))}, not {name!r}"
        )
    subject, strategy = _typed(value, "subject", str), _typed(value, "subject_name_strategy", str)
    schema_id, version = _typed(value, "schema_id", int), _typed(value, "schema_version", int)
    schema = _typed(value, "schema", str)
    if strategy is not None and strategy not in STRATEGIES:
        raise RestError(400, 400, f"subject_name_strategy is one of {', '.join(STRATEGIES)}")
    if subject is not None and strategy is not None:
        raise RestError(400, 400, "subject and subject_name_strategy exclude each other")
    if sum(part is not None for part in (schema_id, version, schema)) > 1:
        raise RestError(400, 400, "schema_id, schema_version and schema exclude each other")
    if format_name in WITH_SCHEMAS and schema is None:
        raise RestError(
            400, 400, f"type={name} goes with schema; without type the schema is that of the registry"
        )
    if format_name in (*OF_TYPES, STRING) and format_name not in WITH_SCHEMAS:
        parts = {
            "subject": subject, "subject_name_strategy": strategy, "schema_id": schema_id, "schema_version": version,
            "schema": schema,
        }  # fmt: skip
        wrong = next((part for part, value in parts.items() if value is not None), None)
        if wrong is not None:
            raise RestError(400, 400, f"type={name} does not go with {wrong}")
    if schema is not None and format_name is None:
        raise RestError(400, 400, "schema goes with type: AVRO, JSONSCHEMA or PROTOBUF")
    data = data_of(value.get("data"), format_name or AVRO)
    return V3Data(format_name, subject, strategy, schema_id, version, schema, data)
