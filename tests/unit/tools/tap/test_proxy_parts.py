"""Connections through a tap, each end of them with its reason, and the addresses and ports that stand for brokers."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client.settings import Endpoint
from barnabas.tools.tap import proxy as proxies
from barnabas.tools.tap.exchange import Connection
from barnabas.tools.tap.proxy import Proxy, ProxySettings, _next_size, _reason, _text
from barnabas.tools.tap.tls import TlsFiles, client_context, generated, server_context
from barnabas.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.metadata import MetadataRequest
from tests.unit.tools.tap.test_session import Seen, metadata, request, response

Handler = Callable[[trio.SocketStream], Any]
ASKED, ANSWERED = request(18, 3, 1, ApiVersionsRequest()), response(18, 3, 1, ApiVersionsResponse())


class Told(Seen):
    """Remembers openings and the order of all events."""

    def __init__(self) -> None:
        super().__init__()
        self.connections: list[Connection] = []
        self.changed = trio.Event()

    def opened(self, connection: Connection, at: float) -> None:
        self.connections.append(connection)

    def closed(self, connection: Connection, at: float, reason: str) -> None:
        super().closed(connection, at, reason)
        self.changed.set()

    async def end(self) -> str:
        with trio.fail_after(30):
            while not self.ends:
                self.changed = trio.Event()
                await self.changed.wait()
        return self.ends[-1]


@asynccontextmanager
async def tapped(handler: Handler, told: Told, **more: Any) -> AsyncIterator[tuple[Proxy, int]]:
    settings = {
        name: more.pop(name) for name in ("client_tls", "broker_tls", "advertised_host") if name in more
    }
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, handler, 0, host="127.0.0.1"))
        broker = Endpoint("127.0.0.1", listeners[0].socket.getsockname()[1])
        proxy = Proxy(ProxySettings((broker,), "127.0.0.1", **settings), told, **more)
        port = await nursery.start(proxy.run)
        yield proxy, port
        nursery.cancel_scope.cancel()


async def connect(port: int) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", port)


async def answering(stream: trio.SocketStream) -> None:
    async for _ in stream:
        await stream.send_all(ANSWERED)


async def received(stream: Any) -> bytes:
    result = b""
    with trio.fail_after(30):
        while part := await stream.receive_some():
            result += bytes(part)
    return result


# --- ends -----------------------------------------------------------------------------------------------------------


async def test_half_closed_client_gets_responses_and_broker_sees_end() -> None:
    heard: list[bytes] = []

    async def broker(stream: trio.SocketStream) -> None:
        heard.append(await received(stream))
        await stream.send_all(ANSWERED)
        await stream.aclose()

    told = Told()
    async with tapped(broker, told) as (proxy, port), await connect(port) as stream:
        await stream.send_all(ASKED)
        await stream.send_eof()
        assert await received(stream) == ANSWERED
        assert await told.end() == "the client closed"
        assert proxy.open_count == 0
    assert heard == [ASKED]
    (connection,) = told.connections
    here, there = stream.socket, proxy.settings.brokers[0]
    assert here is not None
    assert (connection.broker, connection.tls) == (f"127.0.0.1:{there.port}", "")
    assert connection.client.startswith("127.0.0.1:")
    assert (len(told.exchanges), told.notes) == (1, [])


async def test_closing_broker_ends_connection_after_its_bytes() -> None:
    async def broker(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(ANSWERED + b"\0\0\0")
        await stream.aclose()

    told = Told()
    async with tapped(broker, told) as (_, port), await connect(port) as stream:
        await stream.send_all(ASKED * 2)
        assert await received(stream) == ANSWERED + b"\0\0\0"
        assert await told.end() == "the broker closed"
    assert [exchange.unanswered for exchange in told.exchanges] == ["", "the broker closed"]


@pytest.mark.parametrize("who", ["client", "broker"])
async def test_a_side_that_breaks_is_named(who: str) -> None:
    reset = b"\1\0\0\0\0\0\0\0"
    asked = trio.Event()

    async def broker(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        asked.set()
        if who == "broker":
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            await stream.aclose()
        else:
            await trio.sleep_forever()

    told = Told()
    async with tapped(broker, told) as (_, port):
        stream = await connect(port)
        await stream.send_all(ASKED)
        if who == "client":
            await asked.wait()
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            await stream.aclose()
        assert await told.end() == f"the {who}'s side broke: Connection reset by peer"
        await trio.aclose_forcefully(stream)


# --- TLS ------------------------------------------------------------------------------------------------------------


async def test_a_handshake_that_fails_is_told_with_its_side(tmp_path: Path) -> None:
    files = generated(tmp_path, ("localhost",))
    server = server_context(files, None)
    told = Told()
    async with tapped(answering, told, client_tls=server) as (_, port):
        async with await connect(port) as stream:
            await stream.send_all(ASKED)
            await received(stream)
        assert (await told.end()).startswith("TLS with the client: ")
    assert (told.connections[0].tls, told.notes) == ("TLS to the client", [])
    told = Told()
    strict = client_context(TlsFiles(authority=files.authority))

    async def plain(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"this is no TLS, and it is longer than a record's head")

    async with tapped(plain, told, broker_tls=strict) as (proxy, port):
        async with await connect(port) as stream:
            assert await received(stream) == b""
        broker = proxy.settings.brokers[0]
        assert (await told.end()).startswith(
            f"the broker at 127.0.0.1:{broker.port} cannot be reached: TLS: "
        )
        assert len(told.notes) == 1
    assert told.connections[0].tls == "TLS to the broker"


# --- large answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_usable", [True, False])
@pytest.mark.parametrize("reads_records", [True, False])
async def test_a_large_answer_arrives_as_it_is(is_usable: bool, reads_records: bool) -> None:
    part = FetchResponse.PartitionData(records=bytes(300_000))
    answer = response(
        1, 12, 1, FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=[part])])
    )

    async def broker(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(answer + response(18, 3, 2, ApiVersionsResponse()))
        await stream.receive_some()

    told = Told()
    async with (
        tapped(broker, told, reads_records=reads_records) as (proxy, port),
        await connect(port) as stream,
    ):
        proxy._pipes.is_usable = is_usable and proxy._pipes.is_usable
        await stream.send_all(request(1, 12, 1, FetchRequest()) + request(18, 3, 2, ApiVersionsRequest()))
        await stream.send_eof()
        assert await received(stream) == answer + response(18, 3, 2, ApiVersionsResponse())
        await told.end()
    assert [exchange.request.api for exchange in told.exchanges] == ["Fetch", "ApiVersions"]
    records = told.exchanges[0].response.message.responses[0].partitions[0].records  # type: ignore[union-attr]
    assert (len(records), isinstance(records, bytes | memoryview)) == (300_000, reads_records)


# --- addresses ------------------------------------------------------------------------------------------------------


def proxy_of(host: str = "127.0.0.1", port: int = 0, advertised: str = "") -> Proxy:
    return Proxy(ProxySettings((), host, port, advertised), Told())


@asynccontextmanager
async def listening(proxy: Proxy) -> AsyncIterator[Proxy]:
    """A proxy that listens for brokers as it hears of them."""
    async with trio.open_nursery() as nursery:
        proxy._nursery = nursery
        yield proxy
        await trio.testing.wait_all_tasks_blocked()  # whoever listens closes its sockets when it is cancelled
        nursery.cancel_scope.cancel()


async def test_a_broker_has_one_port_under_each_of_its_local_names(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(proxy_of()) as proxy:
        entry = proxy.listen_for(("localhost", 9092))
        assert (
            proxy.listen_for(("127.0.0.1", 9092))
            == proxy.listen_for(("::1", 9092))
            == proxy.listen_for(("localhost", 9092))
            == entry
        )
        assert proxy.listen_for(("localhost", 9093)) != entry
        assert proxy.listen_for(("other", 9092)) not in (entry, None)
        assert len(proxy.ports) == 3
        proxy.ports.clear()
        assert len(proxy.ports) == 3, "it is a copy"
        monkeypatch.setattr(proxies, "LISTENERS_MAX", 4)
        assert proxy.listen_for(("other", 2)) is not None
        assert proxy.listen_for(("other", 3)) is None
        assert proxy.listen_for(("other", 2)) == proxy.ports["other", 2]
        assert proxy.address_for("l", "other", 3) is None


async def test_unchangeable_addresses_in_large_response_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.unit.tools.tap.test_rendering import exchange

    entry = exchange(1, None, FetchResponse())
    for end, is_complete, words in (
        (b"end", True, None), (None, True, None), (b"end", False, "are left out of"), (None, False, "are not changed in"),
    ):  # fmt: skip
        proxy = proxy_of()
        monkeypatch.setattr(proxies.addresses, "changed_end", lambda *_, end=end, so=is_complete: (end, so))
        assert proxy.rewrite_end("l", entry, 5) is end
        text = f"addresses of leaders {words} a large Fetch answer: those of the tap are longer"
        assert proxy._observer.notes == ([text] if words else [])  # type: ignore[attr-defined]


# --- words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "got", "following"),
    [
        (32768, 32768, 65536),
        (32768, 32767, 32768),
        (1 << 20, 1 << 20, 1 << 20),
        (1 << 19, 1 << 19, 1 << 20),
        (65536, 16384, 65536),
        (65536, 16383, 32768),
        (131072, 1, 65536),
        (32768, 1, 32768),
    ],
)
def test_more_is_read_where_reads_are_full(size: int, got: int, following: int) -> None:
    assert _next_size(size, got) == following


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(111, "x"), "Connection refused"),
        (OSError(-2, "Name or service not known"), "Name or service not known"),
        (OSError("plain"), "plain"),
        (trio.BrokenResourceError(), "BrokenResourceError"),
        (caused(trio.BrokenResourceError(), OSError(104, "x")), "Connection reset by peer"),
        (caused(OSError("outer"), OSError(111, "x")), "Connection refused"),
        (caused(ValueError("outer"), OSError(111, "x")), "outer"),
        (trio.TooSlowError(), "no handshake in 30 s"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), None),
    ],
)
def test_the_reason_of_an_error_in_words(error: BaseException, words: str | None) -> None:
    if words is not None:
        assert _reason(error) == words
    else:
        error.reason = "WRONG_VERSION_NUMBER"  # type: ignore[attr-defined]
        assert _reason(error) == "wrong version number"
        error.verify_message = "Self_signed"  # type: ignore[attr-defined]
        assert _reason(error) == "self signed"
    assert [_text(address) for address in (("h", 1), ("::1", 2, 0, 0))] == ["h:1", "[::1]:2"]


async def test_metadata_through_a_tap_has_its_advertised_host() -> None:
    async def broker(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(response(3, 12, 1, metadata(9192)))
        await stream.receive_some()

    async with tapped(broker, Told(), advertised_host="tap") as (proxy, port), await connect(port) as stream:
        await stream.send_all(request(3, 12, 1, MetadataRequest()))
        data = await stream.receive_some()
        moved = metadata(proxy.ports["broker", 9192])
        moved.brokers[0].host = "tap"
        assert data == response(3, 12, 1, moved)
