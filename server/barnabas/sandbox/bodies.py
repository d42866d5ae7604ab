"""Bodies of requests, as JSON: small ones are parsed immediately, larger ones in a child process, which counts their
values.

The rule: a body is parsed here only once it is known to be small, or to contain few values.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from barnabas.errors import AnswerError
from barnabas.sandbox.messages import SandboxError

if TYPE_CHECKING:
    from barnabas.sandbox.pool import Sandbox

BYTES_MAX = 8 << 20
"""Bytes of a body of a logged-in visitor."""
BYTES_BEFORE_LOGIN_MAX = 16 << 10
"""Size of a body without a login."""
AT_ONCE_BYTES_MAX = 16 << 10
"""Size of a body that is read at once: some 1 ms."""
VALUES_MAX = 50_000
"""Values that a body may hold, names apart."""


class TooManyValuesError(Exception):
    """A body contains more values than allowed."""


async def read(body: bytes, sandbox: Sandbox, owner: Hashable, values_max: int = VALUES_MAX) -> Any:
    """Return the parsed JSON of a body; None for an empty one. Raises AnswerError."""
    if not body:
        return None
    try:
        if len(body) <= AT_ONCE_BYTES_MAX:
            return json.loads(body)
        return await sandbox.call(parse, body, values_max, owner=owner)
    except (ValueError, RecursionError) as error:
        raise AnswerError(400, f"the body is not JSON: {error}") from None
    except TooManyValuesError:
        raise AnswerError(413, f"a body has at most {values_max} values") from None
    except SandboxError as error:
        raise AnswerError(413, f"the body cannot be read: {error}") from None


def parse(body: bytes, values_max: int = VALUES_MAX) -> Any:
    """Return the value of a body. Raises ValueError, RecursionError, TooManyValuesError."""
    value = json.loads(body)
    waiting, count = [value], 0
    while waiting:
        inner = waiting.pop()
        children = inner.values() if isinstance(inner, dict) else inner if isinstance(inner, list) else ()
        count += len(children)
        if count > values_max:
            raise TooManyValuesError
        waiting += children
    return value
