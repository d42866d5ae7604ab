"""Requests and responses on one connection, with a scripted broker at the other end."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client.base_connection import SASL_HANDSHAKE
from barnabas.client.connection import Connection, open_connection
from barnabas.client.errors import AuthenticationError, ConnectionLostError, UnsupportedVersionError
from barnabas.client.settings import ClientSettings, Endpoint, SaslCredentials
from barnabas.wire.generated.api_versions import ApiVersionsResponse
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateResponse
from barnabas.wire.generated.sasl_handshake import SaslHandshakeResponse
from tests.support.scripted_broker import Peer

ENDPOINT = Endpoint("broker", 9092)
TLS = Path(__file__).parent / "tls"
SETTINGS = ClientSettings(request_timeout_ms=1_000)
SECONDS_MAX = 30


Script = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def connected(
    *scripts: Script, settings: ClientSettings = SETTINGS, greets: bool = True
) -> AsyncIterator[Connection]:
    """A connection to a broker that plays one script after the other, one for each time that it is dialled."""
    remaining = list(scripts)
    async with trio.open_nursery() as nursery:

        async def play(stream: trio.abc.Stream, script: Script) -> None:
            peer = Peer(stream)
            try:
                if greets:
                    await peer.greet()
                await script(peer)
            except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
                pass

        async def dial(endpoint: Endpoint) -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(play, theirs, remaining.pop(0))
            return ours

        async with open_connection(ENDPOINT, settings, dial=dial) as connection:
            yield connection
        nursery.cancel_scope.cancel()


async def silence(peer: Peer) -> None:
    await trio.sleep_forever()


async def test_the_newest_version_that_both_know() -> None:
    async with connected(silence) as connection:
        assert connection.version_of(1) == 17
        assert connection.version_of(1, version_max=12) == 12
        with pytest.raises(UnsupportedVersionError, match="Fetch"):
            connection.version_of(1, version_max=3)
        with pytest.raises(UnsupportedVersionError, match="ListOffsets"):
            connection.version_of(2)


async def test_everybody_who_waits_learns_that_the_connection_is_lost() -> None:
    async def script(peer: Peer) -> None:
        await peer.next()
        await peer.next()
        await peer.stream.aclose()

    lost = []
    async with connected(script) as connection:

        async def ask() -> None:
            with pytest.raises(ConnectionLostError, match="broker:9092"):
                await connection.ask(MetadataRequest(), version=9)
            lost.append(True)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(ask)
        assert not connection.is_open
        with pytest.raises(ConnectionLostError):
            await connection.ask(MetadataRequest(), version=9)
    assert lost == [True, True]


async def test_an_answer_to_something_else_ends_the_connection() -> None:
    async def script(peer: Peer) -> None:
        header, _ = await peer.next()
        header.correlation_id += 7
        await peer.answer(header, MetadataResponse())

    async with connected(script) as connection:
        with pytest.raises(ConnectionLostError, match="correlation id"):
            await connection.ask(MetadataRequest(), version=9)


async def test_a_broker_that_knows_an_older_apiversions_only() -> None:
    async def script(peer: Peer) -> None:
        header, _ = await peer.next()
        assert header.api_version == 3
        await peer.answer(header, ApiVersionsResponse(error_code=35), version=0)
        header, _ = await peer.next()
        assert header.api_version == 0
        await peer.answer(header, ApiVersionsResponse(api_keys=[ApiVersionsResponse.ApiVersion(1, 0, 2)]))

    async with connected(script, greets=False) as connection:
        assert connection.version_of(1) == 2


async def test_broker_before_0_10_is_asked_without_versions() -> None:
    async def close(peer: Peer) -> None:
        await peer.next()
        await peer.stream.aclose()

    async def script(peer: Peer) -> None:
        header, request = await peer.next()
        assert (header.api_key, header.api_version) == (1, 0)
        assert isinstance(request, FetchRequest)
        await peer.stream.aclose()

    async def probed(peer: Peer) -> None:
        header, _ = await peer.next()
        assert (header.api_key, header.api_version) == (1, 0)
        await peer.answer(header, FetchResponse())

    async with connected(close, probed, close, script, greets=False) as connection:
        assert connection.version_of(1) == 0
        with pytest.raises(ConnectionLostError):
            await connection.ask(FetchRequest(replica_id=-1))


async def test_a_broker_that_restarts_is_not_taken_for_one_before_0_10() -> None:
    async def close(peer: Peer) -> None:
        await peer.next()
        await peer.stream.aclose()

    async def probed(peer: Peer) -> None:
        header, _ = await peer.next()
        await peer.answer(header, FetchResponse())

    for scripts in ((close, close), (close, probed, Peer.greet)):
        with pytest.RaisesGroup(
            pytest.RaisesExc(ConnectionLostError, match="closed the connection"), flatten_subgroups=True
        ):
            async with connected(*scripts, greets=False):
                pass


def with_sasl(mechanism: str, **settings: Any) -> ClientSettings:
    return ClientSettings(sasl=SaslCredentials(mechanism, "user", "secret"), **settings)


async def test_log_in_over_tls() -> None:
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(TLS / "certificate.pem", TLS / "key.pem")
    asked: list[bytes] = []

    async def script(stream: trio.abc.Stream) -> None:
        peer = Peer(trio.SSLStream(stream, served, server_side=True))
        await peer.greet()
        header, _ = await peer.next()
        await peer.answer(header, SaslHandshakeResponse(mechanisms=["PLAIN"]))
        header, request = await peer.next()
        asked.append(bytes(request.auth_bytes))
        await peer.answer(header, SaslAuthenticateResponse())
        header, _ = await peer.next()
        await peer.answer(header, MetadataResponse(cluster_id="secret"))

    async with trio.open_nursery() as nursery:

        async def dial(endpoint: Endpoint) -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(script, theirs)
            return ours

        settings = ClientSettings.of(
            {
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(TLS / "certificate.pem"),
                "sasl.mechanism": "PLAIN",
                "sasl.username": "user",
                "sasl.password": "secret",
            }
        )
        async with open_connection(ENDPOINT, settings, dial=dial) as connection:
            assert (await connection.ask(MetadataRequest(), version=9)).cluster_id == "secret"
    assert asked == [b"\0user\0secret"]


async def test_certificate_of_another_host_is_refused() -> None:
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(TLS / "certificate.pem", TLS / "key.pem")
    settings = ClientSettings.of(
        {"security.protocol": "SSL", "ssl.ca.location": str(TLS / "certificate.pem")}
    )
    async with trio.open_nursery() as nursery:

        async def script(stream: trio.abc.Stream) -> None:
            with pytest.raises(trio.BrokenResourceError):
                await trio.SSLStream(stream, served, server_side=True).do_handshake()

        async def dial(endpoint: Endpoint) -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(script, theirs)
            return ours

        with pytest.raises(ConnectionLostError, match="certificate verify failed"):
            async with open_connection(Endpoint("other", 1), settings, dial=dial):
                pass


async def test_a_broker_without_a_login_in_requests_is_named() -> None:
    async def old(peer: Peer) -> None:
        header, _ = await peer.next()
        await peer.answer(header, ApiVersionsResponse(api_keys=[ApiVersionsResponse.ApiVersion(17, 0, 0)]))

    with pytest.RaisesGroup(
        pytest.RaisesExc(UnsupportedVersionError, match=r"Apache Kafka 1\.0"), flatten_subgroups=True
    ):
        async with connected(old, settings=with_sasl("PLAIN"), greets=False):
            pass


async def test_a_refused_login_is_an_error_that_is_not_tried_again() -> None:
    async def script(peer: Peer) -> None:
        header, _ = await peer.next()
        await peer.answer(header, SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI"]))

    with pytest.RaisesGroup(
        pytest.RaisesExc(AuthenticationError, match="offers GSSAPI, not PLAIN"), flatten_subgroups=True
    ):
        async with connected(script, settings=with_sasl("PLAIN")):
            pass


async def logs_in(peer: Peer, lifetime_ms: int = 0, header: Any = None) -> None:
    """Answer the requests of a login with PLAIN."""
    if header is None:
        header, _ = await peer.next()
    await peer.answer(header, SaslHandshakeResponse(mechanisms=["PLAIN"]))
    header, request = await peer.next()
    assert bytes(request.auth_bytes) == b"\0user\0secret"
    await peer.answer(header, SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms))


async def test_login_is_renewed_before_the_next_request() -> None:
    renewals = 0

    async def script(peer: Peer) -> None:
        nonlocal renewals
        await logs_in(peer, 1)
        while True:
            header, _ = await peer.next()
            if header.api_key == SASL_HANDSHAKE:
                renewals += 1
                await logs_in(peer, 1, header)
            else:
                await peer.answer(header, MetadataResponse(cluster_id="c"))

    async with connected(script, settings=with_sasl("PLAIN")) as connection:

        async def ask_often() -> None:
            while renewals < 5:
                assert (await connection.ask(MetadataRequest(), version=9)).cluster_id == "c"

        with trio.fail_after(SECONDS_MAX):
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(ask_often)
        assert connection.is_open


async def test_a_refused_renewal_ends_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await logs_in(peer, 1)
        while True:
            header, _ = await peer.next()
            if header.api_key == SASL_HANDSHAKE:
                await peer.answer(header, SaslHandshakeResponse(mechanisms=["PLAIN"]))
                header, _ = await peer.next()
                refused = SaslAuthenticateResponse(error_code=58, error_message="no longer")
                await peer.answer(header, refused)
            else:
                await peer.answer(header, MetadataResponse())

    async with connected(script, settings=with_sasl("PLAIN")) as connection:

        async def ask_until_refused() -> None:
            with trio.fail_after(SECONDS_MAX):
                while True:
                    await connection.ask(MetadataRequest(), version=9)

        with pytest.raises(AuthenticationError, match="no longer"):
            await ask_until_refused()
        assert not connection.is_open
        with pytest.raises(ConnectionLostError, match="no longer"):
            await connection.ask(MetadataRequest(), version=9)


async def test_a_renewal_that_is_broken_off_ends_the_connection() -> None:
    has_begun = trio.Event()

    async def script(peer: Peer) -> None:
        await logs_in(peer, 1)
        while True:
            header, _ = await peer.next()
            if header.api_key == SASL_HANDSHAKE:
                has_begun.set()
                await trio.sleep_forever()
            await peer.answer(header, MetadataResponse())

    async with connected(script, settings=with_sasl("PLAIN")) as connection:

        async def ask_until_cancelled(scope: trio.CancelScope) -> None:
            with scope:
                while True:
                    await connection.ask(MetadataRequest(), version=9)

        with trio.fail_after(SECONDS_MAX):
            async with trio.open_nursery() as nursery:
                scope = trio.CancelScope()
                nursery.start_soon(ask_until_cancelled, scope)
                await has_begun.wait()
                scope.cancel()
        with pytest.raises(ConnectionLostError, match="a login was broken off"):
            await connection.ask(MetadataRequest(), version=9)


async def test_unsendable_request_ends_the_connection_with_reason() -> None:
    async with connected(silence) as connection:

        async def refuse(_: bytes) -> None:
            raise trio.BrokenResourceError from ConnectionResetError("reset by peer")

        connection._stream.send_all = refuse  # type: ignore[method-assign]
        with pytest.raises(ConnectionLostError, match=r"^broker:9092: cannot send: reset by peer$"):
            await connection.ask(FetchRequest())
        assert not connection.is_open
        with pytest.raises(ConnectionLostError, match="cannot send: reset by peer"):
            await connection.ask(FetchRequest())
