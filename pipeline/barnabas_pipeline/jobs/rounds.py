"""Rounds: the common loop of all continuous jobs, by a trigger: all that is available now, or an interval.

The rule: a job's only state are its commits. A round polls, applies new data and commits, and the next begins where it
ended, so a job that is stopped, killed or started twice loses nothing. Spark runs tasks of rounds, and not the rounds: its
streaming engine would keep a second memory of offsets, which could contradict the lake, and its two logs and its planning
process take longer than a small round (decision 0051).
"""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from barnabas_pipeline.errors import IncompleteError, PipelineError, UsageError
from barnabas_pipeline.jobs import ONCE
from barnabas_pipeline.lake.table import ConflictError

AVAILABLE = "available"
IDLE_SECONDS = 0.1  # pause after a round without new data
CONFLICTS_MAX = 20

_UNITS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}


@dataclass(slots=True)
class Round:
    """A round: its seconds by step, whether it has committed, and whether a bounded run needs another round."""

    number: int
    has_done: bool = False
    has_more: bool = False
    seconds: float = 0.0
    steps: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the seconds of the body to a step."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.steps[name] = self.steps.get(name, 0.0) + time.monotonic() - began


P = TypeVar("P")
R = TypeVar("R", bound=Round)
S = TypeVar("S")


class Rounds(ABC, Generic[P, R, S]):
    """A job in rounds, with a plan P of new data, rounds R, and a summary S of all rounds.

    Lifecycle: `run` any number of times, then `close`; `stop`, also from another thread, ends it for good.
    """

    kind: type[R]
    """The class of its rounds."""
    summary: S

    def __init__(self, watchers: Sequence[Any] = (), *, is_bounded: bool = True) -> None:
        """`watchers` are called after each round; `is_bounded`: follow only up to the present end."""
        self.watchers = [*watchers]
        self.is_bounded = is_bounded
        self._count = 0
        self._stopping = threading.Event()

    # --- the parts of a job -----------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Return whether no further round has work to do."""
        return False

    @abstractmethod
    def poll(self, done: R) -> P | None:
        """Return a plan of new data; None without new data."""

    @abstractmethod
    def apply(self, plan: P, done: R) -> None:
        """Carry out a plan, and commit it. After a ConflictError it is planned again."""

    def conclude(self, done: R) -> None:
        """Finish a round that has not failed."""

    def fail(self, error: PipelineError, done: R) -> None:  # noqa: ARG002 - for jobs that note it
        """Note the failure of a round, or raise it: then it ends the job."""
        raise error

    def note(self, done: R) -> None:
        """Count the results of a round, failed or not."""

    # --- the loop ---------------------------------------------------------------------------------------------------

    def round(self) -> R:
        """Run a round: process new data once. Raises the errors of `fail`."""
        self._count += 1
        done = self.kind(self._count)
        try:
            for _ in range(CONFLICTS_MAX):
                plan = self.poll(done)
                if plan is None:
                    break
                try:
                    self.apply(plan, done)
                    break
                except ConflictError:
                    continue  # another run has committed, so less remains
            else:
                raise IncompleteError(f"{self}: others were faster")
            self.conclude(done)
        except PipelineError as error:
            self.fail(error, done)
        done.seconds = time.monotonic() - done.began
        self.note(done)
        for watcher in self.watchers:
            watcher.ended(done)
        return done

    def run(self, trigger: str = ONCE, after: Callable[[], None] = lambda: None) -> S:
        """Run rounds by a trigger; `after` is called after each round that has processed data.

        Raises the errors of rounds.
        """
        interval_seconds = interval_of(trigger)
        self.is_bounded = interval_seconds is None

        def step() -> tuple[bool, bool]:
            done = self.round()
            if done.has_done:
                after()
            return done.has_done, self.is_over or (self.is_bounded and not done.has_more)

        repeat(step, interval_seconds or 0, self._stopping)
        return self.summary

    def stop(self) -> None:
        """Stop after the present round."""
        self._stopping.set()


def interval_of(trigger: str) -> float | None:
    """Return the seconds of a trigger like `parse_trigger`, but None also for `once`. Raises UsageError."""
    return None if trigger == ONCE else parse_trigger(trigger)


def parse_trigger(text: str) -> float | None:
    """Return the seconds between the beginnings of two rounds; None for a bounded run.

    `available`, or a number and a unit: `5 seconds`, `500 milliseconds`, `1 minute`. Raises UsageError.
    """
    if text == AVAILABLE:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *(millisecond|second|minute|hour)s?", text.strip().lower())
    if not match:
        raise UsageError(f"a trigger is {AVAILABLE}, or an interval such as '5 seconds', not {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def repeat(step: Callable[[], tuple[bool, bool]], interval_seconds: float, stopping: threading.Event) -> None:
    """Run rounds until a step returns that it was the last, or `stopping` is set; a running round is not interrupted.

    `step` returns (whether the round processed data, whether it was the last). Rounds begin at the interval, or immediately
    after a longer round; after a round without new data there is a pause.
    """
    while not stopping.is_set():
        began = time.monotonic()
        has_done, is_last = step()
        if is_last:
            break
        remaining_seconds = interval_seconds - (time.monotonic() - began)
        stopping.wait(max(remaining_seconds, 0 if has_done else IDLE_SECONDS))
