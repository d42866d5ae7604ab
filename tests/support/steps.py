"""The steps of long work on records, for tests."""

from __future__ import annotations

from typing import Any

from barnabas.records.errors import RecordsError
from barnabas.records.steps import Steps, Work


def kinds(steps: Steps[Any]) -> tuple[list[str | None], Any]:
    """The steps by kind, and their result or error."""
    seen: list[str | None] = []

    def watch() -> None:
        step = next(steps)
        while True:
            seen.append(type(step).__name__ if step is not None else None)
            if isinstance(step, Work):
                try:
                    done = step.call()
                except RecordsError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(done)
            else:
                step = next(steps)

    try:
        watch()
    except StopIteration as end:
        return seen, end.value
    except RecordsError as error:
        return seen, error
