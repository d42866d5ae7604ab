"""A visitor's connection over HTTP from its first request to its last: what ends it, refusals, answers without an end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import h11
import pytest
import trio
import trio.testing

from barnabas.network.http import HttpReader

Pair = tuple[HttpReader, Any, Any]
GET = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"


def pair() -> Pair:
    """A reader, what the visitor holds, and the visitor's end."""
    client, server = trio.testing.memory_stream_pair()
    visitor = SimpleNamespace(stream=server, moved_s=-1.0)
    return HttpReader(visitor, header_bytes_max=200), visitor, client  # type: ignore[arg-type]


class Served:
    """A connection that was served: the requests that were answered, and what was refused."""

    def __init__(self, reader: HttpReader, answers_max: int = 99) -> None:
        self.reader = reader
        self.answered: list[tuple[bytes, bytes]] = []
        self.refused: list[tuple[int, str]] = []
        self._answers_max = answers_max

    async def answer(self, request: h11.Request, body: bytes) -> bool:
        self.answered.append((request.target, body))
        goes_on = await self.reader.answer(200, [("Content-Length", "0")], [], seconds=1)
        return goes_on and len(self.answered) < self._answers_max

    async def refuse(self, status: int, words: str) -> bool:
        self.refused.append((status, words))
        return False

    async def serve(self, *, idle: float = 60, first: float | None = None) -> None:
        await self.reader.serve(
            self.answer, self.refuse, idle_seconds_max=idle, body_bytes_max=5, first_within=first
        )


async def test_requests_are_answered_until_the_visitor_goes() -> None:
    reader, _, client = pair()
    served = Served(reader)
    await client.send_all(GET % 1 + GET % 2)
    await client.send_eof()
    await served.serve()
    assert served.answered == [(b"/1", b""), (b"/2", b"")]
    assert served.refused == []


async def test_too_large_body_is_refused_with_its_limit_and_closes() -> None:
    reader, _, client = pair()
    served = Served(reader)
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    await client.send_all(head % 5 + b"12345" + head % 6 + b"123456" + GET % 1)
    await served.serve()
    assert served.answered == [(b"/", b"12345")]
    assert served.refused == [(413, "a body has at most 5 bytes")]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: " + b"a" * 300, 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    ],
)
async def test_unreadable_request_is_refused_with_its_status(data: bytes, status: int) -> None:
    reader, _, client = pair()
    served = Served(reader)
    await client.send_all(GET % 1 + data)
    await served.serve()
    assert served.answered == [(b"/1", b"")]
    ((told, words),) = served.refused
    assert told == status
    assert words.startswith("malformed request: ")


async def test_the_first_request_may_have_less_time_than_the_next(autojump_clock: object) -> None:
    for first, sends, seconds in ((3.0, False, 3), (3.0, True, 60), (None, False, 60), (None, True, 60)):
        reader, _, client = pair()
        served = Served(reader)
        began = trio.current_time()
        if sends:
            await client.send_all(GET % 1)
        await served.serve(first=first)
        assert trio.current_time() - began == pytest.approx(seconds)
        assert len(served.answered) == int(sends)


async def asked(opened: Pair, data: bytes = GET % 1) -> None:
    reader, _, client = opened
    await client.send_all(data)
    assert await reader.next_request(begins_within=1, body_bytes_max=0) is not None


async def read_all(client: Any) -> bytes:
    data = bytearray()
    while part := await client.receive_some():
        data += part
    return bytes(data)


HEADERS = [("Transfer-Encoding", "chunked")]


async def test_a_stream_is_what_the_work_hands_over_and_its_end() -> None:
    parts = pair()
    await asked(parts)
    reader, visitor, client = parts

    async def work(send: Any) -> None:
        await send(b"one")
        await send(b"two")

    await reader.stream(HEADERS, work, seconds=1)
    await visitor.stream.aclose()
    data = await read_all(client)
    assert data.startswith(b"HTTP/1.1 200 ")
    assert data.endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")


@pytest.mark.parametrize("goes", [True, False])
async def test_the_work_ends_when_the_visitor_goes_or_says_more(goes: bool, autojump_clock: object) -> None:
    parts = pair()
    await asked(parts)
    reader, _, client = parts
    ended: list[str] = []

    async def work(send: Any) -> None:
        try:
            await send(b"one")
            await trio.sleep(1000)
            ended.append("by itself")
        finally:
            ended.append("ended")

    began = trio.current_time()
    async with trio.open_nursery() as nursery:

        async def stream() -> None:
            await reader.stream(HEADERS, work, seconds=5)

        nursery.start_soon(stream)
        await trio.sleep(2)
        if goes:
            await client.aclose()
        else:
            await client.send_all(b"more")
    assert trio.current_time() - began == pytest.approx(2)
    assert ended == ["ended"]


async def test_the_work_ends_when_a_piece_is_not_taken_in_time(autojump_clock: object) -> None:
    client, server = trio.testing.lockstep_stream_pair()
    visitor = SimpleNamespace(stream=server, moved_s=0.0)
    reader = HttpReader(visitor, header_bytes_max=200)  # type: ignore[arg-type]
    ended: list[float] = []
    pieces: list[int] = []

    async def work(send: Any) -> None:
        began = trio.current_time()
        try:
            for number in range(3):
                await send(b"piece")
                pieces.append(number)
        finally:
            ended.append(trio.current_time() - began)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, GET % 1)
        await reader.next_request(begins_within=1, body_bytes_max=0)

        async def take_head() -> None:
            await client.receive_some()

        nursery.start_soon(take_head)
        await reader.stream(HEADERS, work, seconds=7)
    assert ended == [pytest.approx(7)]
    assert pieces == []
