"""Directed histories of clusters find bugs of replication and of controllers that are planted in the brokers."""

from __future__ import annotations

import os

import pytest

from barnabas.testing.simulation.broker import quiet_logs
from tests.simulation.cluster import Kind, judged
from tests.simulation.planted_cluster import BUGS, FORMER_BUGS, FOUND_BY, planted, search
from tests.support.slips import fits

pytestmark = pytest.mark.slow

EFFORT = int(os.environ.get("BARNABAS_TEST_EFFORT", "1"))
SOON_FOUND = ("committed before the ISR has it", "acknowledged when deposed")
SEEDS_MAX = 15
BUGS_SEARCHED = (*SOON_FOUND, *FORMER_BUGS) if EFFORT == 1 else tuple(BUGS)
"""With more effort all are looked for."""


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logs():
        yield


def test_each_bug_has_its_seed_and_fits():
    assert FOUND_BY.keys() == BUGS.keys()
    assert [bug for bug, patches in BUGS.items() if not all(fits(*patch) for patch in patches())] == []


@pytest.mark.parametrize("bug", BUGS_SEARCHED)
def test_a_planted_bug_is_found_and_its_history_holds_without_it(bug):
    """So a kept seed, or another one in its place, always shows what it is kept for."""
    kept = FOUND_BY[bug]
    seed = search(bug, SEEDS_MAX * EFFORT)
    assert seed is not None, f"{bug}: not found in {SEEDS_MAX * EFFORT} histories from that of {kept}"
    _, broken = judged(seed, kept.kind, faults=[kept.fault])
    assert not broken, f"seed {seed}, {kept}:\n" + "\n".join(broken)


def test_a_planted_bug_is_gone_after_its_block():
    with planted("committed before the ISR has it"):
        pass
    assert not judged(1, Kind.MILD)[1]
