"""Tests that are programs of a simulated world: a decorator names the function that runs the program."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any


def run_with(run: Callable[..., Any], **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Run a test by `run`, which passes its first parameter; the others are fixtures and parameters of pytest."""

    def decorate(program: Callable[..., Any]) -> Callable[..., None]:
        @wraps(program)
        def test(**arguments: Any) -> None:
            run(partial(program, **arguments), **settings)

        _, *parameters = inspect.signature(program).parameters.values()
        test.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return test

    return decorate
