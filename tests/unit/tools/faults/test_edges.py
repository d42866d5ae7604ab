"""Rules at the edges: each condition by itself, the last values that are possible, and random numbers that never change."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.tools.faults import matching, short
from barnabas.tools.faults.engine import Faults
from barnabas.tools.faults.errors import FaultError
from barnabas.tools.faults.matching import Subject

FITS: dict[str, Any] = {
    "api_key": 8,
    "api_version": 5,
    "client_id": "app-1",
    "principal": "User:alice",
    "listener": "INSIDE",
    "connection_id": 7,
}


def subject(
    *topics: tuple[str, int | None], groups: tuple[str, ...] = (), event: str = "request", **more: Any
) -> Subject:
    return Subject(event, **{"now_ms": 0.0, **FITS, **more}, topics=lambda: topics, groups=lambda: groups)


# --- what a rule applies to -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "value", "other"),
    [
        ({"api": "OffsetCommit"}, {}, {"api_key": 9}),
        ({"api": 8}, {}, {"api_key": 9}),
        ({"api": "8"}, {}, {"api_key": 9}),
        ({"api": ["fetch", "OFFSETCOMMIT"]}, {"api_key": 1}, {"api_key": 0}),
        ({"api": "Fetch, OffsetCommit"}, {"api_key": 8}, {"api_key": 0}),
        ({"version": 5}, {}, {"api_version": 6}),
        ({"version": "3-5"}, {}, {"api_version": 2}),
        ({"version": "5-"}, {"api_version": 99}, {"api_version": 4}),
        ({"version": "-5"}, {"api_version": 0}, {"api_version": 6}),
        ({"version": [1, "4-5"]}, {"api_version": 1}, {"api_version": 3}),
        ({"client_id": "app-1"}, {}, {"client_id": "app-10"}),
        ({"client_id": "app-?"}, {}, {"client_id": "app-"}),
        ({"client_id": "app-?"}, {}, {"client_id": "app-12"}),
        ({"client_id": "*-1"}, {}, {"client_id": "app-2"}),
        ({"client_id": "a.p*"}, {"client_id": "a.p"}, {}),
        ({"client_id": ["x", "app-*"]}, {"client_id": "x"}, {"client_id": "y"}),
        ({"client_id": "*"}, {"client_id": None}, None),
        ({"client_id": "a*"}, {"client_id": "a\nb"}, {"client_id": None}),
        ({"principal": "User:a*"}, {}, {"principal": "User:bob"}),
        ({"listener": "INSIDE"}, {}, {"listener": "OUTSIDE"}),
        ({"connection": 7}, {}, {"connection_id": 8}),
        ({"connection": "6,7"}, {}, {"connection_id": 8}),
        ({"connection": 0}, {"connection_id": 0}, {}),
    ],
    ids=str,
)  # fmt: skip
def test_each_condition_decides_by_itself(condition, value, other):
    match = matching.parse(condition)
    assert match.fits(subject(**value))
    assert other is None or not match.fits(subject(**other))
    assert not match.fits(subject(event="connect", **value))


@pytest.mark.parametrize(
    "condition",
    [
        {"version": "5-3"}, {"version": "x"}, {"version": True}, {"version": ""}, {"connection": -1},
        {"connection": 2**31 + 1}, {"partition": "one"}, {"api": 9999}, {"api": ""}, {"api": "9999"}, [],
        {"event": "sleep"}, "Fetch",
    ],
    ids=str,
)  # fmt: skip
def test_what_no_condition_can_be_is_refused(condition):
    with pytest.raises(FaultError):
        matching.parse(condition)


# --- all rules ------------------------------------------------------------------------------------------------------


def test_a_set_that_does_not_fit_adds_nothing():
    faults = Faults()
    faults.add({"name": "moved-leader.Fetch", "do": {"twice": True}})
    with pytest.raises(FaultError, match="already"):
        faults.use("moved-leader")
    assert [*faults.rules] == ["moved-leader.Fetch"]


@pytest.mark.parametrize(
    "line", ["connect Fetch -> hang", "Fetch color=red -> twice", "-> twice -> twice", ""]
)
def test_lines_that_say_too_much_are_refused(line):
    with pytest.raises(FaultError):
        short.parse(line)
