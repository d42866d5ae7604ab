"""Durations as java.time reads them (ISO 8601): `P1DT2H`, `PT0.5S`. Pure."""

from __future__ import annotations

import re

_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>[+-]?\d{1,19})D)?"
    r"(?P<time>T(?:(?P<hours>[+-]?\d{1,19})H)?(?:(?P<minutes>[+-]?\d{1,19})M)?"
    r"(?:(?P<seconds>[+-]?\d{1,19})(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_NANOSECONDS_PER_MS = 1_000_000
_MS_MAX = 2**63 - 1


def duration_ms(text: str) -> int:
    """Return whole milliseconds of a duration that is not below zero in all. Raises ValueError."""
    parsed = _DURATION.fullmatch(text)
    if parsed is None or text[-1:].upper() in ("P", "T"):
        raise ValueError(f"{text!r} is not a duration such as P1DT2H")
    seconds = sum(int(parsed[unit] or 0) * length for unit, length in _SECONDS.items())
    fraction = int((parsed["fraction"] or "").ljust(9, "0"))
    if (parsed["seconds"] or "").startswith("-"):
        fraction = -fraction
    nanoseconds = (seconds * 1_000_000_000 + fraction) * (-1 if parsed["sign"] == "-" else 1)
    if not 0 <= nanoseconds <= _MS_MAX * _NANOSECONDS_PER_MS:
        raise ValueError(f"{text!r} is not a duration from 0 to {_MS_MAX} ms")
    return nanoseconds // _NANOSECONDS_PER_MS
