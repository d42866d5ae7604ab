"""Directed histories of clusters find bugs of replication and of controllers that are planted in the brokers."""

from __future__ import annotations

import os

import pytest

from barnabas.testing.simulation.broker import quiet_logs
from tests.simulation.cluster import Kind, judged
from tests.simulation.planted_cluster import BUGS, FOUND_BY, planted, search

EFFORT = int(os.environ.get("BARNABAS_TEST_EFFORT", "1"))
SOON_FOUND = ("committed before the ISR has it", "acknowledged when deposed")
SEEDS_MAX = 15
BUGS_SEARCHED = SOON_FOUND if EFFORT == 1 else tuple(BUGS)
"""With more effort all are looked for."""


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logs():
        yield


def test_each_bug_has_its_seed():
    assert FOUND_BY.keys() == BUGS.keys()


@pytest.mark.parametrize("bug", BUGS_SEARCHED)
def test_a_planted_bug_is_found(bug):
    fault, first = FOUND_BY[bug]
    found = search(bug, first, SEEDS_MAX * EFFORT, [fault])
    assert found, f"{bug}: not found in {SEEDS_MAX * EFFORT} histories of {fault} from seed {first}"


def test_a_planted_bug_is_gone_after_its_block():
    with planted("committed before the ISR has it"):
        pass
    assert not judged(1, Kind.MILD)[1]
