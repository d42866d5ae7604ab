"""A broker's registration: which znode it finds, how long it waits, and which id it gets."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.registration import IdTakenError, Registration
from barnabas.cluster.zookeeper.session import SessionExpiredError
from barnabas.cluster.zookeeper.succession import wait_for_successors
from barnabas.cluster.zookeeper.znodes import BrokerRegistration, Endpoint
from barnabas.serving.loop_budget import LoopBudget
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper

PATH = znodes.broker_path(1)
WAIT_S = 30.0


def at(*addresses: tuple[str, int]) -> BrokerRegistration:
    return BrokerRegistration(tuple(Endpoint(f"L{host}", host, port) for host, port in addresses))


OURS = at(("h", 1), ("i", 2))


async def other(zookeeper: SimulatedZooKeeper, data: bytes) -> Any:
    """Another session that has registered."""
    session = zookeeper.session()
    await session.create(PATH, data, ephemeral=True, parents=True)
    return session


def registration(session: Any) -> Registration:
    return Registration(session, 1, OURS, wait_seconds=WAIT_S)


@pytest.mark.parametrize(
    ("there", "is_waited_for", "why"),
    [
        (at(("h", 1)), True, "does not end"),
        (at(("x", 9), ("i", 2)), True, "does not end"),
        (at(("h", 2)), False, "LH://h:2"),
        (at(("i", 1)), False, "LI://i:1"),
        (at(), False, "without endpoints"),
        (None, False, "its registration cannot be read"),
    ],
)
@pytest.mark.parametrize("how", ["register", "wait_until_free"])
async def test_only_a_session_with_our_address_is_waited_for(
    there: BrokerRegistration | None, is_waited_for: bool, why: str, how: str, autojump_clock: Any
) -> None:
    zookeeper = SimulatedZooKeeper()
    await other(zookeeper, znodes.encode_broker(there) if there is not None else b"{")
    begun = trio.current_time()
    with pytest.raises(IdTakenError) as caught:
        await getattr(registration(zookeeper.session()), how)()
    assert why in str(caught.value)
    assert "broker.id=1" in str(caught.value)
    assert trio.current_time() - begun == (WAIT_S if is_waited_for else 0)


async def test_who_is_registered_already_stays_so() -> None:
    zookeeper = SimulatedZooKeeper()
    session = zookeeper.session()
    own = registration(session)
    assert await own.register() == await own.register()
    await own.wait_until_free()


@pytest.mark.parametrize("is_ours", [True, False])
async def test_a_znode_of_an_earlier_session_of_ours_is_replaced(is_ours: bool, autojump_clock: Any) -> None:
    """A server may still have the znode of a session that it has called expired (KAFKA-7165)."""
    zookeeper = SimulatedZooKeeper()
    earlier = await other(zookeeper, znodes.encode_broker(OURS))
    session = zookeeper.session()
    own = registration(session)
    own._own_sessions = {earlier.session_id} if is_ours else {earlier.session_id + 1000}
    begun = trio.current_time()
    with trio.move_on_after(5):
        await own.register()
    assert (own.session_id == session.session_id) is is_ours
    assert trio.current_time() - begun == (0 if is_ours else 5)


async def test_a_session_that_is_closed_registers_nobody() -> None:
    zookeeper = SimulatedZooKeeper()
    session = zookeeper.session()
    await session.close()
    with pytest.raises(SessionExpiredError):
        await registration(session).register()


# --- successors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assigned", "isr", "living", "is_needed"),
    [
        ((1, 2), (1, 2), ["2"], True),
        ((1, 2), (1, 2), [], False),
        ((1, 2), (1, 2), ["3"], False),
        ((1, 2), (1, 2), ["1"], False),
        ((1, 2), (1, 2), ["x"], False),
        ((1, 2), (2,), ["2"], False),
        ((1, 2), (1,), ["2"], False),
        ((2, 3), (1, 2), ["2"], False),  # what it has no replica of does not count
        ((1, 2), None, ["2"], False),
        ((1, 2), b"{", ["2"], False),
    ],
)
async def test_others_are_needed_where_they_are_in_sync_and_live(
    assigned: tuple[int, ...], isr: Any, living: list[str], is_needed: bool, autojump_clock: Any
) -> None:
    session = SimulatedZooKeeper().session()
    data = znodes.encode_topic(znodes.TopicAssignment({0: znodes.ReplicaAssignment(assigned)}))
    await session.create(znodes.topic_path("t"), data, parents=True)
    if isr is not None:
        state = isr if isinstance(isr, bytes) else znodes.encode_state(znodes.PartitionState(1, 1, isr, 1))
        await session.create(znodes.state_path("t", 0), state, parents=True)
    for name in living:
        await session.create(f"{znodes.BROKER_IDS}/{name}", parents=True)
    begun = trio.current_time()
    assert await wait_for_successors(session, 1, LoopBudget(), wait_seconds=5) is not is_needed
    assert trio.current_time() - begun == (5 if is_needed else 0)


async def test_in_an_empty_cluster_nobody_is_needed() -> None:
    assert await wait_for_successors(SimulatedZooKeeper().session(), 1, LoopBudget())
