"""Requests over HTTP: which may come from a page in a browser, what is read of one, how long it may take, what is sent."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import h11
import pytest
import trio
import trio.testing

from barnabas.network.bodies import SMALL_BYTES_MAX, WAIT_SECONDS_MAX, BodyPool
from barnabas.network.http import (
    BODY_SECONDS_MAX,
    HEAD_SECONDS_MAX,
    HttpReader,
    is_of_a_web_page,
    is_of_another_site,
)
from barnabas.network.visitors import Visitor


@pytest.mark.parametrize(
    ("host", "is_page"),
    [
        ("localhost", False),
        ("localhost:8080", False),
        ("LOCALHOST", False),
        ("127.0.0.1:1", False),
        ("[::1]:8080", False),
        ("10.0.0.5", False),
        ("10.0.0.5:80", False),
        ("", False),
        ("evil.example", True),
        ("localhost.evil.example", True),
        ("127.0.0.2", True),
        ("[::1", True),
        ("10.0.0.6", True),
    ],
)
def test_a_name_that_is_not_of_this_machine_is_that_of_a_page(host, is_page):
    def request(*more: tuple[str, str]) -> Any:
        return h11.Request(method="GET", target="/", headers=[("Host", host), *more])

    assert is_of_a_web_page(request(), {"10.0.0.5"}) is is_page
    assert is_of_a_web_page(request(("Origin", "null")), {"10.0.0.5"}), "browsers say where a page is from"


def pair() -> tuple[HttpReader, Any, Any]:
    """A reader, what the visitor holds, and the visitor's end."""
    client, server = trio.testing.memory_stream_pair()
    visitor = SimpleNamespace(stream=server, moved_s=-1.0, bodies=BodyPool())
    return HttpReader(visitor, header_bytes_max=200), visitor, client  # type: ignore[arg-type]


async def read(reader: HttpReader, *, within: float = 10, body: int = 10) -> Any:
    return await reader.next_request(begins_within=within, body_bytes_max=body)


HEAD = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"


@pytest.mark.parametrize("pieces", [1, 7, 1000])
async def test_a_request_is_read_with_its_body_however_it_comes(pieces):
    reader, visitor, client = pair()
    data = HEAD % 10 + b"0123456789"
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            for at in range(0, len(data), pieces):
                await client.send_all(data[at : at + pieces])

        nursery.start_soon(send)
        request, body = await read(reader)
    assert (request.method, request.target, body) == (b"POST", b"/x", b"0123456789")
    assert visitor.moved_s == pytest.approx(trio.current_time(), abs=1)


async def test_a_request_begins_in_time_and_goes_on(autojump_clock):
    reader, _, _ = pair()
    begun = trio.current_time()
    assert await read(reader, within=3) is None
    assert trio.current_time() - begun == pytest.approx(3)
    reader, _, client = pair()
    await client.send_all(b"POST /x HTTP/1.1\r\n")
    begun = trio.current_time()
    assert await read(reader, within=60) is None
    assert trio.current_time() - begun == pytest.approx(HEAD_SECONDS_MAX), "once begun it has less time"


async def test_a_head_has_its_time_once_and_each_part_of_a_body_again(autojump_clock):
    async def slowly(client: Any, *parts: bytes) -> None:
        for part in parts:
            await client.send_all(part)
            await trio.sleep(HEAD_SECONDS_MAX - 1)

    reader, _, client = pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slowly, client, HEAD % 3, b"a", b"b", b"c")
        _, body = await read(reader, within=1)
        assert body == b"abc"
    reader, _, client = pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slowly, client, b"GET / HTTP/1.1\r\n", b"Host: a\r\n", b"\r\n")
        assert await read(reader, within=1) is None
        nursery.cancel_scope.cancel()


async def test_who_asks_whether_to_go_on_is_told_so():
    reader, _, client = pair()
    await client.send_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
    async with trio.open_nursery() as nursery:
        got: list[Any] = []

        async def ask() -> None:
            got.append(await read(reader))

        nursery.start_soon(ask)
        assert (await client.receive_some()).startswith(b"HTTP/1.1 100 ")
        await client.send_all(b"x")
    assert got[0][1] == b"x"


async def test_a_visitor_that_does_not_read_is_not_waited_for_longer(autojump_clock):
    client, server = trio.testing.lockstep_stream_pair()
    reader = HttpReader(SimpleNamespace(stream=server, moved_s=0.0), header_bytes_max=200)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await read(reader)
    begun = trio.current_time()
    assert not await reader.answer(200, [("Content-Length", "4")], [b"abcd"], seconds=7)
    assert trio.current_time() - begun == pytest.approx(7)


def of(bodies: BodyPool) -> tuple[HttpReader, Any]:
    """A reader of an address with bodies that share a pool, and the visitor's end."""
    client, server = trio.testing.memory_stream_pair()
    return HttpReader(Visitor(server, bodies), header_bytes_max=200), client


