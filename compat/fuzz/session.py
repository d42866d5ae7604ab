"""One connection before a login: its requests, and checks that the responses are allowed.

Before a login a broker may answer only ApiVersions, SaslHandshake and SaslAuthenticate; during an exchange of tokens it
answers any other request with ILLEGAL_SASL_STATE. Responses are in the order of the requests. The rule: everything else is
a finding, and so is a login without valid credentials.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from barnabas.serving.meter import count_error_codes
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import decode_response
from compat.fuzz import logins
from compat.fuzz.held import Held, KerberosLogin
from compat.fuzz.target import Round
from compat.hostile.attacks.frames import NEVER_MUTATED
from compat.hostile.messages import filled, framed, mutated
from compat.kit.wire import API, encode, message

SECRET_TOPIC = "secret-topic-of-the-castle"
SECRETS = (SECRET_TOPIC.encode(), logins.PASSWORD.encode())
"""Texts that may be in no answer and in no log without a login."""
ANSWER_BYTES_MAX = 64 * 1024
ANSWER_SECONDS_MAX = 60.0
"""Longest time of an answer, or of the end of a connection: far more than a busy machine, or a failed login, needs."""
SHORTEST_FRAME_BYTES = 12
"""Size, API, version and correlation id."""
ECHO_BYTES_MAX = 64
"""The most that an answer without any error code may have: empty lists, or partitions of a transaction."""
API_VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA = 18, 17, 36, 3
HANDSHAKE_CODES = (ErrorCode.NONE, ErrorCode.UNSUPPORTED_SASL_MECHANISM, ErrorCode.ILLEGAL_SASL_STATE)
AUTHENTICATE_CODES = (ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE)
CHALLENGE = re.compile(
    rb'r=[\x21-\x2b\x2d-\x7e]+,s=[A-Za-z0-9+/=]+,i=\d+|\{"status":"invalid_token"\}'
    # Kerberos: the broker proves who it is (AP-REP), and offers security layers.
    rb"|\x60[\s\S]+|\x05\x04[\s\S]+"
)
NO_REQUESTS = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x00\x00\x00\x00",
    struct.pack(">i", -1),
    struct.pack(">i", -(2**31)),
    struct.pack(">i", 2**31 - 1) + b"x",
    struct.pack(">i", 524_289) + bytes(64),
    struct.pack(">i", 3) + b"\x00\x12\x00",
    b"\x60\x82\x02\x00\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02" + bytes(40),
    b"\x80\x2e\x01\x00\x02",
)
"""Bytes that are no request: other protocols, and sizes that cannot be."""


def _others() -> list[bytes]:
    """Return a request of every API but those of logins, in its first and last version."""
    frames = []
    for path in sorted(API.glob("*Request.json")):
        name = path.stem.partition("_")[2].removesuffix("Request")
        request = message(f"{name}Request")
        if name in NEVER_MUTATED | {"ApiVersions"} or request.api_key is None:
            continue
        frames += [
            framed(name, version, encode(request, version, filled(name, version)))
            for version in sorted({request.versions.first, request.versions.last})
        ]
    return frames


_OTHERS: list[bytes] = []


def hello(rng: random.Random, correlation_id: int) -> bytes:
    version = rng.choice((0, 1, 2, 3, 4, 3, 4, 5, 77, -1, 32767))
    served = min(max(version, 0), 4)
    values = (
        {"ClientSoftwareName": rng.choice(("fuzz", "", "a b", "x" * 900, "\n")), "ClientSoftwareVersion": "1"}
        if served >= 3
        else {}
    )
    data = bytearray(
        framed("ApiVersions", served, encode(message("ApiVersionsRequest"), served, values), correlation_id)
    )
    struct.pack_into(">h", data, 6, version)
    return bytes(data)


def handshake(mechanism: str, version: int, correlation_id: int) -> bytes:
    body = encode(message("SaslHandshakeRequest"), min(version, 1), {"Mechanism": mechanism})
    data = bytearray(framed("SaslHandshake", min(version, 1), body, correlation_id))
    struct.pack_into(">h", data, 6, version)
    return bytes(data)


def authenticate(token: bytes, version: int, correlation_id: int) -> bytes:
    body = encode(message("SaslAuthenticateRequest"), version, {"AuthBytes": token})
    return framed("SaslAuthenticate", version, body, correlation_id)


def other(rng: random.Random, correlation_id: int) -> bytes:
    if not _OTHERS:
        _OTHERS.extend(_others())
    data = bytearray(rng.choice(_OTHERS))
    struct.pack_into(">i", data, 8, correlation_id)
    return bytes(data)


def bare(token: bytes) -> bytes:
    return struct.pack(">i", len(token)) + token


def _token_in(answer: bytes, version: int | None) -> bytes:
    """Return the token that a broker has answered with, in SaslAuthenticate of a version or bare."""
    if version is None:
        return answer
    try:
        response = decode_response(memoryview(answer), AUTHENTICATE, version)[1]
    except DecodeError:
        return b""
    return bytes(response.auth_bytes)


@dataclass(frozen=True)
class Line:
    """A connection, seen from the client: `receive` returns b"" at the end; both raise OSError when it is broken."""

    send: Callable[[bytes], Awaitable[None]]
    receive: Callable[[], Awaitable[bytes]]
    end: Callable[[], Awaitable[None]]
    """Send nothing more, and go on reading."""


class StuckError(OSError):
    """The broker neither answers nor closes the connection."""


def line_of(stream: trio.abc.Stream, end: Callable[[], Awaitable[None]]) -> Line:
    """Return a connection over a stream. Raises StuckError where the other end neither reads nor answers, nor closes."""

    async def receive() -> bytes:
        with trio.move_on_after(ANSWER_SECONDS_MAX):
            try:
                return bytes(await stream.receive_some(65_536))
            except trio.BrokenResourceError as error:
                raise ConnectionResetError from error
        raise StuckError("neither answered nor closed")

    async def send(data: bytes) -> None:
        with trio.move_on_after(ANSWER_SECONDS_MAX):
            try:
                await stream.send_all(data)
            except trio.BrokenResourceError as error:
                raise ConnectionResetError from error
            return
        raise StuckError("neither read nor closed")

    return Line(send, receive, end)


class Session:
    """Lifecycle: `run`, once."""

    def __init__(self, rng: random.Random, line: Line, result: Round, held: Held) -> None:
        self._held = held
        self._kerberos = KerberosLogin(rng, held.kerberos)
        self._rng = rng
        self._line = line
        self._result = result
        self._sent: list[bytes] = []
        self._answers: list[bytes] = []
        self._data = b""
        self._has_ended = False
        self._news = trio.Event()
        """Set when more has come, or the connection has ended."""
        self._is_entitled = False
        self._is_framed = True
        """True if the frames that were sent can be told apart: all sizes are right."""
        self._next_id = 0

    async def run(self) -> None:
        """Send, read the answers until the broker closes, and judge them."""
        async with trio.open_nursery() as nursery:
            # Whoever does not read while it sends may wait for a broker that waits for it.
            nursery.start_soon(self._read)
            await self._write(self._send_all)
            while not self._has_ended:
                await self._news.wait()
            nursery.cancel_scope.cancel()
        self._judge()

    async def run_bytes(self, data: bytes) -> None:
        """Send what a client sends in its whole life, and judge the answers."""
        rest = data
        while len(rest) >= 4 and 0 <= (size := struct.unpack_from(">i", rest)[0]) <= len(rest) - 4:
            self._sent.append(rest[: 4 + size])
            rest = rest[4 + size :]
        if rest or any(len(frame) < SHORTEST_FRAME_BYTES for frame in self._sent):
            self._is_framed = False
            self._sent.append(rest)
        self._is_entitled = logins.PASSWORD.encode() in data
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read)

            async def write() -> None:
                await self._line.send(data)
                await self._line.end()

            await self._write(write)
            while not self._has_ended:
                await self._news.wait()
            nursery.cancel_scope.cancel()
        self._judge()

    async def _write(self, sending: Callable[[], Awaitable[None]]) -> None:
        try:
            await sending()
        except StuckError as stuck:
            if (
                not self._has_ended
            ):  # who has closed need not read; in a simulated world nobody tells a sender so
                self._found(str(stuck))
        except OSError:
            pass  # closed

    async def _send_all(self) -> None:
        if self._rng.random() < 0.6:
            await self._exchange()
        else:
            await self._chaos()
        await self._line.end()

    async def _read(self) -> None:
        """Receive until the end of the connection."""
        try:
            while len(self._data) <= ANSWER_BYTES_MAX and (part := await self._line.receive()):
                self._data += part
                self._tell()
        except StuckError as stuck:
            self._found(str(stuck))
        except OSError:
            pass
        self._has_ended = True
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _id(self) -> int:
        self._next_id += 1
        return self._next_id

    async def _send(self, data: bytes) -> None:
        self._sent.append(data)
        self._result.inputs += 1
        await self._line.send(data)

    async def _answer(self) -> bytes | None:
        """Return the next answer, None at the end."""
        while True:
            if len(self._data) >= 4:
                size = struct.unpack_from(">i", self._data)[0]
                if len(self._data) >= 4 + size:
                    answer, self._data = self._data[4 : 4 + size], self._data[4 + size :]
                    self._answers.append(answer)
                    return answer
            if self._has_ended:
                return None
            await self._news.wait()

    # --- an exchange, step by step ------------------------------------------------------------------------------

    async def _exchange(self) -> None:
        """Log in by the rules of a mechanism, with a random deviation, with requests or bare tokens."""
        rng = self._rng
        if rng.random() < 0.3:
            await self._send(hello(rng, self._id()))
            if await self._answer() is None:
                return
        mechanism = rng.choice((*logins.MECHANISMS[:4], *logins.MECHANISMS[:4], *logins.MECHANISMS))
        version = rng.choice((0, 1, 1))
        await self._send(handshake(mechanism, version, self._id()))
        if await self._answer() is None:
            return
        tokens = 3 if mechanism == "GSSAPI" else rng.choice((1, 1, 2, 3))
        first, token_version = b"", None
        for number in range(tokens):
            answered = self._answers[-1] if number else b""
            if mechanism == "GSSAPI":
                token, is_right = self._kerberos.token(_token_in(answered, token_version) if number else b"")
            else:
                challenge = CHALLENGE.search(answered)
                token, is_right = self._token(mechanism, first, challenge[0] if challenge else b"")
            first = first or token
            token_version = rng.choice((0, 1, 2)) if version else None
            self._is_entitled |= is_right
            framed_token = bare(token)
            if token_version is not None:
                framed_token = authenticate(token, token_version, self._id())
            if rng.random() < 0.1:
                framed_token = self._mutated(framed_token)
                await self._send(framed_token)
                return
            await self._send(framed_token)
            if mechanism == "GSSAPI" and is_right and token_version is None:
                break  # the last token of all is not answered where it comes bare
            if await self._answer() is None:
                return
        if rng.random() < 0.5:
            await self._send(other(rng, self._id()))

    def _token(self, mechanism: str, first: bytes, challenge: bytes) -> tuple[bytes, bool]:
        rng = self._rng
        if rng.random() < 0.05:
            return rng.choice(
                (b"", b"\x01", b"\0", rng.randbytes(rng.randrange(1, 200)), b"\xff" * 60_000)
            ), False
        if mechanism.startswith("SCRAM"):
            pairs = [
                ("", "") if pair is None else (pair.token_id, pair.password)
                for pair in (self._held.token, self._held.ended)
            ]
            if challenge.startswith(b"r="):
                return logins.scram_final(rng, mechanism, first, challenge, *pairs)
            return logins.scram_first(rng, [token_id for token_id, _ in pairs if token_id]), False
        if mechanism == "OAUTHBEARER":
            if challenge and rng.random() < 0.8:
                return rng.choice((b"\x01", b"", b"n,,\x01")), False
            return logins.bearer(rng, self._held.now_s)
        if mechanism == "GSSAPI":
            return logins.gssapi(rng), False
        return logins.plain(rng)

    # --- chaos --------------------------------------------------------------------------------------------------

    async def _chaos(self) -> None:
        """Send several things at once, in any order, some of them damaged."""
        rng = self._rng
        frames = [self._anything() for _ in range(rng.choice((1, 2, 3, 5, 12)))]
        for data in frames:
            self._sent.append(data)
            self._result.inputs += 1
        data = b"".join(frames)
        if rng.random() < 0.2:
            cut = rng.randrange(len(data) + 1)
            await self._line.send(data[:cut])
            data = data[cut:]
        await self._line.send(data)

    def _anything(self) -> bytes:
        rng = self._rng
        kind = rng.randrange(10)
        if kind < 2:
            data = hello(rng, self._id())
        elif kind < 5:
            data = handshake(
                rng.choice((*logins.MECHANISMS, "", "x" * 3000)), rng.choice((0, 1, 1, 2)), self._id()
            )
        elif kind < 7:
            token, is_right = self._token(rng.choice(logins.MECHANISMS), b"", b"")
            self._is_entitled |= is_right
            data = authenticate(token, rng.choice((0, 1, 2)), self._id()) if kind == 5 else bare(token)
        elif kind < 9:
            data = other(rng, self._id())
        else:
            self._is_framed = False
            return rng.choice(NO_REQUESTS)
        return self._mutated(data) if rng.random() < 0.3 else data

    def _mutated(self, data: bytes) -> bytes:
        changed = mutated(data, self._rng)
        if struct.unpack_from(">i", changed)[0] != len(changed) - 4:
            self._is_framed = False
        self._is_entitled |= logins.PASSWORD.encode() in changed
        return changed

    # --- the verdict --------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        everything = b"".join(self._answers) + self._data
        if self._is_entitled:
            return
        for secret in (*SECRETS, *self._held.secrets):
            if secret in everything:
                self._found(f"an answer has {secret.decode()!r} in it")
        while len(self._data) >= 4:
            size = struct.unpack_from(">i", self._data)[0]
            if size < 0 or len(self._data) < 4 + size:
                break
            self._answers.append(self._data[4 : 4 + size])
            self._data = self._data[4 + size :]
        if self._data and self._is_framed:
            self._found(f"the answers end in {len(self._data)} bytes of half an answer")
        if len(self._answers) > len(self._sent):
            self._found(f"{len(self._answers)} answers to {len(self._sent)} requests")
        elif self._is_framed:
            self._judge_each()

    def _judge_each(self) -> None:
        expects_bare = False
        for sent, answer in zip(self._sent, self._answers, strict=False):
            if expects_bare:
                if not (CHALLENGE.fullmatch(answer)):
                    self._found(f"a bare token was answered with {answer[:100]!r}")
                continue
            key, version, correlation_id = struct.unpack_from(">hhi", sent, 4)
            problem = self._problem(key, version, correlation_id, answer, sent)
            if problem:
                self._found(problem)
                return
            if key == HANDSHAKE and version == 0 and answer[4:6] == b"\0\0":
                expects_bare = True

    @staticmethod
    def _problem(key: int, version: int, correlation_id: int, answer: bytes, sent: bytes) -> str:
        """Return the problem with a response, empty if it is allowed."""
        if answer[:4] != struct.pack(">i", correlation_id):
            return f"the answer to request {correlation_id} begins with {answer[:4]!r}"
        if key == API_VERSIONS and answer[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
            version = 0
        if key in (API_VERSIONS, HANDSHAKE, AUTHENTICATE):
            try:
                _, response = decode_response(memoryview(answer), key, version)
            except DecodeError as error:
                return f"the answer to API {key} v{version} cannot be read: {error}"
            code = response.error_code
            if key == HANDSHAKE and code not in HANDSHAKE_CODES:
                return f"SaslHandshake is answered with error {code}"
            if key == AUTHENTICATE:
                token = bytes(response.auth_bytes)
                if code not in AUTHENTICATE_CODES:
                    return f"SaslAuthenticate is answered with error {code}"
                if not code and not CHALLENGE.fullmatch(token):
                    return f"somebody is let in, or answered {token[:100]!r}"
            return ""
        try:
            _, response = decode_response(memoryview(answer), key, version)
        except (DecodeError, KeyError) as error:
            return f"the answer to API {key} v{version} cannot be read: {error}"
        # What names nothing is answered with nothing, also by Kafka.
        codes = count_error_codes(response).keys() - {ErrorCode.NONE}
        if codes - {ErrorCode.ILLEGAL_SASL_STATE} or len(answer) > (
            2 * len(sent) + 256 if codes else ECHO_BYTES_MAX
        ):
            return f"API {key} v{version} is answered before a login: {answer[:100]!r}"
        return ""

    def _found(self, text: str) -> None:
        self._result.found(text, b"".join(self._sent))
