"""The checker finds what it is for: bugs that are planted in the broker."""

from __future__ import annotations

import pytest

from barnabas.testing.simulation.broker import quiet_logs
from tests.simulation.planted import (
    BUGS,
    FIRST_SEEDS,
    can_be_planted,
    found_in_sources,
    planted,
    seeds_until_found,
)
from tests.simulation.scenario import judged

pytestmark = pytest.mark.slow

SEEDS_MAX = 300


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logs():
        yield


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug):
    first = FIRST_SEEDS.get(bug, 0)
    if can_be_planted(bug):
        assert seeds_until_found(bug, first, SEEDS_MAX) is not None
    else:
        assert found_in_sources(bug, first, SEEDS_MAX)


def test_a_planted_bug_is_gone_after_its_block():
    with planted("aborted in one partition"):
        pass
    assert not judged(0)[1]
