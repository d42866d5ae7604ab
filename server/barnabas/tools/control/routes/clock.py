"""Routes over the broker's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.tools.control.clock import FACTOR_MAX, SECONDS_MAX
from barnabas.tools.control.keep_clients import keep_clients
from barnabas.tools.control.routes.base import Call, ControlError, Route

if TYPE_CHECKING:
    from barnabas.tools.control.clock import VirtualClock


async def show_clock(call: Call) -> object:
    """Return the broker's time."""
    return _described(_clock(call))


async def advance_clock(call: Call) -> object:
    """Let time pass immediately."""
    clock = _clock(call)
    ms, is_kept = call.body.get("ms"), call.body.get("keep_clients", False)
    if not isinstance(ms, int | float) or isinstance(ms, bool) or not 0 <= ms <= SECONDS_MAX * 1000:
        raise ControlError(400, f"ms: a number from 0 to {SECONDS_MAX * 1000:.0f} expected")
    if not isinstance(is_kept, bool):
        raise ControlError(400, "keep_clients: true or false expected")
    if is_kept and call.host.broker is not None:
        keep_clients(call.host.broker, int(ms))
    clock.advance(ms / 1000)
    return _described(clock)


async def freeze_clock(call: Call) -> object:
    """Stop the clock."""
    clock = _clock(call)
    clock.freeze()
    return _described(clock)


async def resume_clock(call: Call) -> object:
    """Let the clock run again."""
    clock = _clock(call)
    clock.resume()
    return _described(clock)


async def drive_clock(call: Call) -> object:
    """Let the clock run faster or slower."""
    clock = _clock(call)
    factor = call.body.get("factor")
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not 0 < factor <= FACTOR_MAX:
        raise ControlError(400, f"factor: a number above 0, at most {FACTOR_MAX:.0f}, expected")
    clock.run_at(float(factor))
    return _described(clock)


def _clock(call: Call) -> VirtualClock:
    if call.host.clock is None:
        raise ControlError(
            409, "this broker has the system's clock; start it with --virtual-clock (clock.virtual=true)"
        )
    return call.host.clock


def _described(clock: VirtualClock) -> dict[str, Any]:
    return {
        "now_ms": clock.wall_clock_ms(),
        "ahead_ms": round(clock.ahead_ms),
        "frozen": clock.is_frozen,
        "factor": clock.factor,
    }


_CLOCK = {
    "type": "object",
    "properties": {
        "now_ms": {"type": "integer", "description": "The broker's time, in ms since 1970."},
        "ahead_ms": {
            "type": "integer",
            "description": "How far it is ahead of the system's since it was started.",
        },
        "frozen": {"type": "boolean"},
        "factor": {"type": "number"},
    },
}
_ADVANCE = {
    "type": "object",
    "properties": {
        "ms": {"type": "number", "minimum": 0},
        "keep_clients": {
            "type": "boolean",
            "description": "Whether members of groups and idle connections stay (false).",
        },
    },
    "required": ["ms"],
    "additionalProperties": False,
}
_SPEED = {
    "type": "object",
    "properties": {"factor": {"type": "number", "exclusiveMinimum": 0, "maximum": FACTOR_MAX}},
    "required": ["factor"],
    "additionalProperties": False,
}

ROUTES = (
    Route("GET", "/v1/clock", show_clock, "The broker's time", answer=_CLOCK),
    Route(
        "POST", "/v1/clock/advance", advance_clock, "Let time pass immediately", body=_ADVANCE, answer=_CLOCK
    ),
    Route("POST", "/v1/clock/freeze", freeze_clock, "Stop the clock", answer=_CLOCK),
    Route("POST", "/v1/clock/resume", resume_clock, "Let the clock run again", answer=_CLOCK),
    Route(
        "POST",
        "/v1/clock/speed",
        drive_clock,
        "Let the clock run faster or slower",
        body=_SPEED,
        answer=_CLOCK,
    ),
)
