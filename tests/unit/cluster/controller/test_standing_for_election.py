"""Elections of the controller on a simulated ZooKeeper: the first broker, a later one, a deposed one, an unreadable one."""

from __future__ import annotations

import trio

from barnabas.cluster.controller.election import Elected, Elections
from barnabas.cluster.zookeeper import znodes
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper


def standing(zookeeper: SimulatedZooKeeper, broker: int) -> Elections:
    return Elections(broker, zookeeper.session(), lambda: 77)


def ignored(*_: object) -> None:
    """Hears of a change."""


async def test_first_candidate_is_elected_with_a_later_epoch() -> None:
    zookeeper = SimulatedZooKeeper()
    first, other = standing(zookeeper, 1), standing(zookeeper, 2)
    assert await first.stand(ignored) == Elected(1, 1, 1, is_here=True)
    assert await first.stand(ignored) == Elected(1, 1, 1, is_here=True)
    assert await other.stand(ignored) == Elected(1)
    await first.give_up(0)  # of an older epoch
    assert await other.stand(ignored) == Elected(1)
    await first.give_up(1)
    assert await other.stand(ignored) == Elected(2, 2, 2, is_here=True)
    data, _ = await zookeeper.session().get(znodes.CONTROLLER_EPOCH)
    assert znodes.decode_controller_epoch(data) == 2


async def test_a_controller_that_cannot_be_read_is_one_all_the_same() -> None:
    zookeeper = SimulatedZooKeeper()
    await zookeeper.session().create(znodes.CONTROLLER, b"nonsense", parents=True)
    with trio.fail_after(10):
        elected = await standing(zookeeper, 1).stand(ignored)
    assert not elected.is_here
    assert elected.controller_id not in (-1, 1)
