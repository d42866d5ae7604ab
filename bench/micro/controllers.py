"""Time of a controller failover in a cluster on ZooKeeper, and of the loss of a broker, by brokers and partitions.

The rule: the ZooKeeper is `barnabas zookeeper` in a separate process, the controller is complete; its requests are encoded,
and counted instead of sent. Wall time, since partitions without a leader wait for it.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import trio

from bench.micro.opening import _environment
from bench.micro.timing import Timing
from bench.tools import ROOT

if TYPE_CHECKING:
    from barnabas.cluster.zookeeper.session import ZooKeeper

SIZES = ((3, 2_000), (3, 10_000), (30, 20_000))
"""Brokers, and partitions of three replicas."""
PARTITIONS_PER_TOPIC = 100
AT_ONCE = 500
LOST = 1
QUIET_S = 0.05


def run() -> Iterator[Timing]:
    logging.getLogger("barnabas").setLevel(logging.ERROR)
    (ROOT / ".data").mkdir(exist_ok=True)
    for brokers, partitions in SIZES:
        with TemporaryDirectory(dir=ROOT / ".data") as directory, _zookeeper(Path(directory)) as server:
            assert server.stdout is not None
            address = server.stdout.readline().partition("zookeeper.connect=")[2].split()[0]
            try:
                yield from trio.run(_measure, address, brokers, partitions)
            finally:
                server.terminate()


def _zookeeper(directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "barnabas", "zookeeper", "--listen", "127.0.0.1:0"]
    return subprocess.Popen(
        [*command, "--data", str(directory / "zookeeper")],
        stdout=subprocess.PIPE,
        text=True,
        env=_environment(),
    )


class _Channels:
    """Encodes requests to brokers, and notes their times."""

    def __init__(self) -> None:
        self.bytes = self.requests = 0
        self.last_at = 0.0

    def open(self, broker: Any) -> None: ...
    def close(self, broker_id: int) -> None: ...
    def stop(self) -> None: ...
    def on_contact(self, contact: Any) -> None: ...

    def send(self, request: Any, _answered: Any) -> None:
        from barnabas.wire import registry
        from barnabas.wire.headers import encode_request

        key = registry.key_of(type(request.request).__name__.removesuffix("Request"))
        self.bytes += sum(map(len, encode_request(key, request.version, 1, "controller", request.request)))
        self.requests += 1
        self.last_at = time.perf_counter()


class _Entropy:
    """Numbers from a seed."""

    def __init__(self) -> None:
        self._random = Random(1)

    def token_bytes(self, size: int, /) -> bytes:
        return self._random.randbytes(size)

    def below(self, limit: int, /) -> int:
        return self._random.randrange(limit)


async def _measure(address: str, brokers: int, partitions: int) -> list[Timing]:
    from barnabas.cluster.controller.core import ControllerSettings
    from barnabas.cluster.controller.runtime import ControllerRuntime
    from barnabas.cluster.zookeeper.connection import connect
    from barnabas.config.cluster import ZooKeeperSettings
    from barnabas.environment.real import OsThreads
    from barnabas.serving.loop_budget import LoopBudget

    host, _, port = address.rpartition(":")
    settings = ZooKeeperSettings(
        ((host, int(port)),), "", 30_000, 30_000, 10, has_acls=False, digest=None, tls=None
    )
    lives, dies, own = [await connect(settings, OsThreads()) for _ in range(3)]
    await _fill(lives, dies, brokers, partitions)
    channels = _Channels()
    runtime = ControllerRuntime(
        ControllerSettings(broker_id=2),
        own,
        channels,
        budget=LoopBudget(),
        entropy=_Entropy(),
        wall_clock_ms=lambda: 0,
        allows_unclean=lambda _: False,
        known_topic_id=lambda _: None,
    )
    durations = []
    name = f"{brokers} brokers, {partitions:,} partitions: "
    async with trio.open_nursery() as nursery:
        begun = time.perf_counter()
        nursery.start_soon(runtime.run)
        while not runtime.is_active or not channels.requests:
            await trio.sleep(0.001)
        await runtime.reassignments([])
        took = channels.last_at - begun
        durations.append(Timing(f"{name}elected, read, all told", took, took, beside=_sent(channels)))
        channels.bytes = channels.requests = 0
        begun = time.perf_counter()
        await dies.close()
        while not channels.requests or time.perf_counter() - channels.last_at < QUIET_S:
            await trio.sleep(0.001)
        await runtime.reassignments([])
        took = channels.last_at - begun
        durations.append(Timing(f"{name}one lost", took, took, beside=_sent(channels)))
        nursery.cancel_scope.cancel()
    await lives.close()
    await own.close()
    return durations


def _sent(channels: _Channels) -> str:
    return f"  {channels.requests} requests, {channels.bytes / 1e6:.2f} MB"


async def _fill(lives: ZooKeeper, dies: ZooKeeper, brokers: int, partitions: int) -> None:
    """Register brokers, and create topics with in-sync replicas; broker `LOST` has a separate session."""
    from barnabas.cluster.zookeeper import resource_znodes, znodes
    from barnabas.cluster.zookeeper.session import Create

    for path in resource_znodes.PERSISTENT:
        await lives.create(path, parents=True)
    for broker_id in range(1, brokers + 1):
        data = znodes.encode_broker(
            znodes.BrokerRegistration((znodes.Endpoint("PLAINTEXT", f"host{broker_id}", 9092),))
        )
        session = dies if broker_id == LOST else lives
        await session.create(znodes.broker_path(broker_id), data, ephemeral=True)
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        topic = f"topic-{number}"
        replicas = {
            index: tuple((number + index + shift) % brokers + 1 for shift in range(3))
            for index in range(PARTITIONS_PER_TOPIC)
        }
        assignment = znodes.TopicAssignment(
            {index: znodes.ReplicaAssignment(of) for index, of in replicas.items()},
            Random(number).randbytes(16),
        )
        creates = [Create(znodes.topic_path(topic), znodes.encode_topic(assignment))]
        creates.append(Create(znodes.partitions_path(topic), b""))
        for index, of in replicas.items():
            state = znodes.PartitionState(leader=of[0], leader_epoch=0, isr=of, controller_epoch=0)
            creates.append(Create(znodes.partition_path(topic, index), b""))
            creates.append(Create(znodes.state_path(topic, index), znodes.encode_state(state)))
        for first in range(0, len(creates), AT_ONCE):
            await lives.multi(creates[first : first + AT_ONCE])
