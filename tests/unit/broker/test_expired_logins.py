"""A login that expires while requests are in flight: each of them is answered, or the connection is closed."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import product
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from barnabas.network.sockets import PlainTransport
from barnabas.network.wait_set import WaitSets
from barnabas.security.sasl.mechanism import Mechanism
from barnabas.security.sasl.plain import PlainExchange
from barnabas.security.sasl.server import SaslOffer, SaslServer
from barnabas.serving import apis
from barnabas.serving.connection import Connection
from barnabas.serving.context import ConnectionInfo
from barnabas.serving.request import Request
from barnabas.serving.stages import STAGES
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest
from barnabas.wire.generated.heartbeat import HeartbeatRequest
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.headers import encode_request
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.support.connection_parts import connection_parts

from .test_requests_that_wait import fetched, joining, produced, request_parts_of, version_of

PRODUCE, FETCH, METADATA, OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT = 0, 1, 3, 8, 10, 11, 12
DELAY_MS = 40
"""Time that a new group waits for more members, and a fetch for records."""

Frame = Callable[[str, int], bytes]


def frame(key: int, make: Callable[[str], Any]) -> Frame:
    """A function that makes the bytes of a request, given a group and a correlation id."""

    def framed(group_id: str, correlation_id: int) -> bytes:
        chunks = encode_request(key, version_of(key), correlation_id, "client", make(group_id))
        return b"".join(bytes(chunk) for chunk in chunks)

    return framed


AT_ONCE = "one that is answered at once"
FIRST: dict[str, Frame] = {
    AT_ONCE: frame(HEARTBEAT, lambda group_id: HeartbeatRequest(group_id=group_id, member_id="m")),
    "a fetch that waits": frame(FETCH, lambda _: fetched((0, 0), max_wait_ms=DELAY_MS)),
    "a member that waits for others": frame(
        JOIN_GROUP, lambda group_id: joining(group_id=group_id, group_instance_id="one")
    ),
    "one that has more to do": frame(METADATA, lambda _: MetadataRequest(topics=None)),
}
SECOND: dict[str, Frame] = {
    "FindCoordinator": frame(FIND_COORDINATOR, lambda _: FindCoordinatorRequest(coordinator_keys=["g"])),
    "Heartbeat": FIRST[AT_ONCE],
    "Produce": frame(PRODUCE, lambda _: produced(1)),
    "a large Produce": frame(PRODUCE, lambda _: produced(*range(1, 40))),
}


class Peer:
    """A client that has logged in, and its connection."""

    def __init__(self, theirs: Any, info: ConnectionInfo, login: SaslServer) -> None:
        self._theirs = theirs
        self.info = info
        self._login = login
        self._received = b""

    async def send(self, data: bytes) -> None:
        await self._theirs.send_all(data)
        await wait_all_tasks_blocked(0.005)

    def expire(self) -> None:
        """Have the login be at its end now."""
        self._login.expires_ms = trio.current_time() * 1000

    async def receive(self) -> int | None:
        """Return the correlation id of the next answer; None when the connection is closed."""
        while len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            data = await self._theirs.receive_some(65_536)
            if not data:
                assert not self._received, "an answer is sent whole"
                return None
            self._received += data
        size = int.from_bytes(self._received[:4], "big")
        answer, self._received = self._received[4 : 4 + size], self._received[4 + size :]
        return int.from_bytes(answer[:4], "big")


@pytest.fixture
async def asked(tmp_path: Any) -> AsyncIterator[Any]:
    settings = {"group.initial.rebalance.delay.ms": str(DELAY_MS)}
    async with broker_to_ask(tmp_path, settings) as asked, trio.open_nursery() as nursery:
        nursery.start_soon(asked.services.group_coordinator.run)
        await ask_for_topic(asked, "t", partitions=40)
        yield asked
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def logged_in(asked: Any) -> AsyncIterator[Peer]:
    login = SaslServer(
        SaslOffer({"PLAIN": Mechanism(lambda: PlainExchange({"u": b"p"}), 3_600_000)}, 1000, 0)
    )
    login.handshake("PLAIN", 1, 0)
    await login.evaluate(b"\0u\0p")
    login.complete(0, trio.current_time() * 1000)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    info = ConnectionInfo(1, "SASL", "SASL_PLAINTEXT", ("127.0.0.1", 9092), ("127.0.0.1", 50_000))
    info.login = login
    connection = Connection(
        connection_parts(begin=partial(Request, STAGES, request_parts_of(asked))),
        PlainTransport(ours, wait_sets=WaitSets()),
        info,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.serve)
        with trio.fail_after(5):
            async with trio.SocketStream(trio.socket.from_stdlib_socket(theirs)) as stream:
                yield Peer(stream, info, login)
        nursery.cancel_scope.cancel()


async def together(peer: Peer, before: bytes, other: bytes) -> None:
    await peer.send(before + other)
    peer.expire()


async def queued(peer: Peer, before: bytes, other: bytes) -> None:
    await peer.send(before)
    await peer.send(other)
    peer.expire()


async def late(peer: Peer, before: bytes, other: bytes) -> None:
    await peer.send(before)
    peer.expire()
    await peer.send(other)


async def half_late(peer: Peer, before: bytes, other: bytes) -> None:
    await peer.send(before)
    await peer.send(other[: len(other) // 2])
    peer.expire()
    await peer.send(other[len(other) // 2 :])


async def both_late(peer: Peer, before: bytes, other: bytes) -> None:
    peer.expire()
    await peer.send(before + other)


ARRIVALS = {
    "together with the first": together, "behind the first, before the end": queued,
    "behind the first, after the end": late, "in two halves, one before the end": half_late,
    "with the first, both after the end": both_late,
}  # fmt: skip


@pytest.mark.parametrize("muted_ms", [0, 20])
@pytest.mark.parametrize("first", FIRST)
async def test_each_request_is_answered_or_the_connection_is_closed(
    asked: Any, first: str, muted_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    for number, (arrival, second) in enumerate(product(ARRIVALS, SECOND)):
        caplog.clear()
        sent, other = FIRST[first](f"g{number}", 1), SECOND[second](f"g{number}", 2)
        with_what = f"{second} comes {arrival}"
        async with logged_in(asked) as peer:
            await peer.send(FIRST[AT_ONCE]("", 0))
            assert await peer.receive() == 0
            peer.info.muted_ms = muted_ms
            await ARRIVALS[arrival](peer, sent, other)
            answers = []
            while 2 not in answers and (answer := await peer.receive()) is not None:
                answers.append(answer)
        expected = [[]] if arrival == "with the first, both after the end" else [[1], [1, 2]]
        assert answers in expected, with_what
        if 2 not in answers:
            refused = other if answers else sent
            correlation_id = len(answers) + 1
            assert (
                f"{name_of(refused)} (correlation id {correlation_id}) after the login has expired"
                in caplog.text
            ), with_what
        assert "malformed" not in caplog.text, with_what


def name_of(request: bytes) -> str:
    return apis.BY_KEY[int.from_bytes(request[4:6], "big")].name
