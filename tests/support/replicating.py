"""Several whole brokers in one simulated world that replicate to each other; the test is their controller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import trio

from barnabas.broker.storage_parts import Membership
from barnabas.client import Client, ClientSettings, Endpoint, open_client
from barnabas.cluster.replicas.in_sync import LocalAlterPartition
from barnabas.cluster.replicas.replica import Replica
from barnabas.records.batch import iter_batches, read_records
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.testing.simulation.broker import PORT, SimulatedBroker
from barnabas.testing.simulation.world import World
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.produce import ProduceRequest
from tests.support.shared_metadata import SharedMetadata, View

SETTINGS = {"replica.lag.time.max.ms": "5000", "replica.fetch.wait.max.ms": "200"}
NOW_MS = 1_700_000_000_000


class ReplicatingCluster:
    """Brokers by id on hosts `broker-<id>`. Made by `replicating`."""

    def __init__(self, world: World, nursery: trio.Nursery, settings: Mapping[str, str]) -> None:
        self.world = world
        self.metadata = SharedMetadata()
        self.machines: dict[int, SimulatedBroker] = {}
        self.racks: dict[int, str] = {}
        self._nursery = nursery
        self._settings = settings
        self._following: dict[int, trio.CancelScope] = {}

    # --- brokers --------------------------------------------------------------------------------------------

    async def start(self, *broker_ids: int, **settings: str) -> None:
        """Start brokers on their disks, and register them."""
        for broker_id in broker_ids:
            if broker_id not in self.machines:
                more = {name.replace("_", "."): value for name, value in settings.items()}
                self.machines[broker_id] = SimulatedBroker(
                    self.world,
                    self._nursery,
                    f"broker-{broker_id}",
                    {**SETTINGS, **self._settings, "broker.id": str(broker_id), **more},
                    join=lambda broker_id=broker_id: self._join(broker_id),  # type: ignore[misc]
                )
            await self.machines[broker_id].start()
            self.metadata.register(broker_id, f"broker-{broker_id}", PORT, self.racks.get(broker_id))

    def _join(self, broker_id: int) -> Membership:
        view = self.metadata.join(broker_id)
        scope = self._following[broker_id] = trio.CancelScope()
        self._nursery.start_soon(self._follow, view, scope)
        return Membership(view, LocalAlterPartition(broker_id, view))

    @staticmethod
    async def _follow(view: View, scope: trio.CancelScope) -> None:
        with scope:
            await view.run()

    def kill(self, broker_id: int, *, power: Random | None = None) -> None:
        """Kill a broker, with `power` its whole machine; the metadata do not change."""
        self._following[broker_id].cancel()
        if power is None:
            self.machines[broker_id].kill()
        else:
            self.machines[broker_id].cut_power(power)

    def replica(self, broker_id: int, topic: str = "t", index: int = 0) -> Replica:
        """Return a broker's replica."""
        broker = self.machines[broker_id].broker
        assert broker is not None
        return broker.services.replicas.local(topic, index)

    # --- conditions -----------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until a condition holds. Raises AssertionError after `seconds` of the simulated clock."""
        with trio.move_on_after(seconds) as scope:
            while not condition():
                await trio.sleep(0.005)
        assert not scope.cancelled_caught, "it never came to that"

    async def until_equal(self, topic: str = "t", index: int = 0) -> bytes:
        """Wait until the live replicas have equal, fully committed logs; returns their bytes."""

        def logs() -> list[Any]:
            info = self.metadata.partition(topic, index)
            return [self.replica(id_, topic, index).log for id_ in info.replicas if self.machines[id_].broker]

        def is_equal() -> bool:
            ends = {(log.log_end_offset, log.high_watermark, log.log_start_offset) for log in logs()}
            return len(ends) == 1 and all(end == high for end, high, _ in ends)

        await self.until(lambda: self._has_replicas(topic, index) and is_equal())
        first, *others = [log_bytes(log) for log in logs()]
        for other in others:
            assert other == first
        return first

    def _has_replicas(self, topic: str, index: int) -> bool:
        return all(
            any((own.topic, own.index) == (topic, index) for own in machine.broker.services.replicas)
            for id_ in self.metadata.partition(topic, index).replicas
            if (machine := self.machines[id_]).broker is not None
        )

    # --- clients --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def client(self, **settings: Any) -> AsyncIterator[Client]:
        """Yield a client on a separate host, with all brokers as bootstrap servers."""
        async with client_of(self.world, self.machines.values(), **settings) as client:
            yield client


@asynccontextmanager
async def client_of(
    world: World, machines: Iterable[SimulatedBroker], **settings: Any
) -> AsyncIterator[Client]:
    """Yield a client of brokers, on a separate host."""
    network = world.network.host("client")

    async def dial(endpoint: Endpoint) -> trio.abc.Stream:
        return await network.dial(endpoint.host, endpoint.port)

    bootstrap = [Endpoint(machine.host, PORT) for machine in machines]
    async with open_client(bootstrap, ClientSettings(**settings), dial=dial) as client:
        yield client


async def produce(
    client: Client, *values: bytes, topic: str = "t", index: int = 0, acks: int = -1, timeout_ms: int = 10_000
) -> int:
    """Produce one batch and return its base offset. Raises ResponseError, ConnectionLostError."""
    records = encode_batch([Record(n, NOW_MS, None, value) for n, value in enumerate(values)])
    data = ProduceRequest.PartitionProduceData(index=index, records=records)
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )
    response = await client.ask_leader(
        topic,
        index,
        request,
        version=8,
        error_of=lambda response: response.responses[0].partition_responses[0].error_code,
    )
    return int(response.responses[0].partition_responses[0].base_offset)


async def consume(client: Client, *, topic: str = "t", index: int = 0) -> list[bytes]:
    """Return the values of all committed records, from the leader."""
    values: list[bytes] = []
    offset = 0
    while True:
        part = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])],
        )
        response = await client.ask_leader(
            topic,
            index,
            request,
            version=6,
            error_of=lambda response: response.responses[0].partitions[0].error_code,
        )
        records = bytes(response.responses[0].partitions[0].records or b"")
        if not records:
            return values
        for at, header in iter_batches(records):
            values += [record.value or b"" for record in read_records(records, at)]
            offset = header.next_offset


def log_bytes(log: Any) -> bytes:
    """Return all bytes of a log up to its high watermark."""
    parts = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        read = log.read(offset, max_bytes=1 << 20, upper_offset=log.high_watermark)
        parts.append(read.to_bytes())
        offset = [header for _, header in iter_batches(parts[-1])][-1].next_offset
        parts[-1] = parts[-1][: sum(header.size for _, header in iter_batches(parts[-1]))]
    return b"".join(parts)


@asynccontextmanager
async def replicating(world: World, **settings: str) -> AsyncIterator[ReplicatingCluster]:
    """Yield a cluster without brokers, which ends with the block."""
    values = {name.replace("_", "."): value for name, value in settings.items()}
    async with trio.open_nursery() as nursery:
        yield ReplicatingCluster(world, nursery, values)
        nursery.cancel_scope.cancel()


def in_world(program: Callable[[World], Awaitable[Any]], seed: int = 1) -> Any:
    """Run a program in a simulated world, and name the seed if it fails."""
    from barnabas.testing.simulation.world import run_world

    print(f"seed {seed}")
    return run_world(seed, program)
