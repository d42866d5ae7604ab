"""Elections that somebody asks for, and those that bring leaders back to preferred replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.cluster.controller import leaders
from barnabas.cluster.controller.state import Deletion
from barnabas.cluster.controller.steps import PIECE
from barnabas.cluster.metadata.ports import ElectionType
from barnabas.wire.generated.errors import ErrorCode
from tests.support.controller_steps import LED, Shell, T, cluster

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN
LOST = replace(LED, leader=-1, isr=(3,))


@pytest.mark.parametrize("election", [PREFERRED, UNCLEAN])
def test_what_is_not_there_or_goes_is_not_elected(election: ElectionType) -> None:
    core = cluster(state=LOST)
    results = Shell(core).run(leaders.elect(core, election, [("t", 1), ("u", 0)]))
    assert {error.code for error in results.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    core.state.deletions["t"] = Deletion()
    results = Shell(core).run(leaders.elect(core, election, None))
    assert [error.code for error in results.values()] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert core.state.states[T] == LOST


def test_only_live_in_sync_preferred_leaders_are_elected() -> None:
    core = cluster(4, replace(LED, leader=2))
    core.state.states["t", 1] = replace(LED, leader=2, isr=(2,))
    core.state.offline_dirs = {1: {("t", 2)}}
    assert Shell(core).run(leaders.rebalance(core)) == 2
    assert [core.state.states["t", index].leader for index in range(4)] == [1, 2, 2, 1]
    core.state.deletions["t"] = Deletion()
    assert Shell(core).run(leaders.rebalance(core)) == 0


@pytest.mark.parametrize("count", [PIECE - 1, PIECE, 2 * PIECE + 1])
def test_others_run_while_many_leaders_are_looked_at(count: int) -> None:
    for steps in (leaders.rebalance, lambda core: leaders.elect(core, PREFERRED, None)):
        core = cluster(count)
        shell = Shell(core)
        shell.run(steps(core))
        assert shell.turns == count // PIECE
