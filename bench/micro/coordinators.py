"""Coordinators: requests of a group's member in a whole broker, everything but the sockets and Trio's scheduler."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench.members import ClassicMember, ConsumerMember
from bench.micro.requests import answered as wait_for
from bench.micro.requests import create
from bench.micro.timing import Timing, measure
from bench.wire import request

if TYPE_CHECKING:
    from barnabas.broker.app import Broker

OFFSET_COMMIT, FIND_COORDINATOR = 8, 10
TOPIC = "micro"


class Mailbox:
    """A transport that keeps the latest response."""

    def __init__(self) -> None:
        self.response = b""

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """Keep it, without its size."""
        self.response = bytes(data[4:])
        return len(data)

    async def send(self, chunks: list[bytes]) -> None:
        """Keep it, without its size."""
        self.response = b"".join(chunks)[4:]


def run() -> Iterator[Timing]:
    import trio

    from barnabas.broker.assembly import assembled
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment.real import real_environment
    from barnabas.serving.loop_budget import LoopBudget

    with TemporaryDirectory() as directory:
        config = BrokerConfig(
            {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(Path(directory, "data")),
                "group.initial.rebalance.delay.ms": "0",
            }
        )

        async def main() -> list[Timing]:
            budget = LoopBudget(budget_seconds=math.inf)  # a measurement does not yield
            async with (
                assembled(config, real_environment(), budget=budget) as broker,
                trio.open_nursery() as nursery,
            ):
                await nursery.start(broker.serve)
                timings = await _all(broker)
                nursery.cancel_scope.cancel()
            return timings

        yield from trio.run(main)


async def _all(broker: Broker) -> list[Timing]:
    import trio

    from barnabas.serving.context import ConnectionInfo

    connection = ConnectionInfo(1, "PLAINTEXT", "PLAINTEXT", ("127.0.0.1", 1), ("127.0.0.1", 2))
    mailbox: Any = Mailbox()
    begin = broker.connections.parts.begin
    await create(broker, TOPIC, 1)
    member = ClassicMember("group", TOPIC)

    async def ask(frame: bytes) -> bytes:
        await wait_for(broker, connection, mailbox, frame)
        return bytes(mailbox.response)

    await ask(request(FIND_COORDINATOR, 0, _string(b"group")))
    frame = member.begin()
    while not member.assignment:  # joins and syncs, repeated while the coordinator loads
        wait_s, frame = member.answered(await ask(frame))
        await trio.sleep(min(wait_s, 0.02))

    def answered(frame: bytes) -> bytes:
        begun = begin(connection, mailbox, memoryview(bytearray(frame[4:])))
        assert begun.advance() is None
        return bytes(mailbox.response)

    def rejoin() -> None:
        _, sync = member.answered(answered(member.begin()))
        member.answered(answered(sync))

    consumer = ConsumerMember("consumers", TOPIC)
    await ask(request(FIND_COORDINATOR, 0, _string(b"consumers")))
    beat = consumer.begin()
    while not consumer.owned:
        wait_s, beat = consumer.answered(await ask(beat))
        await trio.sleep(min(wait_s, 0.02))
    _, beat = consumer.answered(await ask(beat))

    commit = _commit(member)
    await ask(commit)
    await ask(frame)
    await ask(beat)
    calls: dict[str, Callable[[], object]] = {
        "Heartbeat v1": lambda: answered(frame),
        "ConsumerGroupHeartbeat v0 that says nothing new": lambda: answered(beat),
        "OffsetCommit v2 of a partition": lambda: answered(commit),
        "JoinGroup v2 and SyncGroup v1 of the only member": rejoin,
    }
    return [measure(name, call) for name, call in calls.items()]


def _commit(member: ClassicMember) -> bytes:
    """Return an OffsetCommit of the member's partition."""
    partition = struct.pack(">iq", 0, 1) + _string(b"")
    topic = _string(TOPIC.encode()) + struct.pack(">i", 1) + partition
    body = member.group + struct.pack(">i", member.generation) + _string(member.member_id)
    return request(OFFSET_COMMIT, 2, body + struct.pack(">qi", -1, 1) + topic)


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text
