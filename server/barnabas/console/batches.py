"""Batches as they were fetched, opened: their records matched, and shown as JSON or CSV. Pure; runs in a child process.

The rule: for any content, a call ends after a limit of time and bytes, and returns its position. A batch that cannot be
opened is a row with the reason.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.console.dead_letters import Letter, letter_of
from barnabas.console.decoding import (
    FRAMED_BYTES_MAX,
    Payload,
    Payloads,
    RawRecord,
    binary_payloads,
    framed,
    record_as_json,
)
from barnabas.console.exporting import csv_row
from barnabas.console.matching import Match, columns_of, marks, matches
from barnabas.filters import FilterLimitError
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import BatchHeader, TimestampType, check_crc, iter_batches
from barnabas.records.committed import AbortedBatches
from barnabas.records.errors import CorruptRecordsError, RecordsError

CALL_SECONDS = 0.25
"""Time from the first record on after which a call returns its results: others may wait for the process."""
ROWS_BYTES_MAX = 4 << 20
"""Bytes of rows and records after which it returns, which one record may exceed."""
UNPACKED_BYTES_MAX = 64 << 20
"""Bytes that a batch may have unpacked."""
TOO_LARGE = Payload(
    "hex", "", problem=f"payloads of up to {FRAMED_BYTES_MAX} bytes are read by their schemas"
)
_NOTHING: Payloads = {}
_NO_PLACES: Mapping[str, list[tuple[int, int]]] = {}


@dataclass(frozen=True, slots=True)
class View:
    """Form in which records are shown, and their selection."""

    form: str
    chars_max: int
    has_registry: bool = False
    match: Match = None
    is_csv: bool = False
    with_records: bool = False
    """True if rows have their records, for what is sent again or looked for."""
    topic: str = ""
    columns: str = ""
    """Paths and fields that are shown by themselves."""
    shows_others: bool = False
    """True if records that do not match are shown as well, without marks."""

    @property
    def reads_schemas(self) -> bool:
        """True if payloads that name a schema are read by it."""
        return self.has_registry and self.form in ("auto", "registry")

    @property
    def is_search(self) -> bool:
        """True if only records that match are shown."""
        return self.match is not None and not self.shows_others


class Part(NamedTuple):
    """Fetched batches of a partition; the offsets from `start` up to, not including, `end` are searched."""

    partition: int
    start: int
    end: int
    data: bytes
    aborted: tuple[tuple[int, int], ...]


class Limits(NamedTuple):
    """Limits for a part: records, rows, batches."""

    records: int
    rows: int
    batches: int


class Row(NamedTuple):
    """A record that is shown."""

    partition: int
    offset: int
    timestamp: int
    content: bytes
    problem: str = ""
    """Why there is no record, where this stands for some that cannot be shown."""
    record: RawRecord | None = None
    """The record itself, where the view asks for it."""
    letter: Letter | None = None
    """Origin of a dead letter, where the view asks for records."""

    @property
    def size(self) -> int:
        """Bytes of the row, with those of its record."""
        return len(self.content) + (0 if self.record is None else size_of(self.record))


@dataclass(slots=True)
class Opened:
    """Content of a part, up to the limits."""

    at: int
    """Offset before which all was looked at."""
    rows: list[Row] = field(default_factory=list)
    unread: list[RawRecord] = field(default_factory=list)
    """Records with payloads that name a schema: neither matched nor shown yet."""
    scanned: int = 0
    first: int | None = None
    """Timestamp of the first record that was looked at."""
    last: int | None = None


@dataclass(slots=True)
class _Aborted:
    producer_id: int
    first_offset: int


def _whole_batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches before bytes that are no batch: the next fetch, which begins there, raises that error."""
    with suppress(RecordsError):
        yield from iter_batches(data)


def open_parts(parts: Sequence[Part], limits: Sequence[Limits], view: View) -> list[Opened]:
    """Return the content of parts, within limits of time, bytes and rows; each call advances by at least one record."""
    work = _Work(view)
    return [work.open(part, limit) for part, limit in zip(parts, limits, strict=True)]


