"""THE table of the effects of faults.

The parser, the short form, the JSON schema and the reference page are derived from it. The rule: a value is checked and
converted once, when the rule is created.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.tools.faults import batches, paths
from barnabas.tools.faults.errors import FaultError
from barnabas.tools.faults.events import CONNECT, DISK, REQUEST

BEFORE, AFTER = "before", "after"
MS_MAX = 24 * 3600 * 1000


class Span(NamedTuple):
    """A number that is drawn between two, or one number where they are the same."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Action:
    """A row: its name under `do`, its events, the parser of its value, and its effect.

    `schema` is the JSON schema of its value.
    """

    name: str
    events: tuple[str, ...]
    parse: Callable[[Any, str], Any]
    schema: Mapping[str, Any]
    doc: str


def _choice(*allowed: str) -> tuple[Callable[[Any, str], Any], Mapping[str, Any]]:
    def parse(value: Any, place: str) -> str:
        if value is True and BEFORE in allowed:
            return BEFORE
        if value in allowed:
            return str(value)
        raise FaultError(f"{value!r} is not one of {', '.join(allowed)}", place)

    return parse, {"enum": list(allowed)}


def _flag(value: Any, place: str) -> bool:
    if value in (True, "true"):
        return True
    raise FaultError(f"{value!r} is not true; leave it out where it is not wanted", place)


def whole(value: Any, place: str, low: int = 0, high: int = 2**53) -> int:
    """Return a whole number of a range. Raises FaultError."""
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    raise FaultError(f"{value!r} is not a whole number from {low} to {high}", place)


def _span(value: Any, place: str) -> Span:
    parts = value.split("..") if isinstance(value, str) else [value, value]
    try:
        low, high = (float(part) for part in (parts * 2 if len(parts) == 1 else parts))
    except (TypeError, ValueError):
        low, high = 1.0, 0.0
    if isinstance(value, bool) or not 0 <= low <= high <= MS_MAX:
        raise FaultError(f"{value!r} is not a number of ms, as 100, or a range of them, as 50..200", place)
    return Span(low, high)


def _path(value: Any, place: str) -> paths.Path:
    if not isinstance(value, str):
        raise FaultError("a path is expected, as topics[*].error_code", place)
    return paths.parse(value, place)


def _settings(value: Any, place: str) -> dict[paths.Path, Any]:
    if isinstance(value, str) and ":" in value:  # the short form: set=PATH:VALUE
        path, _, text = value.rpartition(":")
        value = {path: int(text) if text.removeprefix("-").isdigit() else text}
    if not isinstance(value, dict) or not value:
        raise FaultError("places and their values are expected, as {throttle_time_ms: 500}", place)
    return {paths.parse(str(path), place): replacement for path, replacement in value.items()}


def _errno(value: Any, place: str) -> int:
    number = getattr(errno, str(value).upper(), None)
    if isinstance(number, int):
        return number
    raise FaultError(f"{value!r} is not the name of an error of the system, as ENOSPC or EIO", place)


_SPAN = {"oneOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^[0-9.]+\.\.[0-9.]+$"}]}
_CODE = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
_TRUE = {"const": True}
_ON_REQUEST = (REQUEST,)


def _whole_of(high: int) -> tuple[Callable[[Any, str], Any], Mapping[str, Any]]:
    return lambda value, place: whole(value, place, 0, high), {
        "type": "integer",
        "minimum": 0,
        "maximum": high,
    }


