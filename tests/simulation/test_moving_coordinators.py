"""Groups and transactions while their coordinators move to and fro between two brokers."""

from __future__ import annotations

import pytest

from tests.simulation.moving import judged

COUNT = 12


@pytest.mark.parametrize("seed", range(COUNT))
def test_nothing_is_lost_or_decided_twice_when_coordinators_move(seed: int) -> None:
    _, broken = judged(seed)
    assert not broken, f"seed {seed}:\n" + "\n".join(broken)
