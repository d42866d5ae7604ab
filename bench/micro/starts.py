"""Brokers for tests: wall time until a broker is ready, as a process, and as a further broker in this process.

The rule: the time that a test waits. A process is started as by `barnabas.testing`, with data in memory; the first broker
of a process pays for imports, which `imports` measures, so only later brokers are timed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from bench.micro.timing import Timing

if TYPE_CHECKING:
    from barnabas.testing import KafkaBroker

PROCESSES = 5
BROKERS = 20


def run() -> Iterator[Timing]:
    from barnabas.testing import start_process, start_thread

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as for users of the installed package
    yield _timed("barnabas serve --ephemeral, until ready", PROCESSES, _plain)
    yield _timed("barnabas test-server, until ready", PROCESSES, lambda: _of(start_process))
    yield _timed("a further broker in this process", BROKERS, lambda: _of(start_thread))


def _timed(name: str, samples: int, start: Callable[[], float]) -> Timing:
    start()  # compiles, and imports the shared modules
    taken = [start() for _ in range(samples)]
    return Timing(name, min(taken), median(taken))


def _plain() -> float:
    from barnabas.testing import RunningBroker

    began = perf_counter()
    with RunningBroker():
        return perf_counter() - began


def _of(start: Callable[[], KafkaBroker]) -> float:
    began = perf_counter()
    with start():
        return perf_counter() - began
