"""The controller on real ZooKeeper servers: what it writes is what they keep, and its end is what they see."""

from __future__ import annotations

import json
from random import Random

import trio

from barnabas.cluster.controller.core import ControllerSettings
from barnabas.cluster.controller.runtime import ControllerRuntime
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.connection import connect
from barnabas.config.cluster import ZooKeeperSettings
from barnabas.environment.real import OsThreads
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.stop_replica import StopReplicaRequest, StopReplicaResponse
from tests.support.controller_cluster import PARENTS, Entropy


class Obedient:
    """Channels to brokers that do at once what they are asked for."""

    def __init__(self) -> None:
        self.known: set[int] = set()

    def open(self, broker) -> None:
        self.known.add(broker.id)

    def close(self, broker_id: int) -> None:
        self.known.discard(broker_id)

    def stop(self) -> None:
        self.known.clear()

    def on_contact(self, contact) -> None:
        """Lose no contact: these brokers are always there."""

    def send(self, request, answered) -> None:
        if isinstance(request.request, StopReplicaRequest):
            answered(request, StopReplicaResponse())


async def test_a_controller_is_elected_succeeded_and_deletes_topics(any_zookeeper):
    host, _, port = any_zookeeper.rpartition(":")
    settings = ZooKeeperSettings(
        ((host, int(port)),), "/controllers", 6000, 20_000, 10, has_acls=False, digest=None, tls=None
    )
    sessions = {id_: await connect(settings, OsThreads()) for id_ in (1, 2)}
    admin = await connect(settings, OsThreads())
    for path in PARENTS:
        await admin.create(path, parents=True)
    runtimes = {
        id_: ControllerRuntime(
            ControllerSettings(broker_id=id_),
            session,
            Obedient(),
            budget=LoopBudget(),
            entropy=Entropy(Random(id_)),
            wall_clock_ms=lambda: 0,
            allows_unclean=lambda _: False,
            known_topic_id=lambda _: None,
        )
        for id_, session in sessions.items()
    }

    async def read(path):
        answers = await admin.get_many([path])
        return answers[0] and answers[0][0]

    async def until(path, holds):
        with trio.fail_after(20):
            while not holds(await read(path)):
                await trio.sleep(0.02)

    async with trio.open_nursery() as nursery:
        for id_, session in sessions.items():  # both are there before a controller looks
            endpoint = znodes.Endpoint("PLAINTEXT", f"host{id_}", 9092)
            data = znodes.encode_broker(znodes.BrokerRegistration((endpoint,)))
            await session.create(znodes.broker_path(id_), data, ephemeral=True)
        for id_ in sessions:
            nursery.start_soon(runtimes[id_].run)
            await until(znodes.CONTROLLER, bool)
        assert json.loads(await read(znodes.CONTROLLER))["brokerid"] == 1
        parts = {index: znodes.ReplicaAssignment((1 + index % 2, 2 - index % 2)) for index in range(250)}
        await admin.create(znodes.topic_path("t"), znodes.encode_topic(znodes.TopicAssignment(parts)))
        await until(znodes.state_path("t", 249), bool)
        state = znodes.decode_state("t", 249, await read(znodes.state_path("t", 249)))
        assert (state.leader, state.isr, state.controller_epoch) == (2, (2, 1), 1)
        assert znodes.decode_topic("t", await read(znodes.topic_path("t"))).topic_id is not None
        await sessions[1].close()
        await until(znodes.CONTROLLER, lambda data: data and json.loads(data)["brokerid"] == 2)
        assert await read(znodes.CONTROLLER_EPOCH) == b"2"
        await until(znodes.state_path("t", 0), lambda data: znodes.decode_state("t", 0, data).leader == 2)
        assert not runtimes[1].is_active
        await admin.create(znodes.delete_topic_path("t"))
        await trio.sleep(0)
        sessions[1] = await connect(settings, OsThreads())
        data = znodes.encode_broker(znodes.BrokerRegistration((znodes.Endpoint("PLAINTEXT", "h", 1),)))
        await sessions[1].create(znodes.broker_path(1), data, ephemeral=True)
        await until(znodes.topic_path("t"), lambda data: data is None)
        await until(znodes.delete_topic_path("t"), lambda data: data is None)
        nursery.cancel_scope.cancel()
    for session in (*sessions.values(), admin):
        await session.close()
