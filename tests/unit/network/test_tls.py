"""TLS: key stores as Kafka names them, and a connection that behaves as a plain one does."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from barnabas.network.ready_sockets import ReadySockets
from barnabas.network.sockets import PlainTransport
from barnabas.network.tls import TlsTransport
from barnabas.network.tls_context import TlsSettings, client_context, openssl_name, server_tls
from barnabas.network.tls_stores import StoreSettings, TlsError, read_key_store
from barnabas.wire.regions import FileRegion
from tests.support.certificates import authority, signed, stranger, trusted_pkcs12
from tests.support.effort import drawing, examples

KEY = signed({"CN": "broker"}, authority())
ALICE = signed({"O": "Castle", "CN": "alice"}, authority())
NO_KEY, NO_TRUST = StoreSettings("ssl.keystore"), StoreSettings("ssl.truststore")


def inline(owner=KEY, **changes) -> StoreSettings:
    return replace(NO_KEY, key=owner.key_pem, certificates=owner.pem + authority().pem, **changes)


def trusting(ca=None) -> StoreSettings:
    return replace(NO_TRUST, certificates=(ca or authority()).pem)


SERVER = TlsSettings(inline(), trusting())
CLIENT = TlsSettings(NO_KEY, trusting())


# --- stores -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    def write(data: bytes | str) -> str:
        path = tmp_path / "store"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

    return write


def test_a_key_store_in_pem_with_an_encrypted_key(file):
    path = file(KEY.encrypted_key_pem("hunter2") + KEY.pem)
    server_tls(TlsSettings(replace(NO_KEY, location=path, key_password="hunter2"), NO_TRUST))
    for wrong in (None, "other"):
        with pytest.raises(TlsError) as refused:
            server_tls(TlsSettings(replace(NO_KEY, location=path, key_password=wrong), NO_TRUST))
        assert "hunter2" not in str(refused.value)
        assert ("set ssl.key.password" in str(refused.value)) == (wrong is None)


@pytest.mark.parametrize(
    ("data", "changes", "reason"),
    [
        (b"\xfe\xed\xfe\xed\0\0", {"type": "JKS"}, "keytool -importkeystore"),
        (KEY.pkcs12("secret"), {"type": "PKCS12", "password": "wrong"}, "cannot be read as PKCS12"),
        (KEY.pkcs12("secret"), {"type": "PEM"}, "no PEM in it"),
        (b"nonsense", {"type": "PEM"}, "no PEM in it"),
        (b"nonsense", {"type": "PKCS12"}, "it is not PKCS12"),
        (KEY.pem, {"type": "JKS"}, "set ssl.keystore.type=PEM"),
        (KEY.pem, {"password": "secret"}, "has no password"),
        (KEY.pem, {"type": "BKS"}, "there are PEM and PKCS12"),
        (KEY.pem, {"key": KEY.key_pem}, "only one of the two"),
        (
            trusted_pkcs12("secret", authority().certificate),
            {"type": "PKCS12", "password": "secret"},
            "no private key",
        ),
    ],
)
def test_a_key_store_that_cannot_be_used_is_explained(file, data, changes, reason):
    with pytest.raises(TlsError) as refused:
        read_key_store(replace(NO_KEY, location=file(data), **changes))
    assert reason in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (TlsSettings(NO_KEY, NO_TRUST), "needs a key and certificate"),
        (TlsSettings(replace(NO_KEY, location="/nowhere"), NO_TRUST), "No such file"),
        (TlsSettings(replace(inline(), key=ALICE.key_pem), NO_TRUST), "cannot be used together"),
        (TlsSettings(replace(inline(), key=None), NO_TRUST), "set together"),
        (replace(SERVER, enabled_protocols=("TLSv1.1",)), "older ones are broken"),
        (replace(SERVER, protocol="SSLv3"), "ssl.protocol=SSLv3"),
        (replace(SERVER, protocol="TLSv1.2", enabled_protocols=("TLSv1.3",)), "leaves nothing"),
        (replace(SERVER, cipher_suites=("TLS_NO_SUCH",)), "does not know TLS_NO_SUCH"),
        (
            replace(SERVER, cipher_suites=("TLS_AES_128_GCM_SHA256",), enabled_protocols=("TLSv1.2",)),
            "not enabled",
        ),
        (
            replace(
                SERVER,
                cipher_suites=("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",),
                enabled_protocols=("TLSv1.3",),
            ),
            "these are for TLSv1.2, and it is not enabled",
        ),
        (
            replace(SERVER, client_auth="required", trust_store=replace(NO_TRUST, certificates="nonsense")),
            "not certificates",
        ),
    ],
)
def test_settings_that_cannot_be_honoured_are_explained(settings, reason):
    with pytest.raises(TlsError, match=reason):
        server_tls(settings)


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_suites_are_known_by_their_standard_names(suite, name):
    assert openssl_name(suite) == name
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(name)


# --- connections ------------------------------------------------------------------------------------------------------


async def at_once(step):
    step()


class Reader:
    """Notes how the peer reads, as the transport tells it."""

    def __init__(self):
        self.behind: list[int] = []
        self.caught = 0

    def fell_behind(self, size):
        self.behind.append(size)

    def took_some(self):
        pass

    def caught_up(self):
        self.caught += 1


@asynccontextmanager
async def connected(server=SERVER, client=CLIENT, *, size=None, ready=None):
    """A transport after its handshake, its peer's certificate, and the client's stream."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stream = await trio.open_tcp_stream(*listening.getsockname())
        accepted, peer = listening.accept()
    accepted.setblocking(False)
    if size is not None:
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    transport = TlsTransport(PlainTransport(accepted, ("", 0), peer, ready=ready), server_tls(server))
    tls = trio.SSLStream(stream, client_context(client), server_hostname="localhost")
    certificate = None
    async with stream:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(tls.do_handshake)
                certificate = await transport.handshake(at_once)
            yield transport, certificate, tls
        finally:
            transport.close()


