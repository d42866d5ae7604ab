"""Levels of compatibility: what each promises of a schema and the one before it. Pure."""

from __future__ import annotations

from barnabas.registry.formats import Parsed

NONE, TRANSITIVE = "NONE", "_TRANSITIVE"
LEVELS = (
    NONE, "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
)  # fmt: skip


def is_transitive(level: str) -> bool:
    """Say whether a level is about all versions before, and not the last one alone."""
    return level.endswith(TRANSITIVE)


def differences(level: str, new: Parsed, old: Parsed) -> list[str]:
    """Say why a schema breaks the promise of a level to one before it; empty where it does not."""
    if level not in LEVELS or level == NONE:
        return []
    if type(new) is not type(old):
        return ["Incompatible because of different schema type"]
    reasons: list[str] = []
    if level.startswith(("BACKWARD", "FULL")):
        reasons += new.breaks(old)
    if level.startswith(("FORWARD", "FULL")):
        reasons += old.breaks(new)
    return reasons
