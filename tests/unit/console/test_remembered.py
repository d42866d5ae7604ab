"""Memory of the console: lags of groups, and requests that were shown already."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client import ClientSettings
from barnabas.console import backend as backends
from barnabas.console import own_broker
from barnabas.console.backend import Backend

NOBODY: Any = None


def test_lags_are_remembered_a_while_apart_and_of_so_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(backends, "time", SimpleNamespace(time_ns=lambda: now[0] * 1_000_000))
    client: Any = SimpleNamespace()
    backend = Backend(client, NOBODY, ClientSettings(), NOBODY, None, None, NOBODY, "ann")
    for at_ms, lag in ((5, 1), (1004, 2), (1005, 3), (1006, 4), (2005, 5)):
        now[0] = at_ms
        seen = backend.note_lag("g", lag)
    assert seen == [(5, 1), (1005, 3), (2005, 5)]
    for number in range(backends.SAMPLES_MAX):
        now[0] = 10_000 * (number + 1)
        seen = backend.note_lag("g", number)
    assert (len(seen), seen[0], seen[-1][1]) == (backends.SAMPLES_MAX, (10_000, 0), backends.SAMPLES_MAX - 1)
    for number in range(backends.REMEMBERED_MAX):
        assert len(backend.note_lag(f"g{number}", 1)) == 1
    assert len(backend.note_lag("g1", 1)) == 1
    assert len(backend._lags) == backends.REMEMBERED_MAX
    assert len(backend.note_lag("g", 1)) == 1, "the one that was noted longest ago is forgotten"


def test_requests_are_shown_once_they_are_answered_and_once() -> None:
    def one(number: int, *codes: int, is_answered: bool = True) -> Any:
        return SimpleNamespace(
            id=number,
            is_answered=is_answered,
            error_codes=codes,
        )

    recorded = [one(1), one(2, is_answered=False), one(3, 7), one(4)]
    asked: list[Any] = []
    watch = own_broker._Watch.__new__(own_broker._Watch)

    def find(chosen: Any) -> list[Any]:
        asked.append((chosen.api, chosen.client_id, chosen.topic, chosen.group))
        return recorded

    watch._recorder = SimpleNamespace(find=find)  # type: ignore[assignment]
    seen: set[int] = {1}

    def found(*given: Any) -> list[int]:
        return [request.id for request in watch.find(*given)]

    assert found({"api": "Produce", "client_id": "", "topic": "t", "group": "g"}, seen, 9) == [3, 4]
    assert (asked, seen) == ([("Produce", None, "t", "g")], {1, 3, 4})
    recorded[1].is_answered = True
    assert found({}, seen, 9) == [2]
    assert found({}, set(), 2) == [3, 4], "the newest where there are many"
    assert found({"errors": "true"}, set(), 9) == found({"errors": "1"}, set(), 9) == [3]
    assert found({"errors": "false"}, set(), 9) == [1, 2, 3, 4]
    many = set(range(-4 * own_broker.RECORDED_MAX, 1))
    found({}, many, 9)
    assert len(many) == 2 * own_broker.RECORDED_MAX + 1 + 4
    assert {0, 1, 4} <= many, "the oldest are forgotten"
    exactly = set(range(-4 * own_broker.RECORDED_MAX + 1, 1))
    found({}, exactly, 9)
    assert len(exactly) == 4 * own_broker.RECORDED_MAX + 4
