"""Requests over HTTP: which may come from a page in a browser, what is read of one, how long it may take, what is sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import h11
import pytest
import trio
import trio.testing

from barnabas.network.http import HEAD_SECONDS_MAX, HttpReader, TooLargeError, is_of_a_web_page


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
    visitor = SimpleNamespace(stream=server, moved_s=-1.0)
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


async def test_a_body_has_its_largest_size():
    reader, _, client = pair()
    await client.send_all(HEAD % 11 + b"0123456789A")
    with pytest.raises(TooLargeError):
        await read(reader)


async def test_who_goes_or_sends_nonsense_is_not_answered_or_refused():
    reader, _, client = pair()
    await client.aclose()
    assert await read(reader) is None
    reader, _, client = pair()
    await client.send_all(b"nonsense\r\n\r\n")
    with pytest.raises(h11.RemoteProtocolError):
        await read(reader)
    assert reader.may_answer
    reader, _, client = pair()
    await client.send_all(b"GET / HTTP/1.1\r\nHost: " + b"a" * 300)
    with pytest.raises(h11.RemoteProtocolError):
        await read(reader)


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


@pytest.mark.parametrize(("close", "goes_on"), [(b"", True), (b"Connection: close\r\n", False)])
async def test_after_an_answer_the_next_request_is_read_unless_it_was_the_last(close, goes_on):
    reader, visitor, client = pair()
    for number in (0, 1):
        await client.send_all(b"GET /%d HTTP/1.1\r\nHost: a\r\n%s\r\n" % (number, close))
        request, _ = await read(reader)
        assert request.target == b"/%d" % number
        answered = await reader.answer(200, [("Content-Length", "4")], [b"ab", b"cd"], seconds=1)
        assert answered is goes_on
        data = await client.receive_some()
        while b"abcd" not in data:
            data += await client.receive_some()
        assert data.startswith(b"HTTP/1.1 200 ")
        assert data.endswith(b"\r\n\r\nabcd")
        assert visitor.moved_s > 0
        if not goes_on:
            return


async def test_of_an_answer_the_head_alone_can_be_sent():
    reader, _, client = pair()
    await client.send_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
    await read(reader)
    assert await reader.answer(200, [("Content-Length", "4")], [b"abcd"], seconds=1, head_only=True)
    assert (await client.receive_some()).endswith(b"\r\n\r\n")


async def test_a_visitor_that_does_not_read_is_not_waited_for_longer(autojump_clock):
    client, server = trio.testing.lockstep_stream_pair()
    reader = HttpReader(SimpleNamespace(stream=server, moved_s=0.0), header_bytes_max=200)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await read(reader)
    begun = trio.current_time()
    assert not await reader.answer(200, [("Content-Length", "4")], [b"abcd"], seconds=7)
    assert trio.current_time() - begun == pytest.approx(7)
