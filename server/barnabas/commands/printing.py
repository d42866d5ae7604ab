"""Records that `barnabas consume` prints: filtered, read by their schemas, written in blocks.

The rule: only written records are counted; a slow reader of the output delays no other task.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from barnabas.client import ConsumedRecord, FetchedRecords, TopicPartition
from barnabas.client.consuming.opening import opened
from barnabas.commands.records_out import Entry, Lines, Render, header_matches, lines_of
from barnabas.commands.schemas import Decoding, Json
from barnabas.environment.terminal import visible

if TYPE_CHECKING:
    from barnabas.filters import Content, Node

RECORDS_PER_WRITE = 500
STDOUT = 1
Filter = Callable[[Entry], bool]


class Printer:
    """Standard output, with the formatter of records."""

    def __init__(
        self,
        render: Render,
        options: dict[str, Any],
        decoding: Decoding | None = None,
    ) -> None:
        self.printed = 0
        self.unread = 0
        """Records that cannot be read by their schema, or take the filter too many steps; they are not printed."""
        self.is_writing = False
        self.decoding = decoding
        self.checks_crcs = True
        self._render = render
        self._filters = _filters(options)
        self._condition: Node | None = options["where"]
        self._count: int | None = options["count"]

    @property
    def is_full(self) -> bool:
        """True once the requested number of records is printed."""
        return self._count is not None and self.printed >= self._count

    @property
    def records_max(self) -> int:
        """Number of records to request: no more than will be printed, so that no more count as read."""
        return (
            RECORDS_PER_WRITE if self._count is None else min(RECORDS_PER_WRITE, self._count - self.printed)
        )

    async def write(self, records: list[ConsumedRecord]) -> None:
        """Print the records that match the filters, in a thread: a slow reader of the output does not block other tasks.

        A record that its schema cannot read is a line on standard error. Raises OSError; CommandError for an unreachable
        registry.
        """
        if self.decoding is not None:
            records, reasons = await self.decoding.records(records)
            self._tell(reasons)
        if self._condition is not None:
            records, reasons = await trio.to_thread.run_sync(
                _meeting, self._condition, records, abandon_on_cancel=True
            )
            self._tell(reasons)
        shown = [record for record in records if self._is_shown(record)]
        if shown:
            await self._print_in_thread(lambda: [(len(shown), b"".join(map(self._render, lines_of(shown))))])

    @property
    def takes_batches(self) -> bool:
        """True if records are printed as stored in the log, without creating a value for each."""
        return self.decoding is None and self._condition is None

    async def write_batches(
        self, fetched: Sequence[FetchedRecords], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Print the fetched records before these offsets, decoded in a thread, as `write` does.

        Raises DamagedRecordsError after printing the records before the damage.
        """
        await self._print_in_thread(lambda: self._blocks(fetched, ends))

    def _blocks(
        self, fetched: Sequence[FetchedRecords], ends: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[int, bytes]]:
        """Yield numbers of records, with their text: a block for each batch."""
        for part in fetched:
            end = ends.get(TopicPartition(part.topic, part.partition), part.end_offset)
            for batch in opened(part, end, checks_crcs=self.checks_crcs):
                records: Sequence[Entry] = batch.records
                if self._filters:
                    records = [record for record in records if self._is_shown(record)]
                if self._count is not None:
                    records = records[: self._count - self.printed]
                if records:
                    lines = Lines(batch.topic, batch.partition, batch.leader_epoch, records)
                    yield len(records), self._render(lines)

    def _is_shown(self, record: Entry) -> bool:
        return all(matches(record) for matches in self._filters)

    async def _print_in_thread(self, blocks: Callable[[], Iterable[tuple[int, bytes]]]) -> None:
        self.is_writing = True
        await trio.to_thread.run_sync(self._print, blocks, abandon_on_cancel=True)

    def _tell(self, reasons: Sequence[str]) -> None:
        """Report the records that could not be checked, with reasons."""
        self.unread += len(reasons)
        for reason in reasons:
            print(f"barnabas consume: {visible(reason)}", file=sys.stderr)

    def _print(self, blocks: Callable[[], Iterable[tuple[int, bytes]]]) -> None:
        """Write records and count them, in a thread that is abandoned when the program ends meanwhile."""
        for count, data in blocks():
            _write(data)
            self.printed += count
        self.is_writing = False


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(STDOUT, view) :]


def _meeting(condition: Node, records: Sequence[ConsumedRecord]) -> tuple[list[ConsumedRecord], list[str]]:
    """Return the records that match a condition, and the errors of those that could not be checked."""
    from barnabas.filters import Fields, FilterLimitError

    meeting, reasons = [], []
    for record in records:
        headers = [(name, _content(data)) for name, data in record.headers]
        fields = Fields(
            record.topic, record.partition, record.offset, record.timestamp_ms, _content(record.key),
            _content(record.value), headers,
        )  # fmt: skip
        try:
            if condition.matches(fields):
                meeting.append(record)
        except FilterLimitError as error:
            reasons.append(f"{record.topic} partition {record.partition} offset {record.offset}: {error}")
    return meeting, reasons


def _content(data: bytes | None) -> Content:
    from barnabas.filters import Content

    return Content(data, data.value) if isinstance(data, Json) else Content(data)


def _filters(options: dict[str, Any]) -> list[Filter]:
    filters: list[Filter] = [
        lambda record, pattern=sought: record.key is not None and pattern.search(record.key) is not None  # type: ignore[misc]
        for sought in options["keys"]
    ]
    filters += [
        lambda record, pattern=sought: record.value is not None and pattern.search(record.value) is not None  # type: ignore[misc]
        for sought in options["values"]
    ]
    filters += [
        lambda record, name=name, pattern=pattern: header_matches(name, pattern, record)  # type: ignore[misc]
        for name, pattern in options["headers"]
    ]
    return filters
