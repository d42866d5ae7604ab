"""Waiting for a state: it is looked for again until it is there or the time is over, and what there is is told."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.tools.control import waiting
from barnabas.tools.control.waiting import NotYetError, wait_for_records
from barnabas.tools.seeding.looking import NotThereError


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that a wait moves on."""
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(waiting, "LOOK_S", 0.25)
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(waiting.time, "sleep", sleep)
    return now


class Looks:
    """Stands for a broker with another state at each look; the last one stays."""

    def __init__(self, *states: Any, counts: Any = None, topic: Any = None) -> None:
        self.states = list(states)
        self.counts = counts or {}
        self.counted: list[tuple[int, int, bool]] = []
        self._topic = topic

    def _next(self) -> Any:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if state is None:
            raise NotThereError("nothing")
        return state

    async def group(self, name: str) -> Any:
        return self._next()

    def topic(self, name: str) -> Any:
        return self._topic or self._next()

    async def count(self, topic: str, index: int, offset: int, *, committed: bool) -> tuple[int, int]:
        self.counted.append((index, offset, committed))
        end = self.counts[index].pop(0) if len(self.counts[index]) > 1 else self.counts[index][0]
        return end - offset, end


PARTITIONS = {"partitions": [{"partition": 0}, {"partition": 1}]}


async def test_records_are_counted_on_from_where_they_were():
    looks = Looks(None, PARTITIONS, counts={0: [1, 3], 1: [2, 2, 4]})
    assert await wait_for_records(looks, "t", 7) == {"topic": "t", "records": 7}
    assert looks.counted == [
        (0, 0, True),
        (1, 0, True),
        (0, 1, True),
        (1, 2, True),
        (0, 3, True),
        (1, 2, True),
    ]
    entry = Looks(PARTITIONS, counts={0: [5], 1: [5]})
    assert await wait_for_records(entry, "t", 5, partition=1, committed=False) == {"topic": "t", "records": 5}
    assert entry.counted == [(1, 0, False)]
    assert (await wait_for_records(Looks(None), "t", 0))["records"] == 0
    with pytest.raises(NotYetError, match="there is no topic t after 20 ms"):
        await wait_for_records(Looks(None), "t", 1, timeout_ms=20)
    for partition, where, total in ((None, "t", 10), (0, "t-0", 5)):
        looks = Looks(PARTITIONS, counts={0: [5], 1: [5]})
        with pytest.raises(NotYetError, match=f"^{where} holds {total} of 11 records"):
            await wait_for_records(looks, "t", 11, partition=partition, timeout_ms=20)
