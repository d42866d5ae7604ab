"""Dead letters sent again: each to the topic of its record or to another, with that record's key, value and headers.

The rule: key and value are those of the failed record, byte for byte, or nothing is sent. Missing
headers are named. Each letter has an outcome. The visitor's client reads and writes, so the broker's ACLs decide.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from barnabas.client import ClientError, ProducerSettings, open_producer
from barnabas.console.base import ConsoleError
from barnabas.console.batches import Row, View
from barnabas.console.matching import Chosen
from barnabas.console.outcomes import error_text
from barnabas.console.reader import ROWS_BYTES_MAX, Place, Span, open_reader
from barnabas.console.reading import PAGE_SECONDS, bounds_of

if TYPE_CHECKING:
    from barnabas.client import Delivery
    from barnabas.console.backend import Backend
    from barnabas.console.dead_letters import Letter
    from barnabas.console.decoding import RawRecord
    from barnabas.console.reader import Scanned

Offsets = Mapping[int, Iterable[int]]
"""Offsets by partition."""
Rows = dict[tuple[int, int], Row | str]
"""Records by partition and offset, or why there is none."""
REDRIVEN_MAX = 500
GAP_MAX = 1_000
"""Offsets between two records that are read over; a read begins anew after more."""
_ALL = 1 << 31
SENDING = ProducerSettings(
    creates_topics=False,
    linger_ms=0,
    delivery_timeout_ms=15_000,
    max_block_ms=10_000,
    request_bytes_max=ROWS_BYTES_MAX,
)


@dataclass(slots=True)
class Outcome:
    """A dead letter, with the record and topic for sending it, or the reason for not sending it."""

    partition: int
    offset: int
    letter: Letter | None = None
    topic: str = ""
    """Topic that it is sent to."""
    record: RawRecord | None = None
    """Record with the key and value that are sent."""
    headers: Sequence[tuple[str, bytes | None]] = ()
    to_partition: int | None = None
    """Partition that it is sent to; None: by its key."""
    note: str = ""
    error: str = ""
    sent: dict[str, int] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the fields for the visitor."""
        return {
            "partition": self.partition,
            "offset": self.offset,
            "origin": None if self.letter is None else self.letter.as_json(),
            "topic": self.topic or None,
            "to_partition": self.to_partition,
            "headers": len(self.headers),
            "note": self.note,
            "error": self.error,
            "sent": self.sent,
        }


async def planned(backend: Backend, queue: str, offsets: Offsets, target: str) -> list[Outcome]:
    """Return the plan of a redrive: to `target`, or to the topic of each record if that is empty.

    Raises ClientError if the queue cannot be read, ConsoleError.
    """
    outcomes = []
    for (partition, offset), row in (await _records(backend, queue, offsets)).items():
        outcome = Outcome(partition, offset)
        outcomes.append(outcome)
        if isinstance(row, str) or row.letter is None or row.record is None:
            outcome.error = row if isinstance(row, str) else "this is no dead letter: no header names a topic"
            continue
        outcome.letter, outcome.record, outcome.headers = row.letter, row.record, row.letter.headers
        outcome.topic = target or row.letter.topic
    await _take_originals(backend, outcomes)
    await _check_targets(backend, outcomes)
    return outcomes


async def redrive(backend: Backend, outcomes: Sequence[Outcome]) -> None:
    """Send the planned records, in their order, and set the outcome of each."""
    now_ms = time.time_ns() // 1_000_000
    deliveries: list[tuple[Outcome, Delivery]] = []
    async with open_producer(
        backend.target.bootstrap, SENDING, client_settings=backend.settings, dial=backend.target.dial
    ) as producer:
        for outcome in outcomes:
            if outcome.error or outcome.record is None:
                continue
            try:
                delivery = await producer.send(
                    outcome.topic,
                    outcome.record.value,
                    key=outcome.record.key,
                    headers=outcome.headers,
                    partition=outcome.to_partition,
                    timestamp_ms=now_ms,
                )
                deliveries.append((outcome, delivery))
            except ClientError as error:
                outcome.error = error_text(error, {"topic": outcome.topic})
            except ValueError as error:  # the topic was made again with fewer partitions
                outcome.error = str(error)
        for outcome, delivery in deliveries:
            try:
                placed = await delivery.wait()
                outcome.sent = {"partition": placed.partition, "offset": placed.offset}
            except ClientError as error:
                outcome.error = error_text(error, {"topic": outcome.topic})


# --- what is sent -------------------------------------------------------------------------------------------------


async def _take_originals(backend: Backend, outcomes: Iterable[Outcome]) -> None:
    """Replace copies without the headers of their original records by those records, if they still exist."""
    by_topic: dict[str, list[tuple[Outcome, Letter]]] = {}
    for outcome in outcomes:
        letter = outcome.letter
        if letter is not None and not letter.keeps_headers:
            by_topic.setdefault(letter.topic, []).append((outcome, letter))
    for topic, pairs in by_topic.items():
        offsets: dict[int, set[int]] = {}
        for _, letter in pairs:
            if letter.is_placed:
                offsets.setdefault(letter.partition, set()).add(letter.offset)
        try:
            originals = await _records(backend, topic, offsets)
        except ClientError as error:
            originals = dict.fromkeys(
                [(letter.partition, letter.offset) for _, letter in pairs],
                error_text(error, {"topic": topic}),
            )
        for outcome, letter in pairs:
            original = originals.get((letter.partition, letter.offset), "its headers do not name the record")
            _take_original(outcome, letter, original)


