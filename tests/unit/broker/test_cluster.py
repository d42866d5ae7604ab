"""Three whole brokers on a simulated ZooKeeper: what is acknowledged outlives each of them, and clients go on."""

from __future__ import annotations

import pytest
import trio

from barnabas.broker.startup import StartupError
from barnabas.client import ClientError
from barnabas.errors import StorageError
from barnabas.testing.simulation.broker import quiet_logs
from barnabas.testing.simulation.world import World
from tests.support.effort import EFFORT
from tests.support.programs import run_with
from tests.support.replicating import consume, in_world, produce
from tests.support.zookeeper_cluster import SESSION_S, ZooKeeperCluster, clustered

RETRIES, BACKOFF_S = 3, 5
"""The defaults of `controlled.shutdown.max.retries` and `controlled.shutdown.retry.backoff.ms`."""


@run_with(in_world)
async def test_brokers_find_each_other_and_replicate(world: World) -> None:
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        assert cluster.live() == {1, 2, 3}
        assert cluster.controller_id in (1, 2, 3)
        await cluster.create(client, "t", partitions=6)
        assert {cluster.leader("t", index) for index in range(6)} == {1, 2, 3}
        for index in range(6):
            await produce(client, b"a", b"b", index=index)
            assert await consume(client, index=index) == [b"a", b"b"]
            assert await cluster.until_equal(index=index)


async def load(cluster: ZooKeeperCluster, acknowledged: list[bytes], until: trio.Event) -> None:
    """Produce one record after the other with acks=all, again where it was not acknowledged."""
    async with cluster.client(request_timeout_ms=2000) as client:
        number = 0
        while not until.is_set():
            value = b"%d" % number
            try:
                await produce(client, value, timeout_ms=1000)
            except ClientError:
                continue
            acknowledged.append(value)
            number += 1


@pytest.mark.parametrize(("seed", "victim"), [*enumerate(["leader", "controller", "follower"] * EFFORT)])
def test_what_was_acknowledged_outlives_a_broker_that_is_killed(seed: int, victim: str) -> None:
    async def program(world: World) -> None:
        async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
            await cluster.create(client)
            acknowledged: list[bytes] = []
            until = trio.Event()
            async with trio.open_nursery() as loading:
                loading.start_soon(load, cluster, acknowledged, until)
                await cluster.until(lambda: len(acknowledged) > 100)
                leader, controller = cluster.leader(), cluster.controller_id
                killed = {
                    "leader": leader,
                    "controller": controller,
                    "follower": next(id_ for id_ in (1, 2, 3) if id_ not in (leader, controller)),
                }[victim]
                with quiet_logs():
                    cluster.machines[killed].kill()
                    took = await cluster.until(lambda: cluster.leader() not in (-1, killed))
                    assert took < SESSION_S / 3, "the process is gone, whatever its session is"
                    assert killed in cluster.live()
                    so_far = len(acknowledged)
                    await cluster.until(lambda: len(acknowledged) > so_far + 100)
                    await cluster.until(lambda: killed not in cluster.isr())
                    await cluster.start(killed)
                await cluster.until(lambda: cluster.isr() == {1, 2, 3})
                until.set()
            values = await consume(client)
            assert [value for value in dict.fromkeys(values) if value in set(acknowledged)] == acknowledged
            await cluster.until_equal()

    in_world(program, seed)


@run_with(in_world)
async def test_stopping_broker_hands_over_first_and_no_request_fails(world: World) -> None:
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        await cluster.create(client)
        acknowledged: list[bytes] = []
        until = trio.Event()
        async with trio.open_nursery() as loading:
            loading.start_soon(load, cluster, acknowledged, until)
            for _ in range(3):
                so_far = len(acknowledged)
                await cluster.until(lambda so_far=so_far: len(acknowledged) > so_far + 50)
                stopped = cluster.leader()
                await cluster.machines[stopped].stop()
                assert cluster.leader() not in (-1, stopped)
                assert stopped not in cluster.live()
                await cluster.start(stopped)
                await cluster.until(lambda: cluster.isr() == {1, 2, 3})
            until.set()
        # One that waits for its replicas when the leader hands over is sent again, as any producer without ids does.
        assert list(dict.fromkeys(await consume(client))) == acknowledged


@run_with(in_world)
async def test_silent_broker_leads_until_its_session_ends(world: World) -> None:
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        await cluster.create(client)
        silent = cluster.leader()
        session = cluster.machines[silent].session
        assert session is not None
        for other in {1, 2, 3} - {silent}:
            world.network.cut(f"broker-{silent}", f"broker-{other}")
        session.disconnect()
        with quiet_logs():
            took = await cluster.until(lambda: cluster.leader() not in (-1, silent))
            assert took >= SESSION_S
            world.network.heal()
            session.connect_soon()
            await cluster.until(lambda: cluster.isr() == {1, 2, 3})


