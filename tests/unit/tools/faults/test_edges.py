"""Rules at the edges: each condition by itself, the last values that are possible, and random numbers that never change."""

from __future__ import annotations

import errno

import pytest

from barnabas.tools.faults import actions, matching
from barnabas.tools.faults.engine import RULES_MAX, Faults
from barnabas.tools.faults.errors import FaultError

DAY_MS = 24 * 3600 * 1000


# --- what a rule applies to -----------------------------------------------------------------------------------------


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


# --- what is done ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("do", "event", "expected"),
    [
        ({"delay_ms": 0}, "request", {"delay_ms": (0, 0)}),
        ({"delay_ms": DAY_MS}, "connect", {"delay_ms": (DAY_MS, DAY_MS)}),
        ({"delay_ms": "1..2.5"}, "disk.sync", {"delay_ms": (1, 2.5)}),
        ({"delay_ms": "3"}, "request", {"delay_ms": (3, 3)}),
        ({"throttle_ms": DAY_MS}, "request", {"throttle_ms": DAY_MS}),
        ({"throttle_ms": "0"}, "request", {"throttle_ms": 0}),
        ({"cut": "close", "bytes": 2**31}, "request", {"cut": "close", "bytes": 2**31}),
        ({"close": True}, "request", {"close": "before"}),
        ({"reset": "after"}, "request", {"reset": "after"}),
        ({"twice": "true"}, "request", {"twice": True}),
        ({"refuse": True}, "connect", {"refuse": True}),
        ({"errno": "enospc"}, "disk.write", {"errno": errno.ENOSPC}),
        ({"error": "not_leader_or_follower"}, "request", {"error": 6}),
        ({"error": -1}, "request", {"error": -1}),
        ({"error": " 6 "}, "request", {"error": 6}),
        (
            {"error": 2**15 - 1, "error_after": -(2**15)},
            "request",
            {"error": 2**15 - 1, "error_after": -(2**15)},
        ),
    ],
    ids=str,
)
def test_actions_are_read(do, event, expected):
    assert actions.parse(do, event) == expected


@pytest.mark.parametrize(
    ("do", "event"),
    [
        ({"delay_ms": DAY_MS + 1}, "request"),
        ({"delay_ms": -1}, "request"),
        ({"delay_ms": "1..2..3"}, "request"),
        ({"delay_ms": "2..1"}, "request"),
        ({"delay_ms": True}, "request"),
        ({"delay_ms": None}, "request"),
        ({"throttle_ms": DAY_MS + 1}, "request"),
        ({"throttle_ms": 1.5}, "request"),
        ({"bytes": 5}, "request"),
        ({"cut": "close", "bytes": 2**31 + 1}, "request"),
        ({"drop": True}, "request"),
        ({"twice": False}, "request"),
        ({"twice": 1.5}, "request"),
        ({"refuse": True}, "request"),
        ({"hang": True}, "disk.read"),
        ({"errno": "EIO"}, "connect"),
        ({"errno": "errorcode"}, "disk.read"),
        ({"error": 2**15}, "request"),
        ({"error": -(2**15) - 1}, "request"),
        ({"error": True}, "request"),
        ({"at": 5, "error": 6}, "request"),
        ({"set": {}}, "request"),
        ({"set": "throttle_time_ms"}, "request"),
        ([], "request"),
        ({}, "request"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused(do, event):
    with pytest.raises(FaultError):
        actions.parse(do, event)


# --- all rules ------------------------------------------------------------------------------------------------------


def test_there_are_no_more_rules_than_can_be_looked_at(monkeypatch):
    monkeypatch.setattr("barnabas.tools.faults.engine.RULES_MAX", 2)
    assert RULES_MAX == 10_000
    faults = Faults()
    for _ in range(2):
        faults.add("* -> twice")
    with pytest.raises(FaultError, match="there are 2 rules already"):
        faults.add("* -> twice")
