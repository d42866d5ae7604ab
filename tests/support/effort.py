"""Effort of the random tests: a little with every change, a lot in `make nightly`.

The rule: all that is drawn is drawn from one seed, which the head of each run shows. It is another one each day, and the
same for all runs of that day; a night draws its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import date
from random import Random, SystemRandom
from typing import TypeVar

T = TypeVar("T")

# How many times the usual number of examples; set it to find again what a nightly run has found.
EFFORT = int(os.environ.get("BARNABAS_TEST_EFFORT", "1"))
_DRAWN = str(SystemRandom().getrandbits(32)) if EFFORT > 1 else f"{date.today():%Y%m%d}"
# Set for the other processes of the same run too.
SEED = int(os.environ.setdefault("BARNABAS_TEST_SEED", _DRAWN))


def drawing(run: int = 0) -> Random:
    """Return what a random test draws from, in the first of its runs or another one."""
    return Random(SEED + run)


def examples(count: int) -> int:
    """The number of examples for a test that is happy with `count` of them on an ordinary day."""
    return count * EFFORT


def daily(items: Iterable[T], share: int) -> list[T]:
    """One of `share` items, each day others: for planted bugs that tests must find; with more effort all of them."""
    every = [*items]
    return every if EFFORT > 1 else every[SEED % min(share, len(every) or 1) :: share]