async def received(transport, size: int) -> bytes:
    data, view = b"", memoryview(bytearray(100_000))
    while len(data) < size:
        await transport.wait_readable()
        count = transport.receive_now(view)
        assert count != 0
        data += view[: count or 0]
    return data


async def read_exactly(stream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = await stream.receive_some(65536)
        assert part
        data += part
    return bytes(data)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_bytes_come_and_go(version):
    async with connected(client=replace(CLIENT, enabled_protocols=(version,))) as (
        transport,
        certificate,
        client,
    ):
        assert certificate is None
        data = os.urandom(300_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send_all, data)
            assert await received(transport, len(data)) == data
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.send, [data[:10], data[10:200_000], data[200_000:]])
            assert await read_exactly(client, len(data)) == data


async def test_large_request_in_any_tls_records_is_received_whole():
    rng = drawing()
    async with connected() as (transport, _, client):
        for _ in range(examples(5)):
            data = rng.randbytes(rng.randrange(1, 400_000))

            async def send(data: bytes = data) -> None:
                at = 0
                while at < len(data):
                    size = rng.choice((1, 100, 16_384, 16_385, 50_000, rng.randrange(1, 20_000)))
                    await client.send_all(data[at : at + size])
                    at += size

            received, view = b"", memoryview(bytearray(100_000))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                with trio.fail_after(60):
                    while len(received) < len(data):
                        transport.expect(len(data) - len(received))
                        await transport.wait_readable()
                        count = transport.receive_now(view[: rng.choice((10, 5_000, 100_000))])
                        received += view[: count or 0]
            transport.expect(0)
            assert received == data


async def test_what_openssl_has_decrypted_already_is_not_waited_for():
    async with connected() as (transport, _, client):
        await client.send_all(b"0123456789")
        await transport.wait_readable()
        for expected in b"0123456789":
            with trio.fail_after(10):
                await transport.wait_readable()
            view = memoryview(bytearray(1))
            assert transport.receive_now(view) == 1
            assert view[0] == expected
        assert transport.receive_now(memoryview(bytearray(1))) is None


async def test_connection_is_polled_unless_openssl_holds_data():
    ready = ReadySockets()
    async with connected(ready=ready) as (transport, _, client):
        view = memoryview(bytearray(10))
        assert transport.receive_now(view) is None
        assert not transport.is_only_readable(0.0)
        await client.send_all(b"0123456789")
        await transport.wait_readable()
        assert transport.is_only_readable(0.0)
        assert transport.receive_now(view[:4]) == 4
        assert not transport.is_only_readable(0.0), (
            "no socket has it, so polling would say that there is nothing"
        )


async def test_regions_of_files_are_sent(tmp_path):
    data = os.urandom(1_000_000)
    (tmp_path / "log").write_bytes(data)
    async with connected() as (transport, _, client):
        with (tmp_path / "log").open("rb") as file:
            region = FileRegion(file.fileno(), 5, len(data) - 5, file)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(transport.send, [b"start", region, b"end"])
                assert await read_exactly(client, len(data) + 3) == b"start" + data[5:] + b"end"


