"""Jobs that work in rounds: their trigger, what is there now or an interval, and their loop."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

from barnabas_pipeline.errors import UsageError

AVAILABLE = "available"
IDLE_SECONDS = 0.1  # between rounds that find nothing new

_UNITS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}


def parse_trigger(text: str) -> float | None:
    """Return the seconds between the beginnings of two rounds; None for a bounded run.

    `available`, or a number and a unit: `5 seconds`, `500 milliseconds`, `1 minute`. Raises UsageError.
    """
    if text == AVAILABLE:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *(millisecond|second|minute|hour)s?", text.strip().lower())
    if not match:
        raise UsageError(f"a trigger is {AVAILABLE}, or an interval such as '5 seconds', not {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def repeat(step: Callable[[], tuple[bool, bool]], interval_seconds: float, stopping: threading.Event) -> None:
    """Run rounds until one was the last, or `stopping` is set; a running round is not interrupted.

    A round returns whether it has done something, and whether it was the last. The next begins the interval after it
    began, or immediately if it has taken longer; after one that found nothing there is a pause.
    """
    while not stopping.is_set():
        began = time.monotonic()
        has_done, is_last = step()
        if is_last:
            break
        remaining_seconds = interval_seconds - (time.monotonic() - began)
        stopping.wait(max(remaining_seconds, 0 if has_done else IDLE_SECONDS))
