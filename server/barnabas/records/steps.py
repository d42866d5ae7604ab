"""Long work on records as a series of steps, so that other tasks can run in between.

The rule: a step is short (well under 1 ms), or it is `Work`, which may be run in a thread because it spends its time in
libraries that release the interpreter. Large allocations are announced by `Reserve` before they happen.

A generator of steps yields None where other tasks may run, and returns its result. `run` runs all steps immediately;
`barnabas.serving.step_runner` interleaves them with those of other tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

RECORDS_PER_STEP: Final = 1_000
"""Records that are gone over between two checkpoints: some tenths of a millisecond."""


class Reserve:
    """Announces that up to `bytes_max` bytes are held from now to the end, in place of the last announcement."""

    __slots__ = ("bytes_max",)

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max


class Work:
    """A call that may take long and releases the interpreter; its result is sent into the generator, its error thrown."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call


Step: TypeAlias = Reserve | Work | None
Steps: TypeAlias = Generator[Step, Any, T]


def run(steps: Steps[T]) -> T:
    """Go through all steps at once; returns their result, raises their error."""
    try:
        step = next(steps)
        while True:
            if isinstance(step, Work):
                try:
                    done = step.call()
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(done)
            else:
                step = next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
