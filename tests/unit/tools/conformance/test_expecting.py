"""Answers held against what a case expects of them, and what is said of those that differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from barnabas.tools.conformance.cases import DiffersError
from barnabas.tools.conformance.expecting import at, check


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
    ("wanted", "said"),
    [
        ({"error_code": "UNKNOWN_TOPIC_OR_PARTITION"}, "error_code is NONE, not UNKNOWN_TOPIC_OR_PARTITION"),
        ({"parts.0.error_code": {"NONE", "NOT_CONTROLLER"}},
         "parts.0.error_code is UNKNOWN_TOPIC_OR_PARTITION, not NONE or NOT_CONTROLLER"),
        ({"parts.0.count": lambda value: value < 0}, "parts.0.count is 7, not what the rule says"),
        ({"parts.1.error_code": positive}, "parts.1.error_code is NONE, not above zero"),
        ({"parts.0.name": "q", "parts.len": 3}, "parts.0.name is 'p', not 'q'; parts.len is 2, not 3"),
    ],
)  # fmt: skip
def test_what_differs_is_named_by_its_place(wanted: dict[str, Any], said: str) -> None:
    with pytest.raises(DiffersError) as differs:
        check(Answer(), wanted)
    assert str(differs.value) == said


@pytest.mark.parametrize("path", ["parts.2", "parts.-3", "parts.1.name.x"])
def test_what_is_not_there_is_told(path: str) -> None:
    with pytest.raises(LookupError, match=r"there are 2 entries|nothing has x"):
        at(Answer(), path)
