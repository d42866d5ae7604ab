"""Answers held against what a case expects of them, and what is said of those that differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from barnabas.tools.conformance.cases import DiffersError
from barnabas.tools.conformance.expecting import check
from barnabas.tools.conformance.frames import _nothing, _something


@dataclass
class Part:
    error_code: int = 3
    name: str | None = "p"
    count: int = 7


@dataclass
class Answer:
    error_code: int = 0
    data: Any = b"abc"
    parts: Any = field(default_factory=lambda: [Part(), Part(0, None, 8)])


def positive(value: int) -> bool:
    """above zero"""
    return value > 0


@pytest.mark.parametrize(
    "expected",
    [
        {"error_code": 0},
        {"error_code": "NONE"},
        {"parts.0.error_code": "UNKNOWN_TOPIC_OR_PARTITION", "parts.len": 2},
        {"parts.-1.name": None, "parts.1.count": positive},
        {"parts.0.error_code": {"NONE", "UNKNOWN_TOPIC_OR_PARTITION"}},
        {"parts.0.name": {"p", "q"}, "data": b"abc"},
    ],
)
def test_an_answer_fits(expected: dict[str, Any]) -> None:
    check(Answer(), expected)


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        ({"error_code": "UNKNOWN_TOPIC_OR_PARTITION"}, "error_code is NONE, not UNKNOWN_TOPIC_OR_PARTITION"),
        ({"parts.0.error_code": {"NONE", "NOT_CONTROLLER"}},
         "parts.0.error_code is UNKNOWN_TOPIC_OR_PARTITION, not NONE or NOT_CONTROLLER"),
        ({"parts.0.count": lambda value: value < 0}, "parts.0.count is 7, not what the rule says"),
        ({"parts.1.error_code": positive}, "parts.1.error_code is NONE, not above zero"),
        ({"parts.0.name": "q", "parts.len": 3}, "parts.0.name is 'p', not 'q'; parts.len is 2, not 3"),
    ],
)  # fmt: skip
def test_what_differs_is_named_by_its_place(expected: dict[str, Any], reason: str) -> None:
    with pytest.raises(DiffersError) as differs:
        check(Answer(), expected)
    assert str(differs.value) == reason


@pytest.mark.parametrize(
    ("value", "something", "nothing"), [("", "x", ""), (b"", b"x", b""), ([], [0], []), ([5, 6], [5], [])]
)
def test_a_field_has_something_or_nothing_of_its_type(value: Any, something: Any, nothing: Any) -> None:
    assert (_something(value), _nothing(value)) == (something, nothing)
