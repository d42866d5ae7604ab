"""The error code of a rejected request."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.errors import RequestError


def code_of(action: Any, *arguments: Any, **fields: Any) -> int:
    """Return the code of the RequestError that an action raises."""
    with pytest.raises(RequestError) as caught:
        action(*arguments, **fields)
    return caught.value.code
