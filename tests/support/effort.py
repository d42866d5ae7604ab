"""Effort of the random tests: a little with every change, a lot in `make nightly`."""

from __future__ import annotations

import os

# How many times the usual number of examples; set it to find again what a nightly run has found.
EFFORT = int(os.environ.get("BARNABAS_TEST_EFFORT", "1"))


def examples(count: int) -> int:
    """The number of examples for a test that is happy with `count` of them on an ordinary day."""
    return count * EFFORT
