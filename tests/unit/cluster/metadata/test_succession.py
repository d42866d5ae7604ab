"""A broker that was not stopped cleanly comes back when others have taken over what it had in sync."""

import pytest
import trio

from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.registration import IdTakenError
from barnabas.cluster.zookeeper.store import ZooKeeperStore
from barnabas.cluster.zookeeper.succession import wait_for_successors
from barnabas.cluster.zookeeper.znodes import (
    BrokerRegistration,
    Endpoint,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from barnabas.serving.loop_budget import LoopBudget
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper

BUDGET = LoopBudget()


def registration(port):
    return BrokerRegistration((Endpoint("PLAINTEXT", "h", port),))


async def keep(session, index, leader, isr):
    data = znodes.encode_state(PartitionState(leader, 1, isr, 1))
    path = znodes.state_path("t", index)
    if await session.exists(path) is None:
        await session.create(path, data, parents=True)
    else:
        await session.set(path, data)


async def live(session, *broker_ids):
    assignment = ReplicaAssignment((1, 2, 3))
    data = znodes.encode_topic(TopicAssignment({0: assignment, 1: assignment}))
    await session.create(znodes.topic_path("t"), data, parents=True)
    for broker_id in broker_ids:
        path = znodes.broker_path(broker_id)
        await session.create(path, b"{}", ephemeral=True, parents=True)


async def test_it_waits_until_it_is_in_no_isr_with_others_that_live(autojump_clock):
    session = SimulatedZooKeeper().session()
    await live(session, 2)
    await keep(session, 0, 1, (1, 2))
    await keep(session, 1, 1, (1, 3))
    done = trio.Event()

    async def wait():
        assert await wait_for_successors(session, 1, BUDGET)
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(5)
        assert not done.is_set()
        await keep(session, 0, 2, (2,))
        with trio.fail_after(1):
            await done.wait()


@pytest.mark.parametrize(
    ("others", "isr"), [((), (1, 2)), ((3,), (1, 2)), ((2,), (1,)), ((2,), (2, 3))], ids=str
)
async def test_where_nobody_can_take_over_it_does_not_wait(autojump_clock, others, isr):
    session = SimulatedZooKeeper().session()
    await live(session, *others)
    await keep(session, 0, 1, isr)
    began = trio.current_time()
    assert await wait_for_successors(session, 1, BUDGET)
    assert trio.current_time() == began


async def test_it_does_not_wait_for_ever(autojump_clock, caplog):
    session = SimulatedZooKeeper().session()
    await live(session, 2)
    await keep(session, 0, 1, (1, 2))
    assert not await wait_for_successors(session, 1, BUDGET, wait_seconds=60)
    assert "no broker has taken over" in caplog.text


async def test_broker_ends_its_old_session_and_takes_no_others_id(autojump_clock):
    server = SimulatedZooKeeper()
    earlier = server.session()
    store = ZooKeeperStore(earlier, 1, lambda: 0)
    await store.open("c")
    await store.register(registration(9001))
    earlier.kill()
    again = ZooKeeperStore(server.session(), 1, lambda: 0)
    with pytest.raises(IdTakenError):
        await again.wait_for_successors(registration(9999))
    began = trio.current_time()
    await again.wait_for_successors(registration(9001))
    assert trio.current_time() - began >= 18
    assert "/brokers/ids/1" not in server.dump()
