"""Searches and tails of a topic, with a consumer that hands over what a test says: what is sent, and when it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from barnabas.client import ConsumedRecord
from barnabas.console import searching, tailing
from barnabas.console.decoding import Decoding
from barnabas.console.reading import Bounds, Window
from barnabas.console.searching import BATCH_RECORDS, PROGRESS_SECONDS, SEARCHING, Progress, Search, search
from barnabas.console.tailing import ALIVE_SECONDS, RECORDS_PER_TURN, TAILING, TURN_SECONDS, tail

A, B = ("t", 0), ("t", 1)
NOBODY: Any = None


def record(place: tuple[str, int], offset: int) -> ConsumedRecord:
    return ConsumedRecord(*place, offset, 5, None, b"%d" % offset)


class Consumer:
    """A consumer that hands over batches; None among them is a while without any."""

    def __init__(self, *batches: list[ConsumedRecord]) -> None:
        self.batches = list(batches)
        self.sought: dict[Any, int] = {}
        self.assigned: list[Any] = []
        self.asked: list[Any] = []

    def assign(self, places: Any) -> None:
        self.assigned.append(list(places))

    def seek(self, place: Any, offset: int) -> None:
        self.sought[place] = offset

    def lag(self, _: Any) -> int:
        return 0

    async def position(self, place: Any) -> int:
        return self.sought[place]

    async def receive_until(self, ends: Any, records_max: int) -> list[ConsumedRecord]:
        self.asked.append((dict(ends), records_max))
        return self.batches.pop(0) if self.batches else []

    async def receive_batch(self, records_max: int) -> list[ConsumedRecord]:
        self.asked.append(records_max)
        if not self.batches:
            await trio.sleep_forever()
        return self.batches.pop(0)


@asynccontextmanager
async def _lent(consumer: Consumer) -> AsyncIterator[Consumer]:
    yield consumer


def lend(monkeypatch: pytest.MonkeyPatch, module: Any, consumer: Consumer, settings: Any) -> None:
    def consuming(_: Any, given: Any) -> Any:
        assert given == settings
        return _lent(consumer)

    monkeypatch.setattr(module, "consuming", consuming)


class Sent(list[tuple[str, Any]]):
    """Events that were sent."""

    async def send(self, name: str, value: Any) -> None:
        self.append((name, dict(value)))

    def offsets(self) -> list[int]:
        return [one["offset"] for name, value in self if name == "found" for one in value["records"]]


async def look(
    monkeypatch: pytest.MonkeyPatch, consumer: Consumer, *, limit: int = 50, window: Window | None = None
) -> Sent:
    """Search for even offsets."""
    lend(monkeypatch, searching, consumer, SEARCHING)
    sent = Sent()
    wanted = Search(lambda one: one.offset % 2 == 0, limit)
    given = window or Window({A: 10, B: 0}, {A: 20, B: 0})
    await search(NOBODY, given, wanted, Decoding("text", None), sent.send)
    return sent


async def test_a_search_tells_what_it_found_and_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    consumer = Consumer([record(A, 10), record(A, 11), record(A, 12)], [record(A, 13)], [record(A, 16)])
    monkeypatch.setattr(searching, "PROGRESS_SECONDS", 0.0)
    sent = await look(monkeypatch, consumer)
    assert sent.offsets() == [10, 12, 16]
    assert (consumer.assigned, consumer.sought) == ([[A]], {A: 10}), "nothing is to be looked at in the other"
    assert consumer.asked == [({A: 20}, BATCH_RECORDS)] * 4
    states = [value for name, value in sent if name == "progress"]
    assert [(one["scanned"], one["found"], one["covered"], one["total"]) for one in states] == [
        (0, 0, 0, 10), (3, 2, 3, 10), (4, 2, 4, 10), (5, 3, 7, 10),
    ]  # fmt: skip
    assert sent[-1] == ("done", {"scanned": 5, "found": 3, "covered": 10, "total": 10, "cut": False})


async def test_a_search_ends_when_it_has_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer(
        [record(A, 10), record(A, 12)], [record(A, 14), record(A, 16), record(A, 18)], [record(A, 20)]
    )
    sent = await look(monkeypatch, consumer, limit=3)
    assert sent.offsets() == [10, 12, 14]
    assert len(consumer.batches) == 1
    assert sent[-1][1] == {"scanned": 5, "found": 3, "covered": 2 + 1, "total": 10, "cut": True}
    monkeypatch.setattr(searching, "SCANNED_MAX", 2)
    consumer = Consumer([record(A, 11), record(A, 13)], [record(A, 15)])
    sent = await look(monkeypatch, consumer)
    assert (sent[-1][1]["cut"], len(consumer.batches)) == (True, 1)


async def test_a_window_without_offsets_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer()
    sent = await look(monkeypatch, consumer, window=Window({A: 5, B: 7}, {A: 5, B: 6}))
    assert [name for name, _ in sent] == ["progress", "done"]
    assert sent[-1][1] == {"scanned": 0, "found": 0, "covered": 0, "total": 0, "cut": False}
    assert consumer.assigned == []


async def test_progress_is_told_now_and_then(autojump_clock: object) -> None:
    sent = Sent()
    progress = Progress(sent.send, 9)
    await progress.tell_sometimes()
    assert sent == []
    await trio.sleep(PROGRESS_SECONDS)
    await progress.tell_sometimes()
    await progress.tell_sometimes()
    assert len(sent) == 1
    progress.scanned, progress.found, progress.covered, progress.is_cut = 3, 2, 4, True
    await progress.tell("done", back_to=7)
    assert sent[-1] == (
        "done",
        {"scanned": 3, "found": 2, "covered": 4, "total": 9, "cut": True, "back_to": 7},
    )


async def test_a_tail_sends_what_comes_and_a_sign_of_life(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    consumer = Consumer([record(A, 20)], [record(B, 5), record(B, 6)])
    lend(monkeypatch, tailing, consumer, TAILING)
    skipped = [7, 0]

    async def skip(_: Any, places: Any) -> int:
        assert places == [A, B]
        return skipped.pop(0)

    monkeypatch.setattr(tailing, "skip", skip)
    sent = Sent()
    with trio.move_on_after(2 * TURN_SECONDS + 2.5 * (ALIVE_SECONDS + TURN_SECONDS)):
        await tail(NOBODY, Bounds({A: 0, B: 0}, {A: 20, B: 5}), Decoding("text", None), sent.send)
    assert sent[0] == ("begun", {"partitions": 2})
    assert (consumer.assigned, consumer.sought) == ([[A, B]], {A: 20, B: 5})
    assert [([one["offset"] for one in value["records"]], value["skipped"]) for _, value in sent[1:]] == [
        ([20], 7), ([5, 6], 0), ([], 0), ([], 0),
    ]  # fmt: skip
    assert set(consumer.asked) == {RECORDS_PER_TURN}
    assert skipped == [], "nothing is skipped where nothing has come"
