"""Brokers with the whole controller on a simulated ZooKeeper; models of brokers obey the controller's requests.

The rule: a model refuses what Apache Kafka refuses (old controller and broker epochs), and checks that no two brokers are
made leaders of one partition in one epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import trio

from barnabas.cluster.controller.core import ControllerSettings
from barnabas.cluster.controller.runtime import ControllerRuntime
from barnabas.cluster.controller.state import Broker
from barnabas.cluster.controller.steps import Outgoing
from barnabas.cluster.zookeeper import resource_znodes, znodes
from barnabas.cluster.zookeeper.session import NodeExistsError, SessionState, ZooKeeperError
from barnabas.cluster.zookeeper.topic_ids import restore_topic_ids
from barnabas.errors import RequestError
from barnabas.serving.loop_budget import LoopBudget
from barnabas.testing.simulation.zookeeper import SimulatedSession, SimulatedZooKeeper, ZooKeeperWeather
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.wire.generated.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.wire.generated.update_metadata import UpdateMetadataResponse
from barnabas.wire.primitives import ZERO_UUID

PARENTS = (
    znodes.BROKER_IDS, znodes.TOPICS, znodes.DELETE_TOPICS, znodes.ISR_CHANGES, znodes.LOG_DIR_EVENTS,
    f"{resource_znodes.CONFIG}/topics",
)  # fmt: skip
TopicPartition = tuple[str, int]


class Entropy:
    """Numbers from a seed."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def token_bytes(self, size: int, /) -> bytes:
        return self._random.randbytes(size)

    def below(self, limit: int, /) -> int:
        return self._random.randrange(limit)


class ClusterBroker:
    """One broker: its session, its controller, and the replicas that the active controller assigns to it."""

    def __init__(self, cluster: Cluster, broker_id: int, settings: ControllerSettings) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.epoch = -1
        self.session: SimulatedSession = cluster.zookeeper.session()
        self.controller_epoch = 0
        self.controller = -1
        self.believes: dict[TopicPartition, tuple[int, int, int]] = {}
        self.metadata: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, bytes] = {}
        """Ids of topics that controllers have sent since the broker was started."""
        self.log_ids: dict[str, bytes] = {}
        """Ids of topics in the partition.metadata of the logs."""
        self.brokers: set[int] = set()
        self.disk: set[TopicPartition] = set()
        self.broken: set[TopicPartition] = set()
        self.runtime = ControllerRuntime(
            settings,
            self.session,
            RecordingChannels(cluster),
            budget=LoopBudget(),
            entropy=Entropy(cluster.random),
            wall_clock_ms=lambda: 0,
            allows_unclean=lambda own: own.get("unclean.leader.election.enable") == "true",
            known_topic_id=lambda name: self.topic_ids.get(name),
        )
        self.scope = trio.CancelScope()

    async def run(self) -> None:
        with self.scope:
            self.session.watch_session(self._session_changed)
            await self.register()
            await self.runtime.run()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and not self.scope.cancel_called:
            self.cluster.nursery.start_soon(self.register)

    async def register(self) -> None:
        """Create the znode of this broker in each new session, after one of its older session has expired."""
        data = znodes.encode_broker(
            znodes.BrokerRegistration((znodes.Endpoint("PLAINTEXT", f"host{self.id}", 9092),))
        )
        path = znodes.broker_path(self.id)
        while not self.scope.cancel_called:
            try:
                _, stat = await self.session.get(path)
                if stat.ephemeral_owner == self.session.session_id:
                    self.registered(stat.created)
                    return
                await trio.sleep(0.1)
            except ZooKeeperError:
                try:
                    self.registered((await self.session.create(path, data, ephemeral=True))[1].created)
                    return
                except NodeExistsError:
                    continue
                except ZooKeeperError:
                    await trio.sleep(0.1)

    def registered(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch

    def stop(self, *, kill: bool = False) -> None:
        """End this broker and its session; with `kill`, the session has to expire."""
        self.scope.cancel()
        del self.cluster.brokers[self.id]
        self.cluster.disks[self.id] = self.disk
        if kill:
            self.session.kill()
        else:
            self.cluster.zookeeper.end(self.session.session_id)
            self.session.kill()

    # --- what the controller sends --------------------------------------------------------------------------

    @property
    def is_registered(self) -> bool:
        """False before the first registration: requests until then are for the broker that had this id, and wait."""
        return self.epoch >= 0

    async def restore_ids(self, request: Any) -> None:
        """Restore the ids of topics that the controller does not know, from the logs of this broker."""
        if isinstance(request, LeaderAndIsrRequest):
            names = {state.topic_name for state in request.topic_states if state.topic_id == ZERO_UUID}
            ids = {name: self.log_ids[name] for name in names & self.log_ids.keys()}
            await restore_topic_ids(self.session, ids)

    def obey(self, sent: Outgoing) -> Any:
        request, error = sent.request, 0
        if request.controller_epoch < self.controller_epoch:
            error = ErrorCode.STALE_CONTROLLER_EPOCH
        elif request.broker_epoch < self.epoch:
            error = ErrorCode.STALE_BROKER_EPOCH
        else:
            self.controller_epoch, self.controller = request.controller_epoch, request.controller_id
        if isinstance(request, LeaderAndIsrRequest):
            return (
                self._lead_or_follow(request, sent.version)
                if not error
                else LeaderAndIsrResponse(error_code=error)
            )
        if isinstance(request, StopReplicaRequest):
            return self._stop(request) if not error else StopReplicaResponse(error_code=error)
        if not error:
            self.brokers = {broker.id for broker in request.live_brokers}
            for topic in request.topic_states:
                if topic.topic_id != ZERO_UUID:
                    self.topic_ids[topic.topic_name] = topic.topic_id
                for state in topic.partition_states:
                    if state.leader == -2:
                        self.metadata.pop((topic.topic_name, state.partition_index), None)
                    else:
                        self.metadata[topic.topic_name, state.partition_index] = state.leader
        return UpdateMetadataResponse(error_code=error)

    def _lead_or_follow(self, request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse:
        response = LeaderAndIsrResponse()
        for topic in request.topic_states:
            answer = LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic.topic_id)
            if version >= 5:
                assert topic.topic_id != ZERO_UUID, "which topic an answer is about could not be told"
                response.topics.append(answer)
            for state in topic.partition_states:
                code = self._take(topic.topic_name, topic.topic_id, state)
                (answer.partition_errors if version >= 5 else response.partition_errors).append(
                    LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                        topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
                    )
                )
        return response

    def _take(self, topic: str, topic_id: bytes, state: Any) -> int:
        partition = (topic, state.partition_index)
        if partition in self.broken:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if (state.leader_epoch, state.partition_epoch) > self.believes.get(partition, (0, -1, -1))[1:]:
            self.believes[partition] = (state.leader, state.leader_epoch, state.partition_epoch)
            self.disk.add(partition)
            if state.leader == self.id:
                leader = self.cluster.leaders.setdefault(
                    (topic_id, state.partition_index, state.leader_epoch), self.id
                )
                assert leader == self.id, (
                    f"{leader} and {self.id} lead {partition} in epoch {state.leader_epoch}"
                )
        return 0

    def _stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        response = StopReplicaResponse()
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition, code = (topic.topic_name, state.partition_index), 0
                if partition in self.broken:
                    code = ErrorCode.KAFKA_STORAGE_ERROR
                elif -1 < state.leader_epoch < self.believes.get(partition, (0, -1, -1))[1]:
                    code = ErrorCode.FENCED_LEADER_EPOCH
                else:
                    self.believes.pop(partition, None)
                    if state.delete_partition:
                        self.disk.discard(partition)
                response.partition_errors.append(
                    StopReplicaResponse.StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=partition[1], error_code=code
                    )
                )
        return response