ACTIONS: tuple[Action, ...] = (
    Action("error", _ON_REQUEST, paths.code_of, _CODE,
           "The request is not done and answered with this error code, in every place where the broker would put it; "
           "with `on.topic` only these topics or partitions fail, and the rest is done."),
    Action("error_after", _ON_REQUEST, paths.code_of, _CODE,
           "The request is done, and answered as if it had failed with this error code."),
    Action("at", _ON_REQUEST, _path, {"type": "string"},
           "Where `error` stands, instead of in every place: a path such as "
           "`responses[name=t].partition_responses[*].error_code`. The request is done."),
    Action("set", _ON_REQUEST, _settings, {"type": "object"},
           "Fields of the answer get other values: paths and values."),
    Action("hold_ms", _ON_REQUEST, _span, _SPAN, "The request waits before it is handled."),
    Action("delay_ms", (REQUEST, CONNECT, *DISK), _span, _SPAN,
           "The answer is sent, the connection served, or the disk ready, so much later."),
    Action("delay_us_per_byte", _ON_REQUEST, _span, _SPAN, "The answer is late by so many microseconds for each byte."),
    Action("drop", _ON_REQUEST, *_choice("request", "answer"),
           "`request`: nothing is done and nothing answered. `answer`: it is done, and nothing answered."),
    Action("close", _ON_REQUEST, *_choice(BEFORE, AFTER),
           "The connection is closed, before the request is done or after that, instead of the answer."),
    Action("reset", _ON_REQUEST, *_choice(BEFORE, AFTER), "The same with a TCP reset."),
    Action("cut", _ON_REQUEST, *_choice("close", "reset"),
           "The first half of the answer is sent, or `bytes` of it, and then the connection is closed or reset."),
    Action("bytes", _ON_REQUEST, *_whole_of(2**31), "How many bytes `cut` sends."),
    Action("correlation_id", _ON_REQUEST, *_choice("wrong"), "The answer has another correlation id."),
    Action("twice", _ON_REQUEST, _flag, _TRUE, "The answer is sent twice."),
    Action("swap", _ON_REQUEST, _flag, _TRUE,
           "The answer is kept back until the next one on its connection has been sent; a client has to pipeline."),
    Action("garbage", _ON_REQUEST, *_choice("body", "frame"),
           "Random bytes stand for the answer's body, or for all of it but its size."),
    Action("corrupt", _ON_REQUEST, *_choice(*batches.DAMAGES),
           "The first batch of each partition of a Fetch answer is damaged: its checksum (`crc`), count of records (one "
           "more, -1, or 2147483647), compression, magic byte, length or payload, or it is cut in half. The checksum is "
           "computed again where it would tell, but for `byte`, which changes one byte in the middle of the records. "
           "Answers without records do not count."),
    Action("stale", _ON_REQUEST, _flag, _TRUE,
           "Metadata is that of the moment when the rule was made: without newer topics, with older leader epochs."),
    Action("throttle_ms", _ON_REQUEST, *_whole_of(MS_MAX),
           "The answer says so in `throttle_time_ms`, and nothing is read from the connection for so long (KIP-219)."),
    Action("expire", _ON_REQUEST, _flag, _TRUE,
           "The session of the group member that asks ends before the request is handled, as if it had been silent."),
    Action("kill", _ON_REQUEST, *_choice(BEFORE, AFTER),
           "The broker's process ends as by `kill -9`, before the request is done or between that and the answer."),
    Action("restart", _ON_REQUEST, *_choice(BEFORE, AFTER),
           "The broker stops cleanly and starts again on the same ports; the request is not answered."),
    Action("refuse", (CONNECT,), _flag, _TRUE, "The connection is reset as soon as it is made."),
    Action("hang", (CONNECT,), _flag, _TRUE, "The connection is accepted, and nothing on it ever read or answered."),
    Action("errno", DISK, _errno, {"type": "string"},
           "The system call fails with this error: ENOSPC for a full disk, EIO for a broken one."),
)  # fmt: skip

BY_NAME: dict[str, Action] = {action.name: action for action in ACTIONS}


def parse(value: Any, event: str) -> dict[str, Any]:
    """Return the entries under `do` with checked values. Raises FaultError."""
    if not isinstance(value, dict) or not value:
        raise FaultError(
            f"an action is expected, as {{error: NOT_LEADER_OR_FOLLOWER}}; {_known(event)}", "do"
        )
    parsed = {}
    for name, argument in value.items():
        action = BY_NAME.get(name)
        place = f"do.{name}"
        if action is None:
            raise FaultError(f"there is no such action; {_known(event)}", place)
        if event not in action.events:
            raise FaultError(f"is not for {event}; {_known(event)}", place)
        parsed[name] = action.parse(argument, place)
    if "at" in parsed and "error" not in parsed:
        raise FaultError("says where an error stands, and there is none: add error", "do.at")
    if "bytes" in parsed and "cut" not in parsed:
        raise FaultError("is for cut", "do.bytes")
    return parsed


def _known(event: str) -> str:
    return f"for {event} there are {', '.join(action.name for action in ACTIONS if event in action.events)}"
