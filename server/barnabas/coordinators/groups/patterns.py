"""Regular expressions of clients, with RE2's syntax and semantics as in Kafka. Pure.

The rule: RE2 takes linear time whatever the expression, so that no client can stall the others; its library is loaded
when the first expression arrives.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Any:
    """Compile an expression; the result has RE2's `fullmatch`. Raises INVALID_REGULAR_EXPRESSION."""
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
