"""follow: a load that goes on, in rounds: what is new is loaded in one commit, then the next round begins.

The rule: the lake is the only memory. A round begins where the last commit ended, so whoever stops, dies or is
started twice costs nothing, and there is no checkpoint that could say something else.

Spark runs the tasks of a round; its own streaming engine is not used. It would keep a second memory of offsets, and its
two logs and a planning process of its own would take longer than a small round does (decision 0051).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs.load import LoadOptions, LoadSummary, load_round
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.table import ConflictError, Table
from barnabas_pipeline.log.transports import open_log

AVAILABLE = "available"
IDLE_SECONDS = 0.1  # between rounds that find nothing new

_UNITS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}


def parse_trigger(text: str) -> float | None:
    """Seconds from the beginning of a round to that of the next; None: what is there now, then end.

    `available`, or a number and a unit: `5 seconds`, `500 milliseconds`, `1 minute`. Raises UsageError.
    """
    if text == AVAILABLE:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *(millisecond|second|minute|hour)s?", text.strip().lower())
    if not found:
        raise UsageError(f"a trigger is {AVAILABLE}, or an interval such as '5 seconds', not {text!r}")
    return float(found[1]) * _UNITS[found[2]]


class Follower:
    """Loads a topic in rounds until it is stopped or, with the trigger `available`, until it has what was there."""

    def __init__(
        self,
        spark: Any,
        options: LoadOptions,
        *,
        trigger: str,
        offsets_max: int = 0,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """`offsets_max` limits a round, 0: as `options` do. `after` is called after each commit."""
        self.summary = LoadSummary()
        self._interval_seconds = parse_trigger(trigger)
        self._spark = spark
        self._options = options
        self._offsets_max = min(offsets_max or options.offsets_per_commit_max, options.offsets_per_commit_max)
        self._after = after
        self._table = Table(options.root)  # one for all rounds: who else loads shows when a commit is refused
        self._dead = DeadLetters(self._table)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def run(self) -> LoadSummary:
        """Load until it is over. Raises what a load raises."""
        self._dead.publish()  # what an earlier run has committed, but not published
        ends = self._ends() if self._interval_seconds is None else None
        while not self._stopping.is_set():
            began = time.monotonic()
            has_loaded = self._round(ends)
            if has_loaded:
                self._after()
                self._dead.publish()
            elif self._interval_seconds is None:
                break
            wait = (self._interval_seconds or 0) - (time.monotonic() - began)
            if ends is None:
                self._stopping.wait(max(wait, 0 if has_loaded else IDLE_SECONDS))
        return self.summary

    def start(self) -> Follower:
        """Do it in a thread; then `wait`."""
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

    def _ends(self) -> dict[int, int]:
        log = open_log(self._options.log)
        try:
            return {partition: bound.end for partition, bound in log.bounds().items()}
        finally:
            log.close()

    def _round(self, ends: dict[int, int] | None) -> bool:
        while True:
            try:
                return load_round(
                    self._spark,
                    self._options,
                    self._table,
                    self.summary,
                    ends=ends,
                    offsets_max=self._offsets_max,
                )
            except ConflictError:
                self._table.refresh()
                continue  # somebody else has committed: what is left is less now
