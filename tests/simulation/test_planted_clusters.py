"""Harsh histories of clusters find bugs of replication that are planted in the brokers."""

from __future__ import annotations

import os

import pytest

from barnabas.testing.simulation.broker import quiet_logs
from tests.simulation.cluster import judged
from tests.simulation.planted_cluster import BUGS, planted, seeds_until_found

EFFORT = int(os.environ.get("BARNABAS_TEST_EFFORT", "1"))
SOON_FOUND = ("committed before the ISR has it", "acknowledged when deposed")
SEEDS_MAX = 12
BUGS_SEARCHED = SOON_FOUND if EFFORT == 1 else tuple(BUGS)
"""With more effort all are looked for; some take hundreds of seeds."""


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logs():
        yield


@pytest.mark.parametrize("bug", BUGS_SEARCHED)
def test_a_planted_bug_is_found(bug):
    assert seeds_until_found(bug, 0, SEEDS_MAX * EFFORT) is not None


def test_a_planted_bug_is_gone_after_its_block():
    with planted("committed before the ISR has it"):
        pass
    assert not judged(0, harsh=True)[1]
