"""Sessions and TLS records over real connections, to a broker process: its memory, its log and its exit are judged too."""

from __future__ import annotations

import random
import ssl
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from barnabas.client.settings import SaslCredentials
from barnabas.wire.generated.metadata import MetadataRequest
from compat.fuzz import logins
from compat.fuzz.asking import Asker, LoginRefused
from compat.fuzz.held import Held, kerberos
from compat.fuzz.session import (
    ANSWER_SECONDS_MAX,
    NO_REQUESTS,
    SECRET_TOPIC,
    SECRETS,
    Line,
    Session,
    StuckError,
    line_of,
)
from compat.fuzz.simulated import ADMIN, credentials, set_up, settings
from compat.fuzz.target import Finding, Growth, Round, RunRound, Target, rss_bytes
from compat.matrix.brokers import Barnabas, BrokerError
from tests.support.certificates import Files, written

AT_ONCE = 12
DRAIN_S = 0.05
LOG_BYTES_A_MINUTE_MAX = 256 << 10
RECORD_TYPES = (20, 21, 22, 23)
RECORD_BYTES_MAX = (1 << 14) + 2048
HANDSHAKE, ALERT = 22, 21
Play1 = Callable[[random.Random, trio.SocketStream, Round, Held], Any]


class Live:
    """A broker process, and rounds of sessions with it."""

    def __init__(self, protocol: str, session: Play1) -> None:
        self._session = session
        self._directory = tempfile.TemporaryDirectory(prefix="barnabas-fuzz-")
        directory = Path(self._directory.name)
        jwks = directory / "jwks.json"
        jwks.write_text(logins.jwks())
        self._files: Files = written(directory / "certificates")
        tls = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._files.broker),
            "authentication.timeout.ms": "5000",
        }
        self._held = Held(logins.hour_s())
        if protocol.startswith("SASL"):
            self._held.kerberos = kerberos(directory / "realm")
        listener = f"{protocol}://127.0.0.1:0"
        self._broker = Barnabas(
            directory,
            {
                **({} if protocol == "PLAINTEXT" else settings(listener, jwks, self._held.kerberos)),
                "connection.failed.authentication.delay.ms": "0",
                **(tls if protocol.endswith("SSL") else {}),
            },
        )
        self._broker.settings.pop("listeners", None)
        self._broker.bootstrap = listener
        self._protocol = protocol
        self._is_open = protocol == "PLAINTEXT"
        self._broker.start()
        self._growth = Growth(lambda: rss_bytes(str(self._broker.pid)))
        self._began = time.monotonic()
        self.endpoint = "127.0.0.1", int(self._broker.bootstrap.rpartition(":")[2])
        if not self._is_open:
            trio.run(self._set_up)

    async def _set_up(self) -> None:
        async with self._logged_in(ADMIN) as asker:
            await set_up(asker, self._held)

    @asynccontextmanager
    async def _logged_in(self, who: SaslCredentials | None) -> AsyncIterator[Asker]:
        stream: trio.abc.Stream = await trio.open_tcp_stream(*self.endpoint)
        if self._protocol == "SASL_SSL":
            trusted = ssl.create_default_context(cafile=str(self._files.authority))
            stream = trio.SSLStream(stream, trusted, server_hostname="localhost", https_compatible=True)
        async with stream:
            asker = Asker(stream)
            if who is not None:
                await asker.log_in(who)
            yield asker

    def run_round(self, rng: random.Random, count: int) -> Round:
        """Run a round, and check that the broker is alive and accepts valid logins."""
        result: Round = trio.run(partial(self._play, rng, count))
        self._growth.look()
        return result

    async def _play(self, rng: random.Random, count: int) -> Round:
        result = Round()
        self._held.now_s = logins.hour_s()

        async def sessions() -> None:
            while result.inputs < count:
                seed = rng.getrandbits(64)
                try:
                    stream = await trio.open_tcp_stream(*self.endpoint)
                except OSError as error:
                    result.found(f"the broker does not accept: {error}")
                    return
                try:
                    await self._session(random.Random(seed), stream, result, self._held)
                finally:
                    await trio.aclose_forcefully(stream)

        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(sessions)
        await self.judge(result)
        return result

    async def judge(self, result: Round) -> None:
        """Check that the broker is alive, and accepts valid logins."""
        for mechanism in ("",) if self._is_open else logins.MECHANISMS[:4]:
            try:
                with trio.fail_after(ANSWER_SECONDS_MAX):
                    who = credentials(mechanism, logins.hour_s()) if mechanism else None
                    async with self._logged_in(who) as asker:
                        answer = await asker.ask(MetadataRequest(topics=None), 9)
                        if mechanism and [topic.name for topic in answer.topics] != [SECRET_TOPIC]:
                            result.found(f"after a round a login with {mechanism} sees {answer.topics}")
            except (LoginRefused, OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
                result.found(f"after a round nobody can log in with {mechanism}: {error!r}")

    def close(self) -> list[Finding]:
        """End the broker, and check its memory and its log; returns the findings."""
        # A client with all permissions may fill the broker: topics, groups, settings of topics.
        findings = [] if self._is_open else self._growth.findings()
        findings += [Finding(f"its log says {line}") for line in self._broker.complaints()[:10]]
        text = self._broker.log.read_bytes()
        minutes = (time.monotonic() - self._began) / 60 + 1
        if len(text) > LOG_BYTES_A_MINUTE_MAX * minutes:
            findings.append(Finding(f"its log has {len(text) >> 10} KB after {minutes:.0f} minutes"))
        findings += [
            Finding(f"its log has {secret.decode()!r}")
            for secret in (*SECRETS, *self._held.secrets)
            if secret in text
        ]
        try:
            self._broker.stop()
        except BrokerError as error:
            findings.append(Finding(str(error)))
        if self._held.kerberos is not None:
            self._held.kerberos.close()
        self._directory.cleanup()
        return findings


def _line(stream: trio.abc.HalfCloseableStream) -> Line:
    """Return a connection over a socket."""

    async def end() -> None:
        try:
            await stream.send_eof()
        except trio.BrokenResourceError as error:
            raise ConnectionResetError from error

    return line_of(stream, end)


async def frames(rng: random.Random, stream: trio.SocketStream, result: Round, held: Held) -> None:
    """Run a session as it is."""
    await Session(rng, _line(stream), result, held).run()


# --- TLS ------------------------------------------------------------------------------------------------------------


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


CONTEXT = _context()


async def records(rng: random.Random, stream: trio.SocketStream, result: Round, held: Held) -> None:
    """Run a TLS handshake with some damaged records; the broker must answer with records, too."""
    line = _line(stream)
    received = bytearray()
    sent: list[bytes] = []

    async def send(data: bytes) -> None:
        sent.append(data)
        result.inputs += 1
        await line.send(data)

    async def receive() -> bytes:
        data = await line.receive()
        received.extend(data)
        return data

    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = CONTEXT.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        if rng.random() < 0.1:
            await send(rng.choice(NO_REQUESTS))
        harm = rng.random()
        is_done = False
        while not is_done:
            try:
                peer.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                break
            for record in _split(outgoing.read()):
                for changed in _changed(record, rng) if rng.random() < harm else [record]:
                    await send(changed)
            if not is_done:
                if rng.random() < 0.05:
                    break
                data = await receive()
                if not data:
                    break
                incoming.write(data)
        if is_done:
            for _ in range(rng.choice((0, 1, 3))):
                peer.write(rng.choice(NO_REQUESTS) or b"\0")
                for record in _split(outgoing.read()):
                    for changed in _changed(record, rng) if rng.random() < 0.5 else [record]:
                        await send(changed)
        await line.end()
        while await receive():
            pass
    except StuckError as stuck:
        result.found(str(stuck), b"".join(sent))
    except OSError:
        pass
    problem = _no_records(bytes(received))
    if problem:
        result.found(problem, b"".join(sent))


def _split(data: bytes) -> list[bytes]:
    """Return the records that a client sends."""
    pieces = []
    while len(data) >= 5:
        end = 5 + struct.unpack_from(">H", data, 3)[0]
        pieces.append(data[:end])
        data = data[end:]
    return pieces


def _changed(record: bytes, rng: random.Random) -> list[bytes]:
    """Return the records to send in place of a record."""
    kind = rng.randrange(12)
    body = bytearray(record[5:])
    if kind == 0:
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        at = rng.randrange(len(body))
        body[at : at + 2] = struct.pack(">H", rng.choice((0, 1, 0x7FFF, 0xFFFF)))
    elif kind == 2:
        return [record[: rng.randrange(1, len(record))]]
    elif kind == 3:
        cut = rng.randrange(1, len(body)) if len(body) > 1 else 1  # in two records, which is allowed
        return [_record(record[0], bytes(body[:cut])), _record(record[0], bytes(body[cut:]))]
    elif kind == 4:
        return [_record(HANDSHAKE, body[n : n + 1]) for n in range(len(body))][:300]
    elif kind == 5:
        return [_record(rng.choice((0, 20, 21, 22, 23, 24, 25, 255)), bytes(body))]
    elif kind == 6:
        return [_record(record[0], bytes(body), rng.choice((0x0300, 0x0301, 0x0304, 0x0305, 0xFFFF, 0x0200)))]
    elif kind == 7:
        return [record[:3] + struct.pack(">H", rng.choice((0, 1, 0x4001, 0xFFFF))) + bytes(body)]
    elif kind == 8:
        return [_record(ALERT, bytes((rng.choice((1, 2, 3)), rng.randrange(256)))), record]
    elif kind == 9:
        return [*[_record(rng.choice(RECORD_TYPES), b"")] * rng.choice((1, 40)), record]
    elif kind == 10:
        return [record, record]
    else:
        body[rng.randrange(len(body)) :] = rng.randbytes(rng.randrange(300))
    return [_record(record[0], bytes(body))]


def _record(kind: int, body: bytes | bytearray, version: int = 0x0303) -> bytes:
    return struct.pack(">BHH", kind, version, len(body)) + body


def _no_records(data: bytes) -> str:
    """Say why the bytes of a broker are no TLS records; nothing if they are."""
    while data:
        if data[0] not in RECORD_TYPES:
            return f"the broker sends {data[:60]!r}, which is no TLS"
        if len(data) < 5:
            break
        size = struct.unpack_from(">H", data, 3)[0]
        if data[1] != 3 or size > RECORD_BYTES_MAX:
            return f"the broker sends a record that begins with {data[:5]!r}"
        data = data[5 + size :]
    return ""


async def frames_over_tls(rng: random.Random, stream: trio.SocketStream, result: Round, held: Held) -> None:
    """Run a session after a valid handshake."""
    secured = trio.SSLStream(stream, CONTEXT, server_hostname="localhost", https_compatible=True)
    with trio.move_on_after(ANSWER_SECONDS_MAX) as waiting:
        try:
            await secured.do_handshake()
        except trio.BrokenResourceError as error:
            result.found(f"the handshake fails: {error.__cause__}")
            return
    if waiting.cancelled_caught:
        result.found("no handshake in time")
        return
    line = line_of(secured, _line(stream).end)
    await Session(rng, line, result, held).run()


def _target(name: str, takes: str, protocol: str, session: Play1) -> Target:
    def begin() -> tuple[RunRound, Callable[[], list[Finding]]]:
        live = Live(protocol, session)
        return live.run_round, live.close

    return Target(name, takes, begin, is_live=True)


TARGETS = [
    _target("login-live", "frames and tokens before a login, over sockets", "SASL_PLAINTEXT", frames),
    _target("tls-records", "TLS records, from ClientHello on", "SASL_SSL", records),
    _target("tls-login", "frames and tokens before a login, over TLS", "SASL_SSL", frames_over_tls),
]
