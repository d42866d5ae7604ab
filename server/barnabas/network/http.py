"""HTTP/1.1 requests, one after the other on a connection, and the check of requests from browsers.

The rule: a request that has begun must progress, or its connection is closed, and its body has a limit in bytes and in
time; a request from another site is refused, as is, on a loopback address, one by a foreign host name (DNS rebinding).
"""

from __future__ import annotations

import binascii
import socket
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import h11
import trio

from barnabas.network.bodies import SMALL_BYTES_MAX, PoolExhaustedError

if TYPE_CHECKING:
    from barnabas.network.visitors import Visitor

T = TypeVar("T")

HEAD_SECONDS_MAX = 5.0
"""Time for a request to arrive, from its first byte, its body apart; and for each next part of the body."""
BODY_SECONDS_MAX = 60.0
"""Time for a whole body to arrive."""
_LINGER_SECONDS_MAX = 2.0
"""Time for which the rest of a refused request is read, so that its sender gets to see the answer."""

BodyBytesMax = int | Callable[[h11.Request], int]
"""Largest size of a body: for all requests, or for one by its head."""
IsStreamed = Callable[[h11.Request], bool]
"""Says whether the body of a request is read while it is answered, by its head."""

DEPARTURE_SECONDS = 0.2
"""Seconds between checks whether a waiting visitor is still connected."""
_TCP_INFO = getattr(socket, "TCP_INFO", None)
_TCP_ESTABLISHED = 1
_READ_BYTES = 64 * 1024
_SEND_BYTES = 64 * 1024
CREDENTIALS_BYTES_MAX = 4096
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1", "")


def is_of_a_web_page(request: h11.Request, addresses: set[str]) -> bool:
    """Return whether a web page may have sent a request; `addresses` are this machine's, in addition to localhost."""
    return _header(request, b"origin") is not None or has_foreign_host(request, addresses)


def has_foreign_host(request: h11.Request, addresses: set[str]) -> bool:
    """Return whether a request's Host is neither localhost nor one of `addresses`."""
    try:
        name = urlsplit(f"//{_header(request, b'host') or ''}").hostname or ""
    except ValueError:
        return True
    return not (name in _LOCAL_NAMES or name in addresses)


def is_of_another_site(request: h11.Request) -> bool:
    """Return whether a browser has sent a request for a page of another site than the requested host."""
    if (_header(request, b"sec-fetch-site") or "none") not in ("none", "same-origin"):
        return True
    origin = _header(request, b"origin")
    try:
        return (
            origin is not None
            and urlsplit(origin).netloc.lower() != (_header(request, b"host") or "").lower()
        )
    except ValueError:
        return True


def refusal_of(
    request: h11.Request, addresses: set[str], *, is_local: bool, has_logins: bool, server: str
) -> str:
    """Return the reason for refusing a request that a browser may have sent; empty if it is accepted.

    `is_local`: only this machine can connect to `addresses`; `server` is the name of the server, for example "registry".
    """
    if is_of_another_site(request):
        return "requests of other sites are not answered"
    if not is_local:
        return ""
    if not has_logins and is_of_a_web_page(request, addresses):
        return "requests of web pages are not answered"
    if has_foreign_host(request, addresses):
        return f"this host name is none of the {server}'s: use its address"
    return ""


def basic_credentials(header: bytes) -> tuple[str, str] | None:
    """Return the name and the password of `Authorization: Basic`; None without valid ones."""
    scheme, _, text = header.partition(b" ")
    try:
        if scheme.lower() != b"basic" or len(text) > CREDENTIALS_BYTES_MAX:
            return None
        user, colon, password = b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon and user else None


def _header(request: h11.Request, name: bytes) -> str | None:
    return next((value.decode("latin-1") for own, value in request.headers if own == name), None)


