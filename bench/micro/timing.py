"""Timing of a small piece of code: enough calls per sample, several samples, the best and the median.

The rule: CPU time of this thread, so that other processes count little; the best sample is the cost of the code, the
median its cost on this machine; the garbage collector is off, as in `timeit`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from timeit import Timer

SAMPLES = 7
SAMPLE_S = 0.1


@dataclass(frozen=True)
class Timing:
    """Seconds per call; `bytes_each` is the number of bytes that a call moves, 0 if irrelevant; `beside` a comparison."""

    name: str
    best_s: float
    median_s: float
    bytes_each: int = 0
    beside: str = ""

    def row(self) -> str:
        rate = f"{self.bytes_each / self.best_s / 1e6:10,.0f} MB/s" if self.bytes_each else ""
        times = f"{self.best_s * 1e6:10,.2f} us{self.median_s * 1e6:10,.2f} us"
        return f"{self.name:56}{times}{rate:>16}{self.beside}"


HEADER = f"{'':56}{'best':>13}{'median':>13}"


def measure(name: str, call: Callable[[], object], bytes_each: int = 0) -> Timing:
    """Time `call`."""
    timer = Timer(call, timer=time.thread_time)
    number, taken = timer.autorange()
    number = max(1, int(number * SAMPLE_S / taken))
    samples = [timer.timeit(number) / number for _ in range(SAMPLES)]
    return Timing(name, min(samples), median(samples), bytes_each)


def measure_beside(
    calls: Mapping[str, Callable[[], object]], bytes_each: int, *, to: Sequence[str]
) -> list[Timing]:
    """Time several calls in turns, and compare the rate of each with those named in `to`.

    A ratio is computed within a round, in which all calls run in turn; the median and the span are shown.
    """
    timers = {name: Timer(call, timer=time.thread_time) for name, call in calls.items()}
    numbers = {}
    for name, timer in timers.items():
        number, taken = timer.autorange()
        numbers[name] = max(1, int(number * SAMPLE_S / taken))
    rounds = [
        {name: timer.timeit(numbers[name]) / numbers[name] for name, timer in timers.items()}
        for _ in range(SAMPLES)
    ]
    timings = []
    for name in calls:
        samples = [each[name] for each in rounds]
        compared = ""
        for other in to:
            ratios = [each[other] / each[name] for each in rounds]
            if other != name:
                compared += f"  {median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) of {other}"
        timings.append(Timing(name, min(samples), median(samples), bytes_each, compared))
    return timings
