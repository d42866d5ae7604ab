"""Subscriptions by regular expression, with RE2's syntax and semantics as in Kafka. Pure.

The rule: the whole of a topic's name must match. RE2 takes linear time whatever the expression, so that no member can
stall the others; its library is loaded when the first expression arrives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Resolved:
    """The topics that an expression matched, in which version of the metadata, and when."""

    topics: frozenset[str]
    version: int
    at_ms: int


def matching(text: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match as a whole. Raises INVALID_REGULAR_EXPRESSION."""
    match = _compiled(text).fullmatch
    return frozenset(name for name in names if match(name))


@lru_cache(maxsize=256)
def _compiled(text: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options=options)
    except re2.error as error:
        cause = error.args[0] if error.args else ""
        cause = cause.decode(errors="replace") if isinstance(cause, bytes) else cause
        raise RequestError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{text!r} is not a regular expression of RE2: {cause}"
        ) from None