def _take_original(outcome: Outcome, letter: Letter, original: Row | str) -> None:
    copy = outcome.record
    assert copy is not None
    has_copy = copy.key is not None or copy.value is not None
    name = f"{letter.topic}-{letter.partition} offset {letter.offset}"
    if isinstance(original, str) or original.record is None:
        reason = f"{name}: {original if isinstance(original, str) else original.problem}"
    elif has_copy and (original.record.key, original.record.value) != (copy.key, copy.value):
        reason = f"{name} is another record now"
    elif not has_copy and original.timestamp > copy.timestamp:
        reason = f"{name} is younger than its dead letter: another record"
    else:
        outcome.record, outcome.headers = original.record, original.record.headers
        return
    if has_copy:
        outcome.note = f"without the headers of the record, which the queue does not have ({reason})"
    else:
        outcome.error = f"the queue has no copy, and {reason}"


async def _check_targets(backend: Backend, outcomes: Iterable[Outcome]) -> None:
    """Note topics that are not there, and choose partitions: that of the record in its own topic, else by its key."""
    counts: dict[str, int | str] = {}
    for outcome in outcomes:
        if outcome.error or outcome.letter is None:
            continue
        topic = outcome.topic
        if topic not in counts:
            try:
                counts[topic] = len((await backend.client.topic(topic)).partitions)
            except ClientError as error:
                counts[topic] = error_text(error, {"topic": topic})
        count = counts[topic]
        if isinstance(count, str):
            outcome.error = count
        elif topic == outcome.letter.topic and 0 <= outcome.letter.partition < count:
            outcome.to_partition = outcome.letter.partition


# --- reading ------------------------------------------------------------------------------------------------------


async def _records(backend: Backend, topic: str, offsets: Offsets) -> Rows:
    """Return records in the order of their offsets, or the reason for a missing one. Raises ClientError, ConsoleError."""
    chosen = sorted((partition, offset) for partition, values in offsets.items() for offset in values)
    if not chosen:
        return {}
    info = await backend.client.topic(topic)
    existing = {partition.partition_index for partition in info.partitions}
    places = [(topic, partition) for partition in offsets if partition in existing]
    bounds = await bounds_of(backend, places)
    rows: Rows = {}
    within = []
    for partition, offset in chosen:
        first, end = bounds.first.get((topic, partition)), bounds.next.get((topic, partition))
        if partition not in existing:
            rows[partition, offset] = f"there is no partition {partition}"
        elif first is None or end is None:
            rows[partition, offset] = "the partition has no leader"
        elif first <= offset < end:
            within.append((partition, offset))
            rows[partition, offset] = "there is no such record: it was compacted away, or is a marker"
        else:
            rows[partition, offset] = f"the partition holds offsets {first} to {end - 1}"
    return rows | await _read(backend, topic, within)


async def _read(backend: Backend, topic: str, chosen: Sequence[tuple[int, int]]) -> Rows:
    """Return the existing records. Raises ClientError, ConsoleError."""
    view = View("hex", 1, topic=topic, match=Chosen(frozenset(chosen)), with_records=True)
    rows: Rows = {}
    size = 0
    spans = _spans(topic, chosen)
    async with backend.reads.of(backend.owner):
        with trio.move_on_after(PAGE_SECONDS) as scope:
            async with open_reader(backend, view) as reader:
                while spans:
                    turn = {place: waiting.pop(0) for place, waiting in spans.items()}
                    spans = {place: waiting for place, waiting in spans.items() if waiting}
                    for (_, partition), scanned in (await reader.scan(turn)).items():
                        size += scanned.size
                        if scanned.at < scanned.span.end or size > ROWS_BYTES_MAX:
                            raise ConsoleError(413, f"more than {ROWS_BYTES_MAX} bytes: choose fewer records")
                        rows |= _outcomes_of(scanned, partition, chosen)
    if scope.cancelled_caught:
        raise ConsoleError(503, "these records could not be read in time: choose fewer, or try again")
    return rows


def _outcomes_of(scanned: Scanned, partition: int, chosen: Iterable[tuple[int, int]]) -> Rows:
    """Return the rows of a span by partition and offset; records that could not be read have the reason."""
    rows: Rows = {}
    if scanned.problems:
        span = range(scanned.span.start, scanned.span.end)
        rows = {place: scanned.problems[0] for place in chosen if place[0] == partition and place[1] in span}
    return rows | {(partition, row.offset): row for row in scanned.rows}


def _spans(topic: str, chosen: Iterable[tuple[int, int]]) -> dict[Place, list[Span]]:
    """Return spans of partitions that have all chosen records, which are sorted, and few others."""
    spans: dict[Place, list[Span]] = {}
    for partition, offset in chosen:
        waiting = spans.setdefault((topic, partition), [])
        if waiting and offset - waiting[-1].end < GAP_MAX:
            waiting[-1] = waiting[-1]._replace(end=offset + 1)
        else:
            waiting.append(Span(offset, offset + 1, _ALL, _ALL))
    return spans
