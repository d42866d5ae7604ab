"""Functions that tests call in a sandbox."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


class UnpickledError(Exception):
    """An error that cannot be unpickled, as its text is not the argument of its constructor."""

    def __init__(self, name: str, line: int) -> None:
        super().__init__(f"{name} in line {line}")


def raise_unpickled() -> None:
    raise UnpickledError("x", 3)


def joined(*arguments: Any) -> tuple[Any, ...]:
    return arguments


def raising(error: Exception) -> None:
    raise error


def allocate(size: int) -> int:
    return len([bytes(1 << 20) for _ in range(size >> 20)])


def recurse() -> None:
    recurse()


def end_by(number: int) -> None:
    os.kill(os.getpid(), number)


def spin(file: str = "") -> None:
    if file:
        Path(file).write_text(str(os.getpid()))
    while True:
        pass


def interval(seconds: float) -> tuple[float, float]:
    began = time.monotonic()
    time.sleep(seconds)
    return began, time.monotonic()