async def test_shortened_region_ends_the_connection(tmp_path):
    (tmp_path / "log").write_bytes(b"short")
    async with connected() as (transport, _, _client):
        with (tmp_path / "log").open("rb") as file, pytest.raises(OSError, match="ended 95 bytes early"):
            await transport.send([FileRegion(file.fileno(), 0, 100, file)])


async def test_a_reader_that_does_not_keep_up_is_reported():
    reader = Reader()
    async with connected(size=65536) as (transport, _, client):
        transport.report_to(reader)
        data = os.urandom(1_000_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.send, [data])
            await trio.testing.wait_all_tasks_blocked()
            assert reader.behind == [len(data)]
            assert reader.caught == 0
            assert await read_exactly(client, len(data)) == data
        assert reader.caught == 1


async def test_what_cannot_be_sent_at_once_is_sent_later_and_once():
    async with connected(size=65536) as (transport, _, client):
        pieces, unsent = [], b""
        while not unsent:
            piece = os.urandom(50_000)
            sent = transport.send_now(piece)
            assert sent in (0, len(piece))
            pieces.append(piece)
            unsent = piece[sent:]
        assert len(pieces) > 1
        assert transport.send_now(bytes(1_000_000)) == 0, "that much is not even begun"
        whole = b"".join(pieces)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.send, [memoryview(unsent), b"end"])
            assert await read_exactly(client, len(whole) + 3) == whole + b"end"


async def test_the_end_is_said_and_seen():
    async with connected() as (transport, _, client):
        transport.close()
        assert await client.receive_some(1) == b""  # without the goodbye this would raise
    async with connected() as (transport, _, client):
        await client.aclose()
        await transport.wait_readable()
        assert transport.receive_now(memoryview(bytearray(10))) == 0


async def test_a_client_shows_its_certificate():
    wants = replace(SERVER, client_auth="required")
    async with connected(wants, replace(CLIENT, key_store=inline(ALICE))) as (_, certificate, _client):
        assert certificate == ALICE.der
    wants = replace(SERVER, client_auth="requested")
    async with connected(wants) as (_, certificate, _client):
        assert certificate is None


async def handshake_error(server, client) -> ssl.SSLError | OSError:
    """The server's error in a handshake that must fail."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    transport = TlsTransport(PlainTransport(ours), server_tls(server))
    errors: list[ssl.SSLError | OSError] = []

    async def serve() -> None:
        try:
            await transport.handshake(at_once)
        except (ssl.SSLError, OSError) as error:
            errors.append(error)
        transport.close()

    theirs.setblocking(False)
    end = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    stream = trio.SSLStream(end, client_context(client), server_hostname="localhost")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        try:
            await stream.do_handshake()
            await stream.receive_some(1)
        except (trio.BrokenResourceError, OSError):
            pass
        await trio.aclose_forcefully(stream)
    (error,) = errors
    return error


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize(
    ("server", "client"),
    [
        (replace(SERVER, client_auth="required"), CLIENT),
        (
            replace(SERVER, client_auth="requested"),
            replace(CLIENT, key_store=inline(signed({"CN": "x"}, stranger()))),
        ),
        (SERVER, replace(CLIENT, trust_store=trusting(stranger()))),
        (replace(SERVER, key_store=inline(signed({"CN": "b"}, authority(), host="elsewhere"))), CLIENT),
        (
            replace(SERVER, cipher_suites=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",)),
            replace(CLIENT, cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)),
        ),
    ],
    ids=["no certificate", "another authority", "server not trusted", "another host", "no cipher in common"],
)  # fmt: skip
async def test_a_handshake_fails(server, client, version):
    if client.cipher_suites:
        version = "TLSv1.2"
    assert await handshake_error(server, replace(client, enabled_protocols=(version,)))


async def test_tls_1_3_suite_that_is_not_set_is_refused():
    error = await handshake_error(
        replace(SERVER, cipher_suites=("TLS_AES_128_GCM_SHA256",)),
        replace(CLIENT, enabled_protocols=("TLSv1.3",)),
    )
    assert "the client prefers TLS_AES_256_GCM_SHA384" in str(error)


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\x20\0\x12\0\0" * 10,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\0\x05\x01\0\0\x01\xff",
        bytes(100),
    ],
)
async def test_what_is_no_tls_is_an_error(data):
    ours, theirs = socket.socketpair()
    with theirs:
        ours.setblocking(False)
        transport = TlsTransport(PlainTransport(ours), server_tls(SERVER))
        theirs.sendall(data)
        with pytest.raises(ssl.SSLError):
            await transport.handshake(at_once)
        transport.close()
