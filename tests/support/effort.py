"""Effort of the random tests: a little with every change, a lot in `make nightly`.

The rule: all random values are drawn from one seed, which the head of each run shows. All runs of a day have the same seed;
each nightly run draws its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import date
from random import Random, SystemRandom
from typing import TypeVar

T = TypeVar("T")

# Multiplies the number of examples; set it to repeat a failure of a nightly run.
EFFORT = int(os.environ.get("BARNABAS_TEST_EFFORT", "1"))
_DRAWN = str(SystemRandom().getrandbits(32)) if EFFORT > 1 else f"{date.today():%Y%m%d}"
# Set for the other processes of the same run too.
SEED = int(os.environ.setdefault("BARNABAS_TEST_SEED", _DRAWN))


def drawing(run: int = 0) -> Random:
    """Return the generator of a random test, for the run of that number."""
    return Random(SEED + run)


def examples(count: int) -> int:
    """Return the number of examples of a test that has `count` of them on an ordinary day."""
    return count * EFFORT


def daily(items: Iterable[T], share: int) -> list[T]:
    """Return one of `share` items, others each day, or all with more effort: for planted bugs that tests must find."""
    every = [*items]
    return every if EFFORT > 1 else every[SEED % min(share, len(every) or 1) :: share]
