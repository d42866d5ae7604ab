"""CPU time of each step of Trio's event loop, and peak memory of a process: the limits for visitors of the console.

The rule: time is the thread's CPU time (`time.thread_time`), so that a busy machine fails no test. The garbage collector is
set up as in a serving process: otherwise one of the steps would traverse all objects of the test and of its broker.
"""

from __future__ import annotations

import gc
import math
import time
from pathlib import Path

import trio

from barnabas.broker.interpreter import settle_garbage_collector

STEP_SECONDS_MAX = 0.05
GROWTH_BYTES_MAX = 300 << 20


class StepWatch(trio.abc.Instrument):
    """Lifecycle: `with watch:` inside `trio.run`; `worst` is the longest step (s) since `forget`, `where` its task.

    `but` are prefixes of names of tasks that are not watched.
    """

    def __init__(self, *but: str) -> None:
        self.worst = 0.0
        self.where = ""
        self._but = but
        self._began = math.inf
        self._thresholds = gc.get_threshold()

    def forget(self) -> None:
        """Reset `worst` and `where`."""
        self.worst, self.where = 0.0, ""

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        seconds = time.thread_time() - self._began
        if seconds > self.worst and not task.name.startswith(self._but):
            self.worst, self.where = seconds, task.name

    def __enter__(self) -> StepWatch:
        gc.collect()
        settle_garbage_collector()
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()


def forget_peak() -> int:
    """Reset the peak of this process's resident memory; returns the present resident memory, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak() -> int:
    """Return the peak of resident memory since `forget_peak`, in bytes."""
    return _status("VmHWM")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise AssertionError(name)
