"""Responses off a stream, however their bytes are cut and however large they are."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing

from barnabas.client import frames
from barnabas.client.frames import FrameReader


def framed(bodies: list[bytes]) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@pytest.mark.parametrize("seed", range(20))
async def test_frames_come_whole_however_they_are_cut(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(frames, "READ_BYTES", rng.choice([1, 7, 64, 1 << 16]))
    monkeypatch.setattr(frames, "SET_ASIDE_BYTES", rng.choice([1, 10, 1 << 20]))
    bodies = [rng.randbytes(rng.choice([0, 1, 3, 50, 5_000])) for _ in range(30)]
    data = framed(bodies)
    ours, theirs = trio.testing.memory_stream_pair()

    async def send() -> None:
        at = 0
        while at < len(data):
            size = rng.choice([1, 2, 5, 100, 10_000])
            await theirs.send_all(data[at : at + size])
            at += size

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        reader = FrameReader(ours)
        received = [await reader.next() for _ in bodies]
    assert [bytes(frame) for frame in received] == bodies, f"seed {seed}"


async def test_a_large_frame_over_tcp() -> None:
    bodies = [b"first", random.Random(1).randbytes(3 << 20), b"last"]
    async with trio.open_nursery() as nursery:

        async def serve(stream: trio.SocketStream) -> None:
            async with stream:
                await stream.send_all(framed(bodies))

        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        stream = await trio.testing.open_stream_to_socket_listener(listeners[0])
        async with stream:
            reader = FrameReader(stream)
            assert [bytes(await reader.next()) for _ in bodies] == bodies
            with pytest.raises(ConnectionResetError):
                await reader.next()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("data", [b"", b"\0\0", b"\0\0\0\5abc"])
async def test_an_end_in_the_middle_of_a_frame_is_an_error(data: bytes) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.send_all(data)
    await theirs.aclose()
    with pytest.raises(ConnectionResetError):
        await FrameReader(ours).next()
