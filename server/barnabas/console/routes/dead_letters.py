"""Routes over dead letters: records that were given up, sent again."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.console.base import Call, ConsoleError, Parameter, Route
from barnabas.console.redriving import REDRIVEN_MAX, planned, redrive


async def redrive_letters(call: Call) -> object:
    """Send dead letters again, or return the plan."""
    offsets = _offsets(call.field("offsets", dict))
    target = call.field("target", str, "")
    is_executed = call.field("execute", bool, False)
    outcomes = await planned(call.backend, call.path["topic"], offsets, target)
    if is_executed:
        await redrive(call.backend, outcomes)
    return {
        "rows": [outcome.as_json() for outcome in outcomes],
        "failed": sum(1 for outcome in outcomes if outcome.error),
        "executed": is_executed,
    }


def _offsets(body: Mapping[str, object]) -> dict[int, set[int]]:
    """Return offsets by partition, from a body. Raises ConsoleError."""
    offsets: dict[int, set[int]] = {}
    for partition, values in body.items():
        if not partition.isdecimal() or not partition.isascii() or not isinstance(values, list):
            raise ConsoleError(400, 'offsets: {"PARTITION": [OFFSET, ...]} expected')
        if not all(type(value) is int and value >= 0 for value in values):
            raise ConsoleError(400, "offsets: whole numbers expected")
        offsets.setdefault(int(partition), set()).update(values)
    if not 0 < sum(map(len, offsets.values())) <= REDRIVEN_MAX:
        raise ConsoleError(400, f"offsets: 1 to {REDRIVEN_MAX} expected")
    return offsets


ROUTES = (
    Route("POST", "/api/topics/{topic}/redrive", redrive_letters,
          "Send dead letters again, with the key, value and headers of their records, and tell the outcome of each",
          body=(Parameter("offsets", f'dead letters of the topic, at most {REDRIVEN_MAX}: {{"PARTITION": [OFFSET, ...]}}'),
                Parameter("target", "topic to send them to (that of each record)"),
                Parameter("execute", "true to send them; else what would be sent is told (false)"))),
)  # fmt: skip