class _Work:
    def __init__(self, view: View) -> None:
        self._view = view
        self._ends_at = math.inf
        self._bytes = 0

    def open(self, part: Part, limits: Limits) -> Opened:
        opened = Opened(part.start)
        batches = 0
        aborted = AbortedBatches([_Aborted(*transaction) for transaction in part.aborted])
        for position, header in _whole_batches(part.data):
            is_over = header.magic == 2 and header.base_offset >= part.end
            if is_over or batches >= limits.batches or self._is_full(opened, limits):
                break
            try:
                is_hidden = aborted.hides(part.data, position, header) or header.is_control
                if header.next_offset <= part.start or is_hidden:
                    opened.at = max(opened.at, header.next_offset)
                    continue
                batches += 1
                if not self._look(part, position, header, opened, limits):
                    break
            except RecordsError as error:
                offset = max(header.base_offset, opened.at)
                opened.rows.append(problem_row(part.partition, offset, error.message, self._view))
            opened.at = max(opened.at, header.next_offset)
        else:
            opened.at = part.end
        opened.at = min(opened.at, part.end)
        return opened

    def _is_full(self, opened: Opened, limits: Limits) -> bool:
        is_late = time.monotonic() >= self._ends_at or self._bytes >= ROWS_BYTES_MAX
        return (
            is_late
            or opened.scanned >= limits.records
            or len(opened.rows) + len(opened.unread) >= limits.rows
        )

    def _look(self, part: Part, position: int, header: BatchHeader, opened: Opened, limits: Limits) -> bool:
        """Look at the records of a batch; false if that was broken off."""
        if not check_crc(part.data, position, header):
            raise CorruptRecordsError("the batch does not fit its checksum")
        is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        for record in iter_any_records(part.data, position, decompressed_bytes_max=UNPACKED_BYTES_MAX):
            if record.offset < opened.at:
                continue
            if record.offset >= part.end:
                return True
            if self._is_full(opened, limits):
                return False
            self._take(
                RawRecord(
                    part.partition, record.offset, record.timestamp, is_append_time, record.key, record.value,
                    record.headers,
                ),
                opened,
            )  # fmt: skip
            opened.at = record.offset + 1
        return True

    def _take(self, record: RawRecord, opened: Opened) -> None:
        if opened.scanned == 0:  # records before it in its batch were skipped to get here
            self._ends_at = min(self._ends_at, time.monotonic() + CALL_SECONDS)
        opened.scanned += 1
        opened.first = record.timestamp if opened.first is None else opened.first
        opened.last = record.timestamp
        if self._view.reads_schemas and any(len(data) <= FRAMED_BYTES_MAX for data in framed(record)):
            opened.unread.append(record)
            self._bytes += size_of(record)
        elif rows := show([record], _NOTHING, self._view):
            opened.rows += rows
            self._bytes += rows[0].size


def show(records: Sequence[RawRecord], payloads: Payloads, view: View) -> list[Row]:
    """Return the matching records as rows, with payloads decoded by their schemas."""
    rows = []
    for record in records:
        readings = payloads
        if view.reads_schemas:
            large = [data for data in framed(record) if len(data) > FRAMED_BYTES_MAX]
            readings = {**payloads, **dict.fromkeys(large, TOO_LARGE)} if large else payloads
        if binary := binary_payloads(record, view.form):
            readings = {**binary, **readings}
        try:
            if matches(view.match, view.topic, record, readings):
                rows.append(
                    _row(record, view, readings, places=marks(view.match, view.topic, record, readings))
                )
            elif view.shows_others:
                rows.append(_row(record, view, readings))
        except FilterLimitError as error:
            rows.append(problem_row(record.partition, record.offset, str(error), view))
    return rows


def size_of(record: RawRecord) -> int:
    """Return the approximate size of a record in bytes."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return 100 + len(record.key or b"") + len(record.value or b"") + headers


def first_batch(data: bytes, offset: int) -> tuple[int, int]:
    """Return where the first batch that reaches beyond an offset begins, and the offset after it."""
    for _, header in _whole_batches(data):
        if header.next_offset > offset:
            return max(header.base_offset, offset), header.next_offset
    return offset, offset


def problem_row(partition: int, offset: int, problem: str, view: View) -> Row:
    """Return the row of records that cannot be shown."""
    record = RawRecord(partition, offset, -1, False, None, None, [])
    return _row(record, view, _NOTHING, problem[:300])


def _row(
    record: RawRecord,
    view: View,
    payloads: Payloads,
    problem: str = "",
    places: Mapping[str, list[tuple[int, int]]] = _NO_PLACES,
) -> Row:
    shown: dict[str, Any] = record_as_json(record, view.form, view.chars_max, payloads)
    for place, ranges in places.items():
        _mark(_payload_at(shown, place), ranges)
    if view.columns:
        shown["columns"] = columns_of(view.columns, view.topic, record, payloads)
    letter = letter_of(record.headers)
    if letter is not None:
        shown["dead_letter"] = letter.as_json()
    if problem:
        shown["value"] = {"form": "hex", "text": "", "size": -1, "problem": problem}
    if view.is_csv:
        content = csv_row(shown)
    else:
        content = json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    row = Row(record.partition, record.offset, record.timestamp, content, problem)
    return row._replace(record=record, letter=letter) if view.with_records else row


def _payload_at(shown: dict[str, Any], place: str) -> dict[str, Any]:
    """Return the payload at a place of a filter; for a header that is not shown, an empty one."""
    if place in ("key", "value"):
        payload: dict[str, Any] = shown[place]
        return payload
    number, headers = int(place.removeprefix("header ")), shown["headers"]
    return headers[number]["value"] if number < len(headers) else {"form": "hex"}


def _mark(payload: dict[str, Any], ranges: list[tuple[int, int]]) -> None:
    """Add the matches to a payload that is shown as the searched text."""
    if payload["form"] != "hex":
        units = len(payload["text"].encode("utf-16-le", "surrogatepass")) // 2
        payload["marks"] = [[start, min(end, units)] for start, end in ranges if start < units]
