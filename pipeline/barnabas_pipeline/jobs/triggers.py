"""Triggers of jobs that work in rounds: what is there now, or an interval."""

from __future__ import annotations

import re

from barnabas_pipeline.errors import UsageError

AVAILABLE = "available"
IDLE_SECONDS = 0.1  # between rounds that find nothing new

_UNITS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}


def parse_trigger(text: str) -> float | None:
    """Seconds from the beginning of a round to that of the next; None: what is there now, then end.

    `available`, or a number and a unit: `5 seconds`, `500 milliseconds`, `1 minute`. Raises UsageError.
    """
    if text == AVAILABLE:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *(millisecond|second|minute|hour)s?", text.strip().lower())
    if not found:
        raise UsageError(f"a trigger is {AVAILABLE}, or an interval such as '5 seconds', not {text!r}")
    return float(found[1]) * _UNITS[found[2]]
