"""Three brokers on a simulated ZooKeeper: nothing that was acknowledged is lost, whatever fails."""

from __future__ import annotations

import os

import pytest

from barnabas.testing.simulation.broker import quiet_logs
from tests.simulation.cluster import Kind, judged
from tests.simulation.planted_cluster import FORMER_BUGS, FOUND_BY

EFFORT = int(os.environ.get("BARNABAS_TEST_EFFORT", "1"))
SEEDS_THAT_FAILED = {
    307: "a broker that was stopped while it waited for others to take over was taken for one that was stopped cleanly",
    314: "a broker whose logs were all lost with its power came back as one that has never had any",
}


DIRECTED_THAT_FAILED = {
    10015: "controllers were ended one after the other, and none was ever where the fault wanted it",
}


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logs():
        yield


@pytest.mark.parametrize("seed", range(8 * EFFORT))
def test_nothing_that_was_acknowledged_is_lost(seed):
    _, broken = judged(seed)
    assert not broken, f"seed {seed}:\n" + "\n".join(broken)


@pytest.mark.parametrize("kind", [Kind.HARSH, Kind.DIRECTED])
@pytest.mark.parametrize("seed", range(2 * EFFORT))
def test_nothing_is_lost_when_faults_come_close_together_or_at_the_worst_moment(seed, kind):
    _, broken = judged(seed, kind)
    assert not broken, f"python -m tests.simulation --{kind} --seed {seed}:\n" + "\n".join(broken)


@pytest.mark.parametrize("seed", SEEDS_THAT_FAILED)
def test_seeds_that_have_failed(seed):
    _, broken = judged(seed)
    assert not broken, SEEDS_THAT_FAILED[seed]


@pytest.mark.parametrize("bug", FORMER_BUGS)
def test_a_bug_of_former_brokers_is_not_there_any_more(bug):
    """With the bug put back the history fails: `test_planted_clusters.py`, `python -m tests.simulation --planted`."""
    fault, seed = FOUND_BY[bug]
    _, broken = judged(seed, Kind.DIRECTED, faults=[fault])
    assert not broken, bug


@pytest.mark.parametrize("seed", DIRECTED_THAT_FAILED)
def test_directed_seeds_that_have_failed(seed):
    _, broken = judged(seed, Kind.DIRECTED)
    assert not broken, DIRECTED_THAT_FAILED[seed]
