"""Waiting for a state: it is looked for again until it is there or the time is over, and what there is is told."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.tools.control import waiting
from barnabas.tools.control.waiting import NotYetError, until, wait_for_group, wait_for_lag, wait_for_records
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
    """Stands for a broker whose state is another one at each look; the last one stays."""

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


async def test_a_state_is_looked_for_until_the_time_is_over(clock):
    seen: list[float] = []

    async def look() -> tuple[bool, Any, str]:
        seen.append(clock[0])
        return len(seen) == 4, len(seen), f"look {len(seen)}"

    assert await until(look, 1000) == 4
    assert len(seen) == 4
    seen.clear()
    with pytest.raises(NotYetError, match=r"^look 3 after 500 ms$"):
        await until(look, 500)
    assert seen == [seen[0], seen[0] + 0.25, seen[0] + 0.5]
    seen.clear()
    with pytest.raises(NotYetError, match="look 1 after 0 ms"):
        await until(look, 0)


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
    one = Looks(PARTITIONS, counts={0: [5], 1: [5]})
    assert await wait_for_records(one, "t", 5, partition=1, committed=False) == {"topic": "t", "records": 5}
    assert one.counted == [(1, 0, False)]
    assert (await wait_for_records(Looks(None), "t", 0))["records"] == 0
    with pytest.raises(NotYetError, match="there is no topic t after 20 ms"):
        await wait_for_records(Looks(None), "t", 1, timeout_ms=20)
    for partition, where, total in ((None, "t", 10), (0, "t-0", 5)):
        looks = Looks(PARTITIONS, counts={0: [5], 1: [5]})
        with pytest.raises(NotYetError, match=f"^{where} holds {total} of 11 records"):
            await wait_for_records(looks, "t", 11, partition=partition, timeout_ms=20)


def group_of(state: str, members: int = 0, **lags: int | None) -> dict[str, Any]:
    offsets = [{"topic": name[0], "partition": int(name[1]), "lag": lag} for name, lag in lags.items()]
    return {"state": state, "members": [{}] * members, "offsets": offsets}


@pytest.mark.parametrize(
    ("state", "members", "found", "is_so"),
    [
        ("Stable", None, group_of("Stable", 0), True),
        ("stable", None, group_of("Stable", 3), True),
        ("Stable", 2, group_of("Stable", 2), True),
        ("Stable", 0, group_of("Stable", 0), True),
        ("Stable", 0, group_of("Stable", 1), False),
        ("Stable", 2, group_of("Stable", 1), False),
        ("Empty", 1, group_of("Stable", 1), False),
        ("Dead", None, None, True),
        ("dead", None, None, True),
        ("Stable", None, None, False),
    ],
)
async def test_a_group_is_in_the_state_with_as_many_members(state, members, found, is_so):
    waited = wait_for_group(Looks(found), "g", state=state, members=members, timeout_ms=10)
    if is_so:
        assert await waited == (found or {"group": "g", "state": "Dead", "members": []})
    else:
        said = f"group g is Stable with {len(found['members'])} members" if found else "there is no group g"
        with pytest.raises(NotYetError, match=said):
            await waited


HELD = {
    "partitions": [
        {"partition": 0, "high_watermark": 9, "log_start_offset": 4},
        {"partition": 1, "high_watermark": 2, "log_start_offset": 2},
    ]
}


@pytest.mark.parametrize(
    ("found", "options", "said"),
    [
        (group_of("Stable", a0=0), {}, ""),
        (group_of("Stable", a0=1), {}, "group g is behind by {'a-0': 1}"),
        (group_of("Stable", a0=1), {"lag": 1}, ""),
        (group_of("Stable", a0=2, b0=0), {"lag": 1}, "group g is behind by {'a-0': 2}"),
        (group_of("Stable", a0=0, b0=7), {"topic": "a"}, ""),
        (group_of("Stable", a0=None), {}, ""),
        (group_of("Stable"), {}, "group g has committed nothing"),
        (group_of("Stable"), {"topic": "a"}, "group g is behind by {'a-0': 5}"),
        (group_of("Stable"), {"topic": "a", "lag": 5}, ""),
        (group_of("Stable", a1=3), {"topic": "a", "lag": 4}, "group g is behind by {'a-0': 5}"),
        (None, {}, "there is no group g"),
    ],
)
async def test_a_group_is_behind_by_its_worst_partition(found, options, said):
    waited = wait_for_lag(Looks(found, topic=HELD), "g", timeout_ms=10, **options)
    if said:
        with pytest.raises(NotYetError) as caught:
            await waited
        assert str(caught.value) == f"{said} after 10 ms"
    else:
        assert await waited == found
