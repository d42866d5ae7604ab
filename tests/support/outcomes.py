"""Outcomes of a request, in the code and in a model: a value, or the name of its error code; decisions, applied."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from barnabas.coordinators.statemachine.decision import Decision
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from tests.models.transactions import RefusedError


def outcome(act: Callable[[], Any]) -> Any:
    """Return the result of `act`, or the name of the error code of its RequestError."""
    try:
        return act()
    except RefusedError as refusal:
        return str(refusal)
    except RequestError as error:
        return ErrorCode(error.code).name


def are_answers(got: Any, expected: Any) -> bool:
    """Return whether both outcomes are values, to be compared; if one is an error, both must have the same code."""
    if isinstance(got, str) or isinstance(expected, str):
        assert got == expected
        return False
    return True


def apply(out: Decision, shard: Any, timers: dict[object, int]) -> None:
    """Replay the records of a decision in its shard, and set and clear timers (ms)."""
    for key, value in out.records:
        shard.replay(key, value, loading=False)
    for timer, at_ms in (*chain.from_iterable(out.many_timers), *out.timers.items()):
        if at_ms is None:
            timers.pop(timer, None)
        else:
            timers[timer] = at_ms
