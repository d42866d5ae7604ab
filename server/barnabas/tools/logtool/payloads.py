"""Contents of the records of internal topics, by the published schemas.

The rule: a record that its schema does not explain is shown as bytes with the reason; it never stops the tool.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from barnabas.cluster.kraft.quorum import decode_control
from barnabas.cluster.kraft.secrets import without_secrets
from barnabas.errors import RequestError
from barnabas.log.format.names import CLUSTER_METADATA_TOPIC
from barnabas.records.batch import BatchHeader
from barnabas.records.control import ControlType, parse_end_marker, parse_type
from barnabas.records.record import Record
from barnabas.tools.logtool.rows import Row, plain
from barnabas.wire.codec import decode_prefix, record_type_id
from barnabas.wire.errors import DecodeError
from barnabas.wire.metadata_records import decode_record, record_key, record_name
from barnabas.wire.registry import record_type, record_type_ids

# fields of a classic member's state that contain a message of the consumer protocol
_CONSUMER_PAYLOADS = {
    "subscription": "consumer_protocol_subscription",
    "assignment": "consumer_protocol_assignment",
}


def describe_control(record: Record) -> Row:
    """Return the contents of a control record."""
    try:
        control_type = parse_type(record.key)
        marker = parse_end_marker(record)
    except RequestError as error:
        return {"problem": error.message}
    epoch = None if marker is None else marker.coordinator_epoch
    row: Row = {"control": ControlType(control_type).name.lower(), "coordinator_epoch": epoch}
    if marker is None:
        try:
            message = decode_control(record)[1]
        except DecodeError as error:
            return {**row, "problem": str(error)}
        if message is not None:
            row["value"] = plain(message)
    return row


def describe_metadata(record: Record) -> Row:
    """The fields of a record of the metadata log: its `type`, `version` and `value`, or the `problem`; no secrets."""
    try:
        message, version = decode_record(record.value or b"")
    except DecodeError as error:
        return {"problem": str(error)}  # without the bytes: they may be those of a password
    return {
        "type": record_name(record_key(message)),
        "version": version,
        "value": plain(without_secrets(message)),
    }


def is_internal(topic: str) -> bool:
    """Return whether there are schemas for the records of a topic."""
    try:
        return bool(record_type_ids(topic))
    except KeyError:
        return False


def describe_internal(topic: str, record: Record) -> Row:
    """The fields of a record of an internal topic: its `type`, `key` and `value`, or the `problem`."""
    try:
        codec = record_type(topic, record_type_id(record.key or b""))
        key = plain(codec.decode_key(record.key or b""))
        value = None if record.value is None else codec.decode_value(record.value)
    except DecodeError as error:
        return {"key": record.key, "value": record.value, "problem": str(error)}
    shown = plain(value)
    if isinstance(shown, dict) and shown.get("protocol_type") == "consumer":
        for member, raw in zip(shown["members"], getattr(value, "members", ()), strict=True):
            for name in _CONSUMER_PAYLOADS:
                member[name] = _describe_consumer_payload(name, getattr(raw, name))
    return {"type": codec.key.name.removesuffix("Key"), "key": key, "value": shown}


def _describe_consumer_payload(name: str, data: bytes | None) -> Any:
    if not data:
        return plain(data)
    codec = import_module(f"barnabas.wire.generated.data.{_CONSUMER_PAYLOADS[name]}").CODEC
    try:
        return plain(decode_prefix(codec, data))
    except DecodeError:
        return plain(data)


def describe_record(topic: str, header: BatchHeader, record: Record) -> Row:
    """A record as a row."""
    row: Row = {"kind": "record", "offset": record.offset, "timestamp": record.timestamp}
    if header.base_sequence >= 0:
        row["sequence"] = header.base_sequence + record.offset - header.base_offset
    row["key_size"] = -1 if record.key is None else len(record.key)
    row["value_size"] = -1 if record.value is None else len(record.value)
    if header.is_control:
        row |= describe_control(record)
    elif topic == CLUSTER_METADATA_TOPIC:
        row |= describe_metadata(record)
    elif is_internal(topic):
        row |= describe_internal(topic, record)
    else:
        row |= {"key": record.key, "value": record.value}
    if record.headers:
        row["headers"] = [[name, value] for name, value in record.headers]
    return row