@run_with(in_world)
async def test_leader_cut_off_from_zookeeper_learns_its_successor(world: World) -> None:
    async with clustered(world, 1, 2, 3) as cluster, cluster.client(request_timeout_ms=20_000) as client:
        await cluster.create(client)
        cut = cluster.leader()
        session = cluster.machines[cut].session
        assert session is not None
        waited = []

        async def wait_for_replicas() -> None:
            """Produce to the broker that is cut off, again and again: each request is answered."""
            begun = trio.current_time()
            await produce(client, b"a", timeout_ms=20_000)
            waited.append(trio.current_time() - begun)

        with quiet_logs():
            session.disconnect()
            await cluster.until(lambda: cluster.leader() not in (-1, cut))
            moved_at = trio.current_time()
            async with trio.open_nursery() as waiting:
                for _ in range(3):
                    waiting.start_soon(wait_for_replicas)
                await cluster.until(lambda: (info := cluster.known(cut)) is not None and info.leader != cut)
            assert trio.current_time() - moved_at < 1
            assert max(waited) < 1
            assert cut not in cluster.live()
            session.connect_soon()
            await cluster.until(lambda: cluster.isr() == {1, 2, 3})
        assert await consume(client) == [b"a"] * 3
        await cluster.until_equal()


@run_with(in_world)
async def test_brokers_lead_on_while_nobody_reaches_zookeeper(world: World) -> None:
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        await cluster.create(client)
        leader = cluster.leader()
        sessions = [machine.session for machine in cluster.machines.values()]
        with quiet_logs():
            for session in sessions:
                assert session is not None
                session.disconnect()
            for _ in range(10):
                await trio.sleep(SESSION_S / 20)
                await produce(client, b"a")
            assert (info := cluster.known(leader)) is not None
            assert info.leader == leader
            for session in sessions:
                assert session is not None
                session.connect_soon()
            await produce(client, b"b")
        assert await consume(client) == [b"a"] * 10 + [b"b"]


@pytest.mark.parametrize("is_controller", [False, True])
@run_with(in_world)
async def test_broker_that_refuses_connections_but_lives_is_taken_back(
    world: World, is_controller: bool
) -> None:
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        await cluster.create(client, "t", partitions=3)
        controller = cluster.controller_id
        index = next(n for n in range(3) if (cluster.leader("t", n) == controller) is is_controller)
        refusing = cluster.leader("t", index)
        host = f"broker-{refusing}"
        listening = {address: end for address, end in world.network.acceptors.items() if address[0] == host}
        with quiet_logs():
            for address in listening:
                del world.network.acceptors[address]
            world.network.reset(lambda dialled, accepted: host in (dialled, accepted))
            took = await cluster.until(lambda: cluster.leader("t", index) not in (-1, refusing))
            assert took < SESSION_S / 3
            assert (cluster.controller_id != refusing) or not is_controller
            world.network.acceptors.update(listening)
            await cluster.until(lambda: cluster.isr("t", index) == {1, 2, 3})
        assert cluster.live() == {1, 2, 3}
        await produce(client, b"a", index=index)
        await cluster.until_equal(index=index)


@run_with(in_world)
async def test_broker_with_expired_session_registers_and_catches_up(world: World) -> None:
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        await cluster.create(client)
        await produce(client, b"a")
        expired = cluster.leader()
        session = cluster.machines[expired].session
        assert session is not None
        with quiet_logs():
            cluster.zookeeper.expire(session)
            await cluster.until(lambda: cluster.leader() not in (-1, expired))
            await cluster.until(lambda: cluster.live() == {1, 2, 3})
            await cluster.until(lambda: cluster.isr() == {1, 2, 3})
        await produce(client, b"b")
        assert await consume(client) == [b"a", b"b"]
        await cluster.until_equal()


@run_with(in_world)
async def test_a_second_broker_with_the_same_id_does_not_start(world: World) -> None:
    async with clustered(world, 1) as cluster:
        cluster.machines[2] = type(cluster.machines[1])(
            world, cluster.nursery, "other", {**cluster.settings, "broker.id": "1"},
            zookeeper=cluster.zookeeper,
        )  # fmt: skip
        taken = pytest.RaisesExc(StartupError, match=r"broker\.id=1: a broker with this id is registered")
        with quiet_logs(), pytest.RaisesGroup(taken, flatten_subgroups=True):
            await cluster.machines[2].start()
        assert cluster.live() == {1}


@run_with(in_world)
async def test_a_log_dir_of_another_cluster_is_refused(world: World) -> None:
    async with clustered(world, 1) as cluster:
        disk = cluster.machines[1].disk
        await cluster.machines[1].stop()
        async with clustered(world) as other:
            with pytest.raises(StorageError, match="it belongs to cluster"):
                await other.start_on(disk, 1)


@run_with(in_world)
async def test_a_broker_without_a_number_is_given_one_and_keeps_it(world: World) -> None:
    async with clustered(world, 1) as cluster:
        await cluster.start(7, broker_id="-1")
        assert cluster.live() == {1, 1001}
        await cluster.machines[7].stop()
        await cluster.start(7)
        assert cluster.live() == {1, 1001}


@pytest.mark.parametrize("lost_s", [0.0, 3.0])
@run_with(in_world)
async def test_a_broker_stops_soon_when_zookeeper_is_gone(world: World, lost_s: float) -> None:
    """No broker can take over what it leads; it waits for no answer, and tries as often as its settings say."""
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        await cluster.create(client, "t", partitions=4)
        for machine in cluster.machines.values():
            assert machine.session is not None
            machine.session.disconnect()
        await trio.sleep(lost_s)
        began = trio.current_time()
        with quiet_logs():
            await cluster.machines[1].stop()
        assert trio.current_time() - began < RETRIES * BACKOFF_S
