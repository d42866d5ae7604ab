"""Requests: the way from frame to response in a whole broker, everything but the sockets and Trio's scheduler."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench import wire as frames
from bench.micro.timing import Timing, measure

if TYPE_CHECKING:
    from barnabas.broker.app import Broker

PARTITIONS = (1, 100, 900)  # answers with more than 1,000 entries are encoded in a thread
TOPIC = "micro"


class _Nowhere:
    """A transport that takes every response."""

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """Take it."""
        return len(data)

    async def send(self, chunks: list[object]) -> None:
        """Take it."""


def run() -> Iterator[Timing]:
    import trio

    from barnabas.broker.assembly import assembled
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment.real import real_environment
    from barnabas.serving.loop_budget import LoopBudget

    with TemporaryDirectory() as directory:
        config = BrokerConfig(
            {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(Path(directory, "data"))}
        )

        async def main() -> list[Timing]:
            budget = LoopBudget(budget_seconds=math.inf)  # a measurement does not yield
            async with assembled(config, real_environment(), budget=budget) as broker:
                return await _all(broker)

        yield from trio.run(main)


async def _all(broker: Broker) -> list[Timing]:
    from barnabas.serving.context import ConnectionInfo

    connection = ConnectionInfo(1, "PLAINTEXT", "PLAINTEXT", ("127.0.0.1", 1), ("127.0.0.1", 2))
    nowhere: Any = _Nowhere()
    batch = frames.record_batch([b"x" * 100], time.time_ns() // 1_000_000)
    timings = []
    for count in PARTITIONS:
        topic = f"{TOPIC}-{count}"
        await create(broker, topic, count)
        for name, frame in (
            ("Produce v7, 100 B to each of", frames.produce_v7(topic, range(count), batch)),
            ("Fetch v11, 100 B of each of", frames.fetch_v11(topic, range(count), 0, 100)),
        ):
            # The first request of an API waits until its code is imported.
            await answered(broker, connection, nowhere, frame)
            call = _caller(broker, connection, frame[4:])
            timings.append(measure(f"{name} {count:,} partitions", call))
    return timings


async def create(broker: Broker, topic: str, partitions: int) -> None:
    from barnabas.cluster.metadata import topic_decisions as controller

    await broker.services.metadata.change(
        lambda image: controller.create_topic(
            image, broker.services.config, topic, topic.encode().ljust(16, b"-"), partitions, 1, settings={}
        )
    )


def _caller(broker: Broker, connection: Any, frame: bytes) -> Callable[[], None]:
    transport: Any = _Nowhere()
    begin = broker.connections.parts.begin

    def call() -> None:
        # A copy each time, as from a socket: a leader writes into it.
        request = begin(connection, transport, memoryview(bytearray(frame)))
        wait = request.advance()
        if wait is not None:
            finish(request.finish(wait))

    return call


async def answered(broker: Broker, connection: Any, transport: Any, frame: bytes) -> None:
    """Answer a request, which waits where its API is new."""
    request = broker.connections.parts.begin(connection, transport, memoryview(bytearray(frame[4:])))
    assert await request.finish(request.advance())


def finish(answering: Any) -> None:
    """Run a coroutine that never waits."""
    alive = False
    try:
        answering.send(None)
    except StopIteration as done:
        alive = done.value
    if not alive:
        raise AssertionError("the answer waits for something, or ends the connection")
