"""Records of partitions as rows: fetched here; decoded, matched and rendered in a child process.

The rule: batches are not parsed in this process. Work that takes too long because of a batch, a schema or a pattern is
interrupted there, and becomes a row with the reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client import Consumer, ConsumerSettings, open_consumer
from barnabas.console import batches
from barnabas.console.batches import Limits, Opened, Part, Row, View, problem_row
from barnabas.console.decoding import FRAMED_BYTES_MAX, Payload, RawRecord, framed
from barnabas.registry.decoding import DecodedText, Deserializer
from barnabas.sandbox.messages import SandboxError

if TYPE_CHECKING:
    from barnabas.client.values import FetchedRecords
    from barnabas.console.backend import Backend
    from barnabas.sandbox.pool import Sandbox

Place = tuple[str, int]
READING = ConsumerSettings(
    is_auto_committing=False,
    offset_reset="earliest",
    fetch_wait_ms_max=100,
    fetch_bytes_max=2 << 20,
    partition_bytes_max=256 << 10,
    prefetch_bytes=2 << 20,
    creates_topics=False,
)
CALL_BYTES_MAX = 2 << 20
"""Bytes of batches that are opened together, which one response may exceed."""
PART_BYTES_MAX = 16 << 20
"""Size of a batch that is opened at all."""
ROWS_BYTES_MAX = 32 << 20
"""Bytes of rows after which a scan ends before its spans do."""
MATCHED_CHARS_MAX = 64 << 10
"""Characters of a decoded payload up to which a search looks."""
DECODED_CHARS_MAX = 8 << 20
"""Characters of payloads that schemas have read which are held at a time."""


class Span(NamedTuple):
    """Offsets of a partition to read: up to a number of records or rows, or for its last rows."""

    start: int
    end: int
    records_max: int
    rows_max: int
    is_for_last: bool = False
    """True if all of it is looked at, and its last rows are kept."""


@dataclass(slots=True)
class Scanned:
    """Content of a span: its rows, in the order of offsets, and the offset before which all was searched."""

    span: Span
    at: int
    rows: list[Row] = field(default_factory=list)
    records: int = 0
    first: int | None = None
    """Timestamp of the first record that was looked at."""
    last: int | None = None
    size: int = 0
    """Bytes of the rows."""
    problems: list[str] = field(default_factory=list)
    """Why some records could not be looked at."""

    @property
    def is_done(self) -> bool:
        """True if enough of the span was searched."""
        is_enough = self.records >= self.span.records_max or len(self.rows) >= self.span.rows_max
        return self.at >= self.span.end or (is_enough and not self.span.is_for_last)

    def limits(self) -> Limits:
        """Return the limits of the next call."""
        if self.span.is_for_last:
            return Limits(1 << 31, 1 << 31, 1 << 31)
        return Limits(self.span.records_max - self.records, self.span.rows_max - len(self.rows), 1 << 31)

    def add(self, opened: Opened, rows: Sequence[Row], *, is_search: bool) -> None:
        """Add the results of a call; records that a search could not check become no rows."""
        self.at = opened.at
        self.problems += [row.problem for row in rows if row.problem]
        self.rows += [row for row in rows if not (is_search and row.problem)]
        if self.span.is_for_last:
            del self.rows[: -self.span.rows_max]
        self.size = sum(row.size for row in self.rows)
        self.records += opened.scanned
        self.first = opened.first if self.first is None else self.first
        self.last = self.last if opened.last is None else opened.last


class Opener:
    """Opens batches for one visitor."""

    def __init__(
        self, sandbox: Sandbox, owner: Hashable, view: View, deserializer: Deserializer | None
    ) -> None:
        """`owner` has one call of the sandbox at a time."""
        self._sandbox = sandbox
        self._owner = owner
        self.view = replace(view, has_registry=deserializer is not None)
        self._deserializer = deserializer

    async def open(self, parts: Sequence[Part], limits: Sequence[Limits]) -> list[tuple[Opened, list[Row]]]:
        """Return the content of parts as rows, as far as a call gets. Exceeded limits become rows."""
        try:
            opened = await self._sandbox.call(batches.open_parts, parts, limits, self.view, owner=self._owner)
        except SandboxError as error:
            if len(parts) > 1 or limits[0].batches > 1:
                return [
                    await self._open_first(part, limit) for part, limit in zip(parts, limits, strict=True)
                ]
            failed = await self._failed(parts[0], str(error))
            return [(failed, failed.rows)]
        return [(part, await self._rows(part)) for part in opened]

    async def _open_first(self, part: Part, limits: Limits) -> tuple[Opened, list[Row]]:
        """Open one batch of a part alone, since some batch of several cannot be opened."""
        return (await self.open([part], [limits._replace(batches=1)]))[0]

    async def _failed(self, part: Part, problem: str) -> Opened:
        offset, at = await self._sandbox.call(batches.first_batch, part.data, part.start, owner=self._owner)
        row = problem_row(part.partition, offset, f"this batch cannot be opened: {problem}", self.view)
        return Opened(min(max(at, part.start + 1), part.end), [row], scanned=1)

    def unopened(self, part: FetchedRecords, end: int) -> Opened:
        """Return the row for a batch that is too large to be opened."""
        problem = f"this batch has {len(part.data)} bytes: those of up to {PART_BYTES_MAX} are opened"
        return Opened(end, [problem_row(part.partition, part.offset, problem, self.view)], scanned=1)

    async def _rows(self, opened: Opened) -> list[Row]:
        """Return all rows of a part, including those with payloads that must be decoded by schemas."""
        if not opened.unread:
            return opened.rows
        chars_max = self.view.chars_max
        if self.view.match is not None or self.view.columns:
            chars_max = max(chars_max, MATCHED_CHARS_MAX)
        count = max(DECODED_CHARS_MAX // chars_max, 1)
        rows = opened.rows
        for at in range(0, len(opened.unread), count):
            records = opened.unread[at : at + count]
            rows += await self._shown(records, await self._payloads(records, chars_max))
        return sorted(rows, key=lambda row: row.offset)

    async def _shown(self, records: list[RawRecord], payloads: dict[bytes, Payload]) -> list[Row]:
        try:
            return await self._sandbox.call(batches.show, records, payloads, self.view, owner=self._owner)
        except SandboxError as error:
            if len(records) == 1:
                problem = f"this record cannot be shown: {error}"
                return [problem_row(records[0].partition, records[0].offset, problem, self.view)]
        half = len(records) // 2
        return [
            *await self._shown(records[:half], payloads),
            *await self._shown(records[half:], payloads),
        ]

    async def _payloads(self, records: Sequence[RawRecord], chars_max: int) -> dict[bytes, Payload]:
        """Return the decoded payloads of those that name a schema, if they can be decoded."""
        assert self._deserializer is not None
        unique = dict.fromkeys(
            data for record in records for data in framed(record) if len(data) <= FRAMED_BYTES_MAX
        )
        payloads: dict[bytes, Payload] = {}
        texts = await self._deserializer.decode_many([*unique], chars_max=chars_max, owner=self._owner)
        for data, text in zip(unique, texts, strict=True):
            if isinstance(text, DecodedText):
                payloads[data] = Payload(text.format, text.text, text.is_cut, text.schema_id)
            elif text is not None:
                payloads[data] = Payload("hex", "", problem=f"{type(text).__name__}: {text}"[:300])
        return payloads


class Reader:
    """Reads spans of partitions. Lifecycle: `open_reader`."""

    def __init__(self, consumer: Consumer, opener: Opener) -> None:
        self._consumer = consumer
        self._opener = opener

    async def scan(
        self, spans: Mapping[Place, Span], bytes_max: int = ROWS_BYTES_MAX
    ) -> dict[Place, Scanned]:
        """Return the records of spans, fewer if the rows exceed the limit of bytes. Raises ClientError."""
        consumer = self._consumer
        consumer.assign(spans)
        for place, span in spans.items():
            consumer.seek(place, span.start)
            consumer.resume(place)
        results = {place: Scanned(span, span.start) for place, span in spans.items()}
        ends = {place: span.end for place, span in spans.items()}
        while ends:
            fetched = await consumer.receive_unopened(ends, CALL_BYTES_MAX)
            if not fetched:  # the rest of the spans has no records
                for place in ends:
                    results[place].at = spans[place].end
                break
            await self._take([part for part in fetched if (part.topic, part.partition) in ends], results)
            for place in [*ends]:
                if results[place].is_done:
                    consumer.pause(place)
                    del ends[place]
            if sum(result.size for result in results.values()) > bytes_max:
                break
        return results

    async def _take(self, fetched: Sequence[FetchedRecords], results: Mapping[Place, Scanned]) -> None:
        """Open fetched batches, with as many calls as necessary."""
        is_search = self._opener.view.is_search
        waiting: list[tuple[Scanned, Part]] = []
        for batch in fetched:
            result = results[batch.topic, batch.partition]
            start, end = max(batch.offset, result.span.start), min(batch.end_offset, result.span.end)
            if len(batch.data) > PART_BYTES_MAX:
                opened = self._opener.unopened(batch, end)
                result.add(opened, opened.rows, is_search=is_search)
            elif start < end:
                waiting.append((result, Part(batch.partition, start, end, bytes(batch.data), batch.aborted)))
        while waiting:
            opened_parts = await self._opener.open(
                [part for _, part in waiting], [result.limits() for result, _ in waiting]
            )
            rest: dict[int, list[tuple[Scanned, Part]]] = {}
            for (result, part), (opened, rows) in zip(waiting, opened_parts, strict=True):
                if result.is_done:
                    continue  # by an earlier part of the same partition
                if part.partition in rest:
                    rest[part.partition].append((result, part))  # the part before it comes first
                    continue
                result.add(opened, rows, is_search=is_search)
                if opened.at < part.end and not result.is_done:
                    rest[part.partition] = [(result, part._replace(start=opened.at))]
            waiting = [pair for pairs in rest.values() for pair in pairs]


@asynccontextmanager
async def open_reader(
    backend: Backend, view: View, settings: ConsumerSettings = READING
) -> AsyncIterator[Reader]:
    """Open a reader with a separate connection, as the visitor."""
    async with consuming(backend, settings) as consumer:
        yield Reader(consumer, opener_of(backend, view))


def opener_of(backend: Backend, view: View) -> Opener:
    """Return the opener of batches for a visitor."""
    return Opener(backend.sandbox, backend.owner, view, backend.deserializer())


@asynccontextmanager
async def consuming(backend: Backend, settings: ConsumerSettings = READING) -> AsyncIterator[Consumer]:
    """Open a consumer with a separate connection, as the visitor."""
    async with open_consumer(
        backend.target.bootstrap,
        settings=settings,
        client_settings=replace(backend.settings, creates_topics=False),
        dial=backend.target.dial,
    ) as consumer:
        yield consumer
