"""Regular expressions of clients, with RE2's syntax and semantics as in Kafka. Pure.

The rule: RE2 takes linear time whatever the expression, and its programs are bounded, so that no client can stall the
others; its library is loaded when the first expression arrives.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

PROGRAM_BYTES_MAX: Final = 1 << 20
"""Of programs that are this large one name takes 10 ms at most, compiling one 20 ms, and 256 of them 256 MiB. It is what
10,000 characters need. With RE2's own limit of 8 MiB a name takes up to 60 ms, and a compilation 150 ms of the loop's."""


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Any:
    """Compile an expression; the result has RE2's `fullmatch`. Raises INVALID_REGULAR_EXPRESSION."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PROGRAM_BYTES_MAX
    try:
        return re2.compile(text, options=options)
    except re2.error as error:
        cause = error.args[0] if error.args else ""
        cause = cause.decode(errors="replace") if isinstance(cause, bytes) else cause
        raise RequestError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{text!r} is not a regular expression of RE2: {cause}"
        ) from None
