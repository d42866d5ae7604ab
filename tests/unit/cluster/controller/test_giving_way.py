"""Others run after each piece of a long event, whatever it is about: exactly so often, and before a request is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from barnabas.cluster.controller import brokers, deletion, partitions, topics
from barnabas.cluster.controller.core import Core
from barnabas.cluster.controller.state import Deletion
from barnabas.cluster.controller.steps import PIECE, SCANNED
from tests.support.controller_steps import LED, Shell, cluster

AWAY = replace(LED, written=50)
"""Written before all brokers have registered."""
LOST = replace(LED, leader=-1, isr=(3,))


def deleting(core: Core) -> Any:
    """All replicas of the topic are to be deleted."""
    core.state.deletions["t"] = Deletion(begun=True)
    return deletion._ask(core, "t", core.state.deletions["t"])


def looked_at(count: int) -> int:
    return count // SCANNED


def pieces(count: int) -> int:
    return count // PIECE


@pytest.mark.parametrize(
    ("state", "steps", "turns"),
    [
        (LED, brokers._with_replicas_lost, looked_at),
        (LED, partitions.elect_offline, looked_at),
        (LED, partitions.elect_after_absence, looked_at),
        (AWAY, partitions.elect_after_absence, lambda count: looked_at(count) + 2 * pieces(count)),
        (LOST, partitions.elect_offline, lambda count: looked_at(count) + 2 * pieces(count)),
        (LED, partitions.elect_preferred, None),
        (LED, deleting, lambda count: pieces(3 * count)),
    ],
    ids=["lost", "offline", "absent", "absence", "elected", "preferred", "deleted"],
)
@pytest.mark.parametrize("count", [PIECE - 1, PIECE, PIECE + 1, SCANNED - 1, SCANNED, SCANNED + PIECE + 1])
def test_others_run_after_so_many_partitions(
    state: Any, steps: Callable[..., Any], turns: Callable[[int], int] | None, count: int
) -> None:
    core = cluster(count, state=state)
    shell = Shell(core)
    if turns is None:
        shell.run(steps(core, core.state.partitions_of("t")))
        assert shell.turns == 2 * pieces(count)  # decided, and written
    else:
        shell.run(steps(core))
        assert shell.turns == turns(count)


@pytest.mark.parametrize("count", [PIECE - 1, PIECE, PIECE + 1, SCANNED + 1])
def test_others_run_while_a_broker_leaves_many_partitions(count: int) -> None:
    core = cluster(count)
    shell = Shell(core)
    shell.run(brokers.shut_down(core, 1, -1))
    # Looked at, decided and written; then each state is made for both kinds of requests, which are three and one.
    assert shell.turns == looked_at(count) + 4 * pieces(count) + 3 + 1


@pytest.mark.parametrize("count", [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE])
def test_others_run_while_a_topic_of_many_partitions_gets_its_id(count: int) -> None:
    core = cluster(count)
    shell = Shell(core)
    shell.run(topics.named(core, "t", b"j" * 16))
    assert shell.turns == 3 * pieces(count) + 3 + 1
