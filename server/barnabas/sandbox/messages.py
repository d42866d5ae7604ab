"""Messages between a sandbox and its child processes: a length in eight bytes and a pickle.

The rule: both ends run the same code and only the parent writes requests, so a pickle is never foreign; foreign data is
a value in it. A response contains texts and bytes rather than trees of values, since the parent's event loop unpickles it.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LENGTH = struct.Struct(">Q")


class SandboxError(Exception):
    """Work on foreign input was ended; the text names the limit that it reached."""


@dataclass(frozen=True, slots=True)
class Work:
    """A call: a function of a module, and its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    seconds: float
    """CPU time after which the operating system ends the child."""


@dataclass(frozen=True, slots=True)
class Result:
    """The return value of a call, or the exception that it raised."""

    value: Any = None
    error: Exception | None = None
    ends_child: bool = False
    """True if the child ends, since its memory is no longer reliable."""


def encode(message: Work | Result | Exception) -> bytes:
    """Return the bytes of a message, the length in front."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


def decode(data: bytes | bytearray) -> Any:
    """Return the message of these bytes, which follow the length."""
    return pickle.loads(data)
