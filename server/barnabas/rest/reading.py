"""Records between a consumer and a response: decoded a part at a time, buffered until they are sent.

The rule: batches are not parsed in this process, and no further ones are fetched while records are buffered.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from barnabas.client import Consumer, ConsumerSettings, NotAssignedError
from barnabas.registry.decoding import DecodedText
from barnabas.rest import batches
from barnabas.rest.batches import Part, Raw, Row, View, problem_row, row_of
from barnabas.rest.formats import BY_REGISTRYS, WITH_SCHEMAS
from barnabas.sandbox.messages import SandboxError

if TYPE_CHECKING:
    from barnabas.client.values import FetchedRecords, TopicPartition
    from barnabas.rest.backend import Backend

READING = ConsumerSettings(
    is_auto_committing=False,
    offset_reset="earliest",
    fetch_wait_ms_max=500,
    fetch_bytes_max=1 << 20,
    partition_bytes_max=256 << 10,
    prefetch_bytes=1 << 20,
    creates_topics=False,
)
CALL_BYTES_MAX = 1 << 20
"""Bytes of batches per fetch; a single response may exceed them."""
PART_BYTES_MAX = 16 << 20
"""Size of a batch that is opened at all."""
DECODED_RECORDS_MAX = 50
"""Records that are decoded by their schemas at a time."""
DECODED_CHARS_MAX = 2_000_000
"""Characters that a key or value may have as JSON, where a schema has written it."""
HELD_BYTES_MAX = 8 << 20
"""Bytes of buffered decoded records at which decoding pauses until they are taken."""
_ASSIGNMENT_SECONDS = 0.05
"""Time after which a consumer without partitions is looked at again."""
_NO_END = 2**63 - 1


@dataclass(eq=False)
class Source:
    """Records of a consumer, in the order of offsets within a partition. For one task at a time."""

    backend: Backend
    consumer: Consumer
    view: View
    rows: deque[Row] = field(default_factory=deque)
    parts: deque[Part] = field(default_factory=deque)

    async def peek(
        self, *, deadline: float = math.inf, ends: dict[TopicPartition, int] | None = None
    ) -> Row | None:
        """Return the next record without removing it; waits for a fetch, or with `ends` until all partitions reach these.

        None at the deadline, which does not interrupt the decoding of fetched parts. Raises ClientError, RestError.
        """
        while not self.rows:
            if self.parts:
                await self._open(self.parts[0])
                continue
            fetched = None
            with trio.move_on_at(deadline):
                fetched = await self._fetch(ends)
            if fetched is None:
                return None
            for part in fetched:
                self._add(part)
        return self.rows[0]

    def has_more(self) -> bool:
        """Return whether records are buffered, decoded or not."""
        return bool(self.rows or self.parts)

    def forget(self, places: set[TopicPartition]) -> None:
        """Drop records of partitions that were reassigned or repositioned."""
        self.rows = deque(row for row in self.rows if (row.topic, row.partition) not in places)
        self.parts = deque(part for part in self.parts if (part.topic, part.partition) not in places)

    async def rest(self) -> None:
        """Tell the consumer that all returned records are processed, so that its group may rebalance."""
        await self.consumer.receive_unopened({}, 0)

    async def _fetch(self, ends: dict[TopicPartition, int] | None) -> list[FetchedRecords] | None:
        """Return the next fetched parts; None at the ends."""
        while True:
            limits = dict.fromkeys(self.consumer.assignment, _NO_END) if ends is None else ends
            try:
                fetched = await self.consumer.receive_unopened(limits, CALL_BYTES_MAX)
            except NotAssignedError:
                continue  # the partition was reassigned meanwhile
            if fetched:
                return fetched
            if ends is not None:
                return None
            await trio.sleep(_ASSIGNMENT_SECONDS)

    def _add(self, fetched: FetchedRecords) -> None:
        aborted = tuple(fetched.aborted)
        part = Part(
            fetched.topic, fetched.partition, fetched.offset, fetched.end_offset, bytes(fetched.data), aborted
        )
        if len(part.data) > PART_BYTES_MAX:
            problem = f"this batch has {len(part.data)} bytes: those of up to {PART_BYTES_MAX} are opened"
            self.rows.append(problem_row(part, part.start, problem))
        elif part.start < part.end:
            self.parts.append(part)

    async def _open(self, part: Part) -> None:
        """Decode the first part, up to the limits of a call."""
        backend = self.backend
        try:
            opened = await backend.sandbox.call(batches.open_part, part, self.view, owner=backend.owner)
            at, rows = opened.at, opened.rows
            if opened.raw:
                decoded, before = await self._decoded(part, opened.raw, at)
                rows = sorted(
                    [*(row for row in rows if row.offset < before), *decoded], key=lambda row: row.offset
                )
                at = before
        except SandboxError as error:
            problem = f"offsets {part.start} to {part.end - 1} cannot be opened: {error}"
            at, rows = part.end, [problem_row(part, part.start, problem)]
        if not self.parts or self.parts[0] is not part:
            return  # dropped meanwhile
        self.rows += rows
        if at >= part.end:
            self.parts.popleft()
        else:
            self.parts[0] = part._replace(start=at)

    async def _decoded(self, part: Part, records: list[Raw], at: int) -> tuple[list[Row], int]:
        """Return the rows of records that schemas have written, and the offset before which that is all: `at`, or less.

        Raises RestError.
        """
        deserializer = self.backend.deserializer()
        rows: list[Row] = []
        size = 0
        for begin in range(0, len(records), DECODED_RECORDS_MAX):
            if size > HELD_BYTES_MAX:
                return rows, records[begin].offset
            few = records[begin : begin + DECODED_RECORDS_MAX]
            payloads = [data for raw in few for data in (raw.key, raw.value) if data is not None]
            texts = iter(
                await deserializer.decode_many(
                    payloads, chars_max=DECODED_CHARS_MAX, owner=self.backend.owner
                )
            )
            for raw in few:
                decoded = [None if data is None else next(texts) for data in (raw.key, raw.value)]
                rows.append(self._decoded_row(part, raw, decoded))
                size += len(rows[-1].content)
            await trio.lowlevel.checkpoint()
        return rows, at

    def _decoded_row(self, part: Part, raw: Raw, decoded: Sequence[DecodedText | Exception | None]) -> Row:
        texts = []
        for name, data, text in zip(("key", "value"), (raw.key, raw.value), decoded, strict=True):
            if data is None:
                texts.append("null")
            elif isinstance(text, DecodedText) and text.is_cut:
                problem = f"the {name} has more than {DECODED_CHARS_MAX} characters as JSON"
                return problem_row(part, raw.offset, problem)
            elif isinstance(text, DecodedText):
                if BY_REGISTRYS.get(text.format) != self.view.format_name:
                    problem = f"the {name} is of a schema of {text.format}, not {WITH_SCHEMAS[self.view.format_name]}"
                    return problem_row(part, raw.offset, problem)
                texts.append(text.text)
            else:
                reason = "it names no schema" if text is None else str(text)[:300]
                return problem_row(part, raw.offset, f"the {name} cannot be read: {reason}")
        return row_of(part.topic, part.partition, raw, texts[0], texts[1], self.view)
