"""Keys and values of records as a person reads them: JSON, MessagePack, CBOR, text, hexadecimal, or by a schema. Pure.

The rule: the bytes are foreign input. Data that cannot be decoded as requested is shown in hexadecimal, and truncation is
marked. All of it runs in a child process (`sandbox`), since producers determine the length of the work.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.environment.extras import explain
from barnabas.records.binary_json import BINARY_FORMATS, BinaryFormatError, read, recognize

FORMATS = ("auto", "json", "text", "hex", "registry", *BINARY_FORMATS)
SHOWN_CHARS = 2_000
"""Characters of a key or value in a list, and of all headers; a single record is shown with more."""
WHOLE_CHARS = 2_000_000
HEADERS_MAX = 200
"""Headers of a record that are shown."""
PARSED_BYTES_MAX = 4 << 20
"""Size of a payload from which on it is not looked at as a whole: its beginning is shown, as text or in hexadecimal."""
FRAMED_BYTES_MAX = 1 << 20
"""Size of a payload from which on it is not read by its schema, nor as MessagePack or CBOR."""
_FRAMED_BYTES_MIN = 5
_PLAIN_CONTROLS = frozenset("\n\r\t")


class Payload(NamedTuple):
    """A payload as its schema reads it, or as MessagePack or CBOR; or the problem with that."""

    form: str
    text: str
    is_cut: bool = False
    schema_id: int = -1
    problem: str = ""


Payloads = Mapping[bytes, Payload]
"""Payloads that name a schema, as that reads them, and those in MessagePack or CBOR."""


class RawRecord(NamedTuple):
    """A stored record."""

    partition: int
    offset: int
    timestamp: int
    """In ms since 1970; negative if it has none."""
    is_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def framed(record: RawRecord) -> list[bytes]:
    """Return the payloads of a record that may name a schema."""
    payloads = (record.key, record.value, *(value for _, value in record.headers[:HEADERS_MAX]))
    return [data for data in payloads if data is not None and len(data) >= _FRAMED_BYTES_MIN and not data[0]]


def binary_payloads(record: RawRecord, form: str) -> dict[bytes, Payload]:
    """Return the payloads of a record that are in MessagePack or CBOR: recognized, or in the selected form.

    A selected form is that of the value: a key or header that is text, or is in another form, is shown as without a
    selection.
    """
    others = [record.key, *(value for _, value in record.headers[:HEADERS_MAX])]
    if form == "auto":
        contents = [data for data in (record.value, *others) if data is not None]
        return {data: payload for data in contents if (payload := _recognized(data)) is not None}
    if form not in BINARY_FORMATS:
        return {}
    payloads = {}
    for data in others:
        if data and not data.isascii() and not (payload := _read(data, form)).problem:
            payloads[data] = payload
    if record.value is not None:
        payloads[record.value] = _read(record.value, form)
    return payloads


def _recognized(data: bytes) -> Payload | None:
    if len(data) > FRAMED_BYTES_MAX:
        return None
    result = recognize(data)
    return None if result is None else Payload(*result)


def _read(data: bytes, form: str) -> Payload:
    if len(data) > FRAMED_BYTES_MAX:
        return Payload("hex", "", problem=f"payloads of up to {FRAMED_BYTES_MAX} bytes are read as {form}")
    try:
        return Payload(form, read(data, form))
    except BinaryFormatError as error:
        return Payload("hex", "", problem=str(error))
    except ModuleNotFoundError as error:
        return Payload("hex", "", problem=explain(error) or str(error))


def record_as_json(record: RawRecord, form: str, chars_max: int, payloads: Payloads) -> dict[str, Any]:
    """Return a record as JSON."""
    headers: list[dict[str, Any]] = []
    chars_left = chars_max
    for name, value in record.headers[:HEADERS_MAX]:
        shown = payload_as_json(value, form, max(chars_left, 0), payloads)
        text = name[: max(chars_left, 100)].encode("utf-8", "replace").decode()
        chars_left -= len(shown["text"]) + len(text)
        headers.append({"name": text, "value": shown})
    row = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp if record.timestamp >= 0 else None,
        "append_time": record.is_append_time,
        "key": payload_as_json(record.key, form, chars_max, payloads),
        "value": payload_as_json(record.value, form, chars_max, payloads),
        "headers": headers,
    }
    if len(record.headers) > HEADERS_MAX:
        row["headers_total"] = len(record.headers)
    return row


def payload_as_json(data: bytes | None, form: str, chars_max: int, payloads: Payloads) -> dict[str, Any]:
    """Return bytes as a form, their text in it, and their size."""
    if data is None:
        return {"form": "null", "text": "", "size": -1}
    shown: dict[str, Any]
    payload = payloads.get(data)
    if payload is not None:
        shown, is_cut = {"form": payload.form, "text": payload.text}, payload.is_cut
        if payload.problem:
            shown["text"], is_cut = _hex(data, chars_max)
            shown["problem"] = payload.problem
        elif payload.schema_id >= 0:
            shown["schema_id"] = payload.schema_id
    else:
        form, text, is_cut = plain_text(data, form, chars_max)
        shown = {"form": form, "text": text}
    shown["size"] = len(data)
    if is_cut or len(shown["text"]) > chars_max:
        shown["text"] = shown["text"][:chars_max]
        shown["cut"] = True
    return shown


def plain_text(data: bytes, form: str, chars_max: int = WHOLE_CHARS) -> tuple[str, str, bool]:
    """Return the form that bytes could be read in, the text, and whether that is the beginning alone."""
    if form == "hex":
        return "hex", *_hex(data, chars_max)
    is_cut = len(data) > PARSED_BYTES_MAX
    try:  # a character has up to four bytes, and the last one may be cut
        text = _beginning(data, 4 * chars_max + 4) if is_cut else data.decode()
    except UnicodeDecodeError:
        return "hex", *_hex(data, chars_max)
    if form == "text":
        return "text", text, is_cut
    if text[:1] in '{["0123456789-tfn' and text and not is_cut:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            return "json", text, False
    if form == "auto" and any(char < " " and char not in _PLAIN_CONTROLS for char in text[:200]):
        return "hex", *_hex(data, chars_max)
    return "text", text, is_cut


def _beginning(data: bytes, size: int) -> str:
    return codecs.getincrementaldecoder("utf-8")().decode(data[:size])


def _hex(data: bytes, chars_max: int) -> tuple[str, bool]:
    size = chars_max // 3 + 1
    return data[:size].hex(" "), len(data) > size
