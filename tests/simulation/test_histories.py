"""Whole brokers in simulated worlds: every history keeps what the broker has promised, and every seed repeats its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from barnabas.testing.simulation.broker import quiet_logs
from tests.simulation.planted import KEPT_SEEDS
from tests.simulation.scenario import Plan, judged, run

EFFORT = int(os.environ.get("BARNABAS_TEST_EFFORT", "1"))
CHUNK = 10


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logs():
        yield


@pytest.mark.parametrize("first", range(1000, 1000 + 60 * EFFORT, CHUNK))
def test_histories_keep_all_promises(first):
    for seed in range(first, first + CHUNK):
        _, broken = judged(seed)
        assert not broken, f"python -m tests.simulation --seed {seed}"


@pytest.mark.parametrize("bug", KEPT_SEEDS)
def test_seeds_that_have_failed(bug):
    """With the bug put back they fail again: `test_planted.py`."""
    _, broken = judged(KEPT_SEEDS[bug])
    assert not broken, bug


def test_the_seeds_draw_all_kinds_of_clients_and_faults():
    plans = [Plan.drawn(seed) for seed in range(200)]
    kinds = (
        "producers", "idempotent", "transactional", "members", "consumers", "streams", "sharers", "processors",
        "keyed", "readers", "are_static", "compacts", "keeps_synced_only",
    )  # fmt: skip
    for kind in kinds:
        assert any(getattr(plan, kind) for plan in plans), kind
    events = "\n".join("\n".join(run(seed).events) for seed in range(40))
    for fault in ("is killed", "power is cut", "is stopped", "are reset", "is cut off", "clock steps"):
        assert fault in events, fault


def test_a_seed_repeats_its_history_wherever_its_objects_lie():
    """No decision hangs on the order of objects in memory, as that of a set of connections does."""
    expected = run(1024).events
    for count in range(1, 5):
        kept = [object() for _ in range(count * 1001)]
        assert run(1024).events == expected
        del kept


@pytest.mark.parametrize("seed", [9, 21, 30])
def test_a_seed_repeats_its_history_in_another_process(seed):
    """Also where strings hash otherwise, so that no decision hangs on the order of a set."""
    expected = run(seed).events
    assert len(expected) > 10
    for hash_seed in ("0", "12345"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--seed", str(seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[1:] == expected
