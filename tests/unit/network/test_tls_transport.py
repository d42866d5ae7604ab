"""A transport with TLS over a scripted OpenSSL: what it waits for, how much it gives and takes, whom it tells."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from barnabas.network import tls as module
from barnabas.network.ready_sockets import ReadySockets
from barnabas.network.sockets import TOGETHER_BYTES, PlainTransport
from barnabas.network.tls import (
    PIECE_BYTES,
    RECEIVED_PER_TURN,
    RECORD_BYTES_MAX,
    SENT_BEFORE_A_TURN,
    TlsTransport,
    _pieces,
)
from barnabas.wire.regions import FileRegion

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


class Watching:
    """A reader that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def fell_behind(self, size: int) -> None:
        self.told.append(size)

    def took_some(self) -> None:
        self.told.append("some")

    def caught_up(self) -> None:
        self.told.append("caught up")


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


# --- receiving -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "count"),
    [
        ([WANT_READ], None),
        ([WANT_WRITE], None),
        ([5, WANT_READ], 5),
        ([5, 3, WANT_WRITE], 8),
        ([5, BROKEN], 5),
        ([0], 0),
        ([5, 0], 5),
        ([60, 40], 100),
        ([60, 60], 100),
    ],
)
def test_all_that_is_there_is_decrypted_into_the_room_that_there_is(
    script: list[Any], count: int | None
) -> None:
    sock = OpenSsl(*script)
    assert over(sock).receive_now(memoryview(bytearray(100))) == count


def test_no_more_is_decrypted_at_once_than_others_can_wait_for() -> None:
    sock = OpenSsl()
    assert over(sock).receive_now(memoryview(bytearray(2 * RECEIVED_PER_TURN))) == RECEIVED_PER_TURN
    with pytest.raises(ssl.SSLError, match="bad record"):
        over(OpenSsl(BROKEN)).receive_now(memoryview(bytearray(10)))


async def test_what_openssl_has_already_is_not_waited_for(waits: list[str]) -> None:
    sock = OpenSsl()
    made = over(sock)
    await made.wait_readable()
    sock.left = 1
    await made.wait_readable(soon=False, is_crowded=True)
    assert waits == ["readable", "turn"]


def test_of_a_large_request_a_record_may_be_with_openssl() -> None:
    sock = OpenSsl()
    made = over(sock)
    made.expect(2 * TOGETHER_BYTES + RECORD_BYTES_MAX - 1)
    assert sock.options == []
    made.expect(2 * TOGETHER_BYTES + RECORD_BYTES_MAX)
    assert sock.options == [(socket.SOL_SOCKET, socket.SO_RCVLOWAT, TOGETHER_BYTES)]


def test_a_connection_of_which_openssl_has_some_is_not_polled() -> None:
    ready = ReadySockets()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sock = OpenSsl()
        sock.descriptor = ours.fileno()
        made = over(sock, ready=ready)
        assert not made.is_only_readable(0)
        theirs.send(b"x")
        assert made.is_only_readable(0), "it is known by its descriptor already"
        sock.left = 3
        assert not made.is_only_readable(0)


# --- sending -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "script", "sent"),
    [
        (PIECE_BYTES, [], PIECE_BYTES),
        (PIECE_BYTES + 1, [], 0),
        (10, [WANT_WRITE], 0),
        (10, [WANT_READ], 0),
        (10, [10], 10),
    ],
)
def test_little_is_sent_at_once_or_nothing(size: int, script: list[Any], sent: int) -> None:
    sock = OpenSsl(*script)
    assert over(sock).send_now(bytes(size)) == sent
    assert len(sock.sent) == (sent > 0)


def sizes(sock: OpenSsl) -> list[int]:
    return [len(one) for one in sock.sent]


@pytest.mark.parametrize(
    ("chunks", "sent"),
    [
        ([10, 20], [30]),
        ([PIECE_BYTES], [PIECE_BYTES]),
        ([PIECE_BYTES - 10, 10], [PIECE_BYTES]),
        ([PIECE_BYTES - 10, 11], [PIECE_BYTES - 10, 11]),
        ([10, PIECE_BYTES, 10], [10, PIECE_BYTES, 10]),
        ([PIECE_BYTES + 1], [PIECE_BYTES, 1]),
        ([2 * PIECE_BYTES + 5, 7], [PIECE_BYTES, PIECE_BYTES, 12]),
        ([0], []),
        ([0, 5], [5]),
        ([], []),
    ],
)
async def test_chunks_are_encrypted_in_pieces(waits: list[str], chunks: list[int], sent: list[int]) -> None:
    sock = OpenSsl()
    data = os.urandom(sum(chunks))
    parts, at = [], 0
    for size in chunks:
        parts.append(data[at : at + size])
        at += size
    await over(sock).send(parts)
    assert sizes(sock) == sent
    assert b"".join(sock.sent) == data
    assert waits == []


async def test_after_so_many_bytes_others_have_their_turn(waits: list[str]) -> None:
    a_turn = SENT_BEFORE_A_TURN // PIECE_BYTES
    await over(OpenSsl()).send([bytes(PIECE_BYTES)] * a_turn)
    assert waits == [], "not after the last of it"
    await over(OpenSsl()).send([bytes(PIECE_BYTES)] * (a_turn + 1))
    assert waits == ["turn"]
    await over(OpenSsl()).send([bytes(PIECE_BYTES)] * (3 * a_turn))
    assert waits == ["turn"] * 3


async def test_what_is_not_taken_is_given_again_and_told(waits: list[str]) -> None:
    sock = OpenSsl(WANT_WRITE, WANT_READ, WANT_WRITE)
    made, watching = over(sock), Watching()
    made.report_to(watching)
    await made.send([b"head", b"body"])
    assert waits == ["writable", "readable", "writable"]
    assert sock.sent == [b"headbody"]
    assert watching.told == [8, "some", "caught up"]
    await made.send([b"more"])
    assert watching.told[3:] == []


async def test_a_region_is_read_piece_by_piece(tmp_path: Path, waits: list[str]) -> None:
    path = tmp_path / "log"
    content = os.urandom(2 * PIECE_BYTES + 100)
    path.write_bytes(content)
    with path.open("rb") as file:
        sock = OpenSsl()
        await over(sock).send([b"head", FileRegion(file.fileno(), 10, len(content) - 20, file), b"end"])
        assert b"".join(sock.sent) == b"head" + content[10:-10] + b"end"
        assert sizes(sock) == [4, PIECE_BYTES, PIECE_BYTES, 80 + 3]
        short = FileRegion(file.fileno(), PIECE_BYTES, 2 * PIECE_BYTES, file)
        with pytest.raises(
            OSError, match=f"^segment ended {PIECE_BYTES - 100} bytes early at position {len(content)}$"
        ):
            await over(OpenSsl()).send([short])


def test_a_chunk_that_is_no_longer_than_a_piece_is_not_cut() -> None:
    whole = bytes(PIECE_BYTES)
    (one,) = _pieces(whole)
    assert one is whole
    assert [len(one) for one in _pieces(bytes(PIECE_BYTES + 1))] == [PIECE_BYTES, 1]


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


@pytest.mark.parametrize("error", [0, WANT_READ, OSError("gone"), ValueError("no handshake")])
async def test_a_goodbye_is_said_to_who_listens(error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trio.lowlevel, "notify_closing", lambda _: None)
    sock = OpenSsl(error)
    over(sock).close()
    assert sock.ended == ["unwrap", "close"]