LARGE = SMALL_BYTES_MAX + 1


async def read_large(reader: HttpReader) -> Any:
    return await reader.next_request(begins_within=10, body_bytes_max=LARGE)


async def test_large_bodies_wait_for_each_other_and_small_for_none(autojump_clock):
    bodies = BodyPool(LARGE)
    (first, near), (second, other), (third, last) = of(bodies), of(bodies), of(bodies)
    await near.send_all(HEAD % LARGE + bytes(LARGE))
    assert (await read_large(first))[1] == bytes(LARGE)
    await last.send_all(HEAD % SMALL_BYTES_MAX + bytes(SMALL_BYTES_MAX))
    assert (await read_large(third))[1] == bytes(SMALL_BYTES_MAX)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other.send_all, HEAD % LARGE + bytes(LARGE))
        nursery.start_soon(trio.sleep, WAIT_SECONDS_MAX - 1)
        begun = trio.current_time()
        with trio.move_on_after(WAIT_SECONDS_MAX - 2):
            await read_large(second)
        assert trio.current_time() - begun == pytest.approx(WAIT_SECONDS_MAX - 2)
        assert bodies.bytes_taken == LARGE
        first.release()
        assert bodies.bytes_taken == 0


@pytest.mark.parametrize(
    "head", [HEAD % LARGE, b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"]
)
async def test_a_body_without_a_place_in_the_pool_is_refused(autojump_clock, head):
    bodies = BodyPool(LARGE)
    first, near = of(bodies)
    await near.send_all(HEAD % LARGE + bytes(LARGE))
    assert await read_large(first) is not None
    second, other = of(bodies)
    refused: list[int] = []

    async def refuse(status: int, words: str) -> bool:
        refused.append(status)
        return False

    async def answer(request: h11.Request, body: bytes) -> bool:
        raise AssertionError("it has no place")

    async with trio.open_nursery() as nursery:
        chunk = b"%x\r\n" % LARGE + bytes(LARGE)
        nursery.start_soon(other.send_all, head + (chunk if b"chunked" in head else b""))
        await second.serve(answer, refuse, idle_seconds_max=60, body_bytes_max=LARGE)
    assert refused == [503]
    first.release()
    assert bodies.bytes_taken == 0


async def test_trickling_body_ends_in_time_and_frees_its_place(autojump_clock):
    bodies = BodyPool()
    reader, client = of(bodies)

    async def trickle() -> None:
        await client.send_all(HEAD % LARGE)
        with suppress(trio.BrokenResourceError):
            while True:
                await trio.sleep(HEAD_SECONDS_MAX - 1)
                await client.send_all(b"a")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trickle)
        begun = trio.current_time()
        assert await read_large(reader) is None
        assert trio.current_time() - begun == pytest.approx(BODY_SECONDS_MAX)
        nursery.cancel_scope.cancel()
    reader.release()
    assert bodies.bytes_taken == 0


async def test_a_sender_sees_its_refusal_though_it_has_not_ended():
    bodies = BodyPool()
    reader, client = of(bodies)
    refused: list[str] = []

    async def refuse(status: int, words: str) -> bool:
        refused.append(f"{status} {words}")
        return await reader.answer(status, [("Content-Length", "0")], [], seconds=5)

    async def answer(request: h11.Request, body: bytes) -> bool:
        raise AssertionError("it is too large")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(reader.serve, answer, refuse, idle_seconds_max=60, body_bytes_max=LARGE))
        await client.send_all(HEAD % (10 * LARGE))
        await client.send_all(bytes(10 * LARGE))
        await client.send_eof()
        assert (await client.receive_some()).startswith(b"HTTP/1.1 413")
    assert refused == [f"413 a body has at most {LARGE} bytes"]


@pytest.mark.parametrize(
    ("headers", "is_foreign"),
    [
        ({}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://Registry.example:8081"}, False),
        ({"Origin": "https://registry.example:8081"}, False),
        ({"Origin": "http://registry.example"}, True),
        ({"Origin": "http://other.example:8081"}, True),
        ({"Origin": "null"}, True),
        ({"Origin": "http://[::1"}, True),
        ({"Sec-Fetch-Site": "same-site"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, True),
    ],
)
def test_a_request_of_another_site_is_told_by_its_headers(headers, is_foreign):
    request = h11.Request(
        method="GET", target="/", headers=[("Host", "registry.example:8081"), *headers.items()]
    )
    assert is_of_another_site(request) is is_foreign


async def test_the_answer_to_a_head_request_has_no_body() -> None:
    reader, _, client = pair()
    await client.send_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert await read(reader) is not None
    assert await reader.answer(405, [("Content-Length", "5")], [b"no"], seconds=5)
    assert (await client.receive_some()).endswith(b"Content-Length: 5\r\n\r\n")
