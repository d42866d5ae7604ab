"""Regular expressions of clients, with RE2's syntax and semantics as in Kafka. Pure.

The rule: RE2 takes linear time whatever the expression, and its programs are bounded (`barnabas.patterns`), so that no
client can stall the others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from barnabas import patterns
from barnabas.errors import RequestError
from barnabas.patterns import PatternError
from barnabas.wire.generated.errors import ErrorCode


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Any:
    """Compile an expression; the result has RE2's `fullmatch`. Raises INVALID_REGULAR_EXPRESSION."""
    try:
        return patterns.compile_pattern(text)
    except PatternError as error:
        raise RequestError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