class TooLargeError(Exception):
    """A body exceeds its limit; `bytes_max` is that limit."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self.bytes_max = bytes_max


class HttpReader:
    """Reads one visitor's requests, and sends the responses."""

    def __init__(self, visitor: Visitor, *, header_bytes_max: int) -> None:
        self.connection = h11.Connection(h11.SERVER, max_incomplete_event_size=header_bytes_max)
        self.visitor = visitor
        self._bytes_taken = 0
        """Bytes of the pool that the body of the last request has."""
        self._is_head = False
        """True if the answer to the last request has no body."""

    async def next_request(
        self,
        *,
        begins_within: float,
        body_bytes_max: BodyBytesMax,
        is_streamed: IsStreamed | None = None,
    ) -> tuple[h11.Request, bytes] | None:
        """Return the next request with its body; None when the visitor has disconnected or is too slow.

        The body occupies the pool of the address until the next request; a streamed body is read by `next_piece`.
        Raises RemoteProtocolError, TooLargeError, PoolExhaustedError.
        """
        connection = self.connection
        request: h11.Request | None = None
        body = bytearray()
        bytes_max, head_at_s = 0, 0.0
        self.release()
        has_begun = False
        with trio.move_on_after(begins_within) as limit:
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    if connection.they_are_waiting_for_100_continue:
                        await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                    connection.receive_data(bytes(await self.visitor.stream.receive_some(_READ_BYTES)))
                    self.visitor.moved_s = trio.current_time()
                    if not has_begun:
                        has_begun = True
                        limit.deadline = self.visitor.moved_s + HEAD_SECONDS_MAX
                    elif request is not None:
                        limit.deadline = min(
                            self.visitor.moved_s + HEAD_SECONDS_MAX, head_at_s + BODY_SECONDS_MAX
                        )
                elif isinstance(event, h11.Request):
                    request = event
                    self._is_head = event.method == b"HEAD"
                    if is_streamed is not None and is_streamed(event):
                        return request, b""
                    bytes_max = body_bytes_max if isinstance(body_bytes_max, int) else body_bytes_max(event)
                    await self._take(int(_header(event, b"content-length") or 0), bytes_max, limit)
                    head_at_s = trio.current_time()
                elif isinstance(event, h11.Data):
                    if len(body) + len(event.data) > SMALL_BYTES_MAX and not self._bytes_taken:
                        await self._take(bytes_max, bytes_max, limit)  # its size was not told
                    body += event.data
                    if len(body) > bytes_max:
                        raise TooLargeError(bytes_max)
                elif isinstance(event, h11.EndOfMessage):
                    assert request is not None
                    return request, bytes(body)
                else:
                    return None
        return None

    async def next_piece(self, *, seconds: float) -> bytes | None:
        """Return the next part of the body of a streamed request, at most 64 KB; None at its end.

        Raises RemoteProtocolError, BrokenResourceError when the visitor disconnects before its end, TooSlowError when no
        bytes arrive for some seconds.
        """
        connection = self.connection
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                if connection.they_are_waiting_for_100_continue:
                    await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                with trio.fail_after(seconds):
                    connection.receive_data(bytes(await self.visitor.stream.receive_some(_READ_BYTES)))
                self.visitor.moved_s = trio.current_time()
            elif isinstance(event, h11.Data):
                return bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return None
            else:
                raise trio.BrokenResourceError("the visitor has gone")

    async def _take(self, count: int, bytes_max: int, limit: trio.CancelScope) -> None:
        """Take bytes of the pool for a body of this size; `limit` is extended meanwhile.

        Raises TooLargeError, PoolExhaustedError.
        """
        if count > bytes_max:
            raise TooLargeError(bytes_max)
        if count > SMALL_BYTES_MAX:
            limit.deadline = inf
            await self.visitor.bodies.take(count)
            self._bytes_taken = count
        limit.deadline = trio.current_time() + HEAD_SECONDS_MAX

    def release(self) -> None:
        """Release the last request's share of the pool."""
        if self._bytes_taken:
            self.visitor.bodies.release(self._bytes_taken)
            self._bytes_taken = 0

    async def serve(
        self,
        answer: Callable[[h11.Request, bytes], Awaitable[bool]],
        refuse: Callable[[int, str], Awaitable[bool]],
        *,
        idle_seconds_max: float,
        body_bytes_max: BodyBytesMax,
        is_streamed: IsStreamed | None = None,
        first_within: float | None = None,
    ) -> None:
        """Answer requests, one after the other, until the connection ends.

        `answer` sends the response to a request with its body, and returns whether the connection continues; `refuse` sends
        a status and a message for an unreadable request, and ends it. The first request must begin within `first_within`,
        if that is set. Raises BrokenResourceError when the peer has disconnected.
        """
        within = idle_seconds_max if first_within is None else first_within
        try:
            while True:
                received = await self.next_request(
                    begins_within=within, body_bytes_max=body_bytes_max, is_streamed=is_streamed
                )
                if received is None or not await answer(*received):
                    return
                within = idle_seconds_max
        except TooLargeError as error:
            await refuse(413, f"a body has at most {error.bytes_max} bytes")
            await self.linger()
        except PoolExhaustedError:
            await refuse(503, "other requests take all memory for bodies: try again")
            await self.linger()
        except h11.RemoteProtocolError as error:
            if self.may_answer:
                await refuse(error.error_status_hint, f"malformed request: {error}")
        finally:
            self.release()

    async def linger(self) -> None:
        """Read and discard the rest of the request: if the connection were closed earlier, the response would be lost."""
        with trio.move_on_after(_LINGER_SECONDS_MAX), suppress(trio.BrokenResourceError):
            while await self.visitor.stream.receive_some(_READ_BYTES):
                pass

    @property
    def may_answer(self) -> bool:
        """True if the received request, perhaps malformed, can still be answered."""
        return self.connection.our_state in (h11.IDLE, h11.SEND_RESPONSE)

    async def answer(
        self,
        status: int,
        headers: Sequence[tuple[str, str]],
        pieces: Sequence[bytes | memoryview],
        *,
        seconds: float,
        head_only: bool = False,
    ) -> bool:
        """Send a response, within some seconds; false when the connection ends."""
        connection = self.connection
        with trio.move_on_after(seconds):
            parts = [] if head_only or self._is_head else [h11.Data(data=piece) for piece in pieces]  # type: ignore[arg-type]
            head = h11.Response(status_code=status, headers=[*headers])
            await self._send(head, *parts[:1])  # in one packet, if they are small
            for part in parts[1:]:
                await self._send(part)
            await self._send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return False
            connection.start_next_cycle()
            return True
        return False

    async def stream(
        self,
        headers: Sequence[tuple[str, str]],
        work: Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]],
        *,
        seconds: float,
    ) -> None:
        """Send a response of unknown length: the pieces that `work` passes to its argument `send`.

        `send` returns when the piece is sent, so that a slow reader slows the work down. The work is cancelled if the
        reader does not read a piece in time, or disconnects.
        """
        async with trio.open_nursery() as nursery:

            async def send(piece: bytes) -> None:
                with trio.move_on_after(seconds):
                    await self._send(h11.Data(data=piece))
                    return
                nursery.cancel_scope.cancel()
                await trio.lowlevel.checkpoint()

            nursery.start_soon(self._await_departure, nursery.cancel_scope)
            await self._send(h11.Response(status_code=200, headers=[*headers]))
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await work(send)
            with trio.move_on_after(seconds):
                await self._send(h11.EndOfMessage())
            nursery.cancel_scope.cancel()

    async def converse(
        self,
        headers: Sequence[tuple[str, str]],
        work: Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]],
        *,
        seconds: float,
    ) -> bool:
        """Send a response of unknown length while the body of the request is read, by `work`, with `next_piece`.

        Returns whether the connection may have another request. `send`, the argument of `work`, raises BrokenResourceError
        if the visitor does not read a piece in time.
        """

        async def send(piece: bytes) -> None:
            with trio.move_on_after(seconds):
                await self._send(h11.Data(data=piece))
                return
            raise trio.BrokenResourceError("the visitor reads too slowly")

        await self._send(h11.Response(status_code=200, headers=[*headers]))
        await work(send)
        with trio.move_on_after(seconds):
            await self._send(h11.EndOfMessage())
            if self.connection.our_state is h11.DONE and self.connection.their_state is h11.DONE:
                self.connection.start_next_cycle()
                return True
        await self.linger()
        return False

    async def while_there(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result of `work`, or None if the visitor disconnects first, which cancels it.

        Nothing is read meanwhile, so that a visitor may have sent the next request; on a system that does not report the
        state of a connection (only Linux does), the work continues to its end.
        """
        result: T | None = None
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_departure, nursery.cancel_scope)
            try:
                result = await work()
            except Exception as error:  # not as a group of one
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return result

    async def _watch_departure(self, scope: trio.CancelScope) -> None:
        stream = getattr(self.visitor.stream, "transport_stream", self.visitor.stream)
        sock = getattr(stream, "socket", None)
        while sock is not None and _TCP_INFO is not None:
            await trio.sleep(DEPARTURE_SECONDS)
            try:
                is_there = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] == _TCP_ESTABLISHED
            except OSError:
                return  # of another kind of socket
            if not is_there:
                scope.cancel()
                return

    async def _await_departure(self, scope: trio.CancelScope) -> None:
        """Cancel when the visitor has disconnected; also if it sends data meanwhile, which is not allowed."""
        with suppress(trio.BrokenResourceError):
            await self.visitor.stream.receive_some(_READ_BYTES)
        scope.cancel()

    async def _send(self, *events: h11.Event) -> None:
        data = memoryview(b"".join(self.connection.send(event) or b"" for event in events))
        while data:  # in pieces, so that `moved_s` reflects the visitor's progress
            await self.visitor.stream.send_all(data[:_SEND_BYTES])
            data = data[_SEND_BYTES:]
            self.visitor.moved_s = trio.current_time()


class HttpService(ABC):
    """The requests of all visitors of one address; a subclass defines responses and limits."""

    idle_seconds_max: float
    """Time until the next request of a connection."""
    first_within: float | None = None
    """Time until the first request of a connection, if it differs."""
    header_bytes_max = 64 * 1024
    is_streamed: IsStreamed | None = None
    """Which requests have their bodies read while they are answered; None for no request."""

    async def serve(self, visitor: Visitor) -> None:
        """Answer the requests of a connection, one after the other. Raises BrokenResourceError if the peer has
        disconnected."""
        reader = HttpReader(visitor, header_bytes_max=self.header_bytes_max)
        await reader.serve(
            partial(self.answer, reader),
            partial(self.refuse, reader),
            idle_seconds_max=self.idle_seconds_max,
            body_bytes_max=self.body_bytes_max,
            is_streamed=self.is_streamed,
            first_within=self.first_within,
        )

    @abstractmethod
    def body_bytes_max(self, request: h11.Request) -> int:
        """Return how many bytes the body of a request may have, by its head."""

    @abstractmethod
    async def answer(self, reader: HttpReader, request: h11.Request, body: bytes) -> bool:
        """Send the response to a request; false if the connection ends with it."""

    @abstractmethod
    async def refuse(self, reader: HttpReader, status: int, reason: str) -> bool:
        """Send the response to a malformed request, the last one of a connection."""
