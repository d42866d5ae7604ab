"""Measures of topics, tails of records, families of metrics, patterns: what the console makes of what it reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.console import kept, measuring
from barnabas.console.base import ConsoleError
from barnabas.console.exposed import SAMPLES_MAX, families_of
from barnabas.console.searching import matcher
from barnabas.console.tailing import BEHIND_MAX, RECORDS_PER_TURN, skip
from barnabas.console.topic_index import TopicRow

NOBODY: Any = None


async def test_a_rate_of_all_topics_takes_two_looks_the_first_time(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(measuring, "time", SimpleNamespace(monotonic=trio.current_time))
    monkeypatch.setattr(kept, "time", SimpleNamespace(monotonic=trio.current_time))

    async def sums_of(_: Any, names: list[str], columns: Any) -> dict[str, measuring.Sums]:
        return {name: measuring.Sums(7, None, int(trio.current_time() * 10)) for name in names}

    async def rows() -> list[TopicRow]:
        return [TopicRow("t", 1, 1, 0, 0, is_internal=False)]

    monkeypatch.setattr(measuring, "sums_of", sums_of)
    index: Any = SimpleNamespace(rows=rows)
    measured = measuring.AllMeasured(NOBODY, index, nursery)
    began = trio.current_time()
    assert await measured.get("records") == {"t": 7}
    assert await measured.get("bytes") == {"t": -1}
    assert trio.current_time() == pytest.approx(began, abs=0.01)
    assert await measured.get("rate") == {"t": pytest.approx(10, abs=1)}
    assert trio.current_time() == pytest.approx(began + measuring.RATE_SECONDS_MIN, abs=0.01)
    measured._kept["rate"].forget()
    await trio.sleep(4)
    later = trio.current_time()
    assert await measured.get("rate") == {"t": pytest.approx(10, abs=1)}
    assert trio.current_time() == pytest.approx(later, abs=0.01), "and one from then on"


async def test_a_tail_that_is_far_behind_goes_on_near_the_end() -> None:
    lags = {0: BEHIND_MAX, 1: BEHIND_MAX + 1, 2: None, 3: 5_000}
    sought: dict[int, int] = {}

    async def position(place: Any) -> int:
        return 1_000

    consumer: Any = SimpleNamespace(
        lag=lambda place: lags[place.partition], position=position,
        seek=lambda place, offset: sought.setdefault(place.partition, offset),
    )  # fmt: skip
    skipped = await skip(consumer, [("t", number) for number in lags])
    near = RECORDS_PER_TURN // 2
    assert sought == {1: 1_000 + BEHIND_MAX + 1 - near, 3: 6_000 - near}
    assert skipped == BEHIND_MAX + 1 + 5_000 - 2 * near


def test_a_pattern_that_is_none_is_told_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConsoleError, match="no regular expression: missing"):
        matcher("(", "value", is_regex=True, is_exact_case=False)
    assert capfd.readouterr() == ("", "")


def test_a_family_is_shown_without_its_buckets_and_no_more_of_it_than_fits() -> None:
    def family(name: str, kind: str, *samples: Any) -> Any:
        return SimpleNamespace(
            name=name, kind=kind, text="of it", values=samples, samples=lambda: iter(samples)
        )

    lag = family(
        "lag", "histogram", ("lag_bucket", (("le", "1"),), 3), ("lag_sum", (), 7.5), ("lag_count", (), 3)
    )
    many = family("many", "gauge", *[("many", (("n", str(n)),), 2) for n in range(SAMPLES_MAX + 1)])
    assert families_of([lag, many], ()) == [
        {"name": "lag", "kind": "histogram", "text": "of it", "count": 3},
        {"name": "many", "kind": "gauge", "text": "of it", "count": SAMPLES_MAX + 1},
    ]
    (found,) = families_of([lag, many], ["lag"])
    assert [one["name"] for one in found["samples"]] == ["lag_sum", "lag_count"]
    assert found["sum"] == 10.5
    (found,) = families_of([lag, many], ["many", "none"])
    assert (len(found["samples"]), found["sum"]) == (SAMPLES_MAX, 2 * SAMPLES_MAX + 2)
