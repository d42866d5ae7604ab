"""Searches and tails of a topic, and rows of it, with batches that a test hands over: what is sent, and when it ends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.client.values import FetchedRecords
from barnabas.console.batches import View
from barnabas.console.reader import Opener, Reader, Scanned, Span
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.registry.decoding import DecodedText, SchemaError
from barnabas.sandbox.messages import SandboxError
from tests.support.at_once_sandbox import AtOnce

A, B = ("t", 0), ("t", 1)
VIEW = View("text", 100)
TOO_LONG = SandboxError("it takes more than 3 s")


def fetched(place: tuple[str, int], start: int, *values: bytes, each: int = 1) -> FetchedRecords:
    """Batches of so many records each, as a response has them."""
    data = b""
    for at in range(0, len(values), each):
        records = [Record(start + at + n, 5, None, value) for n, value in enumerate(values[at : at + each])]
        data += bytes(encode_batch(records))
    return FetchedRecords(*place, start, start + len(values), data, ())


class Consumer:
    """A consumer that hands over what was fetched."""

    def __init__(self, *responses: list[FetchedRecords]) -> None:
        self.responses = list(responses)
        self.sought: dict[Any, int] = {}
        self.assigned: list[Any] = []
        self.paused: list[Any] = []
        self.lags: dict[Any, int] = {}

    def assign(self, places: Any) -> None:
        self.assigned.append(list(places))

    def seek(self, place: Any, offset: int) -> None:
        self.sought[tuple(place)] = offset

    def pause(self, place: Any) -> None:
        self.paused.append(place)

    def resume(self, place: Any) -> None:
        """Nothing is paused before."""

    def lag(self, place: Any) -> int:
        return self.lags.pop(tuple(place), 0)

    async def position(self, place: Any) -> int:
        return self.sought[tuple(place)]

    async def receive_unopened(self, ends: Mapping[Any, int], bytes_max: int) -> list[FetchedRecords]:
        return self.responses.pop(0) if self.responses else []


def opener(*refusals: Exception | None, view: View = VIEW, deserializer: Any = None) -> Opener:
    sandbox: Any = AtOnce(*refusals)
    return Opener(sandbox, "ann", view, deserializer)


async def scan(
    consumer: Consumer, spans: dict[Any, Span], opened_by: Opener | None = None
) -> dict[Any, Scanned]:
    source: Any = consumer
    return await Reader(source, opened_by or opener()).scan(spans)


def offsets(scanned: Scanned) -> list[int]:
    return [row.offset for row in scanned.rows]


def problems(scanned: Scanned) -> list[str]:
    return [row.problem for row in scanned.rows if row.problem]


async def test_spans_are_read_until_there_is_enough_of_each() -> None:
    values = [b"%d" % n for n in range(10)]
    consumer = Consumer([fetched(A, 0, *values), fetched(B, 5, *values, each=3)], [fetched(A, 10, *values)])
    results = await scan(consumer, {A: Span(2, 15, 100, 100), B: Span(5, 100, 4, 100)})
    assert (offsets(results[A]), results[A].at) == ([*range(2, 15)], 15)
    assert (offsets(results[B]), results[B].at, results[B].records) == ([5, 6, 7, 8], 9, 4)
    assert consumer.sought == {A: 2, B: 5}
    assert consumer.assigned == [[A, B]]


async def test_of_a_window_the_last_rows_are_kept() -> None:
    values = [b"%d" % n for n in range(10)]
    consumer = Consumer([fetched(A, 0, *values, each=2)])
    results = await scan(consumer, {A: Span(0, 8, 0, 3, is_for_last=True)})
    assert (offsets(results[A]), results[A].at, results[A].records) == ([5, 6, 7], 8, 8)


async def test_slow_batch_is_a_row_and_the_others_are_shown() -> None:
    consumer = Consumer([fetched(A, 0, b"a", b"b", b"c", b"d", each=2), fetched(B, 0, b"x")])
    refused = opener(TOO_LONG, TOO_LONG)  # all together, and then the first batch alone
    results = await scan(consumer, {A: Span(0, 4, 100, 100), B: Span(0, 1, 100, 100)}, refused)
    assert offsets(results[A]) == [0, 2, 3]
    assert problems(results[A]) == [f"this batch cannot be opened: {TOO_LONG}"]
    assert offsets(results[B]) == [0]


class Deserializer:
    """Reads payloads as a test says."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[bytes], int, Any]] = []

    async def decode_many(self, payloads: Sequence[bytes], *, chars_max: int, owner: Any) -> list[Any]:
        self.asked.append((list(payloads), chars_max, owner))
        return [
            None if data.endswith(b"none")
            else SchemaError("no such field" * 50) if data.endswith(b"bad")
            else DecodedText('{"id": 7}', False, "AVRO", 3)
            for data in payloads
        ]  # fmt: skip


async def test_payloads_of_schemas_are_read_together_and_once() -> None:
    frame = b"\0\0\0\0\3"
    values = [frame + b"x", b"plain", frame + b"x", frame + b"bad", frame + b"none"]
    deserializer = Deserializer()
    results = await scan(
        Consumer([fetched(A, 0, *values, each=5)]), {A: Span(0, 5, 100, 100)},
        opener(view=View("auto", 100), deserializer=deserializer),
    )  # fmt: skip
    shown = [json.loads(row.content)["value"] for row in results[A].rows]
    assert deserializer.asked == [([values[0], values[3], values[4]], 100, "ann")]
    assert [row["form"] for row in shown] == ["AVRO", "text", "AVRO", "hex", "hex"]
    assert shown[0] == {"form": "AVRO", "text": '{"id": 7}', "schema_id": 3, "size": 6}
    assert (shown[3]["problem"].startswith("SchemaError: no such field"), len(shown[3]["problem"])) == (
        True,
        300,
    )
    assert "problem" not in shown[4]


async def test_a_record_that_cannot_be_shown_is_a_row_among_others() -> None:
    view = View("auto", 100)
    refused = opener(None, TOO_LONG, None, TOO_LONG, view=view, deserializer=Deserializer())
    consumer = Consumer([fetched(A, 0, b"\0\0\0\0\3x", b"\0\0\0\0\3y", each=2)])
    results = await scan(consumer, {A: Span(0, 2, 100, 100)}, refused)
    assert offsets(results[A]) == [0, 1]
    assert problems(results[A]) == [f"this record cannot be shown: {TOO_LONG}"]
