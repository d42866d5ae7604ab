"""The proxy itself: many connections, readers that stand still, memory that is given back."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio
import trio.testing

from barnabas.client.settings import Endpoint
from barnabas.tools.tap.cutting import Budget, Cutter, Data, Fate, NotFramesError
from barnabas.tools.tap.proxy import Proxy, ProxySettings
from barnabas.tools.tap.skimming import FetchSkimmer
from barnabas.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.unit.tools.tap.test_session import Seen, metadata, request, response

CONNECTIONS = 300


async def answer_all(stream: trio.SocketStream) -> None:
    """Answer requests of a known size, as a broker does."""
    asked = len(request(18, 3, 0, ApiVersionsRequest()))
    data = b""
    async for part in stream:
        data += bytes(part)
        while len(data) >= asked:
            correlation_id = int.from_bytes(data[8:12], "big")
            await stream.send_all(response(18, 3, correlation_id, ApiVersionsResponse()))
            data = data[asked:]


@asynccontextmanager
async def tapped(handler: object, seen: Seen) -> AsyncIterator[tuple[Proxy, int]]:
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, handler, 0, host="127.0.0.1"))
        broker = listeners[0].socket.getsockname()[1]
        proxy = Proxy(ProxySettings((Endpoint("127.0.0.1", broker),), "127.0.0.1"), seen)
        port = await nursery.start(proxy.run)
        yield proxy, port
        nursery.cancel_scope.cancel()


async def test_many_connections_are_served_at_once() -> None:
    seen = Seen()
    async with tapped(answer_all, seen) as (proxy, port):
        streams = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(CONNECTIONS)]
        for round_ in range(3):
            for stream in streams:
                await stream.send_all(request(18, 3, round_, ApiVersionsRequest()))
            expected = response(18, 3, round_, ApiVersionsResponse())
            for stream in streams:
                data = b""
                while len(data) < len(expected):
                    data += bytes(await stream.receive_some())
                assert data == expected
        assert proxy.open_count == CONNECTIONS
        for stream in streams:
            await stream.aclose()
        with trio.fail_after(60):
            while proxy.open_count:
                await trio.sleep(0.01)
    assert len(seen.exchanges) == 3 * CONNECTIONS
    assert len(seen.ends) == CONNECTIONS


async def test_unread_client_stalls_only_its_own_connection() -> None:
    sent = 0

    async def flood(stream: trio.SocketStream) -> None:
        nonlocal sent
        first = bytes(await stream.receive_some())
        if not first.startswith(b"GET"):
            await stream.send_all(response(18, 3, 1, ApiVersionsResponse()))
            return
        while True:
            await stream.send_all(b"x" * 65536)
            sent += 65536

    async with tapped(flood, Seen()) as (_, port):
        slow = await trio.open_tcp_stream("127.0.0.1", port)
        await slow.send_all(b"GET / HTTP/1.1\r\n\r\n")
        before = -1
        while before != sent:  # until nothing more is taken
            before = sent
            await trio.testing.wait_all_tasks_blocked(0.2)
        assert 0 < sent < 64 << 20
        quick = await trio.open_tcp_stream("127.0.0.1", port)
        await quick.send_all(request(18, 3, 1, ApiVersionsRequest()))
        with trio.fail_after(60):
            assert bytes(await quick.receive_some()) == response(18, 3, 1, ApiVersionsResponse())
        await trio.aclose_forcefully(slow)
        await trio.aclose_forcefully(quick)


class Holding:
    """An owner that holds frames back at random."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.ends = 0

    def begin(self, size: int, start: object) -> Fate:
        if size > 1_000_000:
            raise NotFramesError
        return self.rng.choice((Fate.PASS, Fate.KEEP, Fate.HOLD))

    def end(self, frame: bytes, size: int) -> bytes | None:
        self.ends += 1
        return None

    def skimmer(self, size: int, start: object) -> FetchSkimmer:
        raise NotImplementedError

    def end_skimmed(self, skimmer: FetchSkimmer, size: int, end_size: int) -> None:
        raise NotImplementedError


def test_forwarded_bytes_are_unchanged_and_memory_is_released() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(50):
        budget = Budget(400_000)
        cutter = Cutter(Holding(rng), budget, defers=rng.random() < 0.5)
        data = b""
        for _ in range(rng.randrange(1, 12)):
            size = rng.choice((0, 1, 3, 4, 5, 100, 70_000, 150_000))
            data += size.to_bytes(4, "big") + rng.randbytes(size)
        data += rng.choice((b"", b"\0", b"\0\0\0\x09ab", (2_000_000).to_bytes(4, "big") + b"other protocol"))
        result = b""
        at = 0
        while at < len(data):
            size = rng.choice((1, 5, 1000, 50_000, 200_000))
            result += b"".join(map(bytes, cutter.feed(data[at : at + size])))
            cutter.sent()
            at += size
        result += cutter.rest()
        assert result == data
        assert budget.used == 0


class Keeping:
    """An owner that keeps all frames."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def begin(self, size: int, start: object) -> Fate:
        return Fate.KEEP

    def end(self, frame: Data, size: int) -> None:
        self.frames.append(bytes(frame))

    def skimmer(self, size: int, start: object) -> FetchSkimmer:
        raise NotImplementedError

    def end_skimmed(self, skimmer: FetchSkimmer, size: int, end_size: int) -> None:
        raise NotImplementedError


def test_large_frame_is_handed_over_after_sending() -> None:
    owner = Keeping()
    cutter = Cutter(owner, Budget(1 << 20), defers=True)
    frames = [b"small answer", bytes(100_000), b"another", bytes(200_000)]
    small, large, other, larger = (len(frame).to_bytes(4, "big") + frame for frame in frames)
    assert b"".join(map(bytes, cutter.feed(small + large))) == small + large
    assert owner.frames == frames[:1]
    cutter.sent()
    assert owner.frames == frames[:2]
    cutter.feed(other + larger)
    cutter.rest()
    assert owner.frames == frames


async def test_addresses_of_all_brokers_are_listened_for_and_told() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        data = bytes(await stream.receive_some())
        await stream.send_all(response(3, 12, int.from_bytes(data[8:12], "big"), metadata(9192)))

    from barnabas.wire.generated.metadata import MetadataRequest

    async with tapped(serve, Seen()) as (proxy, port):
        for _ in range(2):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(request(3, 12, 1, MetadataRequest()))
            with trio.fail_after(60):
                data = bytes(await stream.receive_some())
            own = proxy.ports["broker", 9192]
            told = metadata(own)
            told.brokers[0].host = "127.0.0.1"
            assert data == response(3, 12, 1, told)
            await stream.aclose()
        assert len(proxy.ports) == 2
