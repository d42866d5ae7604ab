"""Routes over faults: rules, named sets, hits, the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.tools.control.routes.base import Call, ControlError, Route
from barnabas.tools.faults.actions import ACTIONS
from barnabas.tools.faults.errors import FaultError
from barnabas.tools.faults.events import EVENTS
from barnabas.tools.faults.sets import SETS

if TYPE_CHECKING:
    from barnabas.tools.faults.rule import Rule

_NAMES: dict[str, Any] = {
    "oneOf": [
        {"type": "string"},
        {"type": "integer"},
        {"type": "array", "items": {"type": ["string", "integer"]}},
    ]
}
_ON = {
    "type": "object",
    "description": "What the rule applies to; names are patterns with * and ?, of several one is enough.",
    "properties": {
        "event": {"enum": list(EVENTS)},
        "api": {**_NAMES, "description": "Names or keys of APIs."},
        "version": {**_NAMES, "description": "Versions, as 3, 2-8, 9-."},
        "client_id": _NAMES,
        "principal": _NAMES,
        "listener": _NAMES,
        "connection": _NAMES,
        "topic": _NAMES,
        "partition": _NAMES,
        "group": _NAMES,
    },
    "additionalProperties": False,
}
_COUNT = {"type": "integer", "minimum": 0}
_WHEN = {
    "type": "object",
    "description": "Which matches are hit: those for which all of this holds.",
    "properties": {
        "nth": {
            "oneOf": [{"type": "integer", "minimum": 1}, {"type": "array", "items": {"type": "integer"}}]
        },
        "every": {"type": "integer", "minimum": 1},
        "after": {**_COUNT, "description": "So many are left alone first."},
        "times": {**_COUNT, "description": "At most so many hits."},
        "probability": {"type": "number", "minimum": 0, "maximum": 1},
        "from_ms": {"type": "number", "minimum": 0, "description": "Counted from when the rule was made."},
        "until_ms": {"type": "number", "minimum": 0},
    },
    "additionalProperties": False,
}
_DO = {
    "type": "object",
    "properties": {action.name: {**action.schema, "description": action.doc} for action in ACTIONS},
    "additionalProperties": False,
    "minProperties": 1,
}
_PARTS = {"name": {"type": "string"}, "on": _ON, "when": _WHEN, "do": _DO, "enabled": {"type": "boolean"}}
_RULE = {
    "type": "object",
    "properties": {
        **_PARTS,
        "short": {"type": "string", "description": "The rule in one line, in place of its parts."},
    },
    "additionalProperties": False,
    "minProperties": 1,
}
_ANSWER = {
    "type": "object",
    "properties": {
        **_PARTS,
        "seen": {"type": "integer", "description": "How many matches there were."},
        "hits": {"type": "integer", "description": "How often the fault was committed."},
    },
}
_LIST = {
    "type": "object",
    "properties": {"seed": {"type": "integer"}, "faults": {"type": "array", "items": _ANSWER}},
}


async def list_faults(call: Call) -> object:
    """Return seed, rules and hits."""
    return call.host.faulting.faults.described()


async def add_fault(call: Call) -> object:
    """Add a rule."""
    body = dict(call.body)
    faults = call.host.faulting.faults
    if "short" in body:
        others = [name for name in body if name not in ("short", "name", "enabled")]
        if others:
            raise ControlError(400, f"{others[0]} and short exclude each other")
        from barnabas.tools.faults import short

        text = body.pop("short")
        if not isinstance(text, str):
            raise ControlError(400, "short: text expected")
        body = {**short.parse(text), **body}
    return faults.add(body).described()


async def remove_faults(call: Call) -> object:
    """Remove all rules."""
    call.host.faulting.faults.clear()
    return None


async def show_fault(call: Call) -> object:
    """Return one rule and its hits."""
    return _rule(call).described()


async def change_fault(call: Call) -> object:
    """Have a rule apply or not."""
    rule = _rule(call)
    enabled = call.body.get("enabled")
    if not isinstance(enabled, bool) or len(call.body) != 1:
        raise ControlError(400, "enabled expected, as true or false; anything else is a new rule")
    call.host.faulting.faults.enable(rule.name, is_enabled=enabled)
    return rule.described()


async def remove_fault(call: Call) -> object:
    """Remove one rule."""
    call.host.faulting.faults.remove(_rule(call).name)
    return None


async def reset_faults(call: Call) -> object:
    """Begin counts and random numbers again."""
    seed = (call.body or {}).get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise ControlError(400, "seed: a whole number expected")
    faults = call.host.faulting.faults
    faults.reset(seed)
    return faults.described()


async def list_fault_sets(_call: Call) -> object:
    """Return the named sets."""
    return {
        "sets": [
            {"name": name, "text": fault_set.doc, "parameters": dict(fault_set.parameters)}
            for name, fault_set in SETS.items()
        ]
    }


async def use_fault_set(call: Call) -> object:
    """Add the rules of a named set."""
    name = call.path["set"]
    if name not in SETS:
        raise ControlError(404, f"there is no set {name}; there are {', '.join(SETS)}")
    return {"faults": [rule.described() for rule in call.host.faulting.faults.use(name, call.body or {})]}


def _rule(call: Call) -> Rule:
    name = call.path["fault"]
    rule = call.host.faulting.faults.rules.get(name)
    if rule is None:
        raise ControlError(404, f"there is no fault {name}")
    return rule


def status_of(error: Exception) -> int | None:
    """Return the HTTP status for an error of these routes, None for another error."""
    return 400 if isinstance(error, FaultError) else None


ROUTES = (
    Route("GET", "/v1/faults", list_faults, "Seed, faults and their hits", answer=_LIST),
    Route("POST", "/v1/faults", add_fault, "Add a fault", body=_RULE, answer=_ANSWER),
    Route("DELETE", "/v1/faults", remove_faults, "Remove all faults"),
    Route(
        "POST", "/v1/faults/reset", reset_faults, "Begin counts and random numbers again, also with another seed",
        body={"type": "object", "properties": {"seed": {"type": "integer"}}, "additionalProperties": False}, answer=_LIST,
    ),
    Route("GET", "/v1/faults/sets", list_fault_sets, "Named sets of faults, with their parameters"),
    Route(
        "POST", "/v1/faults/sets/{set}", use_fault_set, "Add the faults of a named set; the body holds its parameters",
        body={"type": "object", "properties": {"topic": {"type": "string"}, "group": {"type": "string"}}}, answer=_LIST,
    ),
    Route("GET", "/v1/faults/{fault}", show_fault, "One fault and its hits", answer=_ANSWER),
    Route(
        "PATCH", "/v1/faults/{fault}", change_fault, "Switch a fault off or on; its counts stay",
        body={
            "type": "object", "properties": {"enabled": {"type": "boolean"}}, "required": ["enabled"],
            "additionalProperties": False,
        },
        answer=_ANSWER,
    ),
    Route("DELETE", "/v1/faults/{fault}", remove_fault, "Remove a fault"),
)  # fmt: skip
