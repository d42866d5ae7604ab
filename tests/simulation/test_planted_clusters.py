"""Harsh histories of clusters find bugs of replication that are planted in the brokers.

A compiled class does not see that one of its methods was replaced, so bugs are planted in the sources, in a process that
runs them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing.simulation.broker import quiet_logs
from tests.simulation.cluster import Kind, judged
from tests.simulation.planted_cluster import BUGS, planted

EFFORT = int(os.environ.get("BARNABAS_TEST_EFFORT", "1"))
SOON_FOUND = ("committed before the ISR has it", "acknowledged when deposed")
SEEDS_MAX = 12
BUGS_SEARCHED = SOON_FOUND if EFFORT == 1 else tuple(BUGS)
"""With more effort all are looked for; some take hundreds of seeds."""


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logs():
        yield


ROOT = Path(__file__).parents[2]
SEARCH = """
import sys
from barnabas.testing.simulation.broker import quiet_logs
from tests.simulation.planted_cluster import seeds_until_found
with quiet_logs():
    print(seeds_until_found(sys.argv[1], 0, int(sys.argv[2])))
"""


@pytest.mark.parametrize("bug", BUGS_SEARCHED)
def test_a_planted_bug_is_found(bug):
    done = subprocess.run(
        [sys.executable, "-c", SEARCH, bug, str(SEEDS_MAX * EFFORT)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'server'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("("), f"{bug}: not found in {SEEDS_MAX * EFFORT} seeds"


def test_a_planted_bug_is_gone_after_its_block():
    with planted("committed before the ISR has it"):
        pass
    assert not judged(0, Kind.DIRECTED)[1]
