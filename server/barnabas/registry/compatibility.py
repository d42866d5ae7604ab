"""Levels of compatibility: the promise of each for a schema and its predecessor. Pure."""

from __future__ import annotations

from barnabas.registry.formats import Parsed

NONE, TRANSITIVE = "NONE", "_TRANSITIVE"
LEVELS = (
    NONE, "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
)  # fmt: skip


def is_transitive(level: str) -> bool:
    """Return whether a level compares with all earlier versions, rather than the last one."""
    return level.endswith(TRANSITIVE)


def differences(level: str, new: Parsed, old: Parsed) -> list[str]:
    """Return the reasons why a schema breaks a level towards an earlier one; empty if it is compatible."""
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
