"""follow: a load that goes on, in rounds: what is new is loaded, one commit for each topic, then the next round begins.

The rule: the lake is the only memory. A round begins where the last commit ended, so a load that is
stopped, killed or started twice loses nothing, and there is no checkpoint that could contradict the lake.

Spark runs the tasks of a round; its own streaming engine is not used. It would keep a second memory of offsets, and its
two logs and a planning process of its own would take longer than a small round does (decision 0051).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas_pipeline.jobs.choices import Choice
from barnabas_pipeline.jobs.load import LoadOptions, LoadSummary
from barnabas_pipeline.jobs.rounds import Round, Rounds, Topics, Watcher
from barnabas_pipeline.jobs.triggers import AVAILABLE, parse_trigger, repeat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[int, int], None]


class Follower:
    """Loads topics in rounds until it is stopped or, with the trigger `available`, up to the ends of the first round."""

    def __init__(
        self,
        spark: SparkSession,
        topics: Topics | LoadOptions,
        *,
        trigger: str,
        offsets_max: int = 0,
        after: Callable[[], None] = lambda: None,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        """`offsets_max` limits a round, 0: as usual. `after` is called after each round that has committed something."""
        self._interval_seconds = parse_trigger(trigger)
        self._is_bounded = self._interval_seconds is None
        if isinstance(topics, LoadOptions):
            topics = only(topics)
        self.rounds = Rounds(
            spark, topics, is_bounded=self._is_bounded, offsets_max=offsets_max, watchers=watchers
        )
        self._after = after
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def summary(self) -> LoadSummary:
        """The figures of all topics so far."""
        return self.rounds.summary

    def run(self) -> LoadSummary:
        """Load until it is over. Raises what a load raises, of many topics the worst."""
        try:
            repeat(self._round, self._interval_seconds or 0, self._stopping)
        finally:
            self.rounds.close()
        self.rounds.raise_worst()
        return self.summary

    def _round(self) -> tuple[bool, bool]:
        done = self.rounds.round()
        if done.commits:
            self._after()
        return bool(done.commits), self.rounds.is_over or (self._is_bounded and not done.has_more)

    def start(self) -> Follower:
        """Start loading in a thread; `wait` waits for its end."""
        self._thread = threading.Thread(target=self._run_and_keep, name="follower", daemon=True)
        self._thread.start()
        return self

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end; returns whether it has come. Raises what ended the load, if it was not `stop`."""
        assert self._thread is not None
        self._thread.join(timeout_seconds)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Begin no other round, and wait for the present one."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run_and_keep(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._error = error


def load(
    spark: SparkSession, options: LoadOptions, progress: Progress = lambda _done, _all: None
) -> LoadSummary:
    """Load the present records of one topic. Raises DataLossError, UsageError, IncompleteError."""
    return Follower(spark, options, trigger=AVAILABLE, watchers=[_Portions(progress)]).run()


class _Portions(Watcher):
    """Reports the progress of a load, as (done, all) offsets."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def ended(self, done: Round) -> None:
        """Report after each round with a commit."""
        if done.commits:
            self._progress(done.offsets, done.offsets + done.behind)


def only(options: LoadOptions) -> Topics:
    """Return one topic, by its options."""
    return Topics(options.log, Choice((options.log.topic,)), lambda _: options.root, lambda _: options)
