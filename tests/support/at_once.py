"""Coroutines that wait for nothing, run without an event loop: for random tests of many short histories."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.serving.loop_budget import LoopBudget

T = TypeVar("T")


def no_turns() -> LoopBudget:
    """Return a budget that is never exhausted."""
    return LoopBudget(budget_seconds=math.inf)


class CheckpointCount:
    """A clock that does not advance, and counts checkpoints: its budget reads it at each one."""

    def __init__(self) -> None:
        self.count = 0
        self.budget = LoopBudget(budget_seconds=math.inf, clock=self)
        self.count = 0

    def __call__(self) -> float:
        self.count += 1
        return 0.0


class NoThreads:
    """Runs the work of threads in the calling task."""

    async def run(self, work: Callable[[], T], *_: object, **__: object) -> T:
        return work()


class LocalMetadata:
    """A metadata store that consists of an image."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image

    async def change(self, decide: Callable[[ClusterImage], Iterable[Change]]) -> None:
        """Apply the changes that `decide` returns for the image."""
        self.image = self.image.apply([*decide(self.image)])


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; returns its result. Raises AssertionError if it waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    except RuntimeError as error:
        raise AssertionError("it waits for something") from error
    work.close()
    raise AssertionError("it waits for something")
