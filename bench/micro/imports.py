"""Start-up: the cost of imports, in a fresh interpreter each time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from statistics import median
from time import perf_counter

from bench.micro.timing import Timing

SAMPLES = 10
STATEMENTS = ("pass", "import trio", "import barnabas.wire.generated.produce", "import barnabas.cli")


def run() -> Iterator[Timing]:
    from barnabas.testing.running import import_path

    environment = {**os.environ, "PYTHONPATH": import_path()}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for statement in STATEMENTS:
        samples = []
        for _ in range(SAMPLES + 1):
            start = perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", statement], env=environment, stderr=subprocess.DEVNULL, check=False
            )
            samples.append(perf_counter() - start)
        if done.returncode == 0:
            del samples[0]  # the first run may have compiled byte code
            yield Timing(f"python -c '{statement}'", min(samples), median(samples))
