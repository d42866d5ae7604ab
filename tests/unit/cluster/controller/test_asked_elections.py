"""Elections on request, and those that bring leaders back to preferred replicas."""

from __future__ import annotations

import pytest

from barnabas.cluster.controller import leaders
from barnabas.cluster.controller.steps import PIECE
from barnabas.cluster.metadata.ports import ElectionType
from tests.support.controller_steps import Shell, cluster

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


@pytest.mark.parametrize("count", [PIECE - 1, PIECE, 2 * PIECE + 1])
def test_others_run_while_many_leaders_are_looked_at(count: int) -> None:
    for steps in (leaders.rebalance, lambda core: leaders.elect(core, PREFERRED, None)):
        core = cluster(count)
        shell = Shell(core)
        shell.run(steps(core))
        assert shell.turns == count // PIECE
