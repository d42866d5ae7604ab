"""A quorum of one controller in a simulated world, and whole brokers under it.

The rule: written records are committed immediately. Responses about a broker's registration, heartbeats, log dirs and ISRs
are those of Kafka's controller; a test may replace a response, or stop the controller.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from barnabas.client import Client, ClientSettings, Endpoint, open_client
from barnabas.cluster.kraft.image import EMPTY, Draft, Position
from barnabas.cluster.kraft.observer import SnapshotId
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.replica_values import METADATA_TOPIC_ID
from barnabas.cluster.kraft.snapshots import snapshot_batches
from barnabas.cluster.kraft.transitions import apply_record
from barnabas.cluster.kraft.values import UNASSIGNED
from barnabas.log.format.names import CLUSTER_METADATA_TOPIC
from barnabas.log.format.properties import MetaProperties
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.testing.simulation.broker import PORT, SimulatedBroker
from barnabas.testing.simulation.network import SimulatedStream
from barnabas.testing.simulation.world import World
from barnabas.wire.generated.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.wire.generated.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from barnabas.wire.generated.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.generated.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from barnabas.wire.generated.metadata_records.broker_registration_change import BrokerRegistrationChangeRecord
from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord
from barnabas.wire.generated.metadata_records.partition import PartitionRecord
from barnabas.wire.generated.metadata_records.partition_change import PartitionChangeRecord
from barnabas.wire.generated.metadata_records.register_broker import RegisterBrokerRecord
from barnabas.wire.generated.metadata_records.topic import TopicRecord
from barnabas.wire.metadata_records import encode_record
from tests.support.scripted_broker import SILENCE, Peer

CLUSTER = "simulated-cluster-id"
HOST, CONTROLLER_PORT, CONTROLLER_ID, EPOCH = "controller", 9093, 3000, 1
METADATA_VERSION = 30
PIECE_BYTES = 100
"""Bytes of a snapshot in one answer."""
VERSIONS = {
    1: (4, 18), 18: (0, 4), 19: (2, 7), 33: (1, 2), 44: (0, 1), 56: (2, 3), 58: (0, 0),
    59: (0, 1), 62: (0, 4), 63: (0, 2), 67: (0, 0), 73: (0, 0),
}  # fmt: skip
RECORD_VERSIONS = {
    RegisterBrokerRecord: 3,
    BrokerRegistrationChangeRecord: 2,
    PartitionRecord: 1,
    PartitionChangeRecord: 1,
}
TOPIC_ID = b"0123456789abcdef"
SETTINGS = {
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": f"{HOST}:{CONTROLLER_PORT}",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.dirs": "/a,/b",
}


def directory_id(path: str) -> bytes:
    """Return the id of a log dir of a formatted disk."""
    return f"the log dir is {path}".encode()[-16:]


def formatted(disk: MemoryDisk, *paths: str, cluster_id: str = CLUSTER, node_id: int = 1) -> MemoryDisk:
    """Format log dirs as `kafka-storage format` does; returns the disk."""
    for path in paths or ("/a", "/b"):
        disk.make_dirs(path)
        meta = MetaProperties(1, cluster_id, node_id, directory_id(path))
        disk.replace(f"{path}/meta.properties", meta.encode(), sync=True)
    return disk


class SimulatedController:
    """The only controller of a quorum. `answers` has functions that replace responses, by the type of the request."""

    def __init__(self, world: World, nursery: trio.Nursery) -> None:
        self._world = world
        self._nursery = nursery
        self._scope = trio.CancelScope()
        self._written = trio.Event()
        self._batches: list[tuple[int, int, bytes]] = []
        self._snapshot: tuple[SnapshotId, bytes] | None = None
        self.committed: int | None = None
        """The high watermark in responses, -1 if unknown; None for the end of the log."""
        self.image = EMPTY
        self.answers: dict[type, Callable[[Any], Any]] = {}
        self.requests: list[Any] = []
        """All requests except fetches."""
        self.come()
        self.write(FeatureLevelRecord("metadata.version", METADATA_VERSION))

    # --- for tests ------------------------------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        """The end of the log."""
        if self._batches:
            return self._batches[-1][1]
        return self._snapshot[0].end_offset if self._snapshot is not None else 0

    def write(self, *messages: Any, value: bytes | None = None) -> None:
        """Write records as one batch; if `value` is given, it is the value of each, and the image does not change."""
        base = self.end_offset
        draft = Draft(self.image)
        records = []
        for at, message in enumerate(messages):
            if value is None and not type(message).__name__.endswith("TransactionRecord"):
                apply_record(draft, message)
            version = RECORD_VERSIONS.get(type(message), 0)
            records.append(Record(base + at, 1000, None, value or encode_record(message, version)))
        self.image = draft.image(Position(base + len(records) - 1, EPOCH, 1000))
        self._batches.append((base, base + len(records), bytes(encode_batch(records, leader_epoch=EPOCH))))
        self._written.set()
        self._written = trio.Event()

    def create(self, name: str = "t", topic_id: bytes = TOPIC_ID, **fields: Any) -> None:
        """Create a topic with one partition, which broker 1 leads alone."""
        values = {"replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 0, "partition_epoch": 0} | fields
        values.setdefault("directories", [UNASSIGNED] * len(values["replicas"]))
        self.write(TopicRecord(name, topic_id), PartitionRecord(0, topic_id, **values))

    def take_snapshot(self) -> None:
        """Replace the log by a snapshot."""
        snapshot_id = SnapshotId(self.end_offset, EPOCH)
        data = b"".join(snapshot_batches(self.image, Leadership(), now_ms=1000, records_per_batch=2))
        self._snapshot, self._batches = (snapshot_id, data), []

    def commit(self, high_watermark: int | None) -> None:
        """Set the high watermark of later responses; None for the end of the log."""
        self.committed = high_watermark
        self._written.set()
        self._written = trio.Event()

    def all_of(self, kind: type) -> list[Any]:
        """Return the requests of one type."""
        return [request for request in self.requests if type(request) is kind]

    def go(self) -> None:
        """Stop: break connections, and accept none."""
        self._scope.cancel()
        self._world.network.crash(HOST)

    def come(self) -> None:
        """Start, or restart, serving."""
        self._scope = trio.CancelScope()
        self._nursery.start_soon(self._serve, self._scope)

    # --- serving ------------------------------------------------------------------------------------------------

    async def _serve(self, scope: trio.CancelScope) -> None:
        (acceptor,) = self._world.network.host(HOST).bind(HOST, CONTROLLER_PORT)
        acceptor.listen()
        with scope:
            async with trio.open_nursery() as connections:
                while True:
                    await acceptor.wait_acceptable()
                    transport = acceptor.accept_now()
                    if transport is not None:
                        connections.start_soon(self._talk, SimulatedStream(transport))

    async def _talk(self, stream: trio.abc.Stream) -> None:
        peer = Peer(stream)
        try:
            await peer.greet(VERSIONS)
            while True:
                header, request = await peer.next()
                answer = self.answers.get(type(request), self._answer)(request)
                if isinstance(request, FetchRequest):
                    with trio.move_on_after(request.max_wait_ms / 1000):
                        if answer is None:
                            await self._written.wait()
                            answer = self.fetch(request)
                    answer = answer or self._fetched(b"")
                else:
                    self.requests.append(request)
                if answer is not SILENCE:
                    await peer.answer(header, answer)
        except (EOFError, OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    def _answer(self, request: Any) -> Any:
        handlers = {
            FetchRequest: self.fetch,
            FetchSnapshotRequest: self._piece,
            BrokerRegistrationRequest: self.register,
            BrokerHeartbeatRequest: self.heartbeat,
            AssignReplicasToDirsRequest: self._assign,
            AlterPartitionRequest: self._alter,
        }
        return handlers[type(request)](request)

    def fetch(self, request: FetchRequest) -> FetchResponse | None:
        """Answer a fetch of the metadata log; None if nothing is new."""
        asked = request.topics[0].partitions[0]
        if asked.current_leader_epoch < EPOCH:
            return self._fetched(b"", error_code=ErrorCode.FENCED_LEADER_EPOCH)
        if self._snapshot is not None and asked.fetch_offset < self._snapshot[0].end_offset:
            return self._fetched(b"", snapshot_id=FetchResponse.SnapshotId(*self._snapshot[0]))
        data = b"".join(batch for base, _, batch in self._batches if base >= asked.fetch_offset)
        return self._fetched(data) if data else None

    def _piece(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        cls = FetchSnapshotResponse
        asked = request.topics[0].partitions[0]
        assert self._snapshot is not None
        snapshot_id, data = self._snapshot
        partition = cls.PartitionSnapshot(
            snapshot_id=cls.SnapshotId(*snapshot_id),
            current_leader=cls.LeaderIdAndEpoch(CONTROLLER_ID, EPOCH),
            size=len(data),
            position=asked.position,
            unaligned_records=data[asked.position : asked.position + PIECE_BYTES],
        )
        return cls(topics=[cls.TopicSnapshot(CLUSTER_METADATA_TOPIC, [partition])])

    def _fetched(self, data: bytes, **fields: Any) -> FetchResponse:
        partition = FetchResponse.PartitionData(
            **fields,
            current_leader=FetchResponse.LeaderIdAndEpoch(CONTROLLER_ID, EPOCH),
            high_watermark=self.end_offset if self.committed is None else self.committed,
            records=data,
        )
        topic = FetchResponse.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[partition])
        endpoint = FetchResponse.NodeEndpoint(CONTROLLER_ID, HOST, CONTROLLER_PORT)
        return FetchResponse(responses=[topic], node_endpoints=[endpoint])

    def register(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        """Answer a registration, and write its records."""
        epoch = self.end_offset
        endpoint = RegisterBrokerRecord.BrokerEndpoint
        self.write(
            RegisterBrokerRecord(
                request.broker_id,
                incarnation_id=request.incarnation_id,
                broker_epoch=epoch,
                end_points=[
                    endpoint(own.name, own.host, own.port, own.security_protocol) for own in request.listeners
                ],
                rack=request.rack,
                log_dirs=request.log_dirs,
            )
        )
        return BrokerRegistrationResponse(broker_epoch=epoch)

    def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        """Answer a heartbeat."""
        broker = self.image.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        is_caught_up = request.current_metadata_offset >= broker.epoch
        lost = set(request.offline_log_dirs) & set(broker.log_dirs)
        if lost:
            dirs = [log_dir for log_dir in broker.log_dirs if log_dir not in lost]
            self.write(BrokerRegistrationChangeRecord(broker.id, broker.epoch, log_dirs=dirs))
            self._lead_nothing(broker.id, lost)
        if request.want_shut_down:
            return BrokerHeartbeatResponse(
                is_caught_up=is_caught_up, is_fenced=broker.fenced, should_shut_down=True
            )
        if broker.fenced and is_caught_up and not request.want_fence:
            self.write(BrokerRegistrationChangeRecord(broker.id, broker.epoch, fenced=-1))
        is_fenced = self.image.brokers[broker.id].fenced
        return BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=is_fenced)

    def _lead_nothing(self, broker_id: int, directories: set[bytes]) -> None:
        """Remove the leaders of partitions in offline log dirs of a broker."""
        for (topic_id, index), partition in self.image.partitions.items():
            home = dict(zip(partition.replicas, partition.directories, strict=False)).get(broker_id)
            if home in directories and partition.leader == broker_id:
                self.write(PartitionChangeRecord(index, topic_id, leader=-1))

    def _assign(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        cls = AssignReplicasToDirsResponse
        broker = self.image.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return cls(error_code=ErrorCode.STALE_BROKER_EPOCH)
        response = cls()
        for directory in request.directories:
            topics = []
            for topic in directory.topics:
                for asked in topic.partitions:
                    partition = self.image.partitions[topic.topic_id, asked.partition_index]
                    homes = list(partition.directories)
                    homes[partition.replicas.index(broker.id)] = directory.id
                    self.write(
                        PartitionChangeRecord(asked.partition_index, topic.topic_id, directories=homes)
                    )
                indexes = [cls.PartitionData(partition.partition_index) for partition in topic.partitions]
                topics.append(cls.TopicData(topic.topic_id, indexes))
            response.directories.append(cls.DirectoryData(directory.id, topics))
            if directory.id not in broker.log_dirs:
                self._lead_nothing(broker.id, {directory.id})
        return response

    def _alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        cls = AlterPartitionResponse
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                partition = self.image.partitions[topic.topic_id, asked.partition_index]
                if asked.partition_epoch != partition.partition_epoch:
                    code = ErrorCode.INVALID_UPDATE_VERSION
                    partitions.append(cls.PartitionData(asked.partition_index, code))
                    continue
                isr = [member.broker_id for member in asked.new_isr_with_epochs]
                change = PartitionChangeRecord(
                    asked.partition_index,
                    topic.topic_id,
                    isr=isr,
                    leader_recovery_state=asked.leader_recovery_state,
                )
                self.write(change)
                now = self.image.partitions[topic.topic_id, asked.partition_index]
                state = now.leader, now.leader_epoch, isr, now.leader_recovery_state, now.partition_epoch
                partitions.append(cls.PartitionData(asked.partition_index, 0, *state))
            topics.append(cls.TopicData(topic_id=topic.topic_id, partitions=partitions))
        return cls(topics=topics)


class QuorumMember:
    """A machine with broker 1, and the controller."""

    def __init__(self, world: World, nursery: trio.Nursery, **settings: str) -> None:
        self.world = world
        self.controller = SimulatedController(world, nursery)
        more = {name.replace("_", "."): value for name, value in settings.items()}
        self.settings = {**SETTINGS, "node.id": "1", "listeners": f"PLAINTEXT://broker-1:{PORT}", **more}
        self.machine = SimulatedBroker(world, nursery, "broker-1", self.settings)
        formatted(self.machine.disk)
        self._network = world.network.host("10.0.0.9")

    @property
    def broker(self) -> Any:
        """The broker while it serves."""
        assert self.machine.broker is not None
        return self.machine.broker

    async def until(self, condition: Callable[[], Any], seconds: float = 30.0) -> float:
        """Wait until a condition holds; returns how long it took (s). Raises AssertionError after `seconds`."""
        begun = trio.current_time()
        with trio.move_on_after(seconds) as scope:
            while not condition():
                await trio.sleep(0.005)
        assert not scope.cancelled_caught, "it never came to that"
        return trio.current_time() - begun

    async def dial(self) -> trio.abc.Stream:
        """Connect as a client. Raises ConnectionRefusedError."""
        return await self._network.dial("broker-1", PORT)

    @asynccontextmanager
    async def client(self, **settings: Any) -> AsyncIterator[Client]:
        """Yield a client on a separate host."""

        async def dial(endpoint: Endpoint) -> trio.abc.Stream:
            return await self._network.dial(endpoint.host, endpoint.port)

        async with open_client([Endpoint("broker-1", PORT)], ClientSettings(**settings), dial=dial) as client:
            yield client

    def is_led(self, topic: str = "t") -> bool:
        """Return whether broker 1 leads the first partition of a topic."""
        replica = self.broker.services.replicas.find(topic, 0)
        return replica is not None and replica.is_leader


@asynccontextmanager
async def member(world: World, *, starts: bool = True, **settings: str) -> AsyncIterator[QuorumMember]:
    """Yield a broker of a quorum, started and unfenced if `starts`; it is killed at the end of the block."""
    async with trio.open_nursery() as nursery:
        machine = QuorumMember(world, nursery, **settings)
        if starts:
            await machine.machine.start()
        yield machine
        machine.machine.kill()
        machine.controller.go()
        nursery.cancel_scope.cancel()
