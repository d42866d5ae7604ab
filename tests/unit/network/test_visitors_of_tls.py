"""Servers for visitors over TLS: their address and certificate, a handshake in time, their URLs."""

from __future__ import annotations

import ssl

import pytest
import trio

from barnabas.network import visitors
from barnabas.network.visitors import Address, Site, Visitor, read_address
from tests.support.certificates import Files
from tests.support.certificates import written as certificates_in


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return certificates_in(tmp_path_factory.mktemp("certificates"))


def test_a_site_knows_its_addresses(files: Files) -> None:
    site = Site(Address("127.0.0.1", 0), "a test")
    assert (site.hosts, site.is_local, site.has_tls) == ({"127.0.0.1"}, True, False)
    assert site.url == f"http://127.0.0.1:{site.port}"
    site.close()
    assert [sock.fileno() for sock in site.sockets] == [-1]
    tls = read_address("0.0.0.0:0", "a test", certificate=str(files.broker))
    site = Site(tls, "a test")
    assert (site.is_local, site.has_tls) == (False, True)
    assert (site.url, site.local_url) == (f"https://localhost:{site.port}", f"https://127.0.0.1:{site.port}")
    site.close()


async def greet(visitor: Visitor) -> None:
    await visitor.stream.send_all(b"hello")


async def test_visitors_of_a_site_with_tls_are_served_over_tls_alone(
    files: Files, nursery: trio.Nursery
) -> None:
    site = Site(read_address("127.0.0.1:0", "a test", certificate=str(files.broker)), "a test")
    await nursery.start(site.serve, 5, greet)
    context = ssl.create_default_context(cafile=files.authority)
    with trio.fail_after(30):
        plain = await trio.open_tcp_stream("127.0.0.1", site.port)
        async with plain:
            await plain.send_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert b"hello" not in await plain.receive_some()
        stream = await trio.open_tcp_stream("127.0.0.1", site.port)
        async with trio.SSLStream(stream, context, server_hostname="localhost", https_compatible=True) as tls:
            assert await tls.receive_some() == b"hello"
    nursery.cancel_scope.cancel()


async def test_who_does_not_shake_hands_in_time_is_sent_away(
    files: Files, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visitors, "HANDSHAKE_SECONDS_MAX", 0.05)
    site = Site(read_address("127.0.0.1:0", "a test", certificate=str(files.broker)), "a test")
    await nursery.start(site.serve, 5, greet)
    with trio.fail_after(30):
        async with await trio.open_tcp_stream("127.0.0.1", site.port) as stream:
            assert await stream.receive_some() == b""
    nursery.cancel_scope.cancel()
