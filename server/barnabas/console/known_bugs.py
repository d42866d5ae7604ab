"""Releases of clients with a bug that their users should know of, by the name and version that clients send (KIP-511).

The rule: each is shown by `python -m compat.gallery NAME` with the first of the releases that are named here.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class KnownBug(NamedTuple):
    """A bug of the releases from one on and before another."""

    software: str
    since: tuple[int, ...]
    before: tuple[int, ...]
    text: str
    name: str
    """In the gallery."""


BUGS = tuple(
    KnownBug(*row)
    for row in (
        ("librdkafka", (2, 2, 0), (2, 3, 0), "a lost answer can end an idempotent producer", "librdkafka-idempotent-fatal"),
        ("librdkafka", (2, 3, 0), (2, 4, 0), "one error makes it ask for metadata without end", "librdkafka-metadata-loop"),
        ("librdkafka", (2, 5, 0), (2, 5, 3), "a subscription to unknown metrics ends it", "librdkafka-telemetry-abort"),
        ("kgo", (1, 21, 3), (1, 21, 4), "a commit that has failed is reported as done", "franz-go-lost-commit"),
        ("sarama", (1, 44, 0), (1, 45, 0), "an admin client keeps asking a former coordinator", "sarama-stale-coordinator"),
        ("sarama", (1, 46, 2), (1, 48, 0), "records behind a retry have no sequence numbers", "sarama-missing-sequence"),
    )
)  # fmt: skip


def warnings_of(name: str, version: str) -> list[str]:
    """Return warnings for the users of a client; bindings of librdkafka include its release in their version."""
    inner = re.search(r"rdkafka-([\d.]+)", version)
    software, release = ("librdkafka", inner[1]) if inner is not None else (name.strip().lower(), version)
    number = tuple(map(int, re.findall(r"\d+", release)[:3]))
    return [
        f"{software} {release}: known bug: {bug.text} ({bug.name})"
        for bug in BUGS
        if software == bug.software and bug.since <= number < bug.before
    ]
