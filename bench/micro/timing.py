"""How a small piece of code is timed: enough calls a sample, several samples, the best and the median.

The rule: CPU time of this thread, so that neighbours count little; the best sample is what the code costs, the
median what it cost on this machine; with the garbage collector off, as `timeit` has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from timeit import Timer

SAMPLES = 7
SAMPLE_S = 0.1


@dataclass(frozen=True)
class Timing:
    """Seconds a call; `bytes_each` is what one call moves, if that is of interest."""

    name: str
    best_s: float
    median_s: float
    bytes_each: int = 0

    def row(self) -> str:
        rate = f"{self.bytes_each / self.best_s / 1e6:10,.0f} MB/s" if self.bytes_each else ""
        return f"{self.name:56}{self.best_s * 1e6:10,.2f} us{self.median_s * 1e6:10,.2f} us{rate:>16}"


HEADER = f"{'':56}{'best':>13}{'median':>13}"


def measure(name: str, call: Callable[[], object], bytes_each: int = 0) -> Timing:
    """Time `call`."""
    timer = Timer(call, timer=time.thread_time)
    number, taken = timer.autorange()
    number = max(1, int(number * SAMPLE_S / taken))
    samples = [timer.timeit(number) / number for _ in range(SAMPLES)]
    return Timing(name, min(samples), median(samples), bytes_each)
