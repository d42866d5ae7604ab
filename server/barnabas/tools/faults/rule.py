"""One rule: its events, its times, its effect, and its counts.

The rule of rules: a match is counted as `seen` in any case, and as a hit if the rule takes effect; the same matches in
the same order lead to the same hits, since chance follows from seed and name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from barnabas.tools.faults import actions, matching, paths
from barnabas.tools.faults.actions import whole
from barnabas.tools.faults.chance import Chance
from barnabas.tools.faults.errors import FaultError
from barnabas.tools.faults.events import REQUEST
from barnabas.tools.faults.matching import Match
from barnabas.wire import registry

PARTS = ("name", "on", "when", "do", "enabled")
NAME_CHARACTERS_MAX = 100
_COUNTED = ("every", "after", "times")
CONDITIONS = {
    "nth": "These matches, counted from 1: `3`, or `2,5`.",
    "every": "Every so many matches.",
    "after": "So many matches are left alone first.",
    "times": "At most so many hits.",
    "probability": "Each match with this probability, drawn from the seed and the rule's name.",
    "from_ms": "Not before so many ms after the rule was made, or its counts began again.",
    "until_ms": "Not from so many ms on.",
}
"""Conditions under `when`, and the meaning of each."""
WHEN = tuple(CONDITIONS)


@dataclass(frozen=True, slots=True)
class When:
    """Conditions on the matches that are hit: all of them must hold."""

    nth: frozenset[int] | None = None
    """These matches, counted from 1."""
    every: int = 1
    after: int = 0
    """Number of first matches that are skipped."""
    times: int | None = None
    """Largest number of hits."""
    probability: float = 1.0
    from_ms: float = 0.0
    """Counted from when the rule was made, or its counts began again."""
    until_ms: float | None = None


class Rule:
    """A fault; `seen` counts its matches, `hits` its effects."""

    def __init__(self, name: str, spec: dict[str, Any], seed: int, now_ms: float) -> None:
        """Read a rule. Raises FaultError."""
        for part in spec:
            if part not in PARTS:
                raise FaultError(f"there is no such part of a rule; there are {', '.join(PARTS)}", part)
        self.name = name
        self.spec = spec
        self.match: Match = matching.parse(spec.get("on"))
        self.when = _when(spec.get("when"))
        self.do = actions.parse(spec.get("do"), self.match.event)
        _check_paths(self.match, self.do)
        enabled = spec.get("enabled", True)
        if not isinstance(enabled, bool):
            raise FaultError("true or false is expected", "enabled")
        self.is_enabled = enabled
        self.begin(seed, now_ms)

    def begin(self, seed: int, now_ms: float) -> None:
        """Count from zero, with the random numbers of this seed."""
        self.seen = self.hits = 0
        self.made_ms = now_ms
        self.chance = Chance(seed, self.name)

    def strikes(self, now_ms: float) -> bool:
        """Count a match; returns whether the rule strikes, which counts as a hit."""
        self.seen += 1
        when, count = self.when, self.seen - self.when.after
        age_ms = now_ms - self.made_ms
        if (
            count < 1
            or count % when.every
            or (when.nth is not None and self.seen not in when.nth)
            or (when.times is not None and self.hits >= when.times)
            or age_ms < when.from_ms
            or (when.until_ms is not None and age_ms >= when.until_ms)
            or (when.probability < 1 and self.chance.fraction() >= when.probability)
        ):
            return False
        self.hits += 1
        return True

    @property
    def needs_records(self) -> bool:
        """True if the rule can do nothing to an answer without records."""
        return "corrupt" in self.do

    @property
    def waits_for_answer(self) -> bool:
        """True if only the response shows whether the rule applies: a Fetch in a session names no topics, and only its
        response shows whether there are records to damage. False for rules that act before the request is handled.
        """
        do = self.do
        return (self.match.is_partial or self.needs_records) and not (
            "hold_ms" in do
            or "expire" in do
            or do.get("drop") == "request"
            or any(do.get(name) == actions.BEFORE for name in ("close", "reset", "kill", "restart"))
        )

    def described(self) -> dict[str, Any]:
        """Return the rule with its counts, as JSON."""
        return {
            "name": self.name,
            "on": self.spec.get("on") or {},
            "when": self.spec.get("when") or {},
            "do": self.spec["do"],
            "enabled": self.is_enabled,
            "seen": self.seen,
            "hits": self.hits,
        }


def _when(value: Any) -> When:
    value = {} if value is None else value
    if not isinstance(value, dict):
        raise FaultError("conditions are expected, as {nth: 3} or {probability: 0.1}", "when")
    conditions: dict[str, Any] = {}
    for name, condition in value.items():
        place = f"when.{name}"
        if name == "nth":
            items = condition if isinstance(condition, list) else str(condition).split(",")
            conditions[name] = frozenset(whole(item, place, 1) for item in items)
        elif name in _COUNTED:
            conditions[name] = whole(condition, place, 1 if name == "every" else 0)
        elif name == "probability":
            conditions[name] = _number(condition, place, 1)
        elif name in ("from_ms", "until_ms"):
            conditions[name] = _number(condition, place, 2**53)
        else:
            raise FaultError(f"there is no such condition; there are {', '.join(WHEN)}", place)
    return When(**conditions)


def _number(value: Any, place: str, most: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(value, bool) or not 0 <= number <= most:
        raise FaultError(f"{value!r} is not a number from 0 to {most:g}", place)
    return number


def _check_paths(match: Match, do: dict[str, Any]) -> None:
    """Check that the response of each API has the fields that the action names. Raises FaultError."""
    if match.event != REQUEST or match.api_keys is None:
        if "at" in do or "set" in do:
            raise FaultError("which APIs have this place? Name them", "on.api")
        return
    for key in match.api_keys:
        answer = registry.response_codec(key).message
        if "at" in do:
            field = paths.check(do["at"], answer, "do.at")
            paths.value_for(field, do["error"], "do.at")
        for path, value in do.get("set", {}).items():
            paths.value_for(paths.check(path, answer, "do.set"), value, "do.set")
