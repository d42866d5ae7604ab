"""Outcomes of a request, by the code as by a model: a value, or the name of the error code that refuses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from tests.models.transactions import RefusedError


def outcome(act: Callable[[], Any]) -> Any:
    """Return what `act` returns, or the name of the error code with which it refuses."""
    try:
        return act()
    except RefusedError as refusal:
        return str(refusal)
    except RequestError as error:
        return ErrorCode(error.code).name


def are_answers(got: Any, expected: Any) -> bool:
    """Say whether there are answers to compare; where one is refused, both must be, and with the same code."""
    if isinstance(got, str) or isinstance(expected, str):
        assert got == expected
        return False
    return True
