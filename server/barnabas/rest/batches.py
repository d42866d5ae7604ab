"""Decoding of fetched batches: their records as JSON in a format. Pure; runs in a child process.

The rule: a call is bounded in time and bytes for any batches, and returns its progress. An unreadable record or batch is a
row with the reason.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import BatchHeader, check_crc, iter_batches
from barnabas.records.committed import AbortedBatches
from barnabas.records.errors import CorruptRecordsError, RecordsError
from barnabas.rest.formats import BINARY, JSON, WITH_SCHEMAS

CALL_SECONDS = 0.25
"""Time from the first record on after which a call returns its results."""
ROWS_BYTES_MAX = 2 << 20
"""Bytes of rows after which a call returns; a single record may exceed them."""
UNPACKED_BYTES_MAX = 64 << 20
"""Decompressed bytes of a batch."""


class Part(NamedTuple):
    """Fetched batches of a partition; the offsets from `start` up to, not including, `end` are decoded."""

    topic: str
    partition: int
    start: int
    end: int
    data: bytes
    aborted: tuple[tuple[int, int], ...]


class View(NamedTuple):
    """Form of records: the format of keys and values; with time and headers or without."""

    format_name: str
    has_all: bool = False


class Row(NamedTuple):
    """A record as JSON, and the bytes of its key and value; or the problem of an unreadable record."""

    topic: str
    partition: int
    offset: int
    size: int
    content: bytes
    problem: str = ""


class Raw(NamedTuple):
    """A record with a key and a value that are read by schemas."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(slots=True)
class Opened:
    """Content of a part, up to the limits."""

    at: int
    """Offset before which all was looked at."""
    rows: list[Row] = field(default_factory=list)
    raw: list[Raw] = field(default_factory=list)
    """Records in their order, in a format with schemas."""


@dataclass(slots=True)
class _Aborted:
    producer_id: int
    first_offset: int


def open_part(part: Part, view: View) -> Opened:
    """Return the content of a part, within limits of time and bytes; each call advances by at least one record."""
    opened = Opened(part.start)
    work = _Work(part, view, opened)
    aborted = AbortedBatches([_Aborted(*transaction) for transaction in part.aborted])
    for position, header in _whole_batches(part.data):
        if header.base_offset >= part.end and header.magic == 2:
            break
        try:
            is_hidden = aborted.hides(part.data, position, header) or header.is_control
            if header.next_offset > opened.at and not is_hidden and not work.look(position, header):
                return opened
        except RecordsError as error:
            offset = max(header.base_offset, opened.at)
            opened.rows.append(problem_row(part, offset, f"the batch cannot be read: {error.message}"))
        opened.at = max(opened.at, header.next_offset)
    opened.at = part.end
    return opened


def problem_row(part: Part, offset: int, problem: str) -> Row:
    """Return the row of a record that cannot be read."""
    return Row(part.topic, part.partition, offset, 0, b"", problem)


def _whole_batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches before bytes that are no batch: the next fetch, which begins there, raises that error."""
    with suppress(RecordsError):
        yield from iter_batches(data)


class _Work:
    def __init__(self, part: Part, view: View, opened: Opened) -> None:
        self._part = part
        self._view = view
        self._opened = opened
        self._ends_at = 0.0
        self._bytes = 0

    def look(self, position: int, header: BatchHeader) -> bool:
        """Look at the records of a batch; false if that was broken off."""
        part, opened = self._part, self._opened
        if not check_crc(part.data, position, header):
            raise CorruptRecordsError("the batch does not fit its checksum")
        for record in iter_any_records(part.data, position, decompressed_bytes_max=UNPACKED_BYTES_MAX):
            if record.offset < opened.at:
                continue
            if record.offset >= part.end:
                return True
            if not self._ends_at:  # the first record, after the skipped ones of its batch
                self._ends_at = time.monotonic() + CALL_SECONDS
            elif time.monotonic() >= self._ends_at or self._bytes >= ROWS_BYTES_MAX:
                return False
            raw = Raw(record.offset, record.timestamp, record.key, record.value, record.headers)
            size = len(raw.key or b"") + len(raw.value or b"")
            if self._view.format_name in WITH_SCHEMAS:
                opened.raw.append(raw)
                self._bytes += 100 + size + sum(len(name) + len(value or b"") for name, value in raw.headers)
            else:
                row = _plain_row(part, raw, self._view)
                opened.rows.append(row)
                self._bytes += 100 + len(row.content)
            opened.at = record.offset + 1
        return True


def _plain_row(part: Part, raw: Raw, view: View) -> Row:
    try:
        key, value = (_text(data, view.format_name) for data in (raw.key, raw.value))
    except (ValueError, RecursionError) as error:
        return problem_row(part, raw.offset, f"it is not {view.format_name}: {str(error)[:100]}")
    return row_of(part.topic, part.partition, raw, key, value, view)


def row_of(topic: str, partition: int, raw: Raw, key: str, value: str, view: View) -> Row:
    """Return the row of a record, by the JSON of its key and value."""
    more = ""
    if view.has_all:
        headers = [
            {"name": name, "value": None if data is None else b64encode(data).decode()}
            for name, data in raw.headers
        ]
        more = f',"timestamp":{raw.timestamp_ms},"headers":{json.dumps(headers)}'
    text = (
        f'{{"topic":{json.dumps(topic)},"key":{key},"value":{value},'
        f'"partition":{partition},"offset":{raw.offset}{more}}}'
    )
    size = len(raw.key or b"") + len(raw.value or b"")
    return Row(topic, partition, raw.offset, size, text.encode("utf-8", "replace"))


def _text(data: bytes | None, format_name: str) -> str:
    """Return bytes as JSON. Raises ValueError, RecursionError."""
    if data is None:
        return "null"
    if format_name == BINARY:
        return f'"{b64encode(data).decode()}"'
    if format_name != JSON:
        return json.dumps(data.decode("utf-8", "replace"), ensure_ascii=False)
    value: Any = json.loads(data)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
