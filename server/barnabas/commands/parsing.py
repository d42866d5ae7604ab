"""Values on the command line: times, partitions, KEY=VALUE. The functions are types of click's parameters.

The rule: an invalid value is a usage error that shows an example of a valid one.
"""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime, timedelta

import click

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ESCAPES = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.S)
_NAMED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def key_value(text: str) -> tuple[str, str]:
    """Read `KEY=VALUE`. Raises click.BadParameter."""
    key, equals, rest = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE")
    return key.strip(), rest.strip()


def topic_partition(text: str) -> tuple[str, int | None]:
    """Read `TOPIC` or `TOPIC:PARTITION`; None stands for all partitions. Raises click.BadParameter."""
    topic, colon, number = text.rpartition(":")
    if not colon:
        return text, None
    if not topic or not number.isdecimal():
        raise click.BadParameter(f"{text!r} is not TOPIC or TOPIC:PARTITION")
    return topic, int(number)


def duration_ms(text: str) -> int:
    """Read `90s`, `5m`, `2h`, `7d`, `100ms`. Raises click.BadParameter."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no duration: 90s, 5m, 2h, 7d or 100ms is expected")
    return round(float(match[1]) * _UNITS_MS[match[2]])


def moment_ms(text: str) -> int:
    """Read a time: ISO 8601 (UTC without a zone), ms since 1970, or a time ago: `-2h`. Raises click.BadParameter."""
    if text.isdecimal():
        return int(text)
    if text.startswith("-") and _DURATION.fullmatch(text[1:]):
        return int(time.time() * 1000) - duration_ms(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no time: 2026-01-31T12:00:00Z, ms since 1970, or -2h is expected"
        ) from None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // timedelta(milliseconds=1)


def unescaped(text: str) -> bytes:
    """Return the bytes of an argument; \\n, \\t, \\r, \\0, \\\\ and \\xHH are what they stand for, others as they are."""

    def of(match: re.Match[bytes]) -> bytes:
        return bytes.fromhex(match[1].decode()) if match[1] else _NAMED.get(match[2], match[0])

    return _ESCAPES.sub(of, os.fsencode(text))
