"""Records that every decoder must refuse, one kind for each reason code of the dead-letter table.

The rule: bad records are counted by reason, so that the dead letters can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from barnabas_pipeline.simulate.model import Event

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Document

REQUIRED = {"views": "url", "clicks": "member", "votes": "item", "logins": "member", "metrics": "service",
            "profiles": "visitor", "logs": "service"}  # fmt: skip
REASONS = ("utf8", "empty", "json", "trailing", "duplicate_key", "missing_field", "type", "range", "time")


class Values(Protocol):
    """Values of events in one format."""

    @property
    def reasons(self) -> Sequence[str]:
        """The reason codes for which a value can be spoilt."""

    def value(self, event: Event) -> bytes:
        """Encode an event."""

    def spoiled(self, event: Event, reason: str) -> bytes:
        """Encode an event that is bad in one way."""


class JsonValues:
    """Values of events as JSON."""

    reasons: Sequence[str] = REASONS

    def value(self, event: Event) -> bytes:
        """Encode an event."""
        return event.value

    def spoiled(self, event: Event, reason: str) -> bytes:
        """Encode an event that is bad in one way."""
        return spoil(event.value, reason, REQUIRED[event.kind])


JSON = JsonValues()


def spoil(value: bytes, reason: str, required: str) -> bytes:
    """Return a sound JSON object, spoilt in one way; `required` is a required field."""
    fields: Document = json.loads(value)
    if reason == "utf8":
        return value[:-1] + b',"x":"\xff\xfe"}'
    if reason == "empty":
        return b""
    if reason == "json":
        return value[: len(value) // 2]
    if reason == "trailing":
        return value + value
    if reason == "duplicate_key":
        return value[:-1] + b',"ts":0}'
    if reason == "missing_field":
        del fields[required]
    elif reason == "type":
        fields[required] = {"nested": True}
    elif reason == "range":
        fields["ts"] = -5
    elif reason == "time":
        fields["ts"] += 400 * 24 * 3_600_000
    else:
        raise ValueError(reason)
    return json.dumps(fields, separators=(",", ":")).encode()


def choose(count: int, fraction: float, seed: int, reasons: Sequence[str] = REASONS) -> dict[int, str]:
    """Return which of `count` records to spoil, by number, with a reason each: all reasons in turn."""
    random = np.random.default_rng(seed)
    chosen = np.flatnonzero(random.random(count) < fraction).tolist()
    return {index: reasons[n % len(reasons)] for n, index in enumerate(chosen)}
