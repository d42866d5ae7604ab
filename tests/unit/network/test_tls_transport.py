"""A transport with TLS over a scripted OpenSSL: what it waits for, how much it gives and takes, whom it tells."""

from __future__ import annotations

import ssl
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from barnabas.network import tls as module
from barnabas.network.sockets import PlainTransport
from barnabas.network.tls import (
    TlsTransport,
)

WANT_READ, WANT_WRITE = ssl.SSLWantReadError(), ssl.SSLWantWriteError()
BROKEN = ssl.SSLError(1, "bad record")


class OpenSsl:
    """A socket of TLS whose calls end as they are told to: with an error, or a number of bytes; else with all of it."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.sent: list[bytes] = []
        self.options: list[Any] = []
        self.left = 0
        self.chosen: tuple[str, str] | None = ("TLS_AES_128_GCM_SHA256", "TLSv1.3")
        self.ended: list[str] = []

    def _next(self, otherwise: int) -> int:
        found = self.script.pop(0) if self.script else otherwise
        if isinstance(found, Exception):
            raise found
        return int(found)

    descriptor = 77

    def fileno(self) -> int:
        return self.descriptor

    def send(self, data: Any) -> int:
        count = self._next(len(data))
        self.sent.append(bytes(data))
        return count

    def recv_into(self, view: memoryview) -> int:
        return min(self._next(len(view)), len(view))

    def do_handshake(self) -> None:
        self._next(0)

    def pending(self) -> int:
        return self.left

    def cipher(self) -> Any:
        return None if self.chosen is None else (*self.chosen, 128)

    def getpeercert(self, *, binary_form: bool) -> bytes:
        assert binary_form
        return b"certificate"

    def unwrap(self) -> None:
        self.ended.append("unwrap")
        self._next(0)

    def close(self) -> None:
        self.ended.append("close")

    def setsockopt(self, *given: Any) -> None:
        self.options.append(given)


def over(sock: OpenSsl, *suites: str, **more: Any) -> TlsTransport:
    """A transport over a scripted socket."""
    wrapped: list[Any] = []

    def wrap_socket(plain: Any, **given: Any) -> Any:
        wrapped.append((plain, given))
        return sock

    tls: Any = SimpleNamespace(context=SimpleNamespace(wrap_socket=wrap_socket), suites=frozenset(suites))
    accepted: Any = SimpleNamespace(fileno=sock.fileno)
    made = TlsTransport(PlainTransport(accepted, ("l", 1), ("p", 2), **more), tls)
    assert wrapped == [(accepted, {"server_side": True, "do_handshake_on_connect": False})]
    assert (made.local_address, made.peer_address) == (("l", 1), ("p", 2))
    return made


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Waits for a socket and turns of others, each of which is over at once."""
    noted: list[str] = []

    def note(name: str) -> Any:
        async def waited(*_: Any) -> None:
            noted.append(name)

        return waited

    readable, writable = note("readable"), note("writable")
    monkeypatch.setattr(trio.lowlevel, "wait_readable", readable)
    lowlevel = SimpleNamespace(wait_readable=readable, wait_writable=writable, checkpoint=note("turn"))
    monkeypatch.setattr(module, "trio", SimpleNamespace(lowlevel=lowlevel))
    return noted


# --- the handshake, and the end ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "waited"),
    [
        ([0], ["readable"]),
        ([WANT_READ, 0], ["readable", "readable"]),
        ([WANT_WRITE, WANT_READ, 0], ["readable", "writable", "readable", "readable"]),
    ],
)
async def test_a_handshake_waits_for_what_openssl_wants(
    waits: list[str], script: list[Any], waited: list[str]
) -> None:
    threads: list[Any] = []

    async def in_thread(step: Any) -> None:
        threads.append(step)
        step()

    sock = OpenSsl(*script)
    assert await over(sock, "TLS_AES_128_GCM_SHA256").handshake(in_thread) == b"certificate"
    assert waits == waited
    assert len(threads) == len(script)


@pytest.mark.parametrize(
    ("chosen", "is_refused"),
    [
        (("TLS_AES_128_GCM_SHA256", "TLSv1.3"), True),
        (("TLS_AES_256_GCM_SHA384", "TLSv1.3"), False),
        (("ECDHE-RSA-AES128-SHA256", "TLSv1.2"), False),
        (None, False),
    ],
)
async def test_a_suite_of_tls_1_3_is_one_of_the_settings(
    waits: list[str], chosen: tuple[str, str] | None, is_refused: bool
) -> None:
    async def in_thread(step: Any) -> None:
        step()

    sock = OpenSsl(0)
    sock.chosen = chosen
    made = over(sock, "TLS_AES_256_GCM_SHA384")
    if is_refused:
        with pytest.raises(ssl.SSLError, match="the client prefers TLS_AES_128_GCM_SHA256, which is not in"):
            await made.handshake(in_thread)
    else:
        assert await made.handshake(in_thread) == b"certificate"
    failing = over(OpenSsl(BROKEN))
    with pytest.raises(ssl.SSLError, match="bad record"):
        await failing.handshake(in_thread)
