"""Three brokers on a simulated ZooKeeper: nothing that was acknowledged is lost, whatever fails.

Seeds that have failed are kept with their bugs: `test_planted_clusters.py`.
"""

from __future__ import annotations

import os

import pytest

from barnabas.testing.simulation.broker import quiet_logs
from tests.simulation.cluster import Kind, judged

EFFORT = int(os.environ.get("BARNABAS_TEST_EFFORT", "1"))


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
def test_close_and_worst_moment_faults_lose_nothing(seed, kind):
    _, broken = judged(seed, kind)
    assert not broken, f"python -m tests.simulation --{kind} --seed {seed}:\n" + "\n".join(broken)