class RecordingChannels:
    """Control channels to the models, which record the requests. Implements `controller.channels.ControlChannels`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._scopes: dict[int, trio.CancelScope] = {}
        self._queues: dict[int, tuple[int, deque[tuple[Outgoing, Callable[[Outgoing, Any], None]]]]] = {}
        self._wake: dict[int, trio.Event] = {}

    def open(self, broker: Broker) -> None:
        self.close(broker.id)
        self._queues[broker.id] = (broker.epoch, deque())
        self._wake[broker.id] = trio.Event()
        self._scopes[broker.id] = trio.CancelScope()
        self._cluster.nursery.start_soon(self._serve, broker.id, self._scopes[broker.id])

    def close(self, broker_id: int) -> None:
        if broker_id in self._scopes:
            self._scopes.pop(broker_id).cancel()
            del self._queues[broker_id]

    def stop(self) -> None:
        for broker_id in list(self._scopes):
            self.close(broker_id)

    def on_contact(self, contact: Callable[[Broker, bool], None]) -> None:
        self.contact = contact

    def send(self, request: Outgoing, answered: Callable[[Outgoing, Any], None]) -> None:
        epoch, queue = self._queues.get(request.broker_id, (-1, deque()))
        if epoch == request.broker_epoch:
            self._cluster.sent.append(request)
            queue.append((request, answered))
            self._wake[request.broker_id].set()

    async def _serve(self, broker_id: int, scope: trio.CancelScope) -> None:
        with scope:
            _, queue = self._queues[broker_id]
            while True:
                while not queue:
                    self._wake[broker_id] = trio.Event()
                    await self._wake[broker_id].wait()
                await trio.sleep(self._cluster.random.uniform(0, self._cluster.delay_max_s))
                broker = self._cluster.brokers.get(broker_id)
                if broker is None or not broker.is_registered:
                    await trio.sleep(0.1)
                    continue
                request, answered = queue.popleft()
                await broker.restore_ids(request.request)
                answered(request, broker.obey(request))


class Cluster:
    """The simulated ZooKeeper, the running brokers, and the disks of stopped ones."""

    def __init__(self, nursery: trio.Nursery, random: Random, weather: ZooKeeperWeather) -> None:
        self.nursery = nursery
        self.random = random
        self.zookeeper = SimulatedZooKeeper(random, weather)
        self.brokers: dict[int, ClusterBroker] = {}
        self.disks: dict[int, set[TopicPartition]] = {}
        self.sent: list[Outgoing] = []
        self.leaders: dict[tuple[bytes, int, int], int] = {}
        self.delay_max_s = 0.0
        self.settings = ControllerSettings(broker_id=0)
        self.admin = self.zookeeper.session()

    async def make_parents(self) -> None:
        for path in PARENTS:
            await self.admin.create(path, parents=True)

    def start(self, broker_id: int, **settings: Any) -> ClusterBroker:
        """Start a broker on the disk of its previous life, if there was one."""
        broker = ClusterBroker(self, broker_id, replace(self.settings, broker_id=broker_id, **settings))
        broker.disk = self.disks.pop(broker_id, set())
        self.brokers[broker_id] = broker
        self.nursery.start_soon(broker.run)
        return broker

    @property
    def controller(self) -> ControllerRuntime | None:
        """The controller with the newest epoch that is active."""
        active = [broker.runtime for broker in self.brokers.values() if broker.runtime.is_active]
        return max(active, key=lambda runtime: runtime.epoch, default=None)

    async def ask(self, question: Callable[[ControllerRuntime], Any]) -> Any:
        """Call `question` with the active controller, again if the controller changes before it answers."""
        while True:
            runtime = self.controller
            if runtime is not None:
                try:
                    return await question(runtime)
                except RequestError as error:
                    if error.code != ErrorCode.NOT_CONTROLLER:
                        raise
            await trio.sleep(0.1)

    # --- znodes ---------------------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, *replicas: tuple[int, ...], settings: dict[str, str] | None = None
    ) -> None:
        if settings:
            await self.admin.create(
                resource_znodes.config_path("topics", name), resource_znodes.encode_config(settings)
            )
        parts = {index: znodes.ReplicaAssignment(ids) for index, ids in enumerate(replicas)}
        topic = znodes.TopicAssignment(parts, self.random.randbytes(16))
        await self.admin.create(znodes.topic_path(name), znodes.encode_topic(topic))

    async def rewrite_as_old_tools_do(self, name: str) -> None:
        """Write a topic's znode as kafka-topics.sh --zookeeper of Kafka 0.8 to 2.7 does: without its id."""
        data = self.zookeeper.dump()[znodes.topic_path(name)]
        topic = replace(znodes.decode_topic(name, data), topic_id=None)
        await self.admin.set(znodes.topic_path(name), znodes.encode_topic(topic, 1))

    async def delete_topic(self, name: str) -> None:
        await self.admin.create(znodes.delete_topic_path(name))

    def state(self, topic: str, index: int = 0) -> znodes.PartitionState | None:
        data = self.zookeeper.dump().get(znodes.state_path(topic, index))
        return None if data is None else znodes.decode_state(topic, index, data)

    def topic_id(self, topic: str) -> bytes | None:
        return znodes.decode_topic(topic, self.zookeeper.dump()[znodes.topic_path(topic)]).topic_id

    def assignment(self, topic: str, index: int = 0) -> znodes.ReplicaAssignment:
        return znodes.decode_topic(topic, self.zookeeper.dump()[znodes.topic_path(topic)]).partitions[index]

    async def until(self, holds: Callable[[], Any], *, timeout_s: float = 60) -> None:
        """Wait until `holds` returns a true value."""
        with trio.move_on_after(timeout_s):
            while not holds():
                await trio.sleep(0.1)
            return
        raise AssertionError("it did not come true")


@asynccontextmanager
async def running(*broker_ids: int, seed: int = 0, weather: ZooKeeperWeather | None = None, **settings: Any):
    """Run a cluster; these brokers are started one after the other, the first is the controller."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, Random(seed), weather or ZooKeeperWeather())
        cluster.settings = replace(cluster.settings, **settings)
        await cluster.make_parents()
        for broker_id in broker_ids:
            cluster.start(broker_id)
            await cluster.until(lambda id_=broker_id: znodes.broker_path(id_) in cluster.zookeeper.dump())
            await cluster.until(lambda: cluster.controller is not None)
        if broker_ids:
            await cluster.until(
                lambda: all(broker.brokers == set(broker_ids) for broker in cluster.brokers.values())
            )
        yield cluster
        nursery.cancel_scope.cancel()
